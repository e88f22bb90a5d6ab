// SPDX-License-Identifier: GPL-2.0-or-later
#include "output.hpp"

#include "common/unique_fd.hpp"
#include "common/write_all.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/xattr.h>
#include <unistd.h>

namespace singularity::task {
namespace {

constexpr const char *kAttribute = "user.singularity.job";
constexpr const char *kCheckpoints =
    "user.singularity.checkpoints"; // lines: checkpoint, size in bytes, first run that cuts
constexpr std::size_t kMostNoted =
    16; // of these, the last; several may come to nothing before one is committed
constexpr std::size_t kMostKept = 64 << 10; // bytes of lines that stay
constexpr std::size_t kLongestLine = 4 << 10;
constexpr std::array<std::string_view, 3> kNotOfScript{"slurmstepd: ", "slurmstepd-", "singularity-task: "};

std::string attribute(int fd, const char *name) {
    std::string value(4096, '\0');
    const ssize_t size = fgetxattr(fd, name, value.data(), value.size());
    value.resize(size > 0 ? static_cast<std::size_t>(size) : 0);
    return value;
}

bool is_begun_by(int fd, std::string_view job) { return attribute(fd, kAttribute) == job; }

// A regular file that is appended to, and was begun by this job.
std::optional<std::uint64_t> size_of_own(int fd, std::string_view job) {
    struct stat about{};
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_APPEND) == 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) ||
        !is_begun_by(fd, job))
        return std::nullopt;
    return static_cast<std::uint64_t>(about.st_size);
}

struct Noted {
    std::string checkpoint;
    std::uint64_t size = 0;
    std::uint32_t first_run = 0; // in which something comes again
};

std::vector<Noted> noted_in(int fd) {
    std::vector<Noted> out;
    std::istringstream lines(attribute(fd, kCheckpoints));
    for (Noted one; lines >> one.checkpoint >> one.size >> one.first_run;)
        out.push_back(one);
    return out;
}

// Of what lies behind `from`, the lines that the script has not written. None, where its last line before
// that is not complete: they would go on with it.
Expected<std::string> lines_to_keep(int fd, std::uint64_t from) {
    auto file = open_file(fmt::format("/proc/self/fd/{}", fd), O_RDONLY | O_NONBLOCK);
    if (!file)
        return propagate(file);
    std::array<char, 65536> block{};
    const auto read_at = [&](std::uint64_t at, std::size_t most) {
        return pread(file->get(), block.data(), most, static_cast<off_t>(at));
    };
    if (from != 0 && read_at(from - 1, 1) != 1)
        return std::unexpected(errno_error("read", "the output file"));
    if (from != 0 && block.front() != '\n')
        return std::string();
    std::string out;
    std::string line;
    ssize_t got = 0;
    for (; (got = read_at(from, block.size())) > 0; from += static_cast<std::uint64_t>(got))
        for (const char one : std::string_view(block.data(), static_cast<std::size_t>(got))) {
            if (line.size() < kLongestLine)
                line += one;
            if (one != '\n')
                continue;
            const auto starts = [&](std::string_view word) { return line.starts_with(word); };
            if (line.back() == '\n' && std::ranges::any_of(kNotOfScript, starts) &&
                out.size() + line.size() <= kMostKept)
                out += line;
            line.clear();
        }
    if (got < 0) // nothing is cut off that was not looked at
        return std::unexpected(errno_error("read", "the output file"));
    return out;
}

} // namespace

Expected<bool> begin_output(int fd, const std::string &job) {
    struct stat about{};
    const int flags = fcntl(fd, F_GETFL);
    if (flags < 0 || (flags & O_APPEND) == 0 || fstat(fd, &about) != 0 || !S_ISREG(about.st_mode) ||
        is_begun_by(fd, job))
        return false;
    // Standard output and errors may be one file: the second time it is this job's already, or empty again.
    if (ftruncate(fd, 0) != 0)
        return std::unexpected(errno_error("begin anew", "the output file"));
    if (fsetxattr(fd, kAttribute, job.data(), job.size(), 0) != 0 && errno != ENOTSUP)
        return std::unexpected(errno_error("mark", "the output file"));
    return true;
}

Expected<void> note_output(int fd, const std::string &job, const Moment &moment) {
    const auto size = size_of_own(fd, job);
    if (!size)
        return {};
    auto noted = noted_in(fd);
    std::erase_if(noted, [&](const auto &one) { return one.checkpoint == moment.checkpoint; });
    noted.push_back(
        {.checkpoint = moment.checkpoint, .size = *size, .first_run = moment.ends ? moment.run + 2 : 0});
    if (noted.size() > kMostNoted)
        noted.erase(noted.begin(), noted.end() - kMostNoted);
    std::string text;
    for (const auto &one : noted)
        text += fmt::format("{} {} {}\n", one.checkpoint, one.size, one.first_run);
    if (fsetxattr(fd, kCheckpoints, text.data(), text.size(), 0) != 0 && errno != ENOTSUP)
        return std::unexpected(errno_error("note in the output file", "how large it is"));
    return {};
}

Expected<void> cut_output(int fd, const std::string &job, const Moment &moment) {
    const auto size = size_of_own(fd, job);
    const auto noted = noted_in(fd);
    const auto found = std::ranges::find(noted, moment.checkpoint, &Noted::checkpoint);
    if (!size || found == noted.end() || found->size >= *size || moment.run < found->first_run)
        return {};
    auto kept = lines_to_keep(fd, found->size);
    if (!kept)
        return propagate(kept);
    if (ftruncate(fd, static_cast<off_t>(found->size)) != 0)
        return std::unexpected(errno_error("cut off what comes again in", "the output file"));
    return write_all(fd, *kept, "the output file");
}

} // namespace singularity::task
