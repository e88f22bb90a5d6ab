// SPDX-License-Identifier: GPL-2.0-or-later
// Descriptors of users', which the agent never has. To close one may wait as long as its file system does,
// which may be the user's own (FUSE): so would the agent, and each of its children where it closes what it
// has inherited. What comes with a packet is taken, looked at and put into the queue of a socket by a process
// of its own; the agent has that socket alone, and passes on what is in it. The process may wait for as long
// as it wants when it closes its copies: it has answered before.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "node/seqpacket.hpp"

#include <cstddef>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <sys/types.h>

namespace singularity::agent {

// What has come with a request: standard streams of a program, as a rule. They lie in the queue of a socket.
class Streams {
  public:
    Streams() = default;
    Streams(UniqueFd queue, uid_t uid, std::vector<std::string> keys, bool may_wait)
        : queue_(std::move(queue)), uid_(uid), keys_(std::move(keys)), may_wait_(may_wait) {}
    Streams(Streams &&other) noexcept = default;
    Streams &operator=(Streams &&other) noexcept;
    Streams(const Streams &) = delete;
    Streams &operator=(const Streams &) = delete;
    ~Streams() { let_go(); }

    // One of them is nothing that a task could have: why. They are not kept.
    [[nodiscard]] static Streams refused(std::size_t count, std::string why);

    [[nodiscard]] std::size_t size() const { return keys_.size(); }
    // Of each, CRIU's name if it is a pipe, or nothing: a regular file, or /dev/null.
    [[nodiscard]] const std::vector<std::string> &keys() const { return keys_; }
    [[nodiscard]] const std::string &trouble() const { return trouble_; }
    // The same streams once more.
    [[nodiscard]] Expected<Streams> copy() const;

    [[nodiscard]] const UniqueFd &queue() const { return queue_; }
    [[nodiscard]] uid_t uid() const { return uid_; }
    // To close one of them may wait for somebody: it is no pipe, and no file of a file system of the kernel's
    // own.
    [[nodiscard]] bool may_wait() const { return may_wait_; }

  private:
    void let_go();

    UniqueFd queue_;
    uid_t uid_ = 0;
    std::vector<std::string> keys_;
    std::string trouble_;
    bool may_wait_ = false;
};

// One of them.
struct Stream {
    const Streams *of = nullptr;
    std::size_t number = 0;
};

// As node::receive_packet, from a user's process: into.descriptors is empty. Failed with EDQUOT: the user has
// as many such processes as per_user.closing allows. The packet is still in the socket then, and into.bytes
// has its first bytes, for an answer.
[[nodiscard]] node::Received receive_apart(int socket, uid_t uid, node::Packet &into, Streams &streams);
// The same for descriptors that are the agent's to have, as they must be: pipes without a name, and
// terminals.
[[nodiscard]] node::Received receive_lent(int socket, uid_t uid, node::Packet &into,
                                          const node::Allowed &allowed);

// As node::send_datagram; where there is a place for the memory, as node::send_in_memory.
[[nodiscard]] int send_streams(int socket, std::string_view bytes, const std::vector<Stream> &streams,
                               node::Lent *lent = nullptr);

// Closes a socket of a user's, who may have sent what nobody has read.
void hang_up(UniqueFd socket, uid_t uid);

} // namespace singularity::agent
