// SPDX-License-Identifier: GPL-2.0-or-later
// The threads of the client: one that receives what daemons send of themselves, and one for each device that
// calls the program's host functions (these may take long, and may wait for each other across devices).
#include "watcher.hpp"

#include "attachment.hpp"
#include "barrier.hpp"
#include "log.hpp"
#include "process.hpp"
#include "threads.hpp"

#include <condition_variable>
#include <cstdio>
#include <deque>
#include <utility>

#include <poll.h>

namespace singularity::client {

namespace {

constexpr std::chrono::seconds kWatcherSend{10};
constexpr int kLookMilliseconds = 30;

struct Call {
    std::uint64_t ticket;
    channel::Callback what;
};

// Calls in the order in which they came.
class Caller {
  public:
    explicit Caller(Session &session) : session_(&session) {}

    void add(const Call &call) {
        {
            const std::scoped_lock lock(lock_);
            calls_.push_back(call);
            if (!std::exchange(started_, true))
                start_thread("cuda-callbacks", [this] { run(); });
        }
        changed_.notify_one();
    }

  private:
    [[noreturn]] void run() {
        in_host_function = true;
        for (;;) {
            std::unique_lock lock(lock_);
            changed_.wait(lock, [this] { return !calls_.empty(); });
            const auto call = calls_.front();
            calls_.pop_front();
            lock.unlock();
            dispatch(call.what);
            // An error is the daemon's death, which the watcher sees as well.
            static_cast<void>(session_->end().link().send(channel::PacketType::callback_done, call.ticket, {},
                                                          {}, Deadline::after(kWatcherSend)));
        }
    }

    static void dispatch(const channel::Callback &what) {
        auto *const data = std::bit_cast<void *>(what.data);
        if (static_cast<channel::CallbackKind>(what.kind) == channel::CallbackKind::stream_callback)
            std::bit_cast<CUstreamCallback>(what.function)(std::bit_cast<CUstream>(what.stream),
                                                           static_cast<CUresult>(what.status), data);
        else
            std::bit_cast<CUhostFn>(what.function)(data);
    }

    Session *session_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<Call> calls_;
    bool started_ = false;
};

class Watcher {
  public:
    Watcher() {
        for (const auto &session : process().sessions)
            watched_.push_back({session.get(), std::make_unique<Caller>(*session)});
    }

    [[noreturn]] void run() {
        std::vector<pollfd> polled;
        for (;;) {
            polled.clear();
            // A session that waits for another daemon is looked at again soon: it may have one.
            int limit = -1;
            for (const auto &watched : watched_) {
                auto &session = *watched.session;
                const bool read = session.linked() && !session.dead();
                if (!session.linked())
                    limit = kLookMilliseconds;
                polled.push_back(
                    {.fd = read ? session.end().link().fd() : -1, .events = POLLIN, .revents = 0});
            }
            // A session that nobody may read any more is not polled: without one left this waits for ever.
            if (poll(polled.data(), polled.size(), limit) <= 0)
                continue;
            for (std::size_t at = 0; at < polled.size(); ++at)
                if (polled[at].revents != 0)
                    receive(watched_[at]);
        }
    }

  private:
    struct Watched {
        Session *session;
        std::unique_ptr<Caller> caller;
    };

    static void receive(Watched &watched) {
        const std::scoped_lock lock(watched.session->link_lock);
        while (watched.session->linked()) {
            auto packet = watched.session->end().link().receive();
            if (!packet && !hung_up(*watched.session))
                return;
            if (!packet) {
                kLog.error("the device proxy at {} has ended; CUDA calls fail from now on",
                           watched.session->socket());
                watched.session->end().mark_dead();
                gate().open(); // whoever has closed it may be gone as well
                return;
            }
            if (!*packet)
                return;
            const bool last = (*packet)->type == channel::PacketType::detach;
            // Before it is handed over: nothing is read from a socket that another thread closes.
            if (last)
                watched.session->set_linked(false);
            handle(watched, std::move(**packet));
            watched.session->count_packet();
        }
    }

    static void handle(Watched &watched, channel::Packet packet) {
        switch (packet.type) {
        case channel::PacketType::output: {
            // Through stdio, so that it comes behind what the program has printed before.
            std::fwrite(packet.body.data(), 1, packet.body.size(), stdout);
            return;
        }
        case channel::PacketType::callback:
            if (const auto what = channel::struct_of<channel::Callback>(packet))
                watched.caller->add({.ticket = packet.ticket, .what = *what});
            return;
        case channel::PacketType::pause:
            return pause_arrived(*watched.session, packet.ticket, packet);
        case channel::PacketType::resume:
            return resume_arrived(*watched.session);
        case channel::PacketType::detach:
            return detach_arrived(*watched.session);
        case channel::PacketType::barrier:
            return barrier_arrived(*watched.session, packet.ticket, std::move(packet));
        case channel::PacketType::farewell: {
            const std::string reason(static_cast<const char *>(static_cast<const void *>(packet.body.data())),
                                     packet.body.size());
            kLog.error("the device proxy ends this session: {}", reason);
            return;
        }
        default:
            kLog.warning("the device proxy sent packet {}, which is unknown",
                         std::to_underlying(packet.type));
        }
    }

    std::vector<Watched> watched_;
};

} // namespace

void start_watcher() {
    // As long-lived as the process.
    auto *watcher = std::make_unique<Watcher>().release();
    start_thread("cuda-watcher", [watcher] { watcher->run(); });
}

} // namespace singularity::client
