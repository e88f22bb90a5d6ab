// SPDX-License-Identifier: GPL-2.0-or-later
#include "report.hpp"

#include <array>
#include <iterator>
#include <string_view>

#include <fmt/format.h>

namespace singularity::simulator {
namespace {

// A length of time in the unit that a person would use.
std::string readable(double seconds) {
    if (seconds < 100)
        return fmt::format("{:.0f} s", seconds);
    if (seconds < 6000)
        return fmt::format("{:.1f} min", seconds / 60);
    if (seconds < 360000)
        return fmt::format("{:.1f} h", seconds / 3600);
    return fmt::format("{:.1f} d", seconds / 86400);
}

std::string percent(double share) { return fmt::format("{:.2f} %", share * 100); }

// Members of a JSON object, in the order in which they are written.
class Object {
  public:
    explicit Object(std::string &out) : out_(out) { out_ += '{'; }
    Object(const Object &) = delete;
    Object &operator=(const Object &) = delete;
    Object(Object &&) = delete;
    Object &operator=(Object &&) = delete;
    ~Object() { out_ += '}'; }

    void raw(std::string_view name, std::string_view value) {
        fmt::format_to(std::back_inserter(out_), "{}\"{}\":{}", first_ ? "" : ",", name, value);
        first_ = false;
    }
    void text(std::string_view name, std::string_view value) { raw(name, quoted(value)); }
    void number(std::string_view name, double value) { raw(name, fmt::format("{:.10g}", value)); }
    void count(std::string_view name, std::uint64_t value) { raw(name, fmt::format("{}", value)); }

    static std::string quoted(std::string_view value) {
        std::string out = "\"";
        for (const char c : value) {
            if (c == '"' || c == '\\')
                out += '\\';
            if (static_cast<unsigned char>(c) < 0x20)
                fmt::format_to(std::back_inserter(out), "\\u{:04x}", static_cast<unsigned>(c));
            else
                out += c;
        }
        return out + '"';
    }

