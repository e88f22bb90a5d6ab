// SPDX-License-Identifier: GPL-2.0-or-later
#include "session.hpp"

#include "log.hpp"

#include <cerrno>
#include <mutex>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr const char *kCache = "/run/criu.kdat";
constexpr int kOldest = 40200;

Expected<void> require_tmpfs() {
    struct statfs run{};
    if (statfs("/run", &run) != 0)
        return std::unexpected(errno_error("examine", "/run"));
    if (run.f_type != TMPFS_MAGIC)
        return failure("prepare", "criu",
                       "/run is no tmpfs: criu keeps there what it knows of the kernel; mount one");
    return {};
}

Expected<CriuReply> ask_as_root(const Context &context, CriuRequest::Kind kind, const Deadline &deadline) {
    const UniqueFd complaints(memfd_create("criu-complaints", MFD_CLOEXEC));
    if (!complaints)
        return std::unexpected(errno_error("make", "a file for criu's output"));
    auto criu = Criu::start({.binary = context.criu, .inherited = {}, .complaints = complaints.get()});
    if (!criu)
        return propagate(criu);
    CriuRequest request;
    request.kind = kind;
    auto reply = criu->ask(request, [](const std::string &, pid_t) { return Expected<void>(); }, deadline);
    if (!reply && reply.error().code == EPIPE)
        return failure("use", context.criu.string(),
                       "it ended at once: " + summary_of({complaints.get()}, "is it installed?"));
    if (!reply)
        return reply;
    if (auto ended = criu->finish(deadline); !ended)
        return propagate(ended);
    if (!reply->success)
        return failure("use", context.criu.string(),
                       "it cannot find out what this kernel can do: " +
                           summary_of({complaints.get()}, reply->message));
    return reply;
}

} // namespace

Expected<UniqueFd> open_complaints(int images) {
    UniqueFd file(openat(images, kComplaints, O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    if (!file)
        return std::unexpected(errno_error("create", kComplaints));
    return file;
}

Expected<void> probe_kernel(const Context &context, const Deadline &deadline) {
    static std::mutex mutex;
    static bool done = false;
    const std::lock_guard lock(mutex);
    // The cache may have gone, or be that of another criu, if somebody tidied up or upgraded: so once per
    // process, and again when it is missing.
    if (done && access(kCache, R_OK) == 0)
        return {};
    if (auto tmpfs = require_tmpfs(); !tmpfs)
        return tmpfs;
    auto version = ask_as_root(context, CriuRequest::Kind::kVersion, deadline);
    if (!version)
        return propagate(version);
    if (version->version < kOldest)
        return failure("use", context.criu.string(),
                       fmt::format("it is version {}.{}: 4.2 or newer is needed, older ones fail on TCP "
                                   "sockets from Linux 6.16 on",
                                   version->version / 10000, version->version / 100 % 100));
    auto features = ask_as_root(context, CriuRequest::Kind::kFeatures, deadline);
    if (!features)
        return propagate(features);
    done = true;
    return {};
}

Error criu_error(const Context &context, std::string doing, int images, const std::string &reply) {
    const UniqueFd log(openat(images, kLog, O_RDONLY | O_CLOEXEC));
    const UniqueFd complaints(openat(images, kComplaints, O_RDONLY | O_CLOEXEC));
    auto why = summary_of({log.get(), complaints.get()}, reply);
    if (auto kept = keep_log(log.get(), complaints.get(), context.log); kept)
        why += "; criu's log is " + context.log.string();
    else
        why += "; criu's log is lost: " + kept.error().message();
    return Error{std::move(doing), "the virtual node", std::move(why), 0};
}

} // namespace singularity::host
