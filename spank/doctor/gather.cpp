// SPDX-License-Identifier: GPL-2.0-or-later
#include "gather.hpp"

#include <cerrno>
#include <deque>
#include <system_error>
#include <utility>

#include <sys/stat.h>
#include <unistd.h>

namespace singularity::doctor {

namespace {

constexpr mode_t kPermissions = 07777;
constexpr int kMostLinks = 40; // as the kernel has it
constexpr const char *kSlurmConf = "/etc/slurm/slurm.conf";

FileKind kind_of(mode_t mode) {
    if (S_ISREG(mode))
        return FileKind::kRegular;
    if (S_ISDIR(mode))
        return FileKind::kDirectory;
    return S_ISLNK(mode) ? FileKind::kLink : FileKind::kOther;
}

} // namespace

std::unexpected<NotSeen> not_seen(Unseen why, std::string words) {
    return std::unexpected(NotSeen{.why = why, .words = std::move(words)});
}

std::unexpected<NotSeen> not_seen(const Error &error) {
    const bool refused = error.code == EACCES || error.code == EPERM;
    return not_seen(refused && geteuid() != 0 ? Unseen::kNeedsRoot : Unseen::kFailed, error.message());
}

Expected<FileFacts> look_at_file(const std::filesystem::path &path) {
    struct stat status{};
    if (lstat(path.c_str(), &status) != 0) {
        if (errno == ENOENT || errno == ENOTDIR)
            return FileFacts{.path = path};
        return std::unexpected(errno_error("look at", path.native()));
    }
    return FileFacts{.path = path,
                     .kind = kind_of(status.st_mode),
                     .uid = status.st_uid,
                     .mode = status.st_mode & kPermissions};
}

Expected<std::vector<FileFacts>> follow(const std::filesystem::path &path) {
    std::vector<FileFacts> way;
    std::deque<std::filesystem::path> rest(path.begin(), path.end());
    std::filesystem::path here; // no link is part of it
    for (int links = 0; !rest.empty() && links <= kMostLinks;) {
        const auto name = rest.front();
        rest.pop_front();
        if (name == "..")
            here = here.parent_path();
        if (name.empty() || name == "." || name == "..")
            continue;
        auto found = look_at_file(here / name);
        if (!found)
            return propagate(found);
        way.push_back(*std::move(found));
        FileFacts &file = way.back();
        if (file.kind == FileKind::kMissing) {
            for (const auto &part : rest)
                file.path /= part;
            break;
        }
        if (file.kind != FileKind::kLink) {
            here = file.path;
            continue;
        }
        std::error_code error;
        const auto target = std::filesystem::read_symlink(file.path, error);
        if (error)
            return std::unexpected(errno_error("follow", file.path.native(), error.value()));
        rest.insert(rest.begin(), target.begin(), target.end());
        ++links;
    }
    return way;
}

Facts gather(const Where &where) {
    Facts facts;
    facts.slurm = look_at_slurm();
    facts.configuration_file = config::default_path();
    facts.configuration = config::load_or_default(facts.configuration_file);

    const bool is_node = !facts.slurm || facts.slurm->gpus.has_value();
    // What only a node needs.
    const auto of_node = [&](auto look) -> decltype(look()) {
        if (!is_node)
            return not_seen(Unseen::kElsewhere, "this host is no node of the cluster");
        return look();
    };
    const auto configured = [&](auto look) -> decltype(look()) {
        if (!facts.configuration)
            return not_seen(Unseen::kElsewhere, "singularity.yaml, which says where it is, is wrong");
        return look();
    };
    facts.clock = facts.slurm ? clock_of(*facts.slurm)
                              : not_seen(Unseen::kElsewhere, "slurmctld has not said what time it is");
    const auto slurm_conf = facts.slurm ? facts.slurm->file : std::filesystem::path(kSlurmConf);
    facts.configuration_way = look_at_way(facts.configuration_file);
    facts.keys = look_at_keys(slurm_conf);
    facts.ptrace_scope = of_node(look_at_ptrace_scope);
    facts.cgroup = of_node([&] { return look_at_cgroup(slurm_conf); });
    facts.plugstack = facts.slurm ? look_at_plugstack(*facts.slurm)
                                  : not_seen(Unseen::kElsewhere, "slurmctld has not said where it is");
    facts.stores =
        of_node([&] { return configured([&] { return look_at_stores(facts.configuration->store); }); });
    facts.staging = of_node([&] { return look_at_place(where.staging); });
    facts.local = of_node([&] {
        return configured([&] {
            return look_at_local(facts.configuration->local_directories, facts.configuration->containers);
        });
    });
    facts.agent = of_node([&] { return look_at_agent(where.socket); });
    facts.agent_program = of_node([&] { return look_at_agent_program(where); });
    facts.libraries = of_node([&] { return look_at_libraries(where); });
    facts.nccl =
        of_node([&] { return configured([&] { return look_at_nccl(facts.configuration->agents.nccl); }); });
    facts.criu = of_node(look_at_criu);
    facts.criu_kernel = of_node([&]() -> Fact<CriuKernel> {
        if (facts.criu && !facts.criu->version)
            return not_seen(Unseen::kElsewhere, "there is no usable CRIU to ask");
        return look_at_criu_kernel();
    });
    facts.driver = of_node(look_at_driver);
    facts.munge = configured([&] { return look_at_munge(facts.configuration->agents.munge_socket); });
    facts.host_name = of_node(look_at_host_name);
    facts.kernel_network = of_node(
        [&] { return configured([&] { return look_at_kernel_network(facts.configuration->network); }); });
    facts.images =
        of_node([&] { return configured([&] { return look_at_images(facts.configuration->containers); }); });
    return facts;
}

} // namespace singularity::doctor
