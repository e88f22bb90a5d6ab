// SPDX-License-Identifier: GPL-2.0-or-later
#include "name_stream.hpp"

#include <cerrno>
#include <chrono>
#include <utility>

#include <sys/socket.h>

namespace singularity::network {

namespace {

constexpr std::chrono::seconds kIdle{30};
constexpr std::size_t kHeld = 16384; // bytes that are on their way in one direction
constexpr int kStepsAtOnce = 16;

bool would_wait(int error) {
    // ENOTCONN: it is still connecting.
    return error == EAGAIN || error == EWOULDBLOCK || error == EINTR || error == ENOTCONN;
}

} // namespace

NameStream::NameStream(UniqueFd in_node, UniqueFd on_host)
    : ends_{std::move(in_node), std::move(on_host)}, until_(Deadline::after(kIdle)) {}

NameStream::Step NameStream::pass(Flow &flow, const UniqueFd &from, const UniqueFd &to) {
    auto out = Step::none;
    if (flow.held.empty() && !flow.read_to_end) {
        flow.held.resize(kHeld);
        const auto count = recv(from.get(), flow.held.data(), flow.held.size(), 0);
        const int error = count < 0 ? errno : 0;
        flow.held.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
        if (count < 0 && !would_wait(error))
            return Step::broken;
        if (count == 0)
            flow.read_to_end = true;
        if (count >= 0)
            out = Step::some;
    }
    if (!flow.held.empty()) {
        const auto count = send(to.get(), flow.held.data(), flow.held.size(), MSG_NOSIGNAL);
        if (count < 0 && !would_wait(errno))
            return Step::broken;
        if (count > 0) {
            flow.held.erase(0, static_cast<std::size_t>(count));
            out = Step::some;
        }
    }
    if (flow.held.empty() && flow.read_to_end && !flow.ended) {
        if (shutdown(to.get(), SHUT_WR) != 0 && errno != ENOTCONN)
            return Step::broken;
        flow.ended = true;
    }
    return out;
}

NameStream::Outcome NameStream::pass() {
    for (int step = 0; step < kStepsAtOnce; ++step) {
        bool some = false;
        for (std::size_t end = 0; end < ends_.size(); ++end) {
            const auto passed = pass(flows_[end], ends_[end], ends_[1 - end]);
            if (passed == Step::broken)
                return Outcome::over;
            some = some || passed == Step::some;
        }
        if (flows_[0].ended && flows_[1].ended)
            return Outcome::over;
        if (!some)
            return Outcome::waits;
        until_ = Deadline::after(kIdle);
    }
    return Outcome::goes_on;
}

} // namespace singularity::network
