// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/replace_file.hpp"

#include "common/unique_fd.hpp"
#include "common/write_all.hpp"

#include <cerrno>
#include <cstdio>
#include <utility>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity {

namespace {

Expected<void> sync_directory(const std::filesystem::path &path) {
    auto directory = open_file(path, O_RDONLY | O_DIRECTORY);
    if (!directory)
        return propagate(directory);
    if (fsync(directory->get()) != 0)
        return std::unexpected(errno_error("sync", path.native()));
    return {};
}

} // namespace

Expected<void> replace_file(const std::filesystem::path &path, std::string_view text, mode_t mode,
                            Durable durable) {
    const std::filesystem::path beside = path.native() + ".new";
    unlink(beside.c_str()); // of one who died
    auto file = open_file(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
    if (!file)
        return propagate(file);
    auto written = write_all(file->get(), text, beside.native());
    if (written && fchmod(file->get(), mode) != 0)
        written = std::unexpected(errno_error("change the mode of", beside.native()));
    if (written && durable == Durable::kYes && fsync(file->get()) != 0)
        written = std::unexpected(errno_error("sync", beside.native()));
    if (written && std::rename(beside.c_str(), path.c_str()) != 0)
        written = std::unexpected(errno_error("replace", path.native()));
    if (!written) {
        unlink(beside.c_str());
        return written;
    }
    return durable == Durable::kYes ? sync_directory(path.parent_path()) : written;
}

} // namespace singularity
