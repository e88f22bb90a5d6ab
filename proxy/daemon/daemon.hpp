// SPDX-License-Identifier: GPL-2.0-or-later
// The daemon: its socket, its sessions, and the one thread that looks after both. It never calls the driver,
// which may take its time.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "device_output.hpp"
#include "image_service.hpp"
#include "late_device.hpp"
#include "listener.hpp"
#include "options.hpp"
#include "session.hpp"
#include "window_area.hpp"

#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

namespace singularity::proxyd {

class Daemon final : public SessionKeeper {
  public:
    Daemon(const Options &options, LateDevice &device, DeviceOutput *output, Listener listener,
           WindowArea windows);
    Daemon(const Daemon &) = delete;
    Daemon &operator=(const Daemon &) = delete;
    Daemon(Daemon &&) = delete;
    Daemon &operator=(Daemon &&) = delete;
    ~Daemon() override = default;

    // Until SIGTERM or SIGINT (which must be blocked in all threads), or nobody has been there for
    // --idle-exit. An error: the device cannot be opened, which whoever has connected has been told.
    [[nodiscard]] Expected<void> serve();
    // Ends all sessions and waits for them. false: the driver has not given everything back in time.
    [[nodiscard]] bool end_sessions();

    // --- for the thread of the control socket
    [[nodiscard]] std::vector<std::shared_ptr<Session>> hold() override;
    void release() override;
    [[nodiscard]] std::vector<std::shared_ptr<Session>> all() override;
    void set_moved(bool moved) override;
    [[nodiscard]] Expected<std::shared_ptr<Session>> make(const ClientPlace &client,
                                                          const channel::Geometry &geometry) override;
    void expect(const Restored &restored) override;
    void drop(const std::shared_ptr<Session> &session) override;
    [[nodiscard]] std::size_t expected(int processes) override;

  private:
    // Somebody who has connected and has no session (yet).
    struct Guest {
        channel::Link link;
        Peer peer;
        Deadline until;
        bool held = false; // is heard when the images are saved, and the device is open
    };

    [[nodiscard]] Expected<void> watch(int fd);
    void accept_some();
    void hear_guest(int fd);
    void answer(Guest &guest, const channel::Packet &packet, bool &leaves);
    [[nodiscard]] std::optional<channel::Refusal> refuse(channel::RefusalReason reason,
                                                         std::string_view text) const;
    // The session, or why there is none.
    [[nodiscard]] std::optional<channel::Refusal> open_session(Guest &guest, const channel::Hello &hello);
    void identify(Guest &guest);
    // The session of a client that is back, or why there is none.
    [[nodiscard]] std::optional<channel::Refusal> attach(Guest &guest, const channel::Attach &attach);
    [[nodiscard]] std::optional<channel::Refusal> refuse_without_device() const;
    static void tell_refusal(Guest &guest, const channel::Refusal &refusal);
    [[nodiscard]] std::function<void()> tell_closed() const;
    // Whether guests are not to be heard now. lock_ is held.
    [[nodiscard]] bool guests_wait() const;
    // Opens the device, unless that has begun.
    void need_device();
    void hear_held();
    [[nodiscard]] SessionPlace place_for(unsigned number, const Peer &peer, const ClientPlace &client) const;
    void hear_session(int fd);
    void reap();
    void see_off();
    void look_at_clocks();

    const Options &options_;
    LateDevice &device_;
    std::optional<Deadline> failed_until_; // for guests to hear that there is no device
    DeviceOutput *output_;
    Listener listener_;
    // While a guest is heard no hold() begins: what becomes of the guest is one of its sessions, or comes
    // after it. Taken before lock_.
    std::mutex hearing_;
    // What the thread of the control socket uses as well: windows, numbers, sessions, those that wait.
    std::mutex lock_;
    WindowArea windows_;
    unsigned holds_ = 0; // who does not want sessions to begin
    bool moved_ = false;
    struct Awaited {
        std::shared_ptr<Session> session;
        std::int32_t pid = 0; // in its PID namespace
        bool whole = false;   // as the client has left it; else restored
    };
    std::map<channel::ClientKey, Awaited> waiting_;
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
    std::vector<std::shared_ptr<Session>> leaving_;
    unsigned next_number_ = 1;
    std::chrono::steady_clock::time_point last_client_;
};

} // namespace singularity::proxyd
