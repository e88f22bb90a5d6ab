// SPDX-License-Identifier: GPL-2.0-or-later
// One client process's use of this daemon's device: what it has, and the threads that carry out its calls.
//
// One thread reads the ring and does what never waits for the device; what may wait is done by workers, so
// that the client's other threads go on. The session's end (a hang-up, a broken rule, the daemon's end) is
// one path, whoever starts it: end() closes everything that could wait, a thread of its own gives back what
// the session had.
#pragma once

#include "address_book.hpp"
#include "back_end.hpp"
#include "blobs.hpp"
#include "callbacks.hpp"
#include "collective_session.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "communicators.hpp"
#include "device_output.hpp"
#include "event_times.hpp"
#include "journal.hpp"
#include "link_states.hpp"
#include "mailbox.hpp"
#include "object_table.hpp"
#include "parked_streams.hpp"
#include "pause.hpp"
#include "proxy/channel/link.hpp"
#include "proxy/channel/server_end.hpp"
#include "question.hpp"
#include "residency.hpp"
#include "slabs.hpp"
#include "staging.hpp"
#include "workers.hpp"

#include <atomic>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include <sys/types.h>

namespace singularity::proxyd {

struct DriverRule;

struct Peer {
    pid_t pid = 0;
    uid_t uid = 0;
};

// What a client says of itself, and its image does.
struct ClientPlace {
    channel::ClientKey client{};
    std::uint32_t devices = 1;    // of its process
    channel::NodeDevice device{}; // that the session is for
    std::uint64_t window = 0;
};

struct SessionPlace : ClientPlace {
    unsigned number = 0; // in the log
    Peer peer;
    std::uint64_t window_size = 0;

    [[nodiscard]] channel::AddressRange host_slice() const {
        return {.address = window, .size = channel::slice_size(window_size, devices)};
    }
    [[nodiscard]] channel::AddressRange device_slice() const {
        const auto size = channel::slice_size(window_size, devices);
        return {.address = window + size * (client.ordinal + 1), .size = size};
    }
    // For driver_mappings.hpp: no other session of its node has it, as long as there are not too many, and it
    // is the same in every proxy.
    [[nodiscard]] std::uint64_t mappings() const {
        return window_size == 0 ? 0 : 1 + (window / window_size * device.of) + client.ordinal;
    }
};

class Session final : public Tenant, public CollectiveSession, public std::enable_shared_from_this<Session> {
  public:
    // output may be nullptr: nothing is relayed. closed: called by the last thread, when nothing of the
    // session is left in the driver, and when the client has left what it has here.
    Session(const SessionPlace &place, const BackEnd &back_end, DeviceOutput *output,
            std::unique_ptr<channel::ServerEnd> channel, channel::Link link, std::function<void()> closed);
    Session(const Session &) = delete;
    Session &operator=(const Session &) = delete;
    Session(Session &&) = delete;
    Session &operator=(Session &&) = delete;
    ~Session() override = default;

    // --- for the daemon's main thread
    // Before anything else: whoever shares the device with others takes turns with them.
    void take_turns(std::shared_ptr<Residency> residency, std::shared_ptr<Contents> contents);
    void start();
    // A packet of the client's; an error is a broken rule.
    [[nodiscard]] Expected<void> deliver(channel::Packet packet);
    // From any thread, as often as one likes: the first reason counts and is logged. Returns at once.
    void end(const std::string &reason, bool rule_broken);
    [[nodiscard]] bool ending() const override { return ending_.load(std::memory_order_acquire); }
    [[nodiscard]] bool closed() const { return closed_.load(std::memory_order_acquire); }
    // A client that detaches leaves its session as it is, without threads, and may come back to it.
    enum class Presence : std::uint8_t {
        here,
        asked,   // to detach
        leaving, // it has detached: nothing is heard of it any more
        left,    // and all threads have
        awaited, // it may attach
    };
    // said: who will ask for it again.
    void may_leave(const channel::Paused &said);
    [[nodiscard]] const channel::Paused &said() const { return said_; }
    [[nodiscard]] Presence presence() const { return presence_.load(std::memory_order_acquire); }
    void set_presence(Presence presence) { presence_.store(presence, std::memory_order_release); }
    // For a client that is back: before adopt() and start().
    void renew(std::unique_ptr<channel::ServerEnd> channel);
    [[nodiscard]] const SessionPlace &place() const { return place_; }
    [[nodiscard]] const channel::Link &link() const { return link_; }
    [[nodiscard]] channel::Link &link() { return link_; }
    // Replies to repeated calls go to a channel that nobody reads.
    [[nodiscard]] channel::ServerEnd &channel() {
        return active_trace != nullptr && active_trace->repeating ? *unread_ : *channel_;
    }
    // Bytes of device memory that slabs have now.
    [[nodiscard]] std::uint64_t slab_bytes() const { return slabs_.bytes(); }
    [[nodiscard]] std::string who() const override;

