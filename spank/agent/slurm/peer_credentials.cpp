// SPDX-License-Identifier: GPL-2.0-or-later
#include "peer_credentials.hpp"

#include "common/proc.hpp"
#include "common/text.hpp"
#include "node/cgroups.hpp"
#include "node/process.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fstream>
#include <iterator>
#include <string_view>
#include <system_error>

#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

// From Linux 6.5 on; not in all headers.
#ifndef SO_PEERPIDFD
#define SO_PEERPIDFD 77
#endif

namespace singularity::agent {

namespace {

// 0: it is none.
pid_t pid_in(std::string_view text) {
    pid_t out = 0;
    const auto [end, code] = std::from_chars(text.data(), text.data() + text.size(), out);
    return code == std::errc() && end == text.data() + text.size() && out > 0 ? out : 0;
}

} // namespace

Expected<PeerCredentials> PeerCredentials::of(int socket) {
    PeerCredentials out;
    ucred credentials{};
    socklen_t size = sizeof(credentials);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
        return std::unexpected(errno_error("ask who connects", ""));
    out.pid_ = credentials.pid;
    out.uid_ = credentials.uid;
    out.gid_ = credentials.gid;
    constexpr std::size_t kGroups = 65536; // NGROUPS_MAX
    out.groups_.resize(kGroups);
    size = static_cast<socklen_t>(out.groups_.size() * sizeof(gid_t));
    if (getsockopt(socket, SOL_SOCKET, SO_PEERGROUPS, out.groups_.data(), &size) != 0)
        return std::unexpected(errno_error("ask for the groups of", fmt::format("uid {}", out.uid_)));
    out.groups_.resize(size / sizeof(gid_t));
    out.groups_.shrink_to_fit();
    int pidfd = -1;
    size = sizeof(pidfd);
    // Older kernels: the process may have gone, and its number to another; whose cgroups he is put into is
    // all that this could change.
    if (getsockopt(socket, SOL_SOCKET, SO_PEERPIDFD, &pidfd, &size) != 0)
        pidfd = static_cast<int>(syscall(SYS_pidfd_open, credentials.pid, 0));
    out.pidfd_ = UniqueFd(pidfd);
    if (!out.pidfd_)
        return std::unexpected(errno_error("hold", fmt::format("process {}", credentials.pid)));
    return out;
}

Expected<void> PeerCredentials::may_make(const node::Spec &spec) const {
    if (is_root())
        return {};
    const auto refuse = [&](std::string why) {
        return failure("make the virtual node", quote(spec.name), std::move(why), EPERM);
    };
    const auto has = [&](gid_t group) {
        return group == gid_ || std::ranges::find(groups_, group) != groups_.end();
    };
    if (spec.uid != uid_)
        return refuse(fmt::format("it would be uid {}'s, and uid {} asks: only root makes nodes of others",
                                  spec.uid, uid_));
    if (!has(spec.gid))
        return refuse(fmt::format("uid {} is not in group {}", uid_, spec.gid));
    for (const auto group : spec.groups)
        if (!has(group))
            return refuse(fmt::format("uid {} is not in group {}", uid_, group));
    if (!spec.sockets.empty())
        return refuse("only root exposes sockets of the host in it");
    if (!spec.commands.empty() || !spec.stand_in.empty())
        return refuse("only agents put stand-ins for commands into it");
    if (spec.run != 0 || !spec.local.empty() || !spec.local_origin.empty())
        return refuse("only agents choose its local directories");
    if (!spec.shown.empty())
        return refuse("only agents choose what of the host an image shows");
    if (!spec.job.empty() || !spec.neighbours.empty())
        return refuse("only agents make nodes of a job");
    if (!spec.name.starts_with(prefix()))
        return refuse(fmt::format("names of uid {}'s nodes begin with '{}'", uid_, prefix()));
    return {};
}

Expected<void> PeerCredentials::may_touch(const node::Spec &spec) const {
    if (is_root() || spec.uid == uid_)
        return {};
    return failure("use the virtual node", quote(spec.name), "it belongs to another user", EPERM);
}

Expected<void> PeerCredentials::may_run_here(bool without_slurm, const std::string &cgroups) const {
    if (is_root() || without_slurm)
        return {};
    const auto place = slurm_cgroup(cgroups);
    if (!place)
        return std::unexpected(place.error());
    if (place->job != 0)
        return {};
    return failure("run", "a program in a virtual node",
                   "this site's users do so within their jobs only: start it from within one on this host "
                   "(srun, sbatch, "
                   "salloc); or root sets agents.run_without_slurm in singularity.yaml",
                   EPERM);
}

Expected<void> PeerCredentials::may_run_on_hosts(bool without_slurm) const {
    if (is_root() || without_slurm)
        return {};
    return failure("run", "a program on several hosts",
                   "this site's users do so by Slurm only (srun --singularity-elastic); or root sets "
                   "agents.run_without_slurm in singularity.yaml",
                   EPERM);
}

std::string PeerCredentials::prefix() const { return fmt::format("u{}-", uid_); }

Expected<std::string> PeerCredentials::cgroups() const {
    const auto path = fmt::format("/proc/{}/cgroup", pid_);
    std::ifstream file(path);
    std::string text(std::istreambuf_iterator<char>(file), {});
    // Read first: what has not ended by now was the one that was read.
    if (!file || node::has_ended(pidfd_))
        return failure("read", path, "the process that asks has ended", ESRCH);
    return text;
}

bool PeerCredentials::is_stopped() const {
    const auto text = proc::read(fmt::format("/proc/{}/stat", pid_));
    if (!text || node::has_ended(pidfd_)) // read first, as above
        return false;
    const auto columns = proc::stat_columns(*text);
    return !columns.empty() && columns[0] == "T";
}

// What the user could do himself: the child's number may have gone to another, and it may be a program with
// other rights.
void PeerCredentials::stop_child() const {
    const auto children = proc::read(fmt::format("/proc/{0}/task/{0}/children", pid_));
    const pid_t child = children ? pid_in(children->substr(0, children->find(' '))) : 0;
    if (child == 0 || node::has_ended(pidfd_))
        return;
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, child, 0)));
    const auto stat = proc::read(fmt::format("/proc/{}/stat", child));
    const auto status = proc::read(fmt::format("/proc/{}/status", child));
    if (!pidfd || !stat || !status || node::has_ended(pidfd))
        return;
    const auto columns = proc::stat_columns(*stat);
    const auto own = fmt::format("{0}\t{0}\t{0}\t{0}", uid_);
    if (columns.size() > 1 && pid_in(columns[1]) == pid_ && proc::status_line(*status, "Uid") == own)
        static_cast<void>(syscall(SYS_pidfd_send_signal, pidfd.get(), SIGSTOP, nullptr, 0));
}

Expected<SlurmCgroup> PeerCredentials::slurm_cgroup(const std::string &cgroups) const {
    auto decided = node::made_by_root(cgroups);
    if (!decided)
        return propagate(decided);
    return agent::slurm_cgroup(*decided, uid_);
}

} // namespace singularity::agent
