// SPDX-License-Identifier: GPL-2.0-or-later
#include "access.hpp"
#include "bindings.hpp"
#include "bound.hpp"
#include "children.hpp"
#include "criu-hooks/host/node.hpp"
#include "deleted_mounts.hpp"
#include "grown.hpp"
#include "host_connections.hpp"
#include "interrupted.hpp"
#include "outside.hpp"
#include "places.hpp"
#include "put_back.hpp"
#include "session.hpp"
#include "socket_options.hpp"
#include "standstill.hpp"
#include "timers.hpp"
#include "verify.hpp"

#include <algorithm>
#include <csignal>
#include <optional>
#include <string_view>

#include <fmt/format.h>

namespace singularity::host {
namespace {

// criu's processes wait for each other for moments.
constexpr std::chrono::seconds kStandstill{20};
// criu's last stage in which it undoes everything when it is refused, or has nobody left to ask.
constexpr std::string_view kHeld = "post-restore";
// criu's last stage in which all processes are stopped.
constexpr std::string_view kBeforeItRuns = "pre-resume";

Expected<CriuRequest> request_of(const RestoreRequest &wanted) {
    CriuRequest request;
    request.kind = CriuRequest::Kind::kRestore;
    request.images = wanted.images;
    request.log = kLog;
    request.root = wanted.root.string();
    request.inherited.emplace_back(kNetwork, wanted.network);
    for (const OutsideMount &mount : wanted.mounts)
        request.external.push_back(fmt::format("mnt[{}]:{}", mount.key, mount.path.string()));
    auto table = read_table(wanted.images);
    if (!table)
        return propagate(table);
    for (const auto &[key, resource] : *table) {
        const auto given = std::ranges::find(wanted.descriptors, key, &OutsideDescriptor::key);
        if (given == wanted.descriptors.end())
            return failure("restore", "the virtual node",
                           "nothing was given to take the place of its descriptor " + key);
        request.inherited.emplace_back(resource, given->fd);
    }
    return request;
}

Criu::User user_of(const Context &context, const RestoreRequest &wanted) {
    return {.library = context.as_user,
            .root = wanted.root,
            .uid = context.uid,
            .gid = context.gid,
            .groups = context.groups,
            .placed = wanted.placed};
}

// Everything is open, nothing runs. criu would let it run whatever it is told now, so both are killed first.
Expected<void> verify_new_ones(const Context &context, const RestoreRequest &wanted, const Children &children,
                               Criu &criu) {
    auto made = children.new_ones();
    if (!made)
        return propagate(made);
    for (const pid_t pid : *made) {
        if (pid == criu.pid())
            continue;
        if (auto verified = verify_access(context, wanted.descriptors, pid); !verified) {
            kill(pid, SIGKILL); // the init of a PID namespace takes everything in it along
            criu.kill_and_reap();
            auto error = std::move(verified.error());
            error.doing = "restore";
            if (error.code == EACCES)
                error.why += ": at the checkpoint another file had its name; put that one back";
            return std::unexpected(std::move(error));
        }
    }
    return {};
}

} // namespace

Expected<pid_t> restore(const Context &context, const RestoreRequest &wanted, const Deadline &deadline) {
    if (auto verified = verify_credentials(context, wanted.images); !verified)
        return propagate(verified);
    if (auto probed = probe_kernel(context, deadline); !probed)
        return propagate(probed);
    auto places = places_of(wanted);
    if (!places)
        return propagate(places);
    auto put_back = put_back_files(context, wanted, *places, deadline);
    if (!put_back)
        return propagate(put_back);
    if (auto accepted = accept_grown_files(wanted, *places, *put_back); !accepted)
        return propagate(accepted);
    if (auto bound = bind_what_is_there(wanted); !bound)
        return propagate(bound);
    if (auto repaired = repair_timers_in_images(wanted.images); !repaired)
        return propagate(repaired);
    if (auto again = call_again_in_images(wanted.images); !again)
        return propagate(again);
    if (auto verified = verify_bound_sockets(context, wanted); !verified)
        return propagate(verified);
    auto request = request_of(wanted);
    if (!request)
        return propagate(request);
    // criu has copies of them from its start on.
    auto ended_before = ended_connections(wanted);
    if (!ended_before)
        return propagate(ended_before);
    for (const auto &[name, socket] : *ended_before)
        request->inherited.emplace_back(name, socket.get());
    auto complaints = open_complaints(wanted.images);
    if (!complaints)
        return propagate(complaints);
    // The node's init is made with CLONE_PARENT: it becomes a child of this thread, also if criu fails later.
    auto children = Children::of_this_thread();
    if (!children)
        return propagate(children);
    // The real user id is root's: the user could otherwise stop criu, and kill it where it has just made a
    // file.
    auto criu = Criu::start({.binary = context.criu,
                             .inherited = request->inherited,
                             .complaints = complaints->get(),
                             .user = user_of(context, wanted)});
    if (!criu)
        return propagate(criu);
    std::optional<Error> refused;
    Deadline left = deadline;
    Standstill standstill(kStandstill);
    const auto hold = [&](pid_t init) -> Expected<void> {
        const auto before = std::chrono::ceil<std::chrono::milliseconds>(left.remaining());
        auto held = wanted.hold(init);
        left = Deadline::after(before);
        standstill = Standstill(kStandstill);
        return held;
    };
    pid_t root = 0;
    const Notify notify = [&](const std::string &stage, pid_t init) -> Expected<void> {
        if (left.expired())
            return std::unexpected(timeout_error(left, "the restore"));
        if (init != 0) // criu does not name it at each stage
            root = init;
        if (stage == kHeld && wanted.hold)
            if (auto held = hold(init); !held) {
                refused = held.error();
                return held;
            }
        if (stage == kBeforeItRuns)
            if (auto verified = verify_new_ones(context, wanted, *children, *criu); !verified) {
                refused = verified.error();
                return verified;
            }
        if (stage == kBeforeItRuns)
            if (auto set = set_socket_options(wanted, root); !set) {
                refused = set.error();
                return set;
            }
        if (stage == kBeforeItRuns)
            if (auto bound = bind_again(wanted.images, root); !bound) {
                refused = bound.error();
                return bound;
            }
        if (stage == kBeforeItRuns && wanted.connected)
            if (auto done = wanted.connected(); !done) {
                refused = done.error();
                return done;
            }
        if (stage == kBeforeItRuns)
            if (auto marked = mark_files(context, wanted, *places, left); !marked) {
                refused = marked.error();
                return marked;
            }
        return context.progress ? context.progress(stage) : Expected<void>();
    };
    const Doubt doubt = [&]() -> Expected<void> {
        auto made = children->new_ones();
        if (!made)
            return propagate(made);
        // criu is no parent of the init, and would wait for one that is dead.
        for (const pid_t pid : *made)
            if (pid != criu->pid() && is_to_be_reaped(pid))
                return failure("restore", "the virtual node", "its first process was killed meanwhile",
                               ECHILD);
        return standstill.look(*made);
    };
    auto reply = criu->ask(*request, notify, left, doubt);
    const auto ended = reply ? criu->finish(Deadline::after(kToEnd)) : Expected<void>();
    criu->kill_and_reap();
    if (reply && reply->success && ended)
        return reply->root;
    if (auto gone = children->end_new_ones(Deadline::after(kToEnd)); !gone)
        return propagate(gone);
    if (refused)
        return std::unexpected(std::move(*refused));
    if (const auto no = reply ? reply->refused : std::nullopt)
        return std::unexpected(*no);
    if (!ended)
        return std::unexpected(ended.error());
    Error error = criu_error(context, "restore", wanted.images, reply ? reply->message : reply.error().why);
    if (!reply) {
        error.why = reply.error().why + ": " + error.why;
        error.code = reply.error().code;
    }
    return std::unexpected(std::move(error));
}

} // namespace singularity::host
