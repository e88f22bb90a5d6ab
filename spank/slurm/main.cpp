// SPDX-License-Identifier: GPL-2.0-or-later
// singularity-slurm: asks slurmctld about one job, for the node agent: libslurm blocks, and is bound to a
// release.
#include "controller.hpp"
#include "guarded_main.hpp"

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <slurm/slurm.h>
#include <unistd.h>

namespace {

namespace slurm = singularity::slurm;

constexpr int kBadUsage = 2;
// libslurm looks for slurm.conf for a minute; with the default MessageTimeout slurmctld has as long to
// answer.
constexpr unsigned kPatienceSeconds = 90;
constexpr std::string_view kTooLong = "singularity-slurm: slurmctld has not answered within 90 seconds\n";

// NOLINTNEXTLINE(bugprone-signal-handler): write and _exit are safe in one
extern "C" void give_up(int /*number*/) {
    if (write(STDERR_FILENO, kTooLong.data(), kTooLong.size()) < 0)
        _exit(EXIT_FAILURE);
    _exit(EXIT_FAILURE);
}

std::string check_job_id(const std::string &text) {
    std::uint32_t id = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
    if (error == std::errc{} && end == text.data() + text.size() && id > 0 && id < NO_VAL)
        return {};
    return fmt::format("'{}' is no job: give its number, as SLURM_JOB_ID has it", text);
}

int fail(const singularity::Error &error) {
    std::cerr << "singularity-slurm: " << error.message() << '\n';
    return EXIT_FAILURE;
}

std::string_view yes_or_no(bool value) { return value ? "yes" : "no"; }

int show(std::uint32_t id) {
    const auto cluster = slurm::cluster_name();
    if (!cluster)
        return fail(cluster.error());
    const auto job = slurm::load_job(id);
    if (!job)
        return fail(job.error());
    std::string shown = fmt::format("job={}\ncluster={}\n", id, *cluster);
    if (job->known)
        shown += fmt::format("uid={}\nbatch={}\nmay_requeue={}\nrestarts={}\nbatch_host={}\ncompleting={}\n",
                             job->uid, yes_or_no(job->batch), yes_or_no(job->may_requeue), job->restarts,
                             job->batch_host, yes_or_no(job->completing));
    if (const auto &gpus = job->gpus)
        shown += fmt::format("gpus={}\n", *gpus);
    shown += fmt::format("fate={}\n", slurm::to_string(job->fate));
    std::cout << shown << std::flush;
    if (!std::cout)
        return fail({"write", "standard output", "it takes no more", EIO});
    return EXIT_SUCCESS;
}

int requeue(std::uint32_t id) {
    const auto done = slurm::requeue_job(id);
    return done ? EXIT_SUCCESS : fail(done.error());
}

int begin(std::uint32_t id) {
    const auto done = slurm::begin_job_now(id);
    return done ? EXIT_SUCCESS : fail(done.error());
}

int run(int argc, char **argv) {
    CLI::App app("What slurmctld says of a job, for singularityd. Exit status 1: slurmctld could not be "
                 "asked, or refuses.");
    std::uint32_t id = 0;
    const CLI::Validator is_job_id(check_job_id, "NUMBER");
    int (*command)(std::uint32_t) = nullptr;
    CLI::App *const job = app.add_subcommand(
        "job",
        "print, a line each, KEY=VALUE: job, cluster; uid, batch, may_requeue, "
        "restarts, batch_host, completing of a job that "
        "slurmctld knows; gpus of one that runs; and fate: stays, requeued, preempted, timeout or ended");
    job->add_option("JOBID", id, "the job's number")->required()->check(is_job_id);
    job->callback([&] { command = show; });
    CLI::App *const again = app.add_subcommand(
        "requeue", "have a job that runs, is suspended or has come to its time limit requeued");
    again->add_option("JOBID", id, "the job's number")->required()->check(is_job_id);
    again->callback([&] { command = requeue; });
    CLI::App *const now =
        app.add_subcommand("begin", "let a job that waits begin at once, if it was to begin later");
    now->add_option("JOBID", id, "the job's number")->required()->check(is_job_id);
    now->callback([&] { command = begin; });
    CLI11_PARSE(app, argc, argv);
    if (command == nullptr) {
        std::cerr << "singularity-slurm: give a command, job or requeue, and a job: --help\n";
        return kBadUsage;
    }

    static_cast<void>(std::signal(SIGALRM, give_up));
    alarm(kPatienceSeconds);
    const slurm::Library library;
    return command(id);
}

} // namespace

int main(int argc, char **argv) { return singularity::spank::guarded_main(run, argc, argv); }
