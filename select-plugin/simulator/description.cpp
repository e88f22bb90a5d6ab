// SPDX-License-Identifier: GPL-2.0-or-later
#include "description.hpp"

#include "common/settings.hpp"
#include "common/text.hpp"
#include "value_types.hpp"

#include <chrono>
#include <cstddef>
#include <fstream>
#include <iterator>
#include <system_error>
#include <tuple>
#include <utility>

#include <fmt/format.h>

namespace singularity::simulator {
namespace {

using namespace std::chrono_literals;
using settings::Duration;
using settings::Integer;
using settings::Key;

constexpr std::chrono::milliseconds kYear = 8760h;

// Every key, its range and its default. Why each default is what it is: docs/simulator.md.
const std::tuple kKeys{
    Key{"cluster.nodes", Integer{0, 1'000'000}, 0, [](auto &d) -> auto & { return d.cluster.nodes; }},
    Key{"cluster.share_of_peak", Decimal{0.01, 100}, 0.7,
        [](auto &d) -> auto & { return d.cluster.share_of_peak; }},
    Key{"cluster.gpus_per_node", Integer{1, 64}, 8,
        [](auto &d) -> auto & { return d.cluster.gpus_per_node; }},
    Key{"cluster.nodes_per_switch", Integer{1, 1'000'000}, 32,
        [](auto &d) -> auto & { return d.cluster.nodes_per_switch; }},
    Key{"tiers.mix", PerTier{}, Shares{0.3, 0.4, 0.3}, [](auto &d) -> auto & { return d.tiers.mix; }},
    Key{"tiers.window", Duration{1s, kYear}, 1h, [](auto &d) -> auto & { return d.tiers.window; }},
    Key{"elastic.share", Decimal{0, 1}, 1.0, [](auto &d) -> auto & { return d.elastic.share; }},
    Key{"elastic.most_ranks_per_gpu", Integer{1, 64}, 4,
        [](auto &d) -> auto & { return d.elastic.most_ranks_per_gpu; }},
    Key{"elastic.splice_overhead", Decimal{0, 0.9}, 0.03,
        [](auto &d) -> auto & { return d.elastic.splice_overhead; }},
    Key{"costs.device_gib_per_gpu", Decimal{0, 1024}, 20.0,
        [](auto &d) -> auto & { return d.costs.device_gib_per_gpu; }},
    Key{"costs.host_gib_per_rank", Decimal{0, 4096}, 2.0,
        [](auto &d) -> auto & { return d.costs.host_gib_per_rank; }},
    Key{"costs.replicas_per_image", Integer{1, 1'000'000}, 8,
        [](auto &d) -> auto & { return d.costs.replicas_per_image; }},
    Key{"costs.save_gib_per_second", Decimal{0.001, 10000}, 3.0,
        [](auto &d) -> auto & { return d.costs.save_gib_per_second; }},
    Key{"costs.restore_gib_per_second", Decimal{0.001, 10000}, 7.0,
        [](auto &d) -> auto & { return d.costs.restore_gib_per_second; }},
    Key{"costs.transfer_gib_per_second", Decimal{0.001, 10000}, 2.0,
        [](auto &d) -> auto & { return d.costs.transfer_gib_per_second; }},
    Key{"costs.checkpoint_fixed", Duration{0s, kYear}, 5s,
        [](auto &d) -> auto & { return d.costs.checkpoint_fixed; }},
    Key{"costs.restore_fixed", Duration{0s, kYear}, 10s,
        [](auto &d) -> auto & { return d.costs.restore_fixed; }},
    Key{"costs.periodic_checkpoint", Duration{1s, kYear}, 1h,
        [](auto &d) -> auto & { return d.costs.periodic_checkpoint; }},
    Key{"failures.mean_time_between", Duration{0s, 1000 * kYear}, 6300h,
        [](auto &d) -> auto & { return d.failures.mean_time_between; }},
    Key{"failures.repair", Duration{1s, kYear}, 4h, [](auto &d) -> auto & { return d.failures.repair; }},
    Key{"planning.period", Duration{0s, 24h}, 10s, [](auto &d) -> auto & { return d.planning.period; }},
    Key{"planning.longest", Duration{1s, 24h}, 1min, [](auto &d) -> auto & { return d.planning.longest; }},
    Key{"slurm.time_limit_factor", Decimal{1, 1000}, 2.0,
        [](auto &d) -> auto & { return d.slurm.time_limit_factor; }},
    Key{"slurm.backfill_depth", Integer{0, 1'000'000}, 500,
        [](auto &d) -> auto & { return d.slurm.backfill_depth; }},
    Key{"tiresias.queue_thresholds", Thresholds{}, std::vector<double>{3250, 7200},
        [](auto &d) -> auto & { return d.tiresias.queue_thresholds; }},
};

constexpr std::uintmax_t kMostBytes = 1U << 20U;

} // namespace

Description::Description() { settings::set_defaults(kKeys, *this); }

Expected<Description> parse_description(std::string_view text, std::string_view file_name) {
    Description description;
    auto lines = settings::read(kKeys, description, text, file_name);
    if (!lines)
        return propagate(lines);
    return description;
}

Expected<Description> read_description(const std::filesystem::path &path) {
    std::error_code code;
    const auto size = std::filesystem::file_size(path, code);
    if (code)
        return failure("read", path.string(), code.message(), code.value());
    if (size > kMostBytes) {
        return failure("read", path.string(),
                       fmt::format("expected at most {} bytes, found {}", kMostBytes, size));
    }
    std::ifstream stream(path, std::ios::binary);
    const std::string text{std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
    if (!stream)
        return failure("read", path.string(), "the file could not be read");
    return parse_description(text, path.string());
}

Expected<Shares> parse_mix(std::string_view text) {
    const PerTier type;
    const auto shares = value_of(type, settings::Scalar{text, false});
    if (!shares)
        return failure("read the tier mix", quote(text), fmt::format("expected {}", expected(type)));
    return *shares;
}

std::string to_yaml(const Description &description) { return settings::to_yaml(kKeys, description); }

} // namespace singularity::simulator