    // --- turns at the device
    // What uses the session's memory on the device does it while one of these lives. false: the session ends.
    class Turn {
      public:
        explicit Turn(Session &session) : session_(session), has_(session.enter()) {}
        ~Turn() { session_.gate_.leave(); }
        Turn(const Turn &) = delete;
        Turn &operator=(const Turn &) = delete;
        Turn(Turn &&) = delete;
        Turn &operator=(Turn &&) = delete;
        [[nodiscard]] explicit operator bool() const { return has_; }

      private:
        Session &session_;
        bool has_;
    };
    [[nodiscard]] bool quiet() override;
    [[nodiscard]] bool waits_on_device() override {
        return communicators_.backlog().unfinished() > parked_.count(communicators_.backlog());
    }
    [[nodiscard]] std::uint64_t on_device() const override { return slabs_.on_device(); }
    [[nodiscard]] CUresult send_out() override;
    [[nodiscard]] bool release_left() override { return slabs_.release_left(); }
    // Whether the memory of sessions moves.
    [[nodiscard]] bool crowded() const override { return residency_ != nullptr && residency_->crowded(); }
    // Of the record that is just carried out: all that the session has put on the device before has ended,
    // but for what waits in parked streams. So its collectives may begin at once, and their streams are
    // parked.
    [[nodiscard]] bool settled() const override { return settled_; }
    [[nodiscard]] ParkedStreams &parked() override { return parked_; }
    [[nodiscard]] Slabs &slabs() override { return slabs_; }
    // A stream is about to be destroyed; what is in it goes on.
    void leave_over(std::uint64_t stream);
    // Whoever destroys a context, or all of them, holds it: nobody asks about them meanwhile.
    [[nodiscard]] std::unique_lock<std::mutex> no_questions(std::optional<std::uint64_t> context);
    // Bytes that other sessions have on the device.
    [[nodiscard]] std::uint64_t taken_by_others() const {
        return residency_ == nullptr ? 0 : residency_->taken() - std::min(residency_->taken(), on_device());
    }

    // One record, as the thread that reads the ring does it; also for the fuzzer. An error is a broken rule.
    [[nodiscard]] Expected<void> process(const channel::Record &record);
    // Gives everything back, on the calling thread; for the fuzzer and tests that have no threads.
    void give_back();

    // --- for the handlers
    [[nodiscard]] const driver_api::Backend &driver() const override { return back_end_.driver(); }
    [[nodiscard]] const BackEnd &back_end() const override { return back_end_; }
    [[nodiscard]] ObjectTable &objects() override { return objects_; }
    [[nodiscard]] AddressBook &addresses() override { return addresses_; }
    [[nodiscard]] Blobs &blobs() { return blobs_; }
    [[nodiscard]] Mailbox &mailbox() { return mailbox_; }
    [[nodiscard]] Callbacks &callbacks() { return callbacks_; }
    [[nodiscard]] LinkStates &link_states() { return link_states_; }
    [[nodiscard]] Staging &staging() { return staging_; }
    [[nodiscard]] Communicators &communicators() { return communicators_; }
    // A thread that is counted with the session's. false: a session without an owner has none.
    [[nodiscard]] bool run_beside(std::function<void()> whole) override;

    // What the ring's thread is just carrying out is for this context; only on that thread.
    [[nodiscard]] std::uint64_t current_context() const { return current_; }
    [[nodiscard]] Journal &journal() { return journal_; }
    [[nodiscard]] EventTimes &event_times() { return event_times_; }
    // As it looks at them.
    [[nodiscard]] std::vector<EventTimes::Event> events();

