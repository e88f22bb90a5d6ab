// SPDX-License-Identifier: GPL-2.0-or-later
// The daemon: its socket, its sessions, and the one thread that looks after both. It never calls the driver,
// which may take its time.
#pragma once

#include "back_end.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "device_output.hpp"
#include "listener.hpp"
#include "options.hpp"
#include "session.hpp"
#include "window_area.hpp"

#include <chrono>
#include <memory>
#include <optional>
#include <unordered_map>

namespace singularity::proxyd {

class Daemon {
  public:
    Daemon(const Options &options, const BackEnd &back_end, DeviceOutput *output, Listener listener,
           WindowArea windows);
    Daemon(const Daemon &) = delete;
    Daemon &operator=(const Daemon &) = delete;
    Daemon(Daemon &&) = delete;
    Daemon &operator=(Daemon &&) = delete;
    ~Daemon() = default;

    // Until SIGTERM or SIGINT (which must be blocked in all threads), or nobody has been there for
    // --idle-exit.
    [[nodiscard]] Expected<void> serve();
    // Ends all sessions and waits for them. false: the driver has not given everything back in time.
    [[nodiscard]] bool end_sessions();

  private:
    // Somebody who has connected and has no session (yet).
    struct Guest {
        channel::Link link;
        Peer peer;
        Deadline until;
    };

    [[nodiscard]] Expected<void> watch(int fd);
    void accept_all();
    void hear_guest(int fd);
    void answer(Guest &guest, const channel::Packet &packet, bool &leaves);
    [[nodiscard]] std::optional<channel::Refusal> refuse(channel::RefusalReason reason,
                                                         std::string_view text) const;
    // The session, or why there is none.
    [[nodiscard]] std::optional<channel::Refusal> open_session(Guest &guest, const channel::Hello &hello);
    void identify(Guest &guest) const;
    void hear_session(int fd);
    void reap();
    void look_at_clocks();

    const Options &options_;
    const BackEnd &back_end_;
    DeviceOutput *output_;
    Listener listener_;
    WindowArea windows_;
    UniqueFd epoll_;
    UniqueFd signals_;
    std::shared_ptr<UniqueFd> closed_; // an event: some session is closed; sessions may outlive the daemon
    std::unordered_map<int, Guest> guests_;
    std::unordered_map<int, std::shared_ptr<Session>> sessions_; // by socket
    struct Ending {
        std::shared_ptr<Session> session;
        Deadline by;
        bool told = false;
    };
    std::vector<Ending> ending_;
    unsigned next_number_ = 1;
    std::chrono::steady_clock::time_point last_client_;
};

} // namespace singularity::proxyd
