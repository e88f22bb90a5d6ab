// SPDX-License-Identifier: GPL-2.0-or-later
// The communicators of one session: their members, their threads, and what streams wait for.
//
// A stream's wait is for a word of pinned memory of its context; a communicator counts its groups in one
// word. Words are given back with their context and never while something may still wait for them: a word
// that is used again goes on counting where it was.
#pragma once

#include "backlog.hpp"
#include "collective_session.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "driver_api/backend.hpp"
#include "proxy/collectives/engine.hpp"
#include "proxy/collectives/member.hpp"
#include "proxy/libcuda/cuda.hpp"
#include "proxy/protocol/collective.hpp"

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

namespace singularity::proxyd {

class CollectiveMover;
class NcclLink;
struct NcclLibrary;
class DigestKernel;
class ReductionKernels;
class WaitWords;

// What they are made of, the same for all sessions.
struct CollectiveParts {
    std::shared_ptr<collectives::Engine> engine; // nullptr: there are no communicators
    std::shared_ptr<collectives::Device> device; // nullptr: all that they do goes through memory of the host
    std::shared_ptr<const NcclLibrary> nccl;     // nullptr: from device to device nothing does
};

class Communicators {
  public:
    explicit Communicators(CollectiveSession &session) : session_(session) {}
    Communicators(const Communicators &) = delete;
    Communicators &operator=(const Communicators &) = delete;
    Communicators(Communicators &&) = delete;
    Communicators &operator=(Communicators &&) = delete;
    ~Communicators();

    // Before anything else.
    void use(CollectiveParts parts) { parts_ = std::move(parts); }

    // --- for the handlers; text: why the client has broken a rule
    [[nodiscard]] CUresult join(std::uint64_t number, std::uint64_t context,
                                const collectives::MemberPlace &place, std::string &text);
    [[nodiscard]] std::shared_ptr<collectives::Member> find(std::uint64_t number);
    [[nodiscard]] CUresult issue(const protocol::IssueCollectives &request, CUstream stream,
                                 std::span<const protocol::CollectiveOperation> operations,
                                 std::string &text);
    [[nodiscard]] CUresult leave(std::uint64_t number, bool abort);
    // Ahead of the call, which may be behind others that wait for its collectives. No such one: nothing.
    void abort(std::uint64_t number);
    // Whether there has been one.
    [[nodiscard]] bool any() const { return any_.load(std::memory_order_relaxed); }
    [[nodiscard]] Backlog &backlog() { return *backlog_; }
    // Whether several members of one communicator are here: threads of one process.
    [[nodiscard]] bool several_of_one();

    // --- for device images
    // What keeps an image from being made, soon or for good; empty: nothing.
    [[nodiscard]] std::string unfinished(bool &soon);
    struct Descriptor {
        std::uint64_t number = 0;
        std::uint64_t context = 0;
        collectives::MemberPlace place;
    };
    [[nodiscard]] std::vector<Descriptor> descriptors();
    // In its context. Returns at once: the member is joined again, and works when the client is back.
    [[nodiscard]] CUresult restore(const Descriptor &descriptor, std::string &text);

    // --- for the session
    // Threads begin; also those of a client that is back.
    void resume();
    // Threads end as soon as nothing is under way.
    void suspend();
    // Everything is let go.
    void abort_all(const std::string &why);
    // Of one context, which is about to be destroyed: their threads have ended, or the deadline has.
    void end_those_of(std::uint64_t context, const Deadline &deadline);
    // Contexts are about to be destroyed: no word is written any more.
    void forget_words();

    // Of a context, if it has had a communicator; nullptr: none. Any thread.
    [[nodiscard]] std::shared_ptr<const DigestKernel> digest_in(std::uint64_t context);

  private:
    struct One {
        std::uint64_t id = 0; // of all that there have been
        std::uint64_t number = 0;
        std::uint64_t context = 0;
        std::shared_ptr<collectives::Member> member;
        std::shared_ptr<const ReductionKernels> kernels; // nullptr: none
        std::shared_ptr<NcclLink> link;                  // nullptr: none
        std::shared_ptr<WaitWords> words;
        std::size_t word = 0;
        std::uint32_t base = 0;                          // what the word says when no group is complete
        std::vector<protocol::CollectiveOperation> part; // of a group whose rest is to come
        std::uint64_t part_stream = 0;
        bool running = false;
        std::atomic<bool> aborted = false; // ahead of the call that says it
    };
    // For the host function that says that a group's input is there: gone after its call.
    struct Ticket {
        Communicators *owner;
        std::weak_ptr<collectives::Member> member;
        std::uint64_t group;
    };
    [[nodiscard]] Ticket *ticket_for(const std::shared_ptr<collectives::Member> &member, std::uint64_t group);
    void drop(Ticket *ticket);
    static void CUDA_CB input_is_there(void *ticket);
    // What the driver has to make first, in the context, without the lock.
    struct Prepared {
        std::shared_ptr<const ReductionKernels> kernels;
        std::shared_ptr<WaitWords> words;
    };
    [[nodiscard]] Prepared prepare(std::uint64_t context);
    [[nodiscard]] CUresult add(const Descriptor &descriptor, Prepared prepared, std::string &text,
                               std::shared_ptr<One> &one);
    // Of a context, the current one, loaded if need be; nullptr: it has none.
    [[nodiscard]] std::shared_ptr<const ReductionKernels> kernels_of(std::uint64_t context);
    void start(const std::shared_ptr<One> &one);
    void reap(); // with the lock held: those that are over and have no thread
    [[nodiscard]] bool is_alone(CUstream stream) const;
    [[nodiscard]] const char *not_reached(const protocol::CollectiveOperation &operation, const One &one);
    void load_digest(std::uint64_t context); // the current one
    [[nodiscard]] std::shared_ptr<WaitWords> words_of(std::uint64_t context);

    CollectiveSession &session_;
    std::atomic<bool> any_ = false;
    std::shared_ptr<Backlog> backlog_ = std::make_shared<Backlog>(); // members tell it until they have ended
    std::uint64_t last_id_ = 0;
    CollectiveParts parts_;
    std::mutex lock_;
    std::condition_variable ended_; // a thread has
    std::map<std::uint64_t, std::shared_ptr<One>> all_;
    std::vector<std::shared_ptr<One>> left_;
    std::map<std::uint64_t, std::shared_ptr<WaitWords>> words_; // by context
    std::mutex kernels_lock_;
    std::map<std::uint64_t, std::shared_ptr<const ReductionKernels>> kernels_; // by context
    std::mutex digests_lock_;
    std::map<std::uint64_t, std::shared_ptr<const DigestKernel>> digests_; // by context
    std::mutex tickets_lock_;
    std::unordered_map<Ticket *, std::unique_ptr<Ticket>> tickets_;
};

} // namespace singularity::proxyd
