// SPDX-License-Identifier: GPL-2.0-or-later
#include "metrics.hpp"

#include <algorithm>
#include <concepts>
#include <iterator>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

constexpr std::uint64_t kMicroseconds = 1'000'000;

struct WorkRow {
    Work work;
    std::string_view label;
};
constexpr std::array kCheckpoints{WorkRow{Work::asked, R"(kind="asked")"},
                                  WorkRow{Work::periodic, R"(kind="periodic")"}};
constexpr std::array kRestores{WorkRow{Work::restore, ""}};

struct Total {
    std::string_view name;
    std::string_view help;
    std::uint64_t Counters::*value;
};
constexpr std::array kTotals{
    Total{"singularity_checkpoint_device_bytes_total", "Device memory in checkpoints that were committed.",
          &Counters::devices_bytes},
    Total{"singularity_checkpoint_host_bytes_total", "Host memory in checkpoints that were committed.",
          &Counters::host_bytes},
    Total{"singularity_checkpoint_stored_bytes_total",
          "What checkpoints have added to the store, compressed and without what was there already.",
          &Counters::stored_bytes},
    Total{"singularity_requests_refused_total",
          "Requests of programs on this host that were answered with an error.", &Counters::requests_refused},
    Total{"singularity_workers_died_total", "Processes that saved or restored something, and died at it.",
          &Counters::workers_died},
    Total{"singularity_devices_lost_total",
          "Device proxies that died while their nodes ran, of a failed device or otherwise.",
          &Counters::devices_lost},
    Total{"singularity_steps_failed_total",
          "Steps of Slurm's that could not begin, or ended for another reason than their tasks.",
          &Counters::steps_failed},
};

// In the order of Counters::Check.
constexpr std::array<std::string_view, 3> kChecks{"clear", "obstacle", "failed"};

class Page {
  public:
    void family(std::string_view name, std::string_view type, std::string_view help) {
        name_ = name;
        fmt::format_to(std::back_inserter(text_), "# HELP {} {}\n# TYPE {} {}\n", name, help, name, type);
    }
    // labels: as they stand between the braces.
    void sample(std::string_view labels, std::string_view value, std::string_view suffix = {}) {
        const auto in_braces = labels.empty() ? std::string() : fmt::format("{{{}}}", labels);
        fmt::format_to(std::back_inserter(text_), "{}{}{} {}\n", name_, suffix, in_braces, value);
    }
    template <std::integral Number>
    void sample(std::string_view labels, Number value, std::string_view suffix = {}) {
        sample(labels, fmt::format("{}", value), suffix);
    }
    void by_state(std::string_view name, std::string_view help, const auto &counts) {
        family(name, "gauge", help);
        for (const auto &[state, count] : counts)
            sample(fmt::format(R"(state="{}")", escaped_label(state)), count);
    }
    // labels: one or none.
    void outcomes(std::string_view name, std::string_view good, std::string_view help,
                  const Counters &counters, const auto &rows) {
        family(name, "counter", help);
        for (const auto &[work, label] : rows) {
            const std::string_view comma = label.empty() ? "" : ",";
            sample(fmt::format(R"({}{}outcome="{}")", label, comma, good), counters.of(work).good);
            sample(fmt::format(R"({}{}outcome="failed")", label, comma), counters.of(work).failed);
        }
    }
    void times(std::string_view name, std::string_view help, const Counters &counters, const auto &rows,
               std::uint64_t Counters::Outcomes::*sum) {
        family(name, "summary", help);
        for (const auto &[work, label] : rows) {
            const auto &of = counters.of(work);
            sample(label, fmt::format("{}.{:06}", of.*sum / kMicroseconds, of.*sum % kMicroseconds), "_sum");
            sample(label, of.good, "_count");
        }
    }
    [[nodiscard]] std::string take() { return std::move(text_); }

  private:
    std::string_view name_;
    std::string text_;
};

void tell_jobs(Page &page, std::vector<Gauges::RunningJob> running) {
    const auto shown = std::min(running.size(), kShownJobs);
    std::ranges::partial_sort(
        running, running.begin() + static_cast<std::ptrdiff_t>(shown), {},
        [](const auto &job) { return std::pair(job.saved.value_or(job.started), job.name); });
    const auto left_out = running.size() - shown;
    running.resize(shown);
    const auto label = [](const auto &job) { return fmt::format(R"(job="{}")", escaped_label(job.name)); };
    page.family("singularity_job_start_time_seconds", "gauge",
                "When a job that this agent coordinates began, or went on, in seconds since 1970.");
    for (const auto &job : running)
        page.sample(label(job), job.started);
    page.family("singularity_job_checkpoint_interval_seconds", "gauge",
                "How long after each checkpoint the next is made, 0 if none is.");
    for (const auto &job : running)
        page.sample(label(job), job.every_s);
    page.family(
        "singularity_job_last_checkpoint_time_seconds", "gauge",
        "When the newest checkpoint of the job was begun, in seconds since 1970; no line if there is none.");
    for (const auto &job : running)
        if (job.saved)
            page.sample(label(job), *job.saved);
    page.family("singularity_jobs_without_lines", "gauge",
                "Running jobs that are left out of singularity_job_...: those that were saved last.");
    page.sample({}, left_out);
}

} // namespace

