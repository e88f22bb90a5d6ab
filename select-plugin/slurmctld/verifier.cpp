// SPDX-License-Identifier: GPL-2.0-or-later
#include "verifier.hpp"

#include <algorithm>
#include <span>

#include <fmt/core.h>

namespace singularity {

namespace {

using records::Comparison;
using records::Job;
using records::Node;

// Takes the place of a field's name where a record cannot even be read.
constexpr std::string_view kUnreadable = "unreadable";

// The records of a rotating window over a list.
std::vector<const void *> window(std::span<const void *const> all, std::size_t start, std::size_t count) {
    std::vector<const void *> chosen;
    for (std::size_t i = 0; i < std::min(count, all.size()); ++i)
        chosen.push_back(all[(start + i) % all.size()]);
    return chosen;
}

// The fields of job_details, shown as members of job_info_t.
void compare_details(Comparison &comparison, const Job &before, const Job &after, const job_info_t &shown) {
    // slurmctld may drop the details of a job that is over, and shows nothing of them then.
    if (!before.details || !after.details)
        return;
    const auto &first = *before.details;
    const auto &second = *after.details;
    comparison.field(records::kJobDetails_submit_time, first.submit_time, second.submit_time,
                     shown.submit_time);
    comparison.field(records::kJobDetails_begin_time, first.begin_time, second.begin_time,
                     shown.eligible_time);
    comparison.field(records::kJobDetails_requeue, first.requeue, second.requeue, shown.requeue);
    using records::conditions::not_completing;
    using records::conditions::pending;
    if (before.job_state == after.job_state && pending(before) && not_completing(before))
        comparison.field(records::kJobDetails_min_cpus, first.min_cpus, second.min_cpus, shown.num_cpus);
}

void compare_qos(Comparison &comparison, const Job &before, const Job &after, const job_info_t &shown) {
    if (!before.qos_ptr || !after.qos_ptr || before.job_state != after.job_state)
        return;
    comparison.field(records::kJob_qos_id, before.qos_id, after.qos_id, before.qos_ptr->id);
    // A pending job is shown with the QOSes that it asked for.
    if (!records::conditions::pending(before))
        comparison.field(records::kQos_name, before.qos_ptr->name, after.qos_ptr->name, shown.qos);
}

void compare_partition(Comparison &comparison, const Job &before, const Job &after, const job_info_t &shown,
                       const partition_info_msg_t &partitions) {
    if (!before.part_ptr || !after.part_ptr)
        return;
    // A job that has started is shown with its partition record's name, a pending one with all that it asked
    // for.
    if (before.job_state == after.job_state && !records::conditions::pending(before))
        comparison.field(records::kPartition_name, before.part_ptr->name, after.part_ptr->name,
                         shown.partition);
    const std::span all(partitions.partition_array, partitions.record_count);
    const auto partition = std::ranges::find_if(all, [&](const partition_info_t &candidate) {
        return candidate.name != nullptr && before.part_ptr->name == candidate.name;
    });
    if (partition != all.end())
        records::compare_part_record(comparison, *before.part_ptr, *after.part_ptr, *partition);
    else
        comparison.field(records::kPartition_name, before.part_ptr->name, after.part_ptr->name, nullptr);
}

} // namespace

Expected<void> Verifier::read_first(Sample &sample) {
    Expected<void> result;
    controller_.visit_records([&](std::span<const void *const> jobs, std::span<const void *const> nodes) {
        const records::SafeReader reader;
        sample.jobs_seen = jobs.size();
        sample.nodes_seen = nodes.size();
        for (const void *const record : window(jobs, next_job_, sample_)) {
            auto snapshot = records::read_job_record(reader, record);
            if (!snapshot) {
                result = propagate(snapshot);
                return;
            }
            sample.jobs.push_back(
                {.record = record, .before = std::move(*snapshot), .after = {}, .shown = {}});
        }
        for (const void *const record : window(nodes, next_node_, sample_)) {
            auto snapshot = records::read_node_record(reader, record);
            if (!snapshot) {
                result = propagate(snapshot);
                return;
            }
            sample.nodes.push_back(
                {.record = record, .before = std::move(*snapshot), .after = {}, .shown = {}});
        }
    });
    return result;
}

Expected<void> Verifier::ask(Sample &sample) {
    for (auto &subject : sample.jobs) {
        auto shown = controller_.show_job(subject.before.job_id);
        if (!shown)
            return propagate(shown);
        subject.shown = std::move(*shown);
    }
    for (auto &subject : sample.nodes) {
        auto shown = controller_.show_node(subject.before.name);
        if (!shown)
            return propagate(shown);
        subject.shown = std::move(*shown);
    }
    auto partitions = controller_.show_partitions();
    if (!partitions)
        return propagate(partitions);
    sample.partitions = std::move(*partitions);
    return {};
}

Expected<void> Verifier::read_again(Sample &sample) {
    Expected<void> result;
    controller_.visit_records([&](std::span<const void *const> jobs, std::span<const void *const> nodes) {
        const records::SafeReader reader;
        for (auto &subject : sample.jobs) {
            if (std::ranges::find(jobs, subject.record) == jobs.end())
                continue;
            auto snapshot = records::read_job_record(reader, subject.record);
            if (!snapshot) {
                result = propagate(snapshot);
                return;
            }
            subject.after = std::move(*snapshot);
        }
        for (auto &subject : sample.nodes) {
            if (std::ranges::find(nodes, subject.record) == nodes.end())
                continue;
            auto snapshot = records::read_node_record(reader, subject.record);
            if (!snapshot) {
                result = propagate(snapshot);
                return;
            }
            subject.after = std::move(*snapshot);
        }
    });
    return result;
}

Finding Verifier::judge(const Sample &sample) {
    Comparison comparison;
    found::Agreement agreement;
    for (const auto &subject : sample.jobs) {
        if (!subject.after)
            continue;
        const auto &before = subject.before;
        const auto &after = *subject.after;
        if (!subject.shown) {
            // slurmctld knows every job that was in its list all the while: the number read is not the job's.
            if (before.job_id == after.job_id)
                comparison.disagree(records::kJob_job_id, fmt::format("{}", before.job_id), "no such job");
            continue;
        }
        records::compare_job_record(comparison, before, after, *subject.shown);
        compare_details(comparison, before, after, *subject.shown);
        compare_qos(comparison, before, after, *subject.shown);
        compare_partition(comparison, before, after, *subject.shown, *sample.partitions);
        ++agreement.jobs;
    }
    for (const auto &subject : sample.nodes) {
        if (!subject.after)
            continue;
        if (!subject.shown) {
            if (subject.before.name == subject.after->name)
                comparison.disagree(records::kNode_name, fmt::format("'{}'", subject.before.name),
                                    "no such node");
            continue;
        }
        records::compare_node_record(comparison, subject.before, *subject.after, *subject.shown);
        ++agreement.nodes;
    }
    if (const auto &disagreement = comparison.disagreement(); disagreement)
        return suspect(disagreement->field,
                       fmt::format("{} is read as {}, but the public API says {}", disagreement->field,
                                   disagreement->read, disagreement->shown));
    times_ = 0;
    if (agreement.jobs == 0 || agreement.nodes == 0)
        return found::Nothing{};
    agreement.fields = comparison.agreed();
    return agreement;
}

Finding Verifier::suspect(std::string_view subject, std::string what) {
    times_ = times_ > 0 && suspected_ == subject ? times_ + 1 : 1;
    suspected_ = subject;
    if (times_ < kTimesToBeSure)
        return found::Suspicion{std::move(what)};
    return found::Wrong{std::move(what)};
}

Finding Verifier::compare() {
    Sample sample;
    if (auto done = read_first(sample); !done)
        return suspect(kUnreadable, done.error().message());
    if (sample.jobs.empty() || sample.nodes.empty())
        return found::Nothing{};
    if (auto done = ask(sample); !done)
        return found::Unreachable{std::move(done.error())};
    if (auto done = read_again(sample); !done)
        return suspect(kUnreadable, done.error().message());
    auto finding = judge(sample);
    if (!std::holds_alternative<found::Suspicion>(finding)) {
        next_job_ = (next_job_ + sample.jobs.size()) % sample.jobs_seen;
        next_node_ = (next_node_ + sample.nodes.size()) % sample.nodes_seen;
    }
    return finding;
}

} // namespace singularity
