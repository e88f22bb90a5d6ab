// SPDX-License-Identifier: GPL-2.0-or-later
#include "aio.hpp"
#include "bindings.hpp"
#include "criu-hooks/host/node.hpp"
#include "file.hpp"
#include "host_connections.hpp"
#include "links.hpp"
#include "outside.hpp"
#include "proc.hpp"
#include "renamed_sockets.hpp"
#include "rescue.hpp"
#include "session.hpp"
#include "socket_options.hpp"
#include "statistics.hpp"
#include "user_work.hpp"
#include "waiting_connections.hpp"
#include "watched.hpp"
#include "written_files.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <optional>
#include <string_view>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::host {
namespace {

// criu's last stage before it lets the node go.
constexpr std::string_view kStillStopped = "post-dump";
// The one before it looks at the processes.
constexpr std::string_view kLooking = "network-lock";
constexpr std::chrono::seconds kEndPatience{3};
constexpr std::chrono::milliseconds kEndLook{20};

Expected<CriuRequest> request_of(const DumpRequest &wanted) {
    CriuRequest request;
    request.kind = CriuRequest::Kind::kDump;
    request.tree = wanted.init;
    request.images = wanted.images;
    request.log = kLog;
    request.ghost_limit = wanted.largest_deleted_file;
    request.leave_waiting = wanted.others_are_reset;
    request.leave_running = wanted.afterwards == Afterwards::kRun;
    request.leave_stopped = wanted.afterwards == Afterwards::kStop;
    auto network = read_link(fmt::format("/proc/{}/ns/net", wanted.init)); // "net:[4026532201]"
    if (!network)
        return propagate(network);
    std::erase(*network, ':');
    request.external.push_back(*network + ':' + std::string(kNetwork));
    for (const OutsideMount &mount : wanted.mounts)
        request.external.push_back(fmt::format("mnt[{}]:{}", mount.path.string(), mount.key));
    DescriptorTable table;
    for (const OutsideDescriptor &each : wanted.descriptors) {
        auto resource = resource_of(each.fd);
        if (!resource)
            return propagate(resource);
        if (!resource->external.empty())
            request.external.push_back(resource->external);
        if (!table.emplace(each.key, resource->inherit).second)
            return failure("dump", "the virtual node", "two outside descriptors have the key " + each.key);
    }
    if (auto written = write_table(wanted.images, table); !written)
        return propagate(written);
    return request;
}

Expected<DumpReport> report_of(int images, std::size_t processes) {
    DumpReport report;
    report.processes = processes;
    auto names = names_in(images);
    if (!names)
        return propagate(names);
    for (const std::string &name : *names) {
        struct stat status{};
        if (fstatat(images, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) != 0)
            return std::unexpected(errno_error("examine", name));
        report.bytes += static_cast<std::uint64_t>(status.st_size);
        ++report.files;
    }
    auto frozen = frozen_time(images);
    if (!frozen)
        return propagate(frozen);
    report.frozen = *frozen;
    return report;
}

// Who has given back its memory has ended, or waits for the last of its name space to be reaped. One that
// criu traces has to be reaped by criu, which may be waiting for its init: for ever.
class InitHasEnded {
  public:
    explicit InitHasEnded(pid_t init) : init_(init) {}

    Expected<void> operator()() {
        const auto program = read_link(fmt::format("/proc/{}/exe", init_));
        if (program || program.error().code != ENOENT)
            return {};
        if (!patience_)
            patience_ = Deadline::after(kPatience);
        if (!patience_->expired())
            return {};
        return failure("dump", "the virtual node", "its init has ended", ESRCH);
    }

  private:
    static constexpr std::chrono::seconds kPatience{2}; // for criu to see it by itself
    pid_t init_;
    std::optional<Deadline> patience_;
};

// CRIU saves no process that has half ended. One that is about to end does so when its memory has been taken
// away, which may be much.
Expected<void> await_endings(pid_t init) {
    const auto patience = Deadline::after(kEndPatience);
    for (;;) {
        auto node = processes_of(init);
        if (!node)
            return propagate(node);
        if (std::ranges::none_of(*node, is_half_ended) || patience.expired())
            return {}; // check() says what is still there
        std::this_thread::sleep_for(kEndLook);
    }
}

} // namespace