void Counters::succeeded(Work work, const ImageReport &report) {
    auto &of = outcomes_[static_cast<std::size_t>(work)];
    ++of.good;
    of.total_us += report.total_us;
    if (work == Work::restore)
        return;
    of.pause_us += report.pause_us;
    devices_bytes += report.devices_bytes;
    host_bytes += report.host_bytes;
    stored_bytes += report.stored_bytes;
}

Counters &counters() {
    static Counters of_the_agent;
    return of_the_agent;
}

std::optional<std::time_t> time_of_checkpoint(const std::string &id) {
    std::tm time{};
    const char *const end = strptime(id.c_str(), "%Y%m%dT%H%M%S", &time);
    if (end == nullptr || end - id.c_str() != 15)
        return std::nullopt;
    return timegm(&time);
}

std::string escaped_label(std::string_view value) {
    std::string out;
    for (const char one : value)
        switch (one) {
        case '\\':
            out += R"(\\)";
            break;
        case '"':
            out += R"(\")";
            break;
        case '\n':
            out += R"(\n)";
            break;
        default:
            out += one;
        }
    return out;
}

std::string metrics_text(const Counters &counters, Gauges gauges) {
    Page page;
    page.family("singularity_agent_info", "gauge", "The node agent's release.");
    page.sample(fmt::format(R"(version="{}")", escaped_label(gauges.version)), 1);
    page.family("singularity_agent_start_time_seconds", "gauge",
                "When the agent was started, in seconds since 1970: all counters began then.");
    page.sample({}, gauges.started);
    page.by_state("singularity_nodes", "Virtual nodes on this host.", gauges.nodes);
    page.by_state("singularity_jobs", "Jobs, steps of Slurm's among them, that this agent coordinates.",
                  gauges.jobs);
    page.family("singularity_records_waiting", "gauge",
                "Records of an earlier agent's nodes and jobs that could not be read yet. Each is kept.");
    page.sample({}, gauges.waiting);
    page.outcomes("singularity_checkpoints_total", "committed",
                  "Checkpoints, by who wanted them and what became of them.", counters, kCheckpoints);
    page.times("singularity_checkpoint_duration_seconds",
               "From the begin of a checkpoint until it was committed.", counters, kCheckpoints,
               &Counters::Outcomes::total_us);
    page.times("singularity_checkpoint_pause_seconds", "How long programs stood still for a checkpoint.",
               counters, kCheckpoints, &Counters::Outcomes::pause_us);
    page.outcomes("singularity_restores_total", "succeeded", "Restores, by what became of them.", counters,
                  kRestores);
    page.times("singularity_restore_duration_seconds",
               "From the begin of a restore until all of its programs ran.", counters, kRestores,
               &Counters::Outcomes::total_us);
    page.family("singularity_node_checks_total", "counter",
                "Looks at virtual nodes on this host, for whether they could be saved as they are.");
    for (std::size_t at = 0; at < kChecks.size(); ++at)
        page.sample(fmt::format(R"(outcome="{}")", kChecks[at]), counters.checks[at]);
    for (const auto &total : kTotals) {
        page.family(total.name, "counter", total.help);
        page.sample({}, counters.*total.value);
    }
    page.family("singularity_requests_over_budget_total", "counter",
                "What users were refused because they had all that per_user in singularity.yaml allows.");
    for (std::size_t at = 0; at < kBudgets; ++at)
        page.sample(fmt::format(R"(budget="{}")", name_of(static_cast<Budget>(at))), gauges.over_budget[at]);
    const auto held_of = [&](std::string_view name, std::string_view help, std::uint64_t Held::*part) {
        page.family(name, "gauge", help);
        for (std::size_t at = 0; at < kShared.size(); ++at)
            page.sample(fmt::format(R"(budget="{}")", name_of(kShared.at(at))), gauges.held.at(at).*part);
    };
    held_of("singularity_held_for_users", "What the agent holds for all users, of what per_user limits.",
            &Held::by_all);
    held_of("singularity_held_for_one_user",
            "The same for the user who has the most of it, to be compared with what per_user allows.",
            &Held::by_one);
    tell_jobs(page, std::move(gauges.running));
    return page.take();
}

} // namespace singularity::agent
