// SPDX-License-Identifier: GPL-2.0-or-later
#include "start.hpp"

#include "attachment.hpp"
#include "log.hpp"
#include "process.hpp"
#include "proxy/channel/identity.hpp"
#include "sockets.hpp"
#include "statistics.hpp"
#include "watcher.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <random>
#include <thread>

#include <fmt/format.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::client {

namespace {

// A device proxy opens its driver when somebody connects: on a host with many GPUs that nobody uses it takes
// tens of seconds.
constexpr std::chrono::seconds kFirstHandshake{60};
constexpr int kWindowTries = 64;
constexpr int kOwnWindowTries = 48; // of them; then any window will do

struct Opened {
    std::vector<std::unique_ptr<Session>> sessions;
    Range window;
    std::string why;         // not, if a daemon is away
    bool comes_back = false; // it has said so, or is put away
};

enum class Try : std::uint8_t { done, other_window, away, failed };

constexpr std::chrono::milliseconds kBetweenOpenings{30};

std::uint64_t random_number() {
    std::random_device device;
    return std::uint64_t{device()} << 32 | device();
}

Expected<channel::Answer> greet(channel::Link &link, std::uint64_t window, std::uint64_t ordinal,
                                const std::vector<VisibleDevice> &devices) {
    return channel::say_hello(link,
                              {.devices = static_cast<std::uint32_t>(devices.size()),
                               .window = window,
                               .client = {.process = process().key, .ordinal = ordinal},
                               .device = devices[ordinal].device},
                              Deadline::after(kFirstHandshake));
}

// A name that leads nowhere: whoever stores the process has put the socket away and will put it back. Where
// there was nothing and now is something, it has just come back.
bool comes_back(const std::string &path, int code) {
    struct stat about{};
    return lstat(path.c_str(), &about) == 0 && (code == ENOENT || S_ISLNK(about.st_mode));
}

// Whether nobody is at the socket, or has just left it: in `opened` why, and whether somebody will be there
// again.
bool is_away(const Error &error, const std::string &socket, Opened &opened) {
    constexpr std::array kAway{ENOENT, ECONNREFUSED, ECONNRESET, EPIPE};
    if (std::ranges::find(kAway, error.code) == kAway.end())
        return false;
    opened.why = fmt::format("{} ({})", error.message(), socket);
    opened.comes_back = comes_back(socket, error.code);
    return true;
}

// They are greeted one after the other, but those that open their devices with their first client are to do
// so all at once. What does not listen is found when it is greeted.
void wake_all(const std::vector<VisibleDevice> &visible) {
    if (visible.size() > 1)
        for (const auto &one : visible)
            static_cast<void>(channel::Link::connect(one.socket, Deadline::after(kFirstHandshake)));
}

// One attempt to open all sessions with one window. `wish`: 0 lets the first daemon choose; on other_window
// the address of another one to try; on away it says why in `opened`.
Try open_all(const std::vector<VisibleDevice> &visible, const channel::NodeDevice &whose, std::uint64_t &wish,
             Opened &opened) {
    opened = {};
    channel::DeviceList devices;
    wake_all(visible);
    for (std::size_t ordinal = 0; ordinal < visible.size(); ++ordinal) {
        const auto &socket = visible[ordinal].socket;
        auto link = channel::Link::connect(socket, Deadline::after(kFirstHandshake));
        if (!link) {
            if (is_away(link.error(), socket, opened))
                return Try::away;
            kLog.error("{}; start the device proxy of this socket, or correct SINGULARITY_PROXY_SOCKETS",
                       link.error().message());
            return Try::failed;
        }
        auto answer = greet(*link, ordinal == 0 ? wish : opened.window.address, ordinal, visible);
        if (!answer) {
            if (is_away(answer.error(), socket, opened))
                return Try::away;
            kLog.error("{} ({})", answer.error().message(), socket);
            return Try::failed;
        }
        if (answer->refusal) {
            const auto &refusal = *answer->refusal;
            if (static_cast<channel::RefusalReason>(refusal.reason) == channel::RefusalReason::window_taken ||
                static_cast<channel::RefusalReason>(refusal.reason) ==
                    channel::RefusalReason::window_invalid) {
                wish = channel::window_of(refusal.area, whose, random_number());
                if (wish != 0)
                    return Try::other_window;
            }
            if (static_cast<channel::RefusalReason>(refusal.reason) == channel::RefusalReason::moved) {
                opened.why = fmt::format("the device proxy at {}: {}", socket, refusal.text.data());
                opened.comes_back = true;
                return Try::away;
            }
            kLog.error("the device proxy at {} refuses this process: {}", socket, refusal.text.data());
            return Try::failed;
        }
        const auto &welcome = *answer->welcome;
        if (ordinal == 0) {
            opened.window = {.address = welcome.window, .size = welcome.area.window_size};
        } else if (welcome.window != opened.window.address ||
                   welcome.area.window_size != opened.window.size) {
            kLog.error(
                "the device proxy at {} has windows of {} GiB, that at {} of {} GiB; give all the same "
                "--window-area and --window-size",
                socket, welcome.area.window_size >> 30, visible.front().socket, opened.window.size >> 30);
            return Try::failed;
        }
        auto segment = channel::Segment::map(answer->segment.get(), welcome.geometry);
        if (!segment) {
            kLog.error("{} ({})", segment.error().message(), socket);
            return Try::failed;
        }
        opened.sessions.push_back(std::make_unique<Session>(
            static_cast<int>(ordinal), socket,
            std::make_unique<channel::ClientEnd>(std::move(*segment), std::move(*link)),
            devices.add(welcome.device), welcome.area));
    }
    if (auto reserved = reserve_window(opened.window); !reserved) {
        if (reserved.error().code != EEXIST) {
            kLog.error("{}; is the address space of this process limited (ulimit -v)?",
                       reserved.error().message());
            return Try::failed;
        }
        wish = channel::window_of(opened.sessions.front()->area(), whose, random_number());
        return wish == 0 ? Try::failed : Try::other_window;
    }
    return Try::done;
}

// The child has the parent's memory but not its threads, and the daemons know nothing of it. The sockets are
// closed so that the parent's death is still seen.
void in_forked_child() {
    auto &mine = process();
    const auto state = mine.state.load();
    if (state != State::ready)
        return;
    mine.state.store(State::forked);
    for (const auto &session : mine.sessions)
        close(session->end().link().fd());
}

CUresult connect_all(Process &mine) {
    const auto visible = visible_devices(configured_sockets());
    if (!visible) {
        kLog.error("{}", visible.error().message());
        return CUDA_ERROR_NO_DEVICE;
    }
    if (visible->empty())
        return CUDA_ERROR_NO_DEVICE;
    mine.key = {random_number(), random_number()};
    std::uint64_t wish = 0;
    Opened opened;
    const auto wait = patience();
    // Not by the clock: a process that was stored for a month has not waited for a month.
    auto left = wait.span;
    int windows = 0;
    const auto open = [&] {
        return open_all(*visible,
                        windows <= kOwnWindowTries ? visible->front().device : channel::NodeDevice{}, wish,
                        opened);
    };
    for (auto outcome = open(); outcome != Try::done; outcome = open()) {
        if (outcome == Try::failed)
            return CUDA_ERROR_NO_DEVICE;
        if (outcome == Try::other_window) {
            if (++windows <= kWindowTries)
                continue;
            kLog.error("no window is free in this process and in all device proxies; tried {}", kWindowTries);
            return CUDA_ERROR_OUT_OF_MEMORY;
        }
        // Away: its place is taken by another one while the job is moved.
        if (!(opened.comes_back || wait.asked_for) || left <= left.zero()) {
            kLog.error("{}; start the device proxy of this socket, or correct SINGULARITY_PROXY_SOCKETS",
                       opened.why);
            return CUDA_ERROR_NO_DEVICE;
        }
        std::this_thread::sleep_for(kBetweenOpenings);
        left -= kBetweenOpenings;
    }
    mine.window = plan_window(opened.window, opened.sessions.size());
    mine.host_addresses = RangeAllocator(mine.window.host());
    mine.sessions = std::move(opened.sessions);
    for (std::size_t index = 0; index < mine.sessions.size(); ++index) {
        mine.sessions[index]->slice = mine.window.device(index);
        mine.sessions[index]->addresses = RangeAllocator(mine.sessions[index]->slice);
    }
    return CUDA_SUCCESS;
}

} // namespace

CUresult start_process() {
    auto &mine = process();
    if (mine.state.load(std::memory_order_acquire) == State::ready)
        return CUDA_SUCCESS;
    const std::scoped_lock lock(mine.start);
    switch (mine.state.load()) {
    case State::ready:
        return CUDA_SUCCESS;
    case State::forked:
        return CUDA_ERROR_NOT_INITIALIZED;
    case State::failed:
        return mine.failure;
    case State::untouched:
        break;
    }
    mine.failure = connect_all(mine);
    if (mine.failure != CUDA_SUCCESS) {
        mine.state.store(State::failed);
        return mine.failure;
    }
    start_watcher();
    pthread_atfork(nullptr, nullptr, in_forked_child);
    write_statistics_at_exit();
    mine.state.store(State::ready, std::memory_order_release);
    return CUDA_SUCCESS;
}

} // namespace singularity::client
