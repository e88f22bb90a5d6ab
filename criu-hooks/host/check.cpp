// SPDX-License-Identifier: GPL-2.0-or-later
#include "access.hpp"
#include "check_files.hpp"
#include "common/text.hpp"
#include "criu-hooks/host/node.hpp"
#include "file.hpp"
#include "proc.hpp"
#include "watched.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/kcmp.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace singularity::host {
namespace {

// capable: set where the thread has capabilities.
Expected<void> check_ids(const Context &context, const Process &process, pid_t thread, bool &capable) {
    auto status = status_of(process.pid, thread);
    if (!status)
        return status.error().code == ENOENT || status.error().code == ESRCH ? Expected<void>()
                                                                             : propagate(status);
    if (std::ranges::any_of(status->uid, [&](uid_t each) { return each != context.uid; }))
        return cannot_save(
            process.title(),
            fmt::format("it has user ids {}, {}, {}, {} where all must be {}: it has changed them (su, a "
                        "set-user-id program) or is not of this job",
                        status->uid[0], status->uid[1], status->uid[2], status->uid[3], context.uid));
    if (std::ranges::any_of(status->gid, [&](gid_t each) { return each != context.gid; }))
        return cannot_save(process.title(),
                           fmt::format("it has group ids {}, {}, {}, {} where all must be {} (newgrp, sg)",
                                       status->gid[0], status->gid[1], status->gid[2], status->gid[3],
                                       context.gid));
    if (status->tracer != 0)
        return cannot_save(
            process.title(),
            fmt::format("it is traced by process {} (a debugger, strace): end that one", status->tracer));
    capable = capable || status->capable;
    return {};
}

Expected<void> check_session(const Process &process) {
    auto status = status_of(process.pid);
    if (!status)
        return {}; // it has ended
    if (status->session_in.empty() || status->session_in.back() == 0)
        return cannot_save(process.title(),
                           "its session's leader is outside of the node: init must be started with setsid");
    if (status->group_in.empty() || status->group_in.back() == 0)
        return cannot_save(
            process.title(),
            "its process group's leader is outside of the node: init must be started with setsid");
    return {};
}

// One set of namespaces for all: that is what a restore makes again.
Expected<void> check_name_spaces(const Process &init, const Process &process) {
    constexpr std::array<std::pair<const char *, const char *>, 7> kKinds{{{"mnt", "mount"},
                                                                           {"net", "network"},
                                                                           {"uts", "UTS"},
                                                                           {"ipc", "IPC"},
                                                                           {"user", "user"},
                                                                           {"cgroup", "cgroup"},
                                                                           {"time", "time"}}};
    for (const auto &[file, name] : kKinds) {
        auto expected = read_link(fmt::format("/proc/{}/ns/{}", init.pid, file));
        auto found = read_link(fmt::format("/proc/{}/ns/{}", process.pid, file));
        if (expected && found && *expected != *found)
            return cannot_save(
                process.title(),
                fmt::format("it is in another {} namespace than the node's init (unshare, a container or "
                            "a sandbox inside of the job)",
                            name));
    }
    auto children = read_link(fmt::format("/proc/{}/ns/pid_for_children", process.pid));
    auto own = read_link(fmt::format("/proc/{}/ns/pid", process.pid));
    if (children && own && *children != *own)
        return cannot_save(
            process.title(),
            "it has made a PID namespace inside of the node's (unshare, a container or a sandbox)");
    return {};
}

// CRIU saves one table of descriptors, one working directory and one umask for a process, whatever its
// threads have made of their own.
Expected<void> check_threads(const Process &process) {
    constexpr std::array<std::pair<int, const char *>, 2> kShared{
        {{KCMP_FILES, "descriptors"}, {KCMP_FS, "a working directory and umask"}}};
    for (const pid_t thread : process.threads)
        for (const auto &[what, name] : kShared)
            if (thread != process.pid && syscall(SYS_kcmp, process.pid, thread, what, 0, 0) > 0)
                return cannot_save(process.title(),
                                   fmt::format("one of its threads has {} of its own (unshare), "
                                               "which CRIU would lose: end that thread",
                                               name));
    return {};
}

// Neither the queues nor what is in them are in an image.
Expected<void> check_message_queues(const DumpRequest &request) {
    const std::string path = fmt::format("/proc/{}/root/dev/mqueue", request.init);
    auto directory = open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    struct statfs on{};
    if (!directory || fstatfs(directory->get(), &on) != 0 || on.f_type != kMessageQueues)
        return {}; // it has none
    auto names = names_in(directory->get());
    if (!names)
        return propagate(names);
    if (names->empty())
        return {};
    return cannot_save("the virtual node",
                       fmt::format("it has the message queue {}, and CRIU cannot save those of "
                                   "mq_open(3): mq_unlink(3) it before a checkpoint",
                                   quote("/" + names->front())));
}

// A process that was put into the namespace from outside (nsenter) is nobody's child in there: CRIU would
// miss it, and a restore could find its id taken.
Expected<void> check_ancestry(const std::vector<Process> &node, const Process &process) {
    if (process.pid == node.front().pid ||
        std::ranges::find(node, process.parent, &Process::pid) != node.end())
        return {};
    return cannot_save(process.title(),
                       fmt::format("its parent, process {} of the host, is not in the node (nsenter): end it",
                                   process.parent));
}

// What the user could not open again: nobody else will. It counts if it is found each time: a descriptor that
// is closed while it is looked at may be another file's an instant later.
Expected<void> check_access(const Context &context, const DumpRequest &request) {
    constexpr int kLooks = 3;
    std::string found;
    for (int look = 0; look < kLooks; ++look) {
        const auto verified = verify_access(context, request.descriptors, request.init, Node::runs);
        if (verified || verified.error().code != EACCES || (look != 0 && verified.error().why != found))
            return {};
        found = verified.error().why;
    }
    return cannot_save("the virtual node", found + ", and a restore could not open it");
}

Expected<void> check_state(const Context &context, const DumpRequest &request) {
    auto node = processes_of(request.init);
    if (!node)
        return propagate(node);
    const Process &init = node->front();
    if (init.inner != 1)
        return cannot_save(init.title(), "it is not the init of a PID namespace");
    auto facts = facts_of(request);
    if (!facts)
        return propagate(facts);
    for (const Process &process : *node) {
        if (is_half_ended(process))
            return cannot_save(process.title(),
                               "its first thread has ended and others run on (pthread_exit(3) "
                               "in main): let main wait for them");
        if (process.state == 'Z')
            continue;
        bool capable = false;
        for (const pid_t thread : process.threads)
            if (auto good = check_ids(context, process, thread, capable); !good)
                return good;
        if (auto good = check_ancestry(*node, process); !good)
            return good;
        if (auto good = check_session(process); !good)
            return good;
        if (auto good = check_name_spaces(init, process); !good)
            return good;
        if (auto good = check_threads(process); !good)
            return good;
        // Said last: in a user namespace of its own a process has some, and that is what is to be said.
        if (capable)
            return cannot_save(process.title(),
                               "it has capabilities, which no image may give: programs of root "
                               "and those with file capabilities cannot be saved");
        if (auto good = check_descriptors(*facts, request, process); !good)
            return good;
        if (auto good = check_mappings(*facts, request, process); !good)
            return good;
    }
    return check_message_queues(request);
}

} // namespace

Expected<void> check(const Context &context, const DumpRequest &request) {
    if (auto good = check_state(context, request); !good)
        return good;
    if (auto good = check_access(context, request); !good)
        return good;
    auto watched = watched_names_in_time(context, request.init);
    return watched ? Expected<void>() : propagate(watched);
}

} // namespace singularity::host
