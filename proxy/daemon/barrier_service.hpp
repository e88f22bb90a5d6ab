// SPDX-License-Identifier: GPL-2.0-or-later
// A barrier's rounds: what a coordinator asks of the clients of this proxy, and what they answer. The daemon
// carries bytes; it knows who they come from, and opens all gates when the coordinator is gone.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "proxy/control/messages.hpp"
#include "session_keeper.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

namespace singularity::proxyd {

class BarrierService {
  public:
    explicit BarrierService(SessionKeeper &keeper) : keeper_(keeper) {}
    BarrierService(const BarrierService &) = delete;
    BarrierService &operator=(const BarrierService &) = delete;
    BarrierService(BarrierService &&) = delete;
    BarrierService &operator=(BarrierService &&) = delete;
    ~BarrierService();

    // A coordinator that was let in, and has been answered. Code EBUSY: there is one already.
    [[nodiscard]] Expected<void> begin(UniqueFd socket);

  private:
    // By process: what it is sent.
    using Messages = std::map<std::array<std::uint64_t, 2>, std::vector<std::byte>>;

    void run();
    [[nodiscard]] Expected<void> serve_round(const proxy_control::Round &round, int descriptor);
    [[nodiscard]] static Expected<Messages> read(const proxy_control::Round &round, int descriptor);
    // Whether that is why a session could not be asked: nothing of its process is left.
    [[nodiscard]] bool has_ended(const Session &asked, const Error &error) const;
    void open_gates();

    SessionKeeper &keeper_;
    std::mutex lock_; // begin() and the end
    std::thread thread_;
    UniqueFd socket_;
    std::atomic<bool> busy_ = false;
    std::uint64_t barrier_ = 0; // of the last request
};

} // namespace singularity::proxyd
