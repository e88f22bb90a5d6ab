// SPDX-License-Identifier: GPL-2.0-or-later
// The command line of the simulator: a trace in, a table out, and on request JSON and pictures.
#include "common/config.hpp"
#include "common/text.hpp"
#include "picture.hpp"
#include "progress.hpp"
#include "report.hpp"
#include "simulation.hpp"
#include "world.hpp"

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/format.h>
#include <fmt/ranges.h>

namespace {

using namespace singularity;
using namespace singularity::simulator;

struct Options {
    std::filesystem::path trace;
    std::filesystem::path cluster;
    std::filesystem::path rules;
    std::filesystem::path json;
    std::filesystem::path pictures;
    std::vector<std::string> policies;
    std::string mix;
    std::string scale = "1x1";
    std::optional<std::int64_t> nodes;
    std::optional<double> share_of_peak;
    std::uint64_t seed = 1;
    bool print_description = false;
};

Expected<Description> description_of(const Options &options) {
    Expected<Description> description = Description();
    if (!options.cluster.empty())
        description = read_description(options.cluster);
    if (!description)
        return description;
    if (!options.mix.empty()) {
        const auto mix = parse_mix(options.mix);
        if (!mix)
            return std::unexpected(mix.error());
        description->tiers.mix = *mix;
    }
    if (options.share_of_peak) {
        description->cluster.nodes = 0;
        description->cluster.share_of_peak = *options.share_of_peak;
    }
    if (options.nodes)
        description->cluster.nodes = *options.nodes;
    return description;
}

// As slurmctld would read it, but whoever may own it: nothing here has more rights than its user.
Expected<policy::Rules> rules_from(const std::filesystem::path &path) {
    if (path.empty())
        return policy::rules_of(Config());
    std::ifstream stream(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    if (!stream)
        return std::unexpected(errno_error("read", path.string()));
    auto config = config::parse(text, path.string());
    if (!config)
        return propagate(config);
    return policy::rules_of(*config);
}

Expected<std::vector<PolicyName>> chosen(const std::vector<std::string> &names) {
    std::vector<std::string_view> known;
    for (const PolicyName &policy : policies())
        known.push_back(policy.name);
    if (names.empty())
        return std::vector<PolicyName>(policies().begin(), policies().end());
    std::vector<PolicyName> result;
    for (const std::string &name : names) {
        const auto found = std::ranges::find(known, name);
        if (found == known.end()) {
            return failure("take the policy", quote(name),
                           fmt::format("expected one of {}; did you mean {}?", fmt::join(known, ", "),
                                       nearest(name, known)));
        }
        result.push_back(policies()[static_cast<std::size_t>(found - known.begin())]);
    }
    return result;
}

Expected<void> simulate_all(const Options &options) {
    auto description = description_of(options);
    if (!description)
        return propagate(description);
    if (options.print_description) {
        fmt::print("{}", to_yaml(*description));
        return {};
    }
    auto rules = rules_from(options.rules);
    if (!rules)
        return propagate(rules);
    auto wanted = chosen(options.policies);
    if (!wanted)
        return propagate(wanted);
    auto scale = parse_scale(options.scale);
    if (!scale)
        return propagate(scale);
    auto read = read_trace(options.trace);
    if (!read)
        return propagate(read);
    const std::vector<TraceJob> trace =
        scale->gang == 1 && scale->copies == 1 ? std::move(*read) : scaled(*read, *scale);
    const Setting setting{*description, *rules, options.seed};
    std::vector<Statistics> results;
    for (const PolicyName &policy : *wanted) {
        {
            Progress progress{std::string(policy.name)};
            results.push_back(
                simulate(setting, trace, policy, [&progress](double share) { progress.show(share); }));
        }
        fmt::print(stderr, "{}: {:.1f} s, {} plans\n", policy.name, results.back().seconds,
                   results.back().plans);
    }
    const Origin origin{options.trace.filename().string(), fmt::format("{}x{}", scale->gang, scale->copies),
                        trace.size(), options.seed, *description};
    fmt::print("{}", table_of(origin, results));
    if (!options.json.empty()) {
        if (auto written = write_file(options.json, json_of(origin, results)); !written)
            return written;
    }
    return options.pictures.empty() ? Expected<void>() : write_pictures(options.pictures, results);
}

int run(int argc, char **argv) {
    CLI::App app("singularity-sim: what a scheduling policy makes of a trace of GPU jobs");
    app.set_version_flag("--version", SINGULARITY_VERSION);
    Options options;
    app.add_option("TRACE", options.trace,
                   "jobs as CSV with job_id,submit_s,gpus,duration_s and optionally tier; may be zstd");
    app.add_option("--cluster", options.cluster,
                   "description of the cluster and of all that is assumed (YAML)");
    app.add_option("--rules", options.rules,
                   "singularity.yaml with the tiers and the planner's numbers; its defaults otherwise");
    std::string names;
    for (const PolicyName &policy : policies())
        names += fmt::format("\n{}: {}", policy.name, policy.what);
    app.add_option("--policy", options.policies, "policies separated by commas; all by default:" + names)
        ->delimiter(',');
    app.add_option("--mix", options.mix,
                   "percentages of premium/standard/basic jobs, as in 30/40/30; over the description's");
    app.add_option("--nodes", options.nodes, "number of nodes; over the description's")
        ->check(CLI::Range(1, 1'000'000));
    app.add_option("--share-of-peak", options.share_of_peak,
                   "as many nodes as are this share of the trace's peak demand")
        ->check(CLI::Range(0.01, 100.0));
    app.add_option("--scale", options.scale,
                   "GANGxCOPIES: every gang so many times larger, so many shifted copies of each job")
        ->capture_default_str();
    app.add_option("--seed", options.seed, "of tiers and failures")->capture_default_str();
    app.add_option("--json", options.json, "write the results to this file");
    app.add_option("--pictures", options.pictures,
                   "write utilisation.svg, completion.svg and fraction.svg to this folder");
    app.add_flag("--print-description", options.print_description,
                 "print the description in force and do nothing else");
    CLI11_PARSE(app, argc, argv);
    if (options.trace.empty() && !options.print_description) {
        fmt::print(stderr, "singularity-sim: expected a TRACE; see singularity-sim --help\n");
        return EXIT_FAILURE;
    }
    const auto done = simulate_all(options);
    if (!done) {
        fmt::print(stderr, "singularity-sim: {}\n", done.error().message());
        return EXIT_FAILURE;
    }
    return EXIT_SUCCESS;
}

} // namespace

int main(int argc, char **argv) {
    try {
        return run(argc, argv);
    } catch (const std::exception &error) {
        std::fprintf(stderr, "singularity-sim: %s\n", error.what());
        return EXIT_FAILURE;
    }
}
