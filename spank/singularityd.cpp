// SPDX-License-Identifier: GPL-2.0-or-later
// The node agent, one per node, as root: makes the virtual nodes of jobs, and watches over what elastic jobs
// need.
#include "agent/limits/budget.hpp"
#include "agent/protocol/agent_messages.hpp"
#include "agent/server/health.hpp"
#include "agent/server/server.hpp"
#include "common/config.hpp"
#include "common/guarded_main.hpp"
#include "common/installation.hpp"
#include "common/log.hpp"
#include "peers/handshake.hpp"

#include <csignal>
#include <cstdlib>
#include <utility>

#include <CLI/CLI.hpp>
#include <sys/utsname.h>
#include <unistd.h>

namespace {

namespace agent = singularity::agent;

constexpr singularity::log::Channel kLog("agent");

int give_up(const singularity::Error &error) {
    kLog.error("{}", error.message());
    return EXIT_FAILURE;
}

std::string host_name() {
    utsname name{};
    return uname(&name) == 0 ? singularity::peers::short_name(name.nodename) : std::string();
}

int serve(agent::ServerOptions options) {
    if (geteuid() != 0)
        return give_up({"serve virtual nodes as", "uid " + std::to_string(geteuid()),
                        "namespaces need root: run it as root", EPERM});
    const auto settings = singularity::config::load_or_default(singularity::config::default_path());
    if (!settings)
        return give_up(settings.error());
    singularity::log::set_level(settings->log_level);
    auto libraries = singularity::library_directory();
    if (!libraries)
        return give_up(libraries.error());
    options.places.libraries.directory = *std::move(libraries);
    // Who hangs up is an error of a call, not a death.
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    // Before the server has anything that a child could hold open.
    if (auto watched = agent::watch_health(); !watched)
        return give_up(watched.error());
    options.agents = settings->agents;
    options.network = settings->network;
    agent::budgets() = agent::Budgets(settings->per_user);
    options.places.libraries.nccl = settings->agents.nccl;
    options.elastic = settings->elastic;
    options.places.gpu_turn = settings->elastic.gpu_turn;
    options.local = settings->local_directories;
    options.containers = settings->containers;
    auto server = agent::Server::open(std::move(options));
    if (!server)
        return give_up(server.error());
    const auto served = (*server)->serve();
    return served ? EXIT_SUCCESS : give_up(served.error());
}

int run(int argc, char **argv) {
    CLI::App app("singularityd: slurm-singularity's node agent");
    app.set_version_flag("--version", SINGULARITY_VERSION);
    bool once = false;
    agent::ServerOptions options{
        .socket = agent::kDefaultSocket,
        .places = {.libraries = {}, .state = agent::kDefaultState, .staging = agent::kDefaultStaging},
        .host = host_name(),
        .agents = {},
        .network = {},
        .elastic = {},
        .containers = {},
        .local = {}};
    app.add_flag("--check", once,
                 "check once whether this node can hold elastic jobs, print the result, and end");
    app.add_option("--host", options.host, "name of this host, by which other agents call it")
        ->capture_default_str();
    app.add_option("--socket", options.socket, "Unix socket for requests")->capture_default_str();
    app.add_option("--state", options.places.state,
                   "directory of the virtual nodes' records and files; in memory")
        ->capture_default_str();
    app.add_option(
           "--staging", options.places.staging,
           "directory of images on their way to and from the checkpoint store; in memory, or on a disk with "
           "as much free space as virtual nodes have memory")
        ->capture_default_str();
    CLI11_PARSE(app, argc, argv);
    if (once)
        return agent::check_once() ? EXIT_SUCCESS : EXIT_FAILURE;
    return serve(std::move(options));
}

} // namespace

int main(int argc, char **argv) { return singularity::guarded_main(run, argc, argv); }
