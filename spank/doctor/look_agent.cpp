// SPDX-License-Identifier: GPL-2.0-or-later
// The node agent, and what belongs to it.
#include "agent/protocol/client.hpp"
#include "agent/worker/paths.hpp"
#include "common/installation.hpp"
#include "common/proc.hpp"
#include "common/program_output.hpp"
#include "common/unix_socket.hpp"
#include "gather.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::doctor {

namespace {

constexpr std::chrono::seconds kAgentPatience{10};
constexpr std::string_view kDeleted = " (deleted)";

Expected<ucred> listener_of(int socket) {
    ucred out{};
    socklen_t size = sizeof(out);
    if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &out, &size) != 0)
        return std::unexpected(errno_error("find out who listens at", "the node agent's socket"));
    return out;
}

// Any answer will do.
Expected<void> ask(agent::Client &client) {
    const auto deadline = Deadline::after(kAgentPatience);
    auto token = client.send(agent::List{});
    if (!token)
        return propagate(token);
    for (;;) {
        auto nodes = client.take<agent::Nodes>(*token);
        if (!nodes)
            return propagate(nodes);
        if (nodes->has_value())
            return {};
        pollfd waiting{.fd = client.fd(), .events = POLLIN, .revents = 0};
        if (poll(&waiting, 1, deadline.poll_timeout()) < 0 && errno != EINTR)
            return std::unexpected(errno_error("wait for", "the node agent"));
        if (deadline.expired())
            return std::unexpected(timeout_error(deadline, "an answer of the node agent"));
    }
}

// The process that listens, if it is root's.
Fact<pid_t> agent_process(const Where &where) {
    if (geteuid() != 0)
        return not_seen(Unseen::kNeedsRoot, "what a process of root's runs is root's to know");
    auto socket = connect_unix(where.socket, Deadline::after(kAgentPatience));
    if (!socket)
        return not_seen(Unseen::kElsewhere, "it does not answer");
    auto listener = listener_of(socket->get());
    if (!listener)
        return not_seen(listener.error());
    if (listener->uid != 0)
        return not_seen(Unseen::kElsewhere, "it is not root's");
    return listener->pid;
}

// Shared libraries that a program is linked with and the loader does not find. It looks, and runs nothing.
std::vector<std::string> not_found(const std::filesystem::path &program) {
    constexpr const char *kLoader = "/lib64/ld-linux-x86-64.so.2";
    std::vector<std::string> out;
    const auto listed = answer_of({kLoader, "--list", program}, Deadline::after(kAgentPatience));
    if (!listed) {
        out.push_back(listed.error().message());
        return out;
    }
    constexpr std::string_view kMissing = " => not found";
    for (std::string_view rest = *listed; !rest.empty();) {
        auto line = rest.substr(0, rest.find('\n'));
        rest.remove_prefix(std::min(line.size() + 1, rest.size()));
        line.remove_prefix(std::min(line.find_first_not_of(" \t"), line.size()));
        if (line.ends_with(kMissing))
            out.emplace_back(line.substr(0, line.size() - kMissing.size()));
    }
    return out;
}

} // namespace

Fact<Agent> look_at_agent(const std::filesystem::path &socket) {
    Agent out{.socket = socket, .silence = {}, .uid = 0};
    auto client = agent::Client::connect(socket);
    if (!client) {
        out.silence = client.error().message();
        return out;
    }
    auto listener = listener_of(client->fd());
    if (!listener)
        return not_seen(listener.error());
    out.uid = listener->uid;
    if (out.uid != 0)
        return out;
    if (auto asked = ask(*client); !asked)
        out.silence = asked.error().message();
    return out;
}

Fact<AgentProgram> look_at_agent_program(const Where &where) {
    const auto process = agent_process(where);
    if (!process)
        return std::unexpected(process.error());
    // The program that runs, also where its file has been replaced.
    const auto link = fmt::format("/proc/{}/exe", *process);
    std::error_code error;
    AgentProgram out;
    out.file = std::filesystem::read_symlink(link, error);
    out.ours = where.version;
    if (error)
        return not_seen(errno_error("read", link, error.value()));
    if (out.file.ends_with(kDeleted)) {
        out.file.resize(out.file.size() - kDeleted.size());
        out.replaced = true;
    }
    auto version = answer_of({link, "--version"}, Deadline::after(kAgentPatience));
    if (!version)
        return not_seen(version.error());
    out.version = *std::move(version);
    out.version.resize(out.version.find_last_not_of(" \n") + 1);
    return out;
}

Fact<Libraries> look_at_libraries(const Where &where) {
    auto directory = library_directory();
    if (!directory)
        return not_seen(directory.error());
    // The agent's environment may say something else.
    Libraries out{.directory = *std::move(directory), .missing = {}};
    if (const auto process = agent_process(where); process) {
        auto environment = proc::read(fmt::format("/proc/{}/environ", *process));
        if (!environment)
            return not_seen(environment.error());
        constexpr std::string_view kName = "SINGULARITY_LIBDIR=";
        for (std::string_view rest = *environment; !rest.empty();) {
            const auto end = std::min(rest.find('\0'), rest.size());
            if (rest.starts_with(kName) && end > kName.size())
                out.directory = rest.substr(kName.size(), end - kName.size());
            rest.remove_prefix(std::min(end + 1, rest.size()));
        }
    }
    const agent::Libraries libraries{.directory = out.directory, .nccl = {}};
    struct Need {
        std::filesystem::path path;
        int mode;
    };
    const std::array needs{
        Need{libraries.init(), X_OK},
        Need{libraries.worker(), X_OK},
        Need{libraries.task(), X_OK},
        Need{libraries.slurm(), X_OK},
        Need{libraries.network(), X_OK},
        Need{libraries.proxyd(), X_OK},
        Need{libraries.redirect(), R_OK},
        Need{libraries.client() / "libcuda.so.1", R_OK},
        Need{libraries.client() / "libnccl.so.2", R_OK},
    };
    for (const auto &[path, mode] : needs)
        if (access(path.c_str(), mode) != 0)
            out.missing.push_back(path.native());
        else if (mode == X_OK && path != libraries.init()) // which is linked statically
            for (auto &library : not_found(path))
                out.missing.push_back(fmt::format("{} (of {})", library, path.native()));
    return out;
}

// Device proxies, which open it, are the users'.
Fact<Nccl> look_at_nccl(const std::filesystem::path &library) {
    Nccl out{.library = library, .trouble = {}};
    struct stat about{};
    if (library.empty())
        return out;
    if (stat(library.c_str(), &about) != 0)
        out.trouble = std::generic_category().message(errno);
    else if (!S_ISREG(about.st_mode))
        out.trouble = "it is no file";
    else if ((about.st_mode & S_IROTH) == 0)
        out.trouble = fmt::format("its mode is {:04o}: not all users can read it", about.st_mode & 07777U);
    return out;
}

} // namespace singularity::doctor