  private:
    std::string &out_;
    bool first_ = true;
};

std::string json_of(const Distribution &distribution) {
    return fmt::format(R"({{"mean":{:.10g},"p50":{:.10g},"p99":{:.10g}}})", distribution.mean,
                       distribution.p50, distribution.p99);
}

std::string json_of(const TierStatistics &tier, bool has_guarantee) {
    std::string out;
    {
        Object object(out);
        object.count("jobs", tier.jobs);
        if (has_guarantee)
            object.number("guarantee", tier.guarantee);
        object.number("met", tier.met);
        object.number("met_by_work", tier.met_by_work);
        object.number("met_in_window", tier.met_in_window);
        object.number("mean_fraction", tier.mean_fraction);
        object.raw("queueing_s", json_of(tier.queueing));
        object.raw("completion_s", json_of(tier.completion));
        object.number("moves_per_job_hour", tier.moves_per_job_hour);
        object.number("kills_per_job_hour", tier.kills_per_job_hour);
    }
    return out;
}

// Name and member of every part of the GPU time.
constexpr std::array<std::pair<std::string_view, double GpuTime::*>, 9> kParts{{
    {"total", &GpuTime::total},
    {"down", &GpuTime::down},
    {"idle", &GpuTime::idle},
    {"held", &GpuTime::held},
    {"releasing", &GpuTime::releasing},
    {"useful", &GpuTime::useful},
    {"lost_moving", &GpuTime::lost_moving},
    {"lost_splicing", &GpuTime::lost_splicing},
    {"lost_again", &GpuTime::lost_again},
}};

std::string json_of(const Statistics &result) {
    std::string tiers;
    {
        Object object(tiers);
        for (std::size_t tier = 0; tier < kTiers; ++tier)
            object.raw(kTierNames[tier], json_of(result.tiers[tier], true));
        object.raw("all", json_of(result.all, false));
    }
    std::string time;
    {
        Object object(time);
        for (const auto &[name, part] : kParts)
            object.number(name, result.time.*part);
    }
    std::string out;
    {
        Object object(out);
        object.text("policy", result.policy);
        object.count("gpus", static_cast<std::uint64_t>(result.gpus));
        object.count("nodes", static_cast<std::uint64_t>(result.nodes));
        object.count("finished", result.finished);
        object.count("rejected", result.rejected);
        object.count("unfinished", result.unfinished);
        object.number("utilisation", result.utilisation);
        object.number("utilisation_of_bound", result.utilisation_of_bound);
        object.number("useful_share", result.useful_share);
        object.number("makespan_h", result.makespan_hours);
        object.count("node_failures", result.node_failures);
        object.count("plans", result.plans);
        object.raw("tiers", tiers);
        object.raw("gpu_hours", time);
    }
    return out;
}

constexpr std::string_view kTierLine =
    "{:<12} {:<9} {:>8} {:>9} {:>9} {:>9} {:>9}  {:>9} {:>9} {:>9}  {:>9} {:>9} {:>9}  {:>8} {:>8}\n";
constexpr std::string_view kPolicyLine =
    "{:<12} {:>10} {:>10} {:>10} {:>12} {:>12} {:>12} {:>12} {:>12} {:>9} {:>10}\n";

void append_tier(std::string &out, std::string_view policy, std::string_view name,
                 const TierStatistics &tier) {
    fmt::format_to(
        std::back_inserter(out), kTierLine, policy, name, tier.jobs, percent(tier.met),
        percent(tier.met_in_window), percent(tier.met_by_work), fmt::format("{:.4f}", tier.mean_fraction),
        readable(tier.queueing.mean), readable(tier.queueing.p50), readable(tier.queueing.p99),
        readable(tier.completion.mean), readable(tier.completion.p50), readable(tier.completion.p99),
        fmt::format("{:.4f}", tier.moves_per_job_hour), fmt::format("{:.4f}", tier.kills_per_job_hour));
}

} // namespace

std::string table_of(const Origin &origin, std::span<const Statistics> results) {
    std::string out;
    const auto append = [&out]<class... Arguments>(fmt::format_string<Arguments...> format,
                                                   Arguments &&...arguments) {
        fmt::format_to(std::back_inserter(out), format, std::forward<Arguments>(arguments)...);
    };
    if (results.empty())
        return out;
    append(
        "{} ({} jobs, scale {}) on {} nodes with {} GPUs, tiers {:.0f}/{:.0f}/{:.0f} drawn with seed {}\n\n",
        origin.trace, origin.jobs, origin.scale, results.front().nodes, results.front().gpus,
        origin.description.tiers.mix[0] * 100, origin.description.tiers.mix[1] * 100,
        origin.description.tiers.mix[2] * 100, origin.seed);
    const std::string window =
        fmt::format("in {}", readable(static_cast<double>(origin.description.tiers.window.count()) / 1000));
    append(kTierLine, "", "", "", "guarantee met, % of jobs:", "", "", "GPU", "queueing:", "", "",
           "completion:", "", "", "per job h:", "");
    append(kTierLine, "policy", "tier", "jobs", "by job", window, "by work", "fraction", "mean", "p50", "p99",
           "mean", "p50", "p99", "moves", "kills");
    for (const Statistics &result : results) {
        for (std::size_t tier = 0; tier < kTiers; ++tier)
            append_tier(out, tier == 0 ? std::string_view(result.policy) : "", kTierNames[tier],
                        result.tiers[tier]);
        append_tier(out, "", "all", result.all);
    }
    append("\n");
    append(kPolicyLine, "GPU hours", "held of", "held of", "useful of", "", "lost", "lost", "lost again", "",
           "", "");
    append(kPolicyLine, "policy", "up", "bound", "held", "useful", "moving", "splicing", "(killed)", "idle",
           "rejected", "unfinished");
    for (const Statistics &result : results) {
        const GpuTime &time = result.time;
        append(kPolicyLine, result.policy, percent(result.utilisation), percent(result.utilisation_of_bound),
               percent(result.useful_share), fmt::format("{:.0f}", time.useful),
               fmt::format("{:.0f}", time.lost_moving + time.releasing),
               fmt::format("{:.0f}", time.lost_splicing), fmt::format("{:.0f}", time.lost_again),
               fmt::format("{:.0f}", time.idle), result.rejected, result.unfinished);
    }
    return out;
}

std::string json_of(const Origin &origin, std::span<const Statistics> results) {
    std::string list = "[";
    for (const Statistics &result : results)
        list += (list.size() > 1 ? ",\n" : "\n") + json_of(result);
    list += "\n]";
    std::string out;
    {
        Object object(out);
        object.text("trace", origin.trace);
        object.text("scale", origin.scale);
        object.count("jobs", origin.jobs);
        object.count("seed", origin.seed);
        object.text("description", to_yaml(origin.description));
        object.raw("results", list);
    }
    return out + '\n';
}

} // namespace singularity::simulator
