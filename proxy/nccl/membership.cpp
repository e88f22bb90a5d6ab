// SPDX-License-Identifier: GPL-2.0-or-later
#include "membership.hpp"

#include "common/deadline.hpp"
#include "proxy/protocol/collective.hpp"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <string>
#include <string_view>
#include <thread>

namespace singularity::nccl {

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;
using protocol::CommunicatorPhase;

constexpr std::chrono::seconds kLongestWait{1800};
constexpr std::size_t kMostText = 4096;

struct Standing {
    CommunicatorPhase phase = CommunicatorPhase::joining;
    Result result = Result::success;
    std::uint64_t completed = 0;
    std::string text;
};

// What a proxy says of a failure is taken for what it can be only.
Result failure_in(std::uint32_t number) {
    const auto result = static_cast<Result>(number);
    return result > Result::success && result < Result::in_progress ? result : Result::remote_error;
}

Expected<Standing> standing_of(Library &library, const Communicator &communicator) {
    Standing standing;
    auto asked = ask(library.driver, communicator.place,
                     protocol::Message<protocol::CommunicatorState>{
                         .fixed = {.communicator = communicator.number, .completed = 0, .wait_ms = 0}},
                     kMostText, [&](const auto &reply) {
                         standing = {.phase = static_cast<CommunicatorPhase>(reply.fixed.phase),
                                     .result = failure_in(reply.fixed.result),
                                     .completed = reply.fixed.completed,
                                     .text = std::string(protocol::text_of(reply.buffers[0]))};
                     });
    if (!asked)
        return propagate(asked);
    return standing;
}

Result failed(Communicator &communicator, Result result, std::string_view why) {
    communicator.fail(result);
    return refuse(result, "communicator of {} ranks, rank {}: {}", communicator.size, communicator.rank, why);
}

// Asks until done(standing), with pauses that grow: whoever comes last to a communicator is not kept waiting,
// and who waits for long asks seldom.
template <class Done>
Result wait_until(Library &library, Communicator &communicator, std::string_view what, Done done) {
    constexpr auto kLongestPause = 5ms;
    constexpr Clock::duration kMostCounted = 1s;
    const auto most = longest_wait();
    Clock::duration waited{};
    Clock::duration pause = 50us;
    for (auto before = Clock::now();;) {
        if (communicator.cancelled)
            return refuse(Result::invalid_usage, "the communicator was aborted while it waited for {}", what);
        const auto standing = standing_of(library, communicator);
        if (!standing)
            return failed(communicator, Result::unhandled_cuda_error, standing.error().message());
        if (standing->phase == CommunicatorPhase::failed)
            return failed(communicator, standing->result, standing->text);
        if (done(*standing))
            return Result::success;
        if (waited > most)
            return failed(communicator, Result::system_error,
                          fmt::format("{} has not happened within {} s (SINGULARITY_NCCL_TIMEOUT)", what,
                                      std::chrono::duration_cast<std::chrono::seconds>(most).count()));
        std::this_thread::sleep_for(pause);
        pause = std::min<Clock::duration>(pause * 2, kLongestPause);
        const auto now = Clock::now();
        waited += std::min(now - before, kMostCounted);
        before = now;
    }
}

barrier::Member place_in(const Communicator &communicator) {
    return {
        .communicator = {.words = communicator.key}, .rank = communicator.rank, .size = communicator.size};
}

} // namespace

std::chrono::milliseconds longest_wait() {
    const char *const wish = std::getenv("SINGULARITY_NCCL_TIMEOUT");
    if (wish == nullptr)
        return kLongestWait;
    constexpr unsigned kMost = 1000U * 1000 * 1000;
    const std::string_view text(wish);
    unsigned seconds = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), seconds);
    return error == std::errc() && end == text.end() && seconds > 0 && seconds <= kMost
               ? std::chrono::seconds(seconds)
               : kLongestWait;
}

Result join(Library &library, Communicator &communicator) {
    if (auto asked =
            ask(library.driver, communicator.place,
                protocol::Message<protocol::JoinCommunicator>{.fixed = {.communicator = communicator.number,
                                                                        .key = communicator.key,
                                                                        .rank = communicator.rank,
                                                                        .size = communicator.size}},
                0, [](const auto & /*reply*/) {});
        !asked)
        return failed(communicator, Result::unhandled_cuda_error, asked.error().message());
    communicator.joined = true;
    library.gate.join(place_in(communicator));
    return wait_until(library, communicator, fmt::format("all {} ranks joining", communicator.size),
                      [](const Standing &standing) { return standing.phase == CommunicatorPhase::ready; });
}

