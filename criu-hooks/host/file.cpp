// SPDX-License-Identifier: GPL-2.0-or-later
#include "file.hpp"

#include "common/unique_fd.hpp"
#include "common/write_all.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <limits>
#include <memory>

#include <dirent.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::host {
namespace {

Expected<std::string> read_open(int fd, const std::string &name, std::size_t largest) {
    std::string text;
    std::array<char, 65536> part{};
    for (;;) {
        const ssize_t got = read(fd, part.data(), part.size());
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return std::unexpected(errno_error("read", name));
        if (got == 0)
            return text;
        if (text.size() + static_cast<std::size_t>(got) > largest)
            return failure("read", name, fmt::format("it is longer than {} bytes", largest), EFBIG);
        text.append(part.data(), static_cast<std::size_t>(got));
    }
}

} // namespace

Expected<std::string> read_link(const std::filesystem::path &path) {
    std::array<char, PATH_MAX + 32> target{}; // + 32: proc adds " (deleted)"
    const ssize_t size = readlink(path.c_str(), target.data(), target.size());
    if (size < 0)
        return std::unexpected(errno_error("read the link", path.string()));
    return std::string(target.data(), static_cast<std::size_t>(size));
}

Expected<std::string> read_file_at(int directory, const std::string &name, std::size_t largest) {
    const UniqueFd file(openat(directory, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
    if (!file)
        return std::unexpected(errno_error("open", name));
    struct stat status{};
    if (fstat(file.get(), &status) != 0)
        return std::unexpected(errno_error("examine", name));
    if (!S_ISREG(status.st_mode))
        return failure("read", name, "it is no regular file");
    return read_open(file.get(), name, largest);
}

Expected<void> write_file_at(int directory, const std::string &name, std::string_view content) {
    UniqueFd file(
        openat(directory, name.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!file)
        return std::unexpected(errno_error("create", name));
    if (auto written = write_all(file.get(), std::as_bytes(std::span(content))); !written) {
        written.error().on = name;
        return written;
    }
    return file.close();
}

Expected<std::optional<std::vector<std::string>>> names_in(int directory, std::size_t most) {
    // A descriptor of its own: fdopendir takes it, and its position is shared by duplicates.
    UniqueFd fd(openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd)
        return std::unexpected(errno_error("open", "a directory"));
    const std::unique_ptr<DIR, int (*)(DIR *)> list(fdopendir(fd.get()), closedir);
    if (!list)
        return std::unexpected(errno_error("list", "a directory"));
    [[maybe_unused]] const int owned = fd.release();
    std::vector<std::string> names;
    errno = 0;
    while (const dirent *entry = readdir(list.get())) {
        const std::string name = static_cast<const char *>(entry->d_name);
        if (name != "." && name != "..") {
            if (names.size() == most)
                return std::optional<std::vector<std::string>>();
            names.push_back(name);
        }
        errno = 0;
    }
    if (errno != 0)
        return std::unexpected(errno_error("list", "a directory"));
    std::ranges::sort(names);
    return names;
}

Expected<std::vector<std::string>> names_in(int directory) {
    auto names = names_in(directory, std::numeric_limits<std::size_t>::max());
    if (!names)
        return propagate(names);
    return std::move(*names).value_or(std::vector<std::string>());
}

Expected<void> write_all(int fd, std::span<const std::byte> data) {
    return singularity::write_all(fd, {reinterpret_cast<const char *>(data.data()), data.size()}, "a file");
}

} // namespace singularity::host
