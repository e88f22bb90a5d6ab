// SPDX-License-Identifier: GPL-2.0-or-later
// A singularity-worker, as the agent sees it. Nothing blocks.
#pragma once

#include "apart.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "node/seqpacket.hpp"
#include "paths.hpp"
#include "worker_messages.hpp"

#include <cerrno>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace singularity::agent {

class Worker {
  public:
    // The code of start's error where the build has none: nothing is ever saved, and nothing was.
    static constexpr int kNotBuilt = ENOTSUP;

    // EDQUOT: the user has as many processes as per_user.workers allows. To be asked about what users ask for
    // by hand. What Slurm wants of a job is done in any case, and so is what puts something right.
    [[nodiscard]] static Expected<void> room_for_one_more(uid_t uid, std::string_view doing,
                                                          std::string_view on);

    // uid: for whom it is.
    template <class Job>
    [[nodiscard]] static Expected<Worker> start(const Libraries &libraries, uid_t uid, const Job &job) {
        auto worker = start_process(libraries, uid);
        if (!worker)
            return worker;
        if (auto told = worker->tell(job); !told)
            return propagate(told);
        return worker;
    }

    template <class Body>
    [[nodiscard]] Expected<void> tell(const Body &body, std::span<const int> descriptors = {}) const {
        return send(node::encode(body), descriptors);
    }
    template <class Body>
    [[nodiscard]] Expected<void> give(const Body &body, const std::vector<Stream> &streams) const {
        return sent(send_streams(socket_.get(), node::encode(body), streams));
    }
    [[nodiscard]] Expected<void> pass_on(const std::string &packet) const { return send(packet, {}); }
    [[nodiscard]] node::Received receive(node::Packet &packet) const {
        return socket_ ? node::receive_packet(socket_.get(), packet) : node::Received::hung_up;
    }
    // It undoes what it has begun, and ends.
    void hang_up() { socket_.reset(); }
    [[nodiscard]] bool hung_up() const { return !socket_; }
    [[nodiscard]] bool ended() const;
    void kill() const;

    void watch(std::vector<int> &fds) const;

  private:
    Worker(UniqueFd socket, UniqueFd pidfd) : socket_(std::move(socket)), pidfd_(std::move(pidfd)) {}
    [[nodiscard]] static Expected<Worker> start_process(const Libraries &libraries, uid_t uid);
    [[nodiscard]] Expected<void> send(const std::string &bytes, std::span<const int> descriptors) const;
    [[nodiscard]] static Expected<void> sent(int code);

    UniqueFd socket_;
    UniqueFd pidfd_;
};

} // namespace singularity::agent
