// SPDX-License-Identifier: GPL-2.0-or-later
#include "progress.hpp"

#include <cstdio>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace singularity::simulator {
namespace {

using namespace std::chrono_literals;

constexpr int kBarWidth = 40;

void write(const std::string &text) { std::fputs(text.c_str(), stderr); }

} // namespace

Progress::Progress(std::string what) : what_(std::move(what)), terminal_(isatty(STDERR_FILENO) == 1) {}

Progress::~Progress() {
    if (shown_ && terminal_)
        write("\r\x1b[K");
}

void Progress::show(double share) {
    const auto now = Clock::now();
    if (now - last_ < (terminal_ ? 200ms : 5000ms))
        return;
    last_ = now;
    shown_ = true;
    const double passed = std::chrono::duration<double>(now - begin_).count();
    const double rest = share > 0 ? (passed / share) - passed : 0;
    if (terminal_) {
        const int full = static_cast<int>(share * kBarWidth);
        write(fmt::format("\r\x1b[K{:<12} [{:#<{}}{:.<{}}] {:3.0f} %  {:.0f} s, {:.0f} s left", what_,
                          std::string_view(), full, std::string_view(), kBarWidth - full, share * 100, passed,
                          rest));
    } else {
        write(fmt::format("{}: {:.0f} % of the jobs after {:.0f} s, about {:.0f} s left\n", what_,
                          share * 100, passed, rest));
    }
}

} // namespace singularity::simulator
