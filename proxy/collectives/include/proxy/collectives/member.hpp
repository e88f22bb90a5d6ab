// SPDX-License-Identifier: GPL-2.0-or-later
// One rank's end of a communicator: groups of operations go in, in the order in which they are issued, and a
// thread of the owner's carries them out.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proxy/collectives/failure.hpp"
#include "proxy/collectives/link.hpp"
#include "proxy/collectives/mover.hpp"
#include "proxy/protocol/collective.hpp"

#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

namespace singularity::collectives {

class Device;
class DeviceMemory;
class Group;

using Key = std::array<std::uint64_t, 2>;

struct MemberPlace {
    Key key{};
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
    std::uint64_t completed = 0; // groups, before this member began: of a restored one
    // When it has failed, what waits for it goes on waiting so long for its owner to abort it.
    std::chrono::milliseconds patience = std::chrono::seconds(30);
    // On which its mover can work. nullptr: on none, it goes through memory of the host.
    std::shared_ptr<Device> device = nullptr;
};

// What the owner hears; from the member's thread, or from the one that aborts.
struct MemberEvents {
    // Groups up to this one need no longer be waited for.
    std::function<void(std::uint64_t group)> completed;
    // A failed member lets go of all that waits for it; of the groups that were issued, all, and no more are
    // taken. aborted: the owner has asked for it.
    std::function<void(std::uint64_t issued, bool aborted)> released;
};

class Member {
  public:
    Member(const MemberPlace &place, MemberEvents events)
        : place_(place), events_(std::move(events)), completed_(place.completed), issued_(place.completed) {}
    Member(const Member &) = delete;
    Member &operator=(const Member &) = delete;
    Member(Member &&) = delete;
    Member &operator=(Member &&) = delete;
    ~Member() = default;

    [[nodiscard]] const MemberPlace &place() const { return place_; }

    // --- for the owner, from any thread
    struct State {
        protocol::CommunicatorPhase phase{};
        std::uint64_t issued = 0;
        std::uint64_t completed = 0;
        Failure failure;
        bool released = false;
    };
    [[nodiscard]] State state() const;
    // Whether its groups go from device to device.
    [[nodiscard]] bool linked() const;
    // Until it is no longer joining, and so many groups are complete, or it has failed.
    [[nodiscard]] State wait(std::uint64_t completed, const Deadline &deadline);
    // The next group; it is begun once begin() has been called for it. The operations have been checked.
    // false: nothing will be done any more, and released() has been or is being called.
    [[nodiscard]] bool issue(std::vector<protocol::CollectiveOperation> operations);
    void begin(std::uint64_t group);
    // A group in which each member gives as many bytes and gets all.
    struct Exchange {
        std::vector<std::byte> mine;
        std::vector<std::byte> all;
        bool done = false;
    };
    // Asked for the same group a second time it gives what it has given, and forgets it. An error: it is not
    // this group's turn.
    [[nodiscard]] Expected<std::shared_ptr<Exchange>> exchange(std::uint64_t group,
                                                               std::span<const std::byte> mine);
    // Waits for it. An error: it takes longer, or the member has failed.
    [[nodiscard]] Expected<void> finish(const Exchange &exchange, const Deadline &deadline);
    // After all groups that were issued.
    void leave();
    // At once: whatever waits is let go, the other members fail.
    void abort(const std::string &why);

    // --- for the thread that carries groups out
    // Until the member has left, was aborted, or suspend() was called.
    void run(Mover &mover);
    // run() returns when no group is under way; it may be called again.
    void suspend();

    // --- for the engine
    void ready(std::shared_ptr<Group> group);
    void fail(Failure failure);
    // After run() has ended for good.
    [[nodiscard]] bool over() const;

  private:
    struct Work {
        std::uint64_t group = 0;
        std::vector<protocol::CollectiveOperation> operations;
        std::shared_ptr<Exchange> exchange;
        bool begun = false;
        bool meets = false; // it is no group: links are to be made
    };
    void ring();
    [[nodiscard]] std::optional<Work> next(bool &stop);
    [[nodiscard]] Expected<bool> carry_out(Work &work, Mover &mover, std::uint64_t &rounds);
    [[nodiscard]] Expected<bool> meet(Mover &mover, std::uint64_t &rounds);
    [[nodiscard]] Expected<void> make_link(Link &link, std::span<const LinkOffer> offers) const;
    [[nodiscard]] Expected<bool> share(std::span<const std::byte> mine, std::span<std::byte> all,
                                       Mover &mover, std::uint64_t &rounds);
    [[nodiscard]] bool given_up() const;
    void settle(Mover &mover) const;
    void complete(const Work &work);
    void release(bool aborted);

    MemberPlace place_;
    MemberEvents events_;
    mutable std::mutex lock_;
    std::condition_variable changed_;
    std::shared_ptr<Group> group_;
    std::deque<Work> queue_;
    std::map<std::uint64_t, std::shared_ptr<Exchange>> exchanges_; // that were asked for once
    std::uint64_t completed_;
    std::uint64_t issued_;
    std::uint64_t rounds_ = 0;                   // of collectives that were begun
    bool met_ = true;                            // the links are made that there may be
    std::shared_ptr<const DeviceMemory> linked_; // of collectives that go through them; nullptr: none does
    std::optional<Failure> failure_;
    std::optional<Deadline> patience_;
    bool leaving_ = false;
    bool aborted_ = false;
    bool released_ = false;
    bool suspended_ = false;
    bool running_ = false;
    bool over_ = false;
};

} // namespace singularity::collectives
