// SPDX-License-Identifier: GPL-2.0-or-later
#include "held_sockets.hpp"

#include "common/unique_fd.hpp"
#include "file.hpp"
#include "proc.hpp"

#include <fcntl.h>
#include <fmt/format.h>

namespace singularity::host {

Expected<HeldSockets> held_sockets(pid_t init) {
    auto node = processes_of(init);
    if (!node)
        return propagate(node);
    HeldSockets out;
    for (const Process &process : *node) {
        auto directory = open_file(fmt::format("/proc/{}/fd", process.pid), O_RDONLY | O_DIRECTORY);
        auto numbers = directory ? names_in(directory->get()) : propagate(directory);
        if (!numbers)
            continue; // it has ended
        for (const std::string &number : *numbers)
            if (auto link = read_link(fmt::format("/proc/{}/fd/{}", process.pid, number)); link)
                if (const auto inode = number_after(*link, "socket:["); inode)
                    out.try_emplace(*inode, HeldSocket{.pid = process.pid,
                                                       .number = std::stoi(number),
                                                       .what = fmt::format("descriptor {} of {}", number,
                                                                           process.title())});
    }
    return out;
}

} // namespace singularity::host
