// SPDX-License-Identifier: GPL-2.0-or-later
#include "barrier.hpp"

#include "log.hpp"
#include "process.hpp"
#include "proxy/barrier/messages.hpp"
#include "proxy/channel/memory_file.hpp"
#include "threads.hpp"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <utility>

namespace singularity::client {

namespace {

constexpr std::chrono::seconds kBarrierSend{10};
constexpr std::chrono::milliseconds kLongest{600'000};

struct Asked {
    Session *session = nullptr;
    std::uint64_t ticket = 0;
    barrier::Request request;
    Deadline deadline = Deadline::after({});
};

Expected<void> report(const Asked &asked) {
    const auto bytes = barrier::encode(gate().serve(asked.request, asked.deadline));
    const auto file = channel::to_memory_file(bytes);
    if (!file)
        return std::unexpected(file.error());
    const int descriptor = file->get();
    const channel::Barrier head{.size = bytes.size()};
    const std::scoped_lock lock(asked.session->link_lock);
    if (!asked.session->linked())
        return {}; // whoever has asked is gone
    return asked.session->end().link().send(channel::PacketType::reported, asked.ticket,
                                            channel::body_of(head), {&descriptor, 1},
                                            Deadline::after(kBarrierSend));
}

// Requests in the order in which they came. One that takes long keeps others waiting that are for the same
// round, or for a later one.
class Answering {
  public:
    void add(Asked asked) {
        {
            const std::scoped_lock lock(lock_);
            asked_.push_back(std::move(asked));
            if (!std::exchange(started_, true))
                start_thread("cuda-barrier", [this] { run(); });
        }
        changed_.notify_one();
    }

  private:
    [[noreturn]] void run() {
        for (;;) {
            std::unique_lock lock(lock_);
            changed_.wait(lock, [this] { return !asked_.empty(); });
            const auto asked = std::move(asked_.front());
            asked_.pop_front();
            lock.unlock();
            if (auto done = report(asked); !done)
                kLog.debug("{}", done.error().message());
        }
    }

    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<Asked> asked_;
    bool started_ = false;
};

} // namespace

barrier::Gate &gate() {
    static auto &instance = *std::make_unique<barrier::Gate>(barrier::Key{.words = process().key}).release();
    return instance; // see process()
}

void barrier_arrived(Session &session, std::uint64_t ticket, channel::Packet packet) {
    static auto &answering = *std::make_unique<Answering>().release();
    const auto head = channel::struct_of<channel::Barrier>(packet);
    if (!head || packet.descriptors.size() != 1)
        return kLog.error("the device proxy at {} asks for a barrier in another way", session.socket());
    const auto bytes =
        channel::from_memory_file(packet.descriptors.front().get(), head->size, barrier::kLargestMessage);
    const auto request = bytes ? barrier::decode_request(*bytes) : std::unexpected(bytes.error());
    if (!request)
        return kLog.error("{}", request.error().message());
    // It must not wait behind a round that waits for threads, and nobody waits for an answer.
    if (request->action == barrier::Request::Action::release) {
        static_cast<void>(gate().serve(*request, Deadline::after({})));
        return;
    }
    const auto patience = std::min<std::uint64_t>(head->within, static_cast<std::uint64_t>(kLongest.count()));
    answering.add({.session = &session,
                   .ticket = ticket,
                   .request = *request,
                   .deadline = Deadline::after(std::chrono::milliseconds(patience))});
}

} // namespace singularity::client