void refresh(Library &library, Communicator &communicator) {
    communicator.asked = Clock::now().time_since_epoch().count();
    const auto standing = standing_of(library, communicator);
    if (!standing)
        static_cast<void>(failed(communicator, Result::unhandled_cuda_error, standing.error().message()));
    else if (standing->phase == CommunicatorPhase::failed)
        static_cast<void>(failed(communicator, standing->result, standing->text));
}

Result ready(Library &library, Communicator &communicator) {
    // Collectives have no answers: that a member is gone has to be asked for, but not each time.
    constexpr std::chrono::nanoseconds kInterval = std::chrono::seconds(1);
    const auto now = std::chrono::steady_clock::now().time_since_epoch().count();
    if (communicator.state == Result::success && communicator.joined &&
        now - communicator.asked.load(std::memory_order_relaxed) > kInterval.count())
        refresh(library, communicator);
    const auto state = communicator.state.load();
    if (state == Result::in_progress)
        return refuse(Result::invalid_argument,
                      "Attempt to use communicator before the previous operation returned ncclSuccess");
    return state;
}

Result flush(Library &library, Communicator &communicator) {
    const auto issued = [&] {
        const std::scoped_lock lock(communicator.order);
        return communicator.groups;
    }();
    if (issued == 0)
        return Result::success;
    return wait_until(library, communicator, fmt::format("the end of {} groups of operations", issued),
                      [&](const Standing &standing) { return standing.completed >= issued; });
}

Result leave(Library &library, Communicator &communicator, Leave how) {
    if (!communicator.joined.exchange(false))
        return Result::success;
    library.gate.leave(place_in(communicator));
    // An error is the daemon's end, which the message meets as well.
    if (how == Leave::abort)
        static_cast<void>(library.driver.abort(communicator.place, communicator.number));
    if (auto asked =
            ask(library.driver, communicator.place,
                protocol::Message<protocol::LeaveCommunicator>{
                    .fixed = {.communicator = communicator.number, .abort = how == Leave::abort ? 1U : 0U}},
                0, [](const auto & /*reply*/) {});
        !asked)
        return refuse(Result::unhandled_cuda_error, asked.error());
    return Result::success;
}

Outcome<std::vector<std::byte>> exchange(Library &library, Communicator &communicator, std::uint64_t number,
                                         std::span<const std::byte> mine) {
    if (communicator.revoked) {
        // Its members are no longer connected: they meet at another one, for this exchange only.
        Communicator meeting(communicator.place, communicator.settings);
        meeting.key = key_behind_revoked(communicator.key, number);
        meeting.rank = communicator.rank;
        meeting.size = communicator.size;
        if (const auto bad = join(library, meeting); bad != Result::success)
            return std::unexpected(bad);
        auto all = exchange(library, meeting, number, mine);
        const auto left = leave(library, meeting, Leave::when_complete);
        if (all && left != Result::success)
            return std::unexpected(left);
        return all;
    }
    const barrier::Line line{.communicator = {.words = communicator.key}, .rank = communicator.rank};
    // Until all have answered: it is a collective that is complete when it returns.
    const Passage passage(library.gate, std::span(&line, 1));
    const auto group = [&] {
        const std::scoped_lock lock(communicator.order);
        return ++communicator.groups;
    }();
    std::vector<std::byte> all;
    auto asked = ask(library.driver, communicator.place,
                     protocol::Message<protocol::ExchangeWithMembers>{
                         .fixed = {.communicator = communicator.number,
                                   .group = group,
                                   .within_ms = static_cast<std::uint64_t>(longest_wait().count())},
                         .buffers = {driver_api::View{.bytes = mine, .present = true}}},
                     mine.size() * communicator.size, [&](const auto &reply) {
                         if (reply.buffers[0].present)
                             all.assign(reply.buffers[0].bytes.begin(), reply.buffers[0].bytes.end());
                     });
    if (!asked)
        return std::unexpected(failed(communicator, Result::unhandled_cuda_error, asked.error().message()));
    if (all.size() == mine.size() * communicator.size)
        return all;
    refresh(library, communicator);
    if (const auto state = communicator.state.load();
        state != Result::success && state != Result::in_progress)
        return std::unexpected(state);
    return std::unexpected(
        failed(communicator, Result::remote_error, "not all members have given what the others wait for"));
}

} // namespace singularity::nccl
