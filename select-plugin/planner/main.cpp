// SPDX-License-Identifier: GPL-2.0-or-later
// singularity-planner: looks at the cluster every few seconds, decides who runs where with how many GPUs, and
// has Slurm do it. A process of its own beside slurmctld: it blocks, and it may die.
#include "common/config.hpp"
#include "common/guarded_main.hpp"
#include "common/replace_file.hpp"
#include "common/slurm/note.hpp"
#include "common/slurm/placement.hpp"
#include "common/slurm/plan_file.hpp"
#include "common/trusted_file.hpp"
#include "common/unique_fd.hpp"
#include "cover.hpp"
#include "hands.hpp"
#include "log.hpp"
#include "outlook.hpp"
#include "records.hpp"
#include "report.hpp"
#include "select-plugin/protection.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <iostream>
#include <string>
#include <utility>

#include <CLI/CLI.hpp>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <unistd.h>

namespace singularity::planner {

namespace {

constexpr const char *kStateFile = "singularity-planner";
// What may go wrong before Slurm's own preemption does without the planner.
constexpr int kLooksMissed = 3;
constexpr std::chrono::seconds kLongLook(10);
// More than a million jobs' records are no file of ours.
constexpr std::size_t kMostState = std::size_t{1} << 31U;

struct Options {
    bool once = false;
    bool dry_run = false;
};

std::uint64_t microseconds_since(std::chrono::steady_clock::time_point begin) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - begin)
            .count());
}

policy::Milliseconds wall_clock() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

Expected<std::string> read_file(const std::filesystem::path &path) {
    auto file = open_file(path, O_RDONLY | O_NOFOLLOW);
    if (!file)
        return propagate(file);
    return read_to_end(*file, path, kMostState);
}

// SlurmUser may change jobs, too, but not as their owners: limits would not hold.
Expected<void> check_user() {
    if (geteuid() == 0)
        return {};
    return failure(
        "run as", fmt::format("uid {}", geteuid()),
        "only root may change jobs as their owners, so that Slurm checks them against limits: run it "
        "as root, or with --dry-run",
        EPERM);
}

class Service {
  public:
    Service(const Config &config, Options options)
        : config_(config), options_(options), planner_(policy::rules_of(config)) {}

    Expected<void> begin() {
        auto settings = slurm::settings();
        if (!settings)
            return propagate(settings);
        state_ = settings->state_directory / kStateFile;
        if (options_.dry_run)
            return recall();
        if (auto allowed = check_user(); !allowed)
            return allowed;
        const std::filesystem::path lock = state_.native() + ".lock";
        auto opened = open_file(lock, O_RDWR | O_CREAT | O_NOFOLLOW, 0600);
        if (!opened && opened.error().code == EROFS)
            return failure(
                "write to", lock.native(),
                "nobody may, or the planner's unit does not let it: `systemctl edit singularity-planner`, "
                "with ReadWritePaths= and StateSaveLocation below [Service]",
                EROFS);
        if (!opened)
            return propagate(opened);
        if (flock(opened->get(), LOCK_EX | LOCK_NB) != 0)
            return errno == EWOULDBLOCK
                       ? failure("lock", lock.native(),
                                 "another singularity-planner runs: end that one first", EWOULDBLOCK)
                       : Expected<void>(std::unexpected(errno_error("lock", lock.native())));
        lock_ = std::move(*opened);
        std::error_code error;
        std::filesystem::create_directory(slurm::kPlanDirectory, error);
        if (error)
            return failure("make", slurm::kPlanDirectory, error.message(), error.value());
        return recall();
    }

    // One look, one plan, and what follows from it.
    Expected<void> look() {
        const auto begun = std::chrono::steady_clock::now();
        auto nodes = slurm::load_nodes();
        if (!nodes)
            return propagate(nodes);
        auto jobs = slurm::load_jobs();
        if (!jobs)
            return propagate(jobs);
        thought_.asking_us = microseconds_since(begun);
        const auto now = wall_clock();
        thought_.when = static_cast<std::time_t>(now / policy::kSecond);
        thought_.dry_run = options_.dry_run;
        ++thought_.looks;
        records_.allow(allowed_in(*nodes));
        records_.look(*jobs, now);
        const auto outlook = planner::look(*nodes, *jobs, records_, now);
        const auto planning = std::chrono::steady_clock::now();
        thought_.plans.clear();
        for (const auto &pool : outlook.pools)
            thought_.plans.push_back(planner_.plan(pool.snapshot));
        thought_.planning_us = microseconds_since(planning);
        if (options_.dry_run) {
            std::cout << words(outlook, thought_, planner_.rules()) << std::flush;
            return {};
        }
        const auto acting = std::chrono::steady_clock::now();
        carry_out(outlook, *jobs, now);
        thought_.acting_us = microseconds_since(acting);
        return tell(outlook, *jobs);
    }

    // Slurm's own preemption is as ever from now on.
    [[nodiscard]] Expected<void> end() const {
        std::error_code error;
        if (!options_.dry_run && !options_.once)
            std::filesystem::remove(kProtectionFile, error);
        return error ? failure("remove", kProtectionFile, error.message(), error.value()) : Expected<void>();
    }

