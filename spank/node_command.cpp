// SPDX-License-Identifier: GPL-2.0-or-later
#include "node_command.hpp"

#include "agent/protocol/client.hpp"
#include "agent_command.hpp"
#include "common/text.hpp"
#include "image_options.hpp"
#include "job_command.hpp"
#include "publish_option.hpp"
#include "run_command.hpp"

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <map>
#include <memory>
#include <string>

#include <CLI/CLI.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::spank {

namespace {

constexpr const char *kRunHelp =
    "run a program in a virtual node of its own: its own processes, hostname, network and devices, the "
    "host's files.\n"
    "The exit status is the program's, 128 + N if signal N ended it, 1 if it could not be started.";

struct NodeOptions {
    RunInNode run;
    RunJobOptions job;
    std::int32_t rank = -1; // all
    std::string mounts;     // in an image
    std::string publish;    // ports of a job
    std::string node;
    std::uint32_t signalled = 0; // task; 0: all
    std::uint32_t shown = 1;     // task
    int signal = SIGTERM;
};

Expected<agent::Client> connect(const NodeOptions &options) {
    return agent::Client::connect(options.run.socket);
}

std::string shown(const agent::TaskLine &task) {
    if (task.running)
        return fmt::format("{}: running", task.task);
    return WIFEXITED(task.status) ? fmt::format("{}: exit {}", task.task, WEXITSTATUS(task.status))
                                  : fmt::format("{}: signal {}", task.task, WTERMSIG(task.status));
}

Expected<int> run(NodeOptions &options) {
    if (!options.mounts.empty()) {
        auto mounts = parse_image_mounts(options.mounts);
        if (!mounts)
            return propagate(mounts);
        for (auto &one : *mounts)
            options.run.spec.image.mounts.push_back({.source = std::move(one.source),
                                                     .target = std::move(one.target),
                                                     .read_only = one.read_only});
    }
    if (!options.publish.empty()) {
        auto ports = parse_published_ports(options.publish, "--publish");
        if (!ports)
            return propagate(ports);
        options.job.publish = *std::move(ports);
    }
    if (options.job.hosts.empty() && options.job.ranks_per_node == 0)
        return options.publish.empty() ? run_in_node(options.run)
                                       : failure("accept --publish", options.publish,
                                                 "such a program has no network but its own: make it a job, "
                                                 "by --ranks-per-node=1 or --hosts",
                                                 EINVAL);
    options.job.socket = options.run.socket;
    options.job.detach = options.run.detach;
    options.job.every = options.run.spec.every;
    return run_job(options.job, options.run.spec.devices, options.run.spec.backend, options.run.command);
}

Expected<int> list(NodeOptions &options) {
    auto client = connect(options);
    if (!client)
        return propagate(client);
    auto nodes = client->call<agent::Nodes>(agent::List{});
    if (!nodes)
        return propagate(nodes);
    fmt::print("{:<20} {:<20} {:>7} {:<8} {:>8} {:<20} {}\n", "NODE", "HOSTNAME", "UID", "STATE", "PID",
               "MADE", "TASKS");
    for (const auto &line : nodes->reply.nodes) {
        std::string tasks;
        for (const auto &task : line.tasks)
            tasks += fmt::format("{}{}", tasks.empty() ? "" : ", ", shown(task));
        const auto &spec = line.record.spec;
        fmt::print("{:<20} {:<20} {:>7} {:<8} {:>8} {:%Y-%m-%dT%H:%M:%SZ} {}\n", spec.name, spec.hostname,
                   spec.uid, line.state, line.record.init.pid,
                   fmt::gmtime(static_cast<std::time_t>(line.record.made)), tasks);
    }
    if (!nodes->reply.complete)
        std::cerr << "singularityctl: there are more\n";
    if (auto listed = list_jobs(*client); !listed)
        return propagate(listed);
    return EXIT_SUCCESS;
}

Expected<int> show_log(NodeOptions &options) {
    auto client = connect(options);
    if (!client)
        return propagate(client);
    const auto shown = show_job_log(*client, options.node, options.rank, options.job.label);
    if (shown)
        return EXIT_SUCCESS;
    if (shown.error().code != ENOENT || options.rank >= 0)
        return std::unexpected(shown.error());
    auto lent = client->call<agent::Lent>(agent::Log{.node = options.node, .task = options.shown});
    if (!lent)
        return propagate(lent);
    for (const auto &file : lent->descriptors) {
        std::array<char, 65536> buffer; // NOLINT(cppcoreguidelines-pro-type-member-init): read into
        for (;;) {
            const ssize_t got = read(file.get(), buffer.data(), buffer.size());
            if (got < 0)
                return std::unexpected(errno_error("read the output of", options.node));
            if (got == 0)
                break;
            std::cout.write(buffer.data(), got);
        }
    }
    std::cout.flush();
    return EXIT_SUCCESS;
}

// Jobs and nodes have names of one kind: what is no job may be a node.
template <class JobRequest, class Request>
Expected<int> ask(NodeOptions &options, const JobRequest &of_job, const Request &of_node) {
    auto client = connect(options);
    if (!client)
        return propagate(client);
    auto done = client->call<agent::Done>(of_job);
    if (!done && done.error().code == ENOENT)
        done = client->call<agent::Done>(of_node);
    if (!done)
        return propagate(done);
    return EXIT_SUCCESS;
}

Expected<int> send_signal(NodeOptions &options) {
    const agent::Signal of_node{.node = options.node, .task = options.signalled, .number = options.signal};
    if (options.signalled != 0)
        return ask(options, of_node, of_node);
    return ask(options, agent::SignalJob{.job = options.node, .number = options.signal}, of_node);
}

Expected<int> destroy(NodeOptions &options) {
    return ask(options, agent::DestroyJob{.job = options.node}, agent::Destroy{.node = options.node});
}

} // namespace