    // --- for device images (save.cpp, restore.cpp)
    // A descriptor or a farewell of the client's that has arrived: see Pause.
    [[nodiscard]] Pause &pause() { return pause_; }
    // An encoded barrier::Report of the whole process.
    using Reports = Question<std::vector<std::byte>>;
    [[nodiscard]] Reports &reports() { return reports_; }
    [[nodiscard]] bool workers_idle() { return workers_.idle(); }
    // What the daemon's part of a session without a client's is made of.
    void adopt(channel::Link link, Peer peer);
    // Carries out a call of a restored journal on this thread. An error: it cannot be, or not with the same
    // outcome.
    [[nodiscard]] Expected<void> repeat(const JournalCall &call);
    // At debug level: what the driver, or this session, did not do.
    // Also ends this program where the device itself has failed: nothing works with it any more, and whoever
    // has started this takes it for what it is.
    void log_refusal(std::string_view call, CUresult result) const;
    // capture: the number of the one that the call has ended. code: of a message that names a blob.
    void note_effect(const JournalRule &rule, std::uint64_t context, std::span<const std::byte> message,
                     const Trace &trace, CUresult result, std::uint64_t capture,
                     std::shared_ptr<const Blob> code);
    // What is to be made when the client is back, in order.
    void set_late(std::vector<JournalCall> calls) { late_ = std::move(calls); }
    void repeat_over(std::unique_ptr<channel::ServerEnd> unread) { unread_ = std::move(unread); }
    [[nodiscard]] CUresult finish_restore();
    // Of the program's mappings: where it begins, its size.
    struct MappingOf {
        std::uint64_t size = 0;
        std::uint64_t offset = 0;
        std::uint64_t allocation = 0; // the client's handle, which it may have released
    };
    [[nodiscard]] std::map<std::uint64_t, MappingOf> mappings();
    [[nodiscard]] std::optional<std::uint64_t> mapping_at(std::uint64_t address);
    [[nodiscard]] bool has_mappings(const Range &reservation);
    // Physical memory of the program's by handle: bytes.
    [[nodiscard]] std::map<std::uint64_t, std::uint64_t> allocations();
    void allocated(std::uint64_t allocation, std::uint64_t size);
    void released(std::uint64_t allocation);
    [[nodiscard]] CUresult noted() const {
        return static_cast<CUresult>(noted_.load(std::memory_order_acquire));
    }
    void make_current_for(std::uint64_t context) override { static_cast<void>(make_current_here(context)); }
    void prepare_thread() const { relax_capture_mode(); }
    // The same, for one that makes what the client has in the driver, and does nothing else.
    void begin_thread() const override;

    // Whether memory is this session's, asking the driver about what lies outside of the window.
    [[nodiscard]] bool reaches(std::uint64_t address, std::uint64_t size) override;
    // Whether the stream is being captured; asks only while a capture is known to be on.
    [[nodiscard]] bool capturing(CUstream stream) override;
    // Whether any of the session's streams may be being captured.
    [[nodiscard]] bool captures() const { return captures_.load(std::memory_order_relaxed) != 0; }
    void capture_began(std::uint64_t stream);
    // Asks the driver which captures are still on: one ends with its stream, and with most calls that fail to
    // end it.
    void recount_captures();

    // The first failure of an asynchronous call, kept for the next reply that can report it.
    void note(CUresult result) override;
    [[nodiscard]] CUresult take_noted();

    // Reserves the addresses of the session's slice in the driver, once: whatever is mapped there needs it.
    [[nodiscard]] CUresult hold_slice();
    // Slabs, program's mappings, shared host memory: made by the handlers, given back here at the end.
    // With its turn.
    [[nodiscard]] CUresult map_slab(const Range &slab);
    void unmap_slab(const Range &slab);
    void unmap_slabs_of(std::uint64_t context);
    void unmap_host(const Range &memory);
    void mapped(std::uint64_t address, const MappingOf &mapping);
    void unmapped(std::uint64_t address, std::uint64_t size);
    // A context has come or gone: what was current under its handle is not what it was.
    void contexts_changed();

    // Sends what the device has printed, to be followed by a reply.
    void relay_output();
    [[nodiscard]] Expected<void> reply(const channel::RecordHeader &header,
                                       std::span<const std::byte> message);
    [[nodiscard]] std::uint64_t packets_sent() const { return link_.sent(); }

