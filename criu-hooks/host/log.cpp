// SPDX-License-Identifier: GPL-2.0-or-later
#include "log.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr std::size_t kMostErrors = 3; // of those that follow from the first one, two are enough
constexpr std::size_t kWholeLog = 16U
                                  << 20U; // of a longer one the end is read: criu stops at the first error
constexpr off_t kLargestKept = off_t{256} << 20U;
constexpr std::size_t kLastLines = 3;     // of a log without an error
constexpr std::size_t kLongestLine = 160; // bytes of each

// What criu says, and what helps. The first row whose text occurs in an error counts.
struct Advice {
    std::string_view says;
    std::string_view helps;
};
constexpr std::array kAdvice{
    Advice{
        "Can't lookup mount=",
        "a file was opened outside of the node's mounts: the node must start with no inherited descriptors"},
    Advice{
        "has bad size",
        "the file has changed since the checkpoint: put it back as it was, or restore an older checkpoint"},
    Advice{"has bad mode", "the file has been replaced since the checkpoint: put it back as it was"},
    Advice{"has bad build-ID", "the program or library has been replaced since the checkpoint: install the "
                               "version that it ran with"},
    Advice{
        "on restore: Permission denied",
        "its user may not open it as the program had it: at the checkpoint another file had its name, or its "
        "owner and mode were others; put that back"},
    Advice{"Can't open file", "the file was there at the checkpoint: put it back"},
    Advice{"Can't dump ghost file", "a deleted file that is still open is larger than the limit"},
    Advice{"link remap",
           "a file was deleted under the name it was opened by but has another: close it or keep the name"},
    Advice{"Can't dump file", "this kind of file cannot be saved: close it before a checkpoint"},
    Advice{"Connected TCP socket", "a TCP connection leads out of the node"},
    Advice{"External socket is used", "a Unix socket leads to a process outside of the node"},
    Advice{"Dangling connection",
           "a Unix socket is connected with a process outside of the node that has not accepted it yet"},
    Advice{"In-flight connection",
           "a program has not accepted a TCP connection yet: it must, or stop listening"},
    Advice{"Can't dump half of stream", "a Unix socket leads to a process outside of the node"},
    Advice{"Found dangling tty", "a terminal belongs to a session outside of the node"},
    Advice{"Unable too cut",
           "a Unix socket was bound under a relative name and renamed: bind it under its whole path"},
    Advice{"closed in-flight socket", "a program has closed a connection that the other one has not accepted "
                                      "yet: a later attempt succeeds"},
    Advice{"Zombies with threads", "the first thread of a process has ended and others run on "
                                   "(pthread_exit(3) in main): let main wait for them"},
    Advice{"packetized mode",
           "a pipe keeps packets apart (pipe2(2) with O_DIRECT): close it before a checkpoint"},
    Advice{"Can't make VM id", "two processes have one memory (clone(2) with CLONE_VM): the child must run "
                               "another program or end"},
    Advice{"Can't make FS id", "two processes have one working directory and umask (clone(2) with CLONE_FS)"},
    Advice{"Dump eventpoll",
           "an epoll descriptor watches one that its process has closed and another process "
           "still has: remove it (EPOLL_CTL_DEL) before it is closed"},
    Advice{"Unsupported", "the node uses what criu cannot save"},
    Advice{"No space left on device", "the file system of the image directory is full"},
    Advice{"Pid ", "the process id is in use"},
};

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && (text.back() == ' ' || text.back() == '\r' || text.back() == '\n'))
        text.remove_suffix(1);
    while (!text.empty() && text.front() == ' ')
        text.remove_prefix(1);
    return text;
}

// Said in every run without CAP_SYS_RESOURCE, or after the error that counts.
constexpr std::array<std::string_view, 2> kNoise{"RLIMIT_NOFILE for self", "FAILED"};

// "(00.012345)     27: Error (criu/files.c:123): text" -> "process 27: text", and nothing for other lines.
std::string error_in(std::string_view line) {
    constexpr std::string_view kMark = "Error (";
    const std::size_t mark = line.find(kMark);
    if (mark == std::string_view::npos)
        return {};
    const std::size_t end = line.find("): ", mark);
    if (end == std::string_view::npos)
        return {};
    std::string text(trimmed(line.substr(end + 3)));
    std::string_view before = line.substr(0, mark);
    if (const std::size_t stamp = before.find(") "); stamp != std::string_view::npos)
        before.remove_prefix(stamp + 1);
    before = trimmed(before);
    if (!before.empty() && before.back() == ':' &&
        before.find_first_not_of("0123456789:") == std::string_view::npos)
        text = "process " + std::string(before.substr(0, before.size() - 1)) + " of the node: " + text;
    return text;
}