void add_node_commands(CLI::App &app, int &status) {
    const auto options = std::make_shared<NodeOptions>();
    options->run.socket = agent::kDefaultSocket;
    const auto add = [&](const char *name, const char *help, Expected<int> (*action)(NodeOptions &)) {
        return add_agent_command(
            app, name, help, options->run.socket, [action, options] { return action(*options); }, status);
    };

    CLI::App *command = add("run", kRunHelp, run);
    command->add_flag("--detach", options->run.detach,
                      "print the virtual node's name and leave the program to itself; see ps, logs, destroy");
    command->add_flag("--terminal", options->run.terminal,
                      "give the program a terminal even where standard input and output are not both one");
    command->add_option("--name", options->run.spec.name,
                        "of the virtual node; a user's begins with u<uid>-");
    command->add_option("--hostname", options->run.spec.hostname, "in it; the name if not given");
    command->add_option("--address", options->run.spec.address,
                        "IPv4 address and length of the prefix, in its own network");
    command->add_option("--devices", options->run.spec.devices, "virtual devices, each with a device proxy")
        ->check(CLI::Range(0U, node::kDeviceLimit))
        ->capture_default_str();
    command->add_option(
        "--backend", options->run.spec.backend,
        "what the proxies run on: 'nvidia', 'software' (the software GPU), or a driver library by "
        "path; without it NVIDIA's driver where there is one, else the software GPU");
    command
        ->add_option(
            "--every", options->run.spec.every,
            "save it so often with all its devices, while it runs: 60s, 10m, 1h; see checkpoint, restore")
        ->transform(
            CLI::AsNumberWithUnit(std::map<std::string, std::uint32_t>{{"s", 1}, {"m", 60}, {"h", 3600}},
                                  CLI::AsNumberWithUnit::CASE_SENSITIVE, "DURATION"));
    command->add_option(
        "--image", options->run.spec.image.directory,
        "a directory with a root file system, or a squashfs or Apptainer file: the root of the node");
    command->add_option(
        "--mount", options->mounts,
        "SRC:DST[:ro]: mount the host's SRC at DST in the image; several with commas between them");
    command->add_option("--workdir", options->run.directory,
                        "the program's working directory; without it this one");
    CLI::Option *const hosts = command->add_option("--hosts", options->job.hosts,
                                                   "run it as a job of one virtual node on each of these "
                                                   "hosts (a host may be named again), connected by a "
                                                   "network of the job's own; --devices is for each node");
    hosts->delimiter(',')->allow_extra_args(false); // what follows is the program's
    CLI::Option *const ranks =
        command
            ->add_option("--ranks-per-node", options->job.ranks_per_node,
                         "start it so often in each node of a job; without --hosts on this host")
            ->check(CLI::Range(1U, 256U));
    command->add_flag("--label", options->job.label, "begin each line of a job's output with its rank");
    command->add_option(
        "--publish", options->publish,
        "PORT[,PORT...]: connections from outside reach these TCP ports of a job's nodes, at ports of their "
        "hosts that are told on standard error");
    for (const char *single :
         {"--terminal", "--name", "--hostname", "--address", "--image", "--mount", "--workdir"})
        for (CLI::Option *const of_job : {hosts, ranks})
            of_job->excludes(command->get_option(single));
    command->add_option("PROGRAM", options->run.command, "the program and its arguments, after --")
        ->required();

    add("ps", "virtual nodes of this machine and their tasks, and the jobs that its agent coordinates", list);

    const auto about_node = [&](CLI::App *one) {
        one->add_option("NAME", options->node, "of a virtual node or a job")->required();
    };
    command = add("logs", "what a program that runs with --detach has written, or a job", show_log);
    about_node(command);
    command->add_option("--rank", options->rank, "only this rank of a job")->check(CLI::Range(0, 65535));
    command->add_flag("--label", options->job.label, "begin each line of a job's output with its rank");
    command->add_option("TASK", options->shown, "number of the task")->capture_default_str();
    command = add("kill", "send a signal to the processes of a virtual node or a job", send_signal);
    about_node(command);
    command
        ->add_option("--task", options->signalled, "only to this task's process group; 0: to every process")
        ->capture_default_str();
    command->add_option("--signal", options->signal, "its number")
        ->check(CLI::Range(0, NSIG - 1))
        ->capture_default_str();
    about_node(add("destroy", "end a virtual node or a job with everything in it", destroy));
}

} // namespace singularity::spank