  private:
    // No job is given more than there is.
    [[nodiscard]] Range allowed_in(std::span<const slurm::Node> nodes) const {
        std::uint64_t gpus = 0;
        for (const auto &node : nodes)
            gpus += node.gpus;
        const auto &elastic = config_.elastic;
        return {.least = static_cast<std::uint32_t>(elastic.min_gpus),
                .most = static_cast<std::uint32_t>(
                    std::min<std::uint64_t>(gpus, static_cast<std::uint64_t>(elastic.max_gpus)))};
    }

    Expected<void> recall() {
        auto bytes = read_file(state_);
        if (!bytes && bytes.error().code == ENOENT)
            return {};
        if (!bytes && options_.dry_run && bytes.error().code == EACCES)
            return {}; // whoever may not read it sees a plan without history
        auto known = bytes ? records_.read(*bytes, state_.native()) : Expected<void>(propagate(bytes));
        if (!known)
            kLog.error("{}", known.error().message());
        else
            kLog.info("goes on with what is known of {} jobs", records_.size());
        return {};
    }

    void carry_out(const Outlook &outlook, std::span<const slurm::Job> jobs, policy::Milliseconds now) {
        Hands hands(records_, now, done_);
        for (const auto &job : jobs) {
            const auto *const record = records_.find(job.id);
            const auto note = slurm::Note::parse(job.admin_comment);
            if (job.running && record != nullptr && record->moving_until == 0 && note &&
                slurm::decision_of(*note))
                Hands::take_back(job);
        }
        // Before there is room to be had.
        if (const auto weight = config_.planner.priority_weight; weight > 0)
            for (const auto &pool : outlook.pools)
                hands.prioritise(pool, planner_.rules(), weight);
        for (std::size_t i = 0; i < outlook.pools.size(); ++i)
            hands.carry_out(outlook.pools[i], thought_.plans[i]);
    }

    // How long a plan is believed by those who do not hear of the next one.
    [[nodiscard]] std::time_t until() const {
        const auto every = std::chrono::ceil<std::chrono::seconds>(config_.planner.every);
        return thought_.when + (kLooksMissed * (every + kLongLook)).count();
    }

    Expected<void> tell(const Outlook &outlook, std::span<const slurm::Job> jobs) {
        // What was decided is known to whoever comes after this process before it is told to people.
        if (auto saved = replace_file(state_, records_.write(), 0600, Durable::kYes); !saved)
            return saved;
        const auto covered = cover(outlook, thought_.plans, jobs, planner_.rules(), until());
        if (auto told = replace_file(kProtectionFile, covered.write(), 0644, Durable::kNo); !told)
            return told;
        if (auto told = replace_file(slurm::kPlanFile, words(outlook, thought_, planner_.rules()), 0644,
                                     Durable::kNo);
            !told)
            return told;
        if (config_.planner.metrics.empty())
            return {};
        return replace_file(config_.planner.metrics, metrics(outlook, thought_, done_, planner_.rules()),
                            0644, Durable::kNo);
    }

    Config config_;
    Options options_;
    policy::Planner planner_;
    std::filesystem::path state_;
    UniqueFd lock_;
    Records records_;
    Thought thought_;
    Done done_;
};

int fail(const Error &error) {
    std::cerr << "singularity-planner: " << error.message() << '\n';
    return EXIT_FAILURE;
}

// false: it is to end.
bool wait(std::chrono::milliseconds time, const sigset_t &signals) {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
    const timespec patience{.tv_sec = seconds.count(),
                            .tv_nsec = std::chrono::nanoseconds(time - seconds).count()};
    return sigtimedwait(&signals, nullptr, &patience) < 0;
}

int run(int argc, char **argv) {
    CLI::App app(
        "Decides which jobs run where with how many GPUs, so that every tier gets what it was promised and "
        "no GPU idles, and has Slurm do it. One per cluster, on the host of slurmctld. Configured by "
        "planner, premium, standard and basic in singularity.yaml. Exit status 1: it could not begin, or, "
        "with --once, not look.");
    Options options;
    app.add_flag("--once", options.once, "look once, do what follows, and end");
    app.add_flag(
        "--dry-run", options.dry_run,
        "print what would be done, each time, and do nothing; anybody may, and sees what Slurm shows him");
    app.set_version_flag("--version", SINGULARITY_VERSION);
    CLI11_PARSE(app, argc, argv);
    const auto config = config::load_or_default(config::default_path());
    if (!config)
        return fail(config.error());
    log::set_level(config->log_level);
    sigset_t signals;
    sigemptyset(&signals);
    for (const int number : {SIGTERM, SIGINT})
        sigaddset(&signals, number);
    if (pthread_sigmask(SIG_BLOCK, &signals, nullptr) != 0)
        return fail(errno_error("block", "signals"));
    const slurm::Library library;
    Service service(*config, options);
    if (auto begun = service.begin(); !begun)
        return fail(begun.error());
    std::string trouble;
    do {
        const auto looked = service.look();
        if (!looked && options.once)
            return fail(looked.error());
        const auto now = looked ? std::string() : looked.error().message();
        if (!now.empty() && now != trouble)
            kLog.error("{}; it is not said again while that lasts", now);
        trouble = now;
    } while (!options.once && wait(config->planner.every, signals));
    if (auto ended = service.end(); !ended)
        return fail(ended.error());
    return EXIT_SUCCESS;
}

} // namespace

} // namespace singularity::planner

int main(int argc, char **argv) { return singularity::guarded_main(singularity::planner::run, argc, argv); }
