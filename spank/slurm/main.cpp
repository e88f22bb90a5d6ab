// SPDX-License-Identifier: GPL-2.0-or-later
// singularity-slurm: asks slurmctld about jobs, and to change them, for the node agent and for
// singularityctl: libslurm blocks, and is bound to a release.
#include "common/guarded_main.hpp"
#include "common/slurm/controller.hpp"
#include "common/slurm/plan_file.hpp"
#include "common/text.hpp"
#include "moves.hpp"
#include "status.hpp"

#include <charconv>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <fstream>
#include <functional>
#include <iostream>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

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
constexpr unsigned kSavePatienceSeconds = 700; // more than a checkpoint is waited for
constexpr std::string_view kTooLong = "singularity-slurm: slurmctld has not answered in time\n";

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

// A job of somebody else's is to the asker as one that is not there.
int show(std::uint32_t id, std::uint32_t owner) {
    const auto settings = slurm::settings();
    if (!settings)
        return fail(settings.error());
    auto job = slurm::load_job(id);
    if (!job)
        return fail(job.error());
    if (job->known && job->uid != owner)
        job = slurm::Job{};
    std::string shown = fmt::format("job={}\ncluster={}\n", id, settings->cluster);
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

int outcome(const singularity::Expected<void> &done) { return done ? EXIT_SUCCESS : fail(done.error()); }

// Does what is to be done with a job, if it is this user's. What slurmctld does not know it refuses itself.
int with_job_of(std::uint32_t owner, std::uint32_t id,
                const std::function<singularity::Expected<void>()> &does) {
    const auto job = slurm::load_job(id);
    if (!job)
        return fail(job.error());
    if (job->known && job->uid != owner)
        return fail({"change", fmt::format("job {}", id),
                     fmt::format("it is uid {}'s, and what is asked is on behalf of uid {}", job->uid, owner),
                     EPERM});
    return outcome(does());
}

int print(const std::string &text) {
    std::cout << text << std::flush;
    return std::cout ? EXIT_SUCCESS : fail({"write", "standard output", "it takes no more", EIO});
}

int show_plan() {
    std::ifstream file(slurm::kPlanFile);
    if (!file)
        return fail({"read", slurm::kPlanFile,
                     "singularity-planner has not run on this host: ask on the one where it does", ENOENT});
    std::ostringstream text;
    text << file.rdbuf();
    return print(text.str());
}

int look(const std::string &node, const std::vector<std::uint32_t> &jobs) {
    const auto seen = slurm::look(node, jobs);
    if (!seen)
        return fail(seen.error());
    std::string shown;
    if (!seen->leave.empty())
        shown += fmt::format("leave={}\n", singularity::escaped(seen->leave));
    for (const auto job : seen->move)
        shown += fmt::format("move={}\n", job);
    for (const auto job : seen->save)
        shown += fmt::format("save={}\n", job);
    return print(shown);
}

int ask_for(std::uint32_t id, const slurm::Verb &verb) {
    const auto done = slurm::ask(id, verb);
    return done ? print(*done + '\n') : fail(done.error());
}

int status(std::uint32_t id) {
    const auto now = std::time(nullptr);
    if (id == 0) {
        const auto jobs = slurm::load_jobs();
        if (!jobs)
            return fail(jobs.error());
        const auto shown = slurm::table(*jobs, now);
        if (shown.empty())
            std::cerr << "singularity-slurm: there are no elastic jobs\n";
        return print(shown);
    }
    const auto job = slurm::load_job(id);
    if (!job)
        return fail(job.error());
    if (!job->known)
        return fail({"show", fmt::format("job {}", id), "slurmctld does not know it", ESRCH});
    return print(slurm::in_full(*job, now));
}

struct Options {
    std::uint32_t id = 0;
    std::uint32_t owner = 0;
    std::vector<std::uint32_t> ids;
    std::vector<std::string> words;
    std::string node;
    bool plan = false;
    slurm::Verb verb;
};

// What the node agent asks.
void add_agent_commands(CLI::App &app, Options &to, std::function<int()> &command) {
    const CLI::Validator is_job_id(check_job_id, "NUMBER");
    const auto add = [&](const char *name, const char *help, std::function<int()> does) {
        CLI::App *const one = app.add_subcommand(name, help);
        one->callback([&command, does = std::move(does)] { command = does; });
        return one;
    };
    const auto add_job = [&](CLI::App *one) {
        one->add_option("JOBID", to.id, "the job's number")->required()->check(is_job_id);
        one->add_option("--owner", to.owner,
                        "whose the job must be, a uid: another's is unknown, and not changed")
            ->required();
        return one;
    };
    add_job(add("job",
                "print, a line each, KEY=VALUE: job, cluster; uid, batch, may_requeue, "
                "restarts, batch_host, completing of a job that "
                "slurmctld knows; gpus of one that runs; and fate: stays, requeued, preempted, timeout, "
                "terminated or ended",
                [&to] { return show(to.id, to.owner); }));
    add_job(
        add("requeue",
            "have a job that runs, is suspended, has come to its time limit or was ended by SIGTERM requeued",
            [&to] { return with_job_of(to.owner, to.id, [&to] { return slurm::requeue_job(to.id); }); }));
    CLI::App *const hold = add_job(
        add("hold", "the same, and let it wait until somebody releases it; its comment says why", [&to] {
            return with_job_of(to.owner, to.id, [&to] { return slurm::hold(to.id, to.words.front()); });
        }));
    hold->add_option("WHY", to.words, "the words")->required()->expected(1);
    add_job(add("begin", "let a job that waits begin at once, if it was to begin later, as its comment asks",
                [&to] { return with_job_of(to.owner, to.id, [&to] { return slurm::begin(to.id); }); }));
    CLI::App *one = add("look",
                        "print what is asked of these running jobs: leave=REASON if the node is drained, and "
                        "move=JOBID and save=JOBID for what their comments say",
                        [&to] { return look(to.node, to.ids); });
    one->add_option("NODE", to.node, "a NodeName of slurm.conf")->required();
    one->add_option("JOBID", to.ids, "the jobs' numbers")->check(is_job_id);
    one = add_job(add("note", "keep KEY=VALUE words, or KEY=+1, in the job's AdminComment", [&to] {
        return with_job_of(to.owner, to.id, [&to] { return slurm::note(to.id, to.words); });
    }));
    one->add_option("WORD", to.words, "what to keep")->required();
    one = add_job(add("answer", "answer a comment that asked for a checkpoint", [&to] {
        return with_job_of(to.owner, to.id,
                           [&to] { return slurm::answer_checkpoint(to.id, to.words.front()); });
    }));
    one->add_option("WORDS", to.words, "the answer")->required()->expected(1);
}

// What users ask, by singularityctl.
void add_user_commands(CLI::App &app, Options &to, std::function<int()> &command) {
    const CLI::Validator is_job_id(check_job_id, "NUMBER");
    const auto add = [&](const char *name, const char *help, slurm::Verb::Kind kind) {
        CLI::App *const one = app.add_subcommand(name, help);
        one->add_option("JOBID", to.id, "the job's number")->required()->check(is_job_id);
        one->callback([&to, &command, kind] {
            to.verb.kind = kind;
            command = [&to] { return ask_for(to.id, to.verb); };
        });
        return one;
    };
    add("migrate", "save a job that runs, and let it go on on other nodes", slurm::Verb::Kind::kMigrate)
        ->add_option("--to", to.verb.node,
                     "on this node, among others if it has several; else not on those it has")
        ->check(CLI::Validator(
            [](const std::string &name) {
                const auto verb = slurm::parse_verb("singularity:migrate=" + name);
                return verb ? std::string() : verb.error().why;
            },
            "NODE"));
    add("resize", "save a job, and let it go on with another number of GPUs, between its MIN and MAX",
        slurm::Verb::Kind::kResize)
        ->add_option("--gpus", to.verb.gpus, "how many it is to have on all its nodes")
        ->required()
        ->check(CLI::Range(1U, 1U << 20));
    add("checkpoint", "save a job that runs on, as soon as its node agents hear of it",
        slurm::Verb::Kind::kCheckpoint);
    CLI::App *const shown = app.add_subcommand(
        "status", "elastic jobs: state, GPUs, MIN-MAX, ranks, runs, checkpoints; or all about one");
    shown->add_option("JOBID", to.id, "the job's number")->check(is_job_id);
    auto *const plan = shown->add_flag("--plan", to.plan, "what singularity-planner thinks, where it runs");
    plan->excludes(shown->get_option("JOBID"));
    shown->callback([&to, &command] { command = [&to] { return to.plan ? show_plan() : status(to.id); }; });
}

int run(int argc, char **argv) {
    CLI::App app("What slurmctld says of jobs, and what it is asked to do with them, for singularityd and "
                 "singularityctl. Exit status 1: slurmctld could not be asked, or refuses.");
    Options options;
    std::function<int()> command;
    app.require_subcommand(0, 1);
    add_agent_commands(app, options, command);
    add_user_commands(app, options, command);
    CLI11_PARSE(app, argc, argv);
    if (!command) {
        std::cerr << "singularity-slurm: give a command and a job: --help\n";
        return kBadUsage;
    }

    static_cast<void>(std::signal(SIGALRM, give_up));
    if (app.got_subcommand("checkpoint"))
        alarm(kSavePatienceSeconds);
    else
        alarm(kPatienceSeconds);
    const slurm::Library library;
    return command();
}

} // namespace

int main(int argc, char **argv) { return singularity::guarded_main(run, argc, argv); }
