// SPDX-License-Identifier: GPL-2.0-or-later
#include "image_command.hpp"

#include "agent/protocol/client.hpp"
#include "agent_command.hpp"
#include "common/text.hpp"
#include "run_command.hpp"
#include "slurm_command.hpp"

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <iostream>
#include <memory>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity::spank {

namespace {

using Clock = std::chrono::steady_clock;

struct ImageOptions {
    std::filesystem::path socket = agent::kDefaultSocket;
    std::string what;
    bool go_on = false;
    std::uint32_t proxies = 0;
    std::vector<std::string> hosts;
    bool detach = false;
    bool label = false;
    bool json = false;
};

std::string in_seconds(std::uint64_t microseconds) {
    constexpr double kMillion = 1e6;
    return fmt::format("{:.3f} s", static_cast<double>(microseconds) / kMillion);
}

void show(const std::vector<std::string> &notices) {
    for (const auto &notice : notices)
        std::cerr << fmt::format("singularityctl: {}\n", notice);
}

// One line for programs: an id or a name is letters, digits and hyphens, so nothing needs to be escaped.
std::string in_json(const agent::ImageReport &report) {
    return fmt::format(
        R"({{"node": "{}", "checkpoint": "{}", "processes": {}, "host_bytes": {}, "devices_bytes": {}, )"
        R"("stored_bytes": {}, "pause_us": {}, "total_us": {}}})",
        report.node, report.checkpoint, report.processes, report.host_bytes, report.devices_bytes,
        report.stored_bytes, report.pause_us, report.total_us);
}

// Phase, bytes and rate on standard error: a line that is written over on a terminal, else a line per phase.
class ProgressLine {
  public:
    void show(const agent::Progress &news) {
        const auto now = Clock::now();
        if (news.phase != phase_) {
            end();
            phase_ = news.phase;
            began_ = now;
            begun_at_ = news.bytes;
            if (!terminal_)
                std::cerr << "singularityctl: " << phase_ << '\n';
        }
        if (!terminal_)
            return;
        const std::chrono::duration<double> since = now - began_;
        const auto moved = news.bytes - std::min(begun_at_, news.bytes);
        std::cerr << "\r\033[K" << phase_;
        if (news.bytes != 0)
            std::cerr << ": " << byte_count(news.bytes);
        if (moved != 0 && since.count() > 0)
            std::cerr << ", "
                      << byte_count(static_cast<std::uint64_t>(static_cast<double>(moved) / since.count()))
                      << "/s";
        std::cerr << std::flush;
        used_ = true;
    }
    void end() {
        if (std::exchange(used_, false))
            std::cerr << '\n';
    }

  private:
    bool terminal_ = isatty(STDERR_FILENO) == 1;
    bool used_ = false;
    std::string phase_;
    Clock::time_point began_;
    std::uint64_t begun_at_ = 0;
};

Expected<int> checkpoint(ImageOptions &options) {
    // Of a job of Slurm's its node agents hear through slurmctld, from wherever this is.
    if (std::ranges::all_of(options.what, [](char c) { return c >= '0' && c <= '9'; }))
        return become_slurm_program({"checkpoint", options.what});
    auto client = agent::Client::connect(options.socket);
    if (!client)
        return propagate(client);
    ProgressLine line;
    auto imaged = client->follow<agent::Imaged, agent::Progress>(
        agent::Checkpoint{.node = options.what, .go_on = options.go_on},
        [&](const agent::Progress &news) { line.show(news); });
    line.end();
    if (!imaged)
        return propagate(imaged);
    const auto &report = imaged->reply.report;
    fmt::print("{}\n", options.json ? in_json(report) : report.checkpoint);
    std::cerr << fmt::format(
        "singularityctl: {} saved in {}: {} processes {}, devices {}, stored {}; pause {}, "
        "total {}\n",
        report.node, report.checkpoint, report.processes, byte_count(report.host_bytes),
        byte_count(report.devices_bytes), byte_count(report.stored_bytes), in_seconds(report.pause_us),
        in_seconds(report.total_us));
    show(report.notices);
    return EXIT_SUCCESS;
}

Expected<int> restore(ImageOptions &options) {
    ProgressLine line;
    auto status = restore_in_node(
        {.socket = options.socket,
         .what = options.what,
         .proxies = options.proxies,
         .hosts = options.hosts,
         .label = options.label,
         .detach = options.detach,
         .on_news = [&](const agent::Progress &news) { line.show(news); },
         .on_restored =
             [&](const agent::ImageReport &report, bool tied) {
                 line.end();
                 if (!tied) { // else standard output is the program's
                     fmt::print("{}\n", options.json ? in_json(report) : report.node);
                     std::fflush(stdout);
                 }
                 std::cerr << fmt::format("singularityctl: {} restored from {}: processes {}, devices "
                                          "{}; processes and clients in {}, "
                                          "total {}\n",
                                          report.node, report.checkpoint, byte_count(report.host_bytes),
                                          byte_count(report.devices_bytes), in_seconds(report.pause_us),
                                          in_seconds(report.total_us));
                 show(report.notices);
             }});
    line.end();
    return status;
}

constexpr const char *kCheckpointHelp =
    "save a virtual node or a job, processes and devices, in the checkpoint store; it ends once it is "
    "there.\n"
    "Prints the checkpoint's id. If anything fails, the program runs on.";
constexpr const char *kRestoreHelp =
    "continue a virtual node or a job from the checkpoint store where it was saved.\n"
    "Prints its name, which is that of before.";

} // namespace

void add_image_commands(CLI::App &app, int &status) {
    const auto options = std::make_shared<ImageOptions>();
    const auto add = [&](const char *name, const char *help, Expected<int> (*action)(ImageOptions &)) {
        CLI::App *const made = add_agent_command(
            app, name, help, options->socket, [action, options] { return action(*options); }, status);
        made->add_flag("--json", options->json,
                       "print sizes in bytes and times in microseconds as one line of JSON instead");
        return made;
    };

    CLI::App *command = add("checkpoint", kCheckpointHelp, checkpoint);
    command->add_flag("--continue", options->go_on, "let the program run on");
    command
        ->add_option("NAME", options->what,
                     "of a virtual node or a job, or the number of a job of Slurm's, which runs on")
        ->required();

    command = add("restore", kRestoreHelp, restore);
    command->add_option(
        "--devices", options->proxies,
        "real devices for the virtual ones of the node, or of each node of a job: at most as many, several "
        "can share one; as many if not given");
    command
        ->add_option(
            "--hosts", options->hosts,
            "for the nodes of a job, at most as many; without it where they were. The first share of "
            "them goes to the first host, and so on")
        ->delimiter(',')
        ->allow_extra_args(false);
    command->add_flag("--label", options->label, "begin each line of a job's output with its rank");
    command->add_flag(
        "--detach", options->detach,
        "refuse a program that had run in the foreground, unless it had a terminal, which it keeps");
    command->add_option("ID", options->what, "a checkpoint, or a virtual node or job: its newest")
        ->required();
}

} // namespace singularity::spank