// Escaped, with what is cut off in the middle of a long line: its end says what was done, its beginning when.
std::string shortened(std::string_view line) {
    if (line.size() <= kLongestLine)
        return escaped(line);
    constexpr std::size_t kHalf = kLongestLine / 2;
    return escaped(line.substr(0, kHalf)) + "..." + escaped(line.substr(line.size() - kHalf));
}

std::string_view advice_for(std::string_view error) {
    const auto *const row = std::ranges::find_if(
        kAdvice, [error](const Advice &each) { return error.find(each.says) != std::string_view::npos; });
    return row == kAdvice.end() ? std::string_view() : row->helps;
}

Expected<std::string> read_end(int fd) {
    struct stat status{};
    if (fstat(fd, &status) != 0)
        return std::unexpected(errno_error("examine", "criu's log"));
    const off_t size = status.st_size;
    const off_t start = std::max<off_t>(0, size - static_cast<off_t>(kWholeLog));
    std::string text(static_cast<std::size_t>(size - start), '\0');
    std::size_t done = 0;
    while (done < text.size()) {
        const ssize_t got =
            pread(fd, text.data() + done, text.size() - done, start + static_cast<off_t>(done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return std::unexpected(errno_error("read", "criu's log"));
        if (got == 0)
            break;
        done += static_cast<std::size_t>(got);
    }
    text.resize(done);
    return text;
}

Expected<void> append(int from, int to) {
    off_t offset = 0;
    std::array<char, 65536> part{};
    while (offset < kLargestKept) {
        const ssize_t got = pread(from, part.data(), part.size(), offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return std::unexpected(errno_error("read", "criu's log"));
        if (got == 0)
            return {};
        if (write(to, part.data(), static_cast<std::size_t>(got)) != got)
            return std::unexpected(errno_error("write", "a copy of criu's log"));
        offset += got;
    }
    return {};
}

} // namespace

std::string explain(std::string_view log) {
    std::string words;
    std::string_view advice;
    std::size_t count = 0;
    while (!log.empty() && count < kMostErrors) {
        const std::size_t end = log.find('\n');
        const std::string error = error_in(log.substr(0, end));
        log.remove_prefix(end == std::string_view::npos ? log.size() : end + 1);
        if (error.empty() ||
            std::ranges::any_of(kNoise, [&](std::string_view each) { return error.contains(each); }))
            continue;
        words += (count++ == 0 ? "" : "; then: ") + escaped(error);
        if (advice.empty())
            advice = advice_for(error);
    }
    if (!advice.empty())
        words += " (" + std::string(advice) + ")";
    return words;
}

std::string last_words(std::string_view log) {
    std::string words;
    for (std::size_t count = 0; count < kLastLines && !log.empty();) {
        const std::size_t before = log.rfind('\n');
        const auto line = trimmed(before == std::string_view::npos ? log : log.substr(before + 1));
        log.remove_suffix(before == std::string_view::npos ? log.size() : log.size() - before);
        if (line.empty())
            continue;
        words.insert(0, shortened(line) + (count++ == 0 ? "" : " | "));
    }
    return words;
}

std::string summary_of(std::initializer_list<int> logs, const std::string &otherwise) {
    std::vector<std::string> texts;
    for (const int log : logs)
        if (log >= 0)
            if (auto text = read_end(log))
                texts.push_back(std::move(*text));
    std::string errors;
    for (const std::string &text : texts)
        if (const auto words = explain(text); !words.empty())
            errors += (errors.empty() ? "" : "; then: ") + words;
    if (!errors.empty())
        return errors;
    std::string out = otherwise.empty() ? "criu gave no reason" : shortened(otherwise);
    std::string ends;
    for (const std::string &text : texts)
        if (const auto words = last_words(text); !words.empty())
            ends += (ends.empty() ? "" : " | ") + words;
    return ends.empty() ? out + ", and wrote nothing" : out + "; the last that it wrote: " + ends;
}

Expected<void> keep_log(int log, int complaints, const std::filesystem::path &target) {
    if (target.empty())
        return failure("keep", "criu's log", "the caller named no file for it");
    auto file = open_file(target, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    if (!file)
        return propagate(file);
    if (fchmod(file->get(), 0600) != 0) // it may have existed
        return std::unexpected(errno_error("change the mode of", target.string()));
    for (const int each : {log, complaints})
        if (each >= 0)
            if (auto copied = append(each, file->get()); !copied)
                return copied;
    return file->close();
}

} // namespace singularity::host
