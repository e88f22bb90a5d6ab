// SPDX-License-Identifier: GPL-2.0-or-later
// An image that is one file is read by a program of its user's, squashfuse, and never by the kernel's own
// file system drivers: what lies in the file is the user's, and they run as root.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "record.hpp"

#include <cstdint>
#include <string>
#include <utility>

namespace singularity::node {

// The process that becomes squashfuse. It must be begun by a process that is in the host's PID namespace,
// since what is in the node's would be saved with it. Until there is something to serve, it waits. It ends
// when nobody has what it serves mounted any more, or when this goes before there was anything.
class ImageServer {
  public:
    // It stays in the caller's cgroups and mount namespace: neither one in which what it serves is mounted,
    // or it would never end.
    [[nodiscard]] static Expected<ImageServer> begin(const Spec &spec);

    // The file system at an offset in the file, in bytes, as a mount that is nowhere yet: nosuid, nodev,
    // read-only. Once only. The first that is asked of it may wait without end, as the user's process
    // answers.
    [[nodiscard]] Expected<UniqueFd> serve(const UniqueFd &file, std::uint64_t offset) const;

    // In its own words if it has said any, or why.
    [[nodiscard]] std::unexpected<Error> not_served(const Error &why) const;

  private:
    // What it has complained of so far: escaped, and bounded.
    [[nodiscard]] std::string complaints() const;

    ImageServer(UniqueFd socket, const Spec &spec)
        : socket_(std::move(socket)), uid_(spec.uid), gid_(spec.gid), owns_(layer_of(spec) != nullptr),
          image_(spec.image.directory) {}

    UniqueFd socket_;
    std::uint32_t uid_;
    std::uint32_t gid_;
    bool owns_; // its user all that is in the image, as in one that enroot has unpacked
    std::string image_;
};

// The program that serves images that are files on this host; empty: it is not installed.
[[nodiscard]] std::string image_server_program();

// Of a mount of such a file system, for end_serving: noted in the node's directory.
[[nodiscard]] Expected<void> note_connection(const Room &room, const UniqueFd &top);

// Whoever waits for the image of this node goes on, with an error, whatever its server does or does not: the
// kernel lets nobody be killed who waits for an answer to what a server has read. For a node that is being
// ended, and whose processes are still there. Nothing, where the image is no file.
[[nodiscard]] Expected<void> end_serving(const Room &room);

} // namespace singularity::node
