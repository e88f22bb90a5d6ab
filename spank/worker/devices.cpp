// SPDX-License-Identifier: GPL-2.0-or-later
#include "devices.hpp"

#include "common/text.hpp"
#include "device_store.hpp"
#include "log.hpp"
#include "node/image_search.hpp"
#include "proxy/control/control.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <functional>
#include <optional>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace singularity::worker {

namespace {

constexpr std::chrono::seconds kAttachPatience{30};
// A rank may be in a kernel, or its program in something else, before it comes to its next collective.
constexpr std::chrono::seconds kBarrierPatience{60};
constexpr std::chrono::seconds kRoundPatience{1};
constexpr const char *kNowhere = "put-away"; // no such file
constexpr const char *kPreparing = "preparing";
constexpr const char *kSaving = "saving devices";
constexpr const char *kLoading = "loading devices";

std::string hidden(std::uint32_t proxy) { return fmt::format("{}.hidden", proxy); }

Expected<UniqueFd> directory(const std::filesystem::path &path) {
    return open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

// A path that is short enough for a socket, whatever the state directory is called.
std::filesystem::path control_socket(const UniqueFd &control, std::uint32_t proxy) {
    return fmt::format("/proc/self/fd/{}/{}", control.get(), node::device_socket(proxy));
}

// A path that leads through a descriptor of ours says nothing to whom the error is for.
Error of_proxy(Error error, std::uint32_t proxy, const node::Record &record) {
    if (error.code != ETIMEDOUT) // that names what was waited for
        error.on = fmt::format("device proxy {} of {}", proxy, record.spec.name);
    return error;
}

// Does it for all numbers at once; the first error, in their order.
Expected<void> for_all(std::uint32_t count, const std::function<Expected<void>(std::uint32_t)> &work) {
    std::vector<Expected<void>> results(count);
    {
        std::vector<std::jthread> threads;
        threads.reserve(count);
        for (std::uint32_t number = 0; number < count; ++number)
            threads.emplace_back([&, number] { results[number] = work(number); });
    }
    for (auto &result : results)
        if (!result)
            return result;
    return {};
}

// How far each proxy is, told by threads of their own.
class ProxyBytes {
  public:
    explicit ProxyBytes(std::uint32_t proxies) : bytes_(proxies) {}
    [[nodiscard]] std::uint64_t sum() const {
        std::uint64_t all = 0;
        for (const auto &one : bytes_)
            all += one.load();
        return all;
    }
    // Of all, with this.
    std::uint64_t now(std::uint32_t proxy, std::uint64_t count) {
        bytes_[proxy].store(count);
        return sum();
    }

  private:
    std::vector<std::atomic<std::uint64_t>> bytes_;
};

bool is_socket(int directory, const std::string &name) {
    struct stat about{};
    return fstatat(directory, name.c_str(), &about, AT_SYMLINK_NOFOLLOW) == 0 && S_ISSOCK(about.st_mode);
}

// From one directory of root's to another that clients cannot enter, or back.
Expected<void> move_sockets(const node::Room &room, std::uint32_t count, bool hide) {
    auto shown = directory(room.devices());
    auto away = directory(room.control());
    if (!shown || !away)
        return shown ? propagate(away) : propagate(shown);
    for (std::uint32_t proxy = 0; proxy < count; ++proxy) {
        const auto seen = node::device_socket(proxy);
        const auto unseen = hidden(proxy);
        // At every moment there is something of that name: a new client that finds a link to nowhere waits.
        int moved = 0;
        if (hide) {
            moved = symlinkat(kNowhere, away->get(), unseen.c_str());
            if (moved == 0)
                moved = renameat2(shown->get(), seen.c_str(), away->get(), unseen.c_str(), RENAME_EXCHANGE);
        } else if (is_socket(away->get(), unseen)) {
            moved = renameat(away->get(), unseen.c_str(), shown->get(), seen.c_str());
        } else if (unlinkat(away->get(), unseen.c_str(), 0) != 0 && errno != ENOENT) {
            moved = -1;
        }
        if (moved != 0)
            return std::unexpected(errno_error(hide ? "hide" : "show", (room.devices() / seen).native()));
    }
    return {};
}

} // namespace

std::string Devices::file(std::uint32_t proxy) { return fmt::format("device-{}.stream", proxy); }

Expected<void> Devices::hide() const { return move_sockets(room_, proxies(), true); }
Expected<void> Devices::show() const { return move_sockets(room_, proxies(), false); }

Expected<void> Devices::link() const { return room_.link_devices(devices(), proxies()); }

Expected<void> Devices::prepare(int into, AgentLink &agent, const Deadline &deadline) const {
    auto control = directory(room_.control());
    if (!control)
        return propagate(control);
    ProxyBytes bytes(proxies());
    agent.progress(kPreparing);
    return for_all(proxies(), [&](std::uint32_t proxy) -> Expected<void> {
        const UniqueFd stream(openat(into, file(proxy).c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (!stream)
            return std::unexpected(errno_error("make", file(proxy)));
        auto answer = proxy_control::prepare(
            control_socket(*control, proxy), stream.get(),
            [&](std::uint64_t count) { agent.progress(kPreparing, bytes.now(proxy, count)); }, deadline);
        if (!answer)
            return std::unexpected(of_proxy(std::move(answer.error()), proxy, record_));
        return {};
    });
}

Expected<proxy_control::NodeBarrier> Devices::barrier(const Deadline &deadline) const {
    auto control = directory(room_.control());
    if (!control)
        return propagate(control);
    std::vector<std::filesystem::path> sockets;
    sockets.reserve(proxies());
    for (std::uint32_t proxy = 0; proxy < proxies(); ++proxy)
        sockets.push_back(control_socket(*control, proxy));
    return proxy_control::NodeBarrier::open(sockets, deadline);
}

Expected<proxy_control::NodeBarrier> Devices::stop_ranks(AgentLink &agent) const {
    agent.progress("stopping ranks");
    const auto deadline = Deadline::after(kBarrierPatience);
    auto barrier = this->barrier(deadline);
    if (!barrier)
        return propagate(barrier);
    auto cut = barrier->acquire(kRoundPatience, deadline, [&] { return agent.still_wanted(); });
    if (!cut)
        return propagate(cut);
    kLog.debug("{}: {} processes stopped between collectives in {} rounds", record_.spec.name, cut->processes,
               cut->rounds);
    return std::move(*barrier);
}

Expected<Devices::Saved> Devices::save(int into, AgentLink &agent, const Deadline &deadline) const {
    auto control = directory(room_.control());
    if (!control)
        return propagate(control);
    ProxyBytes bytes(proxies());
    std::vector<proxy_control::Answer> answers(proxies());
    agent.progress(kSaving);
    auto saved = for_all(proxies(), [&](std::uint32_t proxy) -> Expected<void> {
        const UniqueFd stream(openat(into, file(proxy).c_str(), O_RDWR | O_NOFOLLOW | O_CLOEXEC));
        if (!stream)
            return std::unexpected(errno_error("open", file(proxy)));
        const proxy_control::SaveOptions options{
            .afterwards = proxy_control::Afterwards::detach,
            .progress = [&](std::uint64_t count) { agent.progress(kSaving, bytes.now(proxy, count)); }};
        auto answer = proxy_control::save(control_socket(*control, proxy), stream.get(), options, deadline);
        if (!answer)
            return std::unexpected(of_proxy(std::move(answer.error()), proxy, record_));
        answers[proxy] = *answer;
        return {};
    });
    if (!saved)
        return propagate(saved);
    Saved out;
    for (const auto &answer : answers) {
        out.bytes += answer.bytes;
        out.memory += answer.memory_bytes;
        if (answer.device_bytes != 0) // else nothing has used it yet, and it is not open
            out.device = out.device == 0 ? answer.device_bytes : std::min(out.device, answer.device_bytes);
    }
    return out;
}

Expected<void> Devices::resume(const Deadline &deadline) const {
    auto control = directory(room_.control());
    if (!control)
        return propagate(control);
    return for_all(proxies(), [&](std::uint32_t proxy) -> Expected<void> {
        auto answer = proxy_control::resume(control_socket(*control, proxy), deadline);
        if (!answer)
            return std::unexpected(of_proxy(std::move(answer.error()), proxy, record_));
        return {};
    });
}

Expected<std::uint64_t> Devices::load(const store::Checkpoint &checkpoint, AgentLink &agent,
                                      const Deadline &deadline) const {
    auto control = directory(room_.control());
    if (!control)
        return propagate(control);
    std::atomic<std::uint64_t> bytes = 0;
    agent.progress(kLoading);
    // Devices that share a proxy are restored one after the other.
    auto loaded = for_all(proxies(), [&](std::uint32_t proxy) -> Expected<void> {
        for (std::uint32_t device = proxy; device < devices(); device += proxies()) {
            std::array<int, 2> ends{};
            if (pipe2(ends.data(), O_CLOEXEC) != 0)
                return std::unexpected(errno_error("make", "a pipe"));
            UniqueFd reading(ends[0]);
            UniqueFd writing(ends[1]);
            Expected<void> written;
            std::uint64_t before = 0;
            std::jthread writer([&, device] {
                written = load_device(checkpoint, record_.spec.name, device, writing.get(), deadline,
                                      [&](std::uint64_t count) {
                                          agent.progress(kLoading, bytes += count - before);
                                          before = count;
                                          return agent.still_wanted();
                                      });
                writing.reset();
            });
            auto answer =
                proxy_control::restore(control_socket(*control, proxy), reading.get(), {}, deadline);
            reading.reset(); // or the writer would wait for a reader that has given up
            writer.join();
            // The store's error is the reason of the proxy's, unless the proxy does not want any more.
            if (!written && (answer || written.error().code != EPIPE))
                return written;
            if (!answer)
                return std::unexpected(of_proxy(std::move(answer.error()), proxy, record_));
        }
        return {};
    });
    if (!loaded)
        return propagate(loaded);
    return bytes.load();
}

Expected<void> Devices::await_clients(pid_t init, AgentLink &agent) const {
    if (!any())
        return {};
    agent.progress("attaching clients");
    auto control = directory(room_.control());
    if (!control)
        return propagate(control);
    auto root = open_file(fmt::format("/proc/{}/root", init), O_PATH | O_DIRECTORY);
    if (!root)
        return propagate(root);
    // A node's programs may write to its root: no link is followed, and what lies there must be the kernel's.
    const auto processes = node::open_by_name(root->get(), "proc", O_RDONLY | O_DIRECTORY,
                                              RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
    struct statfs on{};
    if (!processes || fstatfs(processes.get(), &on) != 0 || on.f_type != PROC_SUPER_MAGIC)
        return failure("attach the clients of", quote(record_.spec.name), "it has no /proc any more", EPERM);
    return for_all(proxies(), [&](std::uint32_t proxy) -> Expected<void> {
        auto answer = proxy_control::await_attached(control_socket(*control, proxy), processes.get(),
                                                    Deadline::after(kAttachPatience));
        if (answer)
            return {};
        // It lives and has said so, or has no time to.
        if (answer.error().code != EIO && answer.error().code != ETIMEDOUT)
            return std::unexpected(of_proxy(std::move(answer.error()), proxy, record_));
        kLog.warning("{}: {}", record_.spec.name, answer.error().message());
        return {};
    });
}

} // namespace singularity::worker