Expected<DumpReport> dump(const Context &context, const DumpRequest &wanted, const Deadline &deadline) {
    if (auto probed = probe_kernel(context, deadline); !probed)
        return propagate(probed);
    if (auto ended = await_endings(wanted.init); !ended)
        return propagate(ended);
    if (auto good = check(context, wanted); !good)
        return propagate(good);
    auto before = processes_of(wanted.init);
    if (!before)
        return propagate(before);
    auto request = request_of(wanted);
    if (!request)
        return propagate(request);
    auto watched = watched_names_in_time(context, wanted.init);
    if (!watched)
        return propagate(watched);
    request->watched = std::move(*watched);
    auto complaints = open_complaints(wanted.images);
    if (!complaints)
        return propagate(complaints);
    auto criu = Criu::start({.binary = context.criu,
                             .inherited = {},
                             .complaints = complaints->get(),
                             .user = Criu::User{.library = context.as_user,
                                                .root = {},
                                                .uid = context.uid,
                                                .gid = context.gid,
                                                .groups = context.groups}});
    if (!criu)
        return propagate(criu);

    Context files_context = context;
    files_context.progress = nullptr;
    // Beside criu's own work, and done before criu lets the node go.
    UserWork<KeptFiles> keeping;
    KeptFiles files;
    SocketNames renamed;
    AioRings aio;
    const auto end_keeping = [&]() -> Expected<void> {
        if (!keeping.pending())
            return {};
        auto kept = keeping.wait([&]() -> Expected<void> {
            if (deadline.expired())
                return std::unexpected(
                    timeout_error(deadline, "a copy of the files that are open for writing"));
            return context.progress ? context.progress(kStillStopped) : Expected<void>();
        });
        if (!kept)
            return propagate(kept);
        files = std::move(*kept);
        return {};
    };
    const Notify notify = [&](const std::string &stage, pid_t) -> Expected<void> {
        if (deadline.expired())
            return std::unexpected(timeout_error(deadline, "the dump"));
        if (stage == kStillStopped) {
            if (auto kept = end_keeping(); !kept)
                return kept;
            if (auto good = aio.check_unchanged(); !good)
                return good;
        }
        return context.progress ? context.progress(stage) : Expected<void>();
    };
    const External external = [&]() -> Expected<std::vector<std::string>> {
        auto begun = UserWork<KeptFiles>::begin(
            [files_context, wanted] { return keep_written_files(files_context, wanted); });
        if (!begun)
            return propagate(begun);
        keeping = std::move(*begun);
        auto looking = UserWork<SocketNames>::begin(
            [files_context, init = wanted.init] { return renamed_sockets(files_context, init); });
        if (!looking)
            return propagate(looking);
        auto names = looking->wait([&]() -> Expected<void> {
            if (deadline.expired())
                return std::unexpected(timeout_error(deadline, "a look for the names of Unix sockets"));
            return context.progress ? context.progress(kLooking) : Expected<void>();
        });
        if (!names)
            return propagate(names);
        renamed = std::move(*names);
        auto rings = AioRings::of(wanted.init);
        if (!rings)
            return propagate(rings);
        aio = std::move(*rings);
        const auto patient = [&]() -> Expected<void> {
            if (deadline.expired())
                return std::unexpected(timeout_error(deadline, "the end of asynchronous I/O"));
            return context.progress ? context.progress(kLooking) : Expected<void>();
        };
        if (auto settled = aio.settle(patient); !settled)
            return propagate(settled);
        if (auto options = keep_socket_options(wanted); !options)
            return propagate(options);
        if (auto bindings = keep_bindings(wanted); !bindings)
            return propagate(bindings);
        if (wanted.others_are_reset)
            if (auto good = check_waiting_connections(wanted); !good)
                return propagate(good);
        return leave_host_connections(wanted);
    };
    auto reply = criu->ask(*request, notify, deadline, InitHasEnded(wanted.init), external);
    if (!reply && reply.error().code != 0) {
        const bool ours = reply.error().code == ETIMEDOUT;
        auto killed =
            ours ? kill_at_a_good_moment(*criu, *before, Deadline::after(kToEnd)) : Expected<void>();
        criu->kill_and_reap();
        if (!killed)
            return propagate(killed);
        if (auto healed = heal(*before, Deadline::after(kToEnd)); !healed)
            return propagate(healed);
        Error error = criu_error(context, "dump", wanted.images, "");
        error.why = reply.error().why + "; the node runs on; " + error.why;
        error.code = reply.error().code;
        return std::unexpected(std::move(error));
    }
    const auto ended = criu->finish(Deadline::after(kToEnd));
    if (!reply || !reply->success)
        if (auto tidy = tidy_up(*before, Deadline::after(kToEnd)); !tidy)
            return propagate(tidy);
    if (!reply)
        return propagate(reply);
    if (const auto &refused = reply->refused)
        return std::unexpected(*refused);
    if (!reply->success)
        return std::unexpected(criu_error(context, "dump", wanted.images, reply->message));
    if (!ended)
        return std::unexpected(ended.error());
    if (keeping.pending())
        return failure("dump", "the virtual node", "criu did not say when its processes were all saved");
    if (auto done = rename_in_image(wanted.images, renamed); !done)
        return propagate(done);
    auto report = report_of(wanted.images, before->size());
    if (report) {
        report->written = std::move(files.to_sync);
        report->not_copied = std::move(files.not_copied);
        report->written_in_kept.assign(files.in_kept.begin(), files.in_kept.end());
    }
    if (!report || wanted.afterwards != Afterwards::kStop)
        return report;
    if (auto removed = remove_links(context, wanted.init, wanted.images); !removed)
        return propagate(removed);
    auto after = processes_of(wanted.init);
    if (!after)
        return propagate(after);
    for (const Process &each : *after)
        if (each.state != 'Z') {
            report->alive.push_back(each.inner);
            report->alive_here.push_back(each.pid);
        }
    return report;
}

} // namespace singularity::host
