// SPDX-License-Identifier: GPL-2.0-or-later
// The way of a barrier's coordinator to the clients of one device proxy.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "proxy/barrier/lines.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <span>
#include <utility>
#include <vector>

namespace singularity::proxy_control {

// While one lives, gates that it has closed stay closed; with it, or with its process, they open.
class BarrierConnection {
  public:
    [[nodiscard]] static Expected<BarrierConnection> open(const std::filesystem::path &control_socket,
                                                          const Deadline &deadline);

    // A round: every process that is a client of this proxy gets its request, and `patience` to answer.
    [[nodiscard]] Expected<void> ask(const std::map<barrier::Key, barrier::Request> &requests,
                                     const barrier::Request &otherwise, std::chrono::milliseconds patience);
    // The answers of a round; who has ended meanwhile is left out. A process that has clients of several
    // proxies answers to all of them.
    [[nodiscard]] Expected<std::vector<barrier::Report>> reports(const Deadline &deadline);

  private:
    BarrierConnection(UniqueFd socket, std::filesystem::path path)
        : socket_(std::move(socket)), path_(std::move(path)) {}

    UniqueFd socket_;
    std::filesystem::path path_;
};

// The same for the clients of several proxies, all of them asked before one is waited for: ranks may need
// each other to come to their gates. One report of each process.
class NodeBarrier {
  public:
    [[nodiscard]] static Expected<NodeBarrier> open(std::span<const std::filesystem::path> control_sockets,
                                                    const Deadline &deadline);

    [[nodiscard]] Expected<std::vector<barrier::Report>>
    round(const std::map<barrier::Key, barrier::Request> &requests, const barrier::Request &otherwise,
          std::chrono::milliseconds patience);

    // Rounds until no collective of these clients is half issued and none can be: they stay so as long as
    // this lives. wanted: asked between rounds; its error ends the attempt. When the deadline is over an
    // error names who was behind, code ETIMEDOUT.
    struct Cut {
        std::uint64_t rounds = 0;
        std::size_t processes = 0;
    };
    [[nodiscard]] Expected<Cut> acquire(std::chrono::milliseconds patience, const Deadline &deadline,
                                        const std::function<Expected<void>()> &wanted);

  private:
    explicit NodeBarrier(std::vector<BarrierConnection> proxies) : proxies_(std::move(proxies)) {}

    std::vector<BarrierConnection> proxies_;
};

} // namespace singularity::proxy_control