  private:
    [[nodiscard]] Expected<void> take_report(const channel::Packet &packet);
    void consume();
    void close_down(); // a thread
    void leave();
    void make_current(std::uint64_t context);
    bool make_current_here(std::uint64_t context); // false: there is no such context
    void relax_capture_mode() const;
    [[nodiscard]] Expected<void> process_record(const channel::Record &record);
    [[nodiscard]] Expected<void> process_driver_call(const channel::RecordHeader &header, std::uint32_t id,
                                                     std::span<const std::byte> message, bool may_block);
    [[nodiscard]] Expected<void> process_message(const channel::RecordHeader &header, std::uint32_t id,
                                                 std::span<const std::byte> message, bool may_block);
    [[nodiscard]] bool done_soon(const DriverRule &rule, std::span<const std::byte> message);
    void hand_over(const channel::RecordHeader &header, std::uint32_t id, std::span<const std::byte> message,
                   bool uses_memory);
    [[nodiscard]] bool enter();
    [[nodiscard]] CUresult bring_in(bool on_host);
    [[nodiscard]] bool settle_for_collective();
    [[nodiscard]] bool may_overtake(std::uint32_t id, std::span<const std::byte> message);
    void wait_for_collectives();
    void await_turn(std::optional<Turn> &turn, std::uint32_t id, std::span<const std::byte> message);
    [[nodiscard]] Expected<void> check_objects();
    [[nodiscard]] bool is_traced(const JournalRule &rule) const;
    // The number of the capture that a stream is in; 0: it is not captured.
    [[nodiscard]] std::uint64_t capture_of(std::uint64_t stream);
    // The module image that a message names by a blob's number, as long as it is there.
    [[nodiscard]] std::shared_ptr<const Blob> code_of(std::span<const std::byte> message);
    [[nodiscard]] std::uint64_t ending_capture(const JournalRule &rule, std::span<const std::byte> message);

    SessionPlace place_;
    const BackEnd &back_end_;
    DeviceOutput *output_;
    std::unique_ptr<channel::ServerEnd> channel_;
    channel::Link link_;
    std::function<void()> on_closed_;

    AddressBook addresses_;
    ObjectTable objects_;
    std::shared_ptr<Residency> residency_; // nullptr: nothing moves
    Gate gate_;
    Slabs slabs_;
    ParkedStreams parked_;
    std::mutex asked_; // about contexts and streams; who destroys contexts has it
    struct Leftover {
        std::uint64_t context = 0;
        CUevent event = nullptr;
    };
    std::vector<Leftover> leftovers_; // of streams that were destroyed with work in them
    bool settled_ = false;
    bool never_settles_ = false; // on the device is what ends only when the program goes on
    Blobs blobs_;
    Mailbox mailbox_;
    Callbacks callbacks_;
    LinkStates link_states_;
    Staging staging_;
    Communicators communicators_;
    Workers workers_;

    std::vector<std::byte> scratch_; // the record that is carried out, copied out of the ring
    std::vector<std::byte> answer_;
    std::uint64_t current_ = 0; // the context that is current on the ring's thread, as the client calls it
    std::atomic<bool> current_known_ = false;

    std::atomic<int> noted_ = 0;
    std::mutex captures_lock_;
    std::set<std::uint64_t> captured_streams_;
    std::atomic<std::size_t> captures_ = 0; // how many these are
    std::mutex slice_lock_;
    bool slice_held_ = false;
    std::mutex mappings_lock_;
    std::map<std::uint64_t, MappingOf> mappings_;        // of the program: cuMemMap
    std::map<std::uint64_t, std::uint64_t> allocations_; // of the program: cuMemCreate
    Journal journal_;
    EventTimes event_times_;
    Pause pause_;
    Reports reports_;
    std::vector<JournalCall> late_;
    std::unique_ptr<channel::ServerEnd> unread_; // while calls are repeated
    CUresult repeated_ = CUDA_SUCCESS;           // what the repeated call has returned
    std::atomic<bool> ending_ = false;
    std::atomic<bool> closed_ = false;
    std::atomic<Presence> presence_ = Presence::here;
    channel::Paused said_; // by a client that is to leave
};

} // namespace singularity::proxyd
