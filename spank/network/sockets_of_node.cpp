// SPDX-License-Identifier: GPL-2.0-or-later
#include "sockets_of_node.hpp"

#include "common/proc.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::network {

namespace {

struct CloseDirectory {
    void operator()(DIR *directory) const { closedir(directory); }
};
using Directory = std::unique_ptr<DIR, CloseDirectory>;

bool is_number(std::string_view name) {
    return !name.empty() && name.find_first_not_of("0123456789") == std::string_view::npos;
}

// Calls `use` with each name in it that is a number. Nothing if it has gone.
void for_each_number(const std::string &path, const auto &use) {
    const Directory directory(opendir(path.c_str()));
    if (!directory)
        return;
    while (const dirent *const entry = readdir(directory.get())) // NOLINT(concurrency-mt-unsafe): ours alone
        if (is_number(entry->d_name))
            use(std::string(entry->d_name));
}

std::optional<std::uint32_t> socket_in(const std::string &descriptor) {
    constexpr std::string_view kBegin = "socket:[";
    std::array<char, 64> text{};
    const auto size = readlink(descriptor.c_str(), text.data(), text.size());
    const std::string_view target(text.data(), size < 0 ? 0 : static_cast<std::size_t>(size));
    std::uint32_t inode = 0;
    if (!target.starts_with(kBegin) ||
        std::from_chars(target.data() + kBegin.size(), target.data() + target.size(), inode).ec !=
            std::errc())
        return std::nullopt;
    return inode;
}

struct Kind {
    dev_t device = 0;
    ino_t inode = 0;
    bool operator==(const Kind &) const = default;
};
std::optional<Kind> pid_namespace_of(const std::string &pid) {
    struct stat about{};
    if (stat(fmt::format("/proc/{}/ns/pid", pid).c_str(), &about) != 0)
        return std::nullopt;
    return Kind{.device = about.st_dev, .inode = about.st_ino};
}

} // namespace

Expected<Sockets> sockets_of_node(int init) {
    const auto path = fmt::format("/proc/self/fdinfo/{}", init);
    auto about = proc::read(path);
    if (!about)
        return propagate(about);
    constexpr std::string_view kPid = "Pid:\t";
    const auto at = about->find(kPid);
    const auto pid = at == std::string::npos
                         ? std::string()
                         : about->substr(at + kPid.size(), about->find('\n', at) - at - kPid.size());
    // -1: it has ended. Another process may have its number only after that.
    const auto wanted = is_number(pid) ? pid_namespace_of(pid) : std::nullopt;
    if (!wanted)
        return failure("find", "the processes of a node", "its init has ended", ESRCH);
    Sockets out;
    for_each_number("/proc", [&](const std::string &process) {
        if (pid_namespace_of(process) != wanted)
            return;
        // Threads may have tables of descriptors of their own; such a node is not saved (virtual-node.md).
        const auto descriptors = fmt::format("/proc/{}/fd", process);
        for_each_number(descriptors, [&](const std::string &number) {
            if (const auto inode = socket_in(fmt::format("{}/{}", descriptors, number)))
                out.insert(*inode);
        });
    });
    return out;
}

} // namespace singularity::network
