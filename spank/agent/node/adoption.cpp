// SPDX-License-Identifier: GPL-2.0-or-later
#include "adoption.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kReserved = 64;
constexpr std::chrono::milliseconds kFirstPause = 200ms;
constexpr std::chrono::milliseconds kLongestPause = 60s;

constexpr std::array kGone{ENOENT, ESRCH};
constexpr std::array kBroken{EBADMSG, EFBIG, EINVAL};
constexpr std::array kShortages{EMFILE, ENFILE, ENOMEM, ENOBUFS};

bool is_among(const auto &codes, int code) { return std::ranges::find(codes, code) != codes.end(); }

} // namespace

Verdict verdict_of(const Error &error) {
    if (is_among(kGone, error.code))
        return Verdict::gone;
    return is_among(kBroken, error.code) ? Verdict::broken : Verdict::waits;
}

bool is_shortage(int code) { return is_among(kShortages, code); }

Expected<std::set<std::string>> names_in(const std::filesystem::path &directory) {
    std::set<std::string> out;
    std::error_code error;
    const std::filesystem::directory_iterator end;
    for (std::filesystem::directory_iterator at(directory, error); !error && at != end; at.increment(error))
        out.insert(at->path().filename().native());
    if (error)
        return failure("look into", directory.native(), error.message(), error.value());
    return out;
}

Expected<Reserve> Reserve::take() {
    Reserve out;
    auto first = open_file("/dev/null", O_PATH);
    if (!first)
        return propagate(first);
    out.held_.push_back(std::move(*first));
    while (out.held_.size() < kReserved) {
        UniqueFd copy(fcntl(out.held_.front().get(), F_DUPFD_CLOEXEC, 0));
        if (!copy)
            return std::unexpected(errno_error("keep free", "some descriptors"));
        out.held_.push_back(std::move(copy));
    }
    return out;
}

void AdoptAgain::later() {
    pause_ = std::clamp(pause_ * 2, kFirstPause, kLongestPause);
    at_ = Deadline::after(pause_);
}

} // namespace singularity::agent
