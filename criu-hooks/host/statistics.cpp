// SPDX-License-Identifier: GPL-2.0-or-later
#include "statistics.hpp"

#include "records.hpp"

#include <span>

namespace singularity::host {
namespace {

// CRIU's images/stats.proto: stats_entry.dump, dump_stats_entry.frozen_time
constexpr std::uint32_t kDump = 1;
constexpr std::uint32_t kFrozenTime = 2;

constexpr const char *kFile = "stats-dump";

} // namespace

Expected<std::chrono::microseconds> frozen_time(int images) {
    auto message = first_record(images, kFile, Magic::kStatistics);
    if (!message)
        return propagate(message);
    const std::optional<std::string> &text = *message;
    if (!text)
        return failure("read", kFile, "it is empty");
    auto outer = fields_of(std::as_bytes(std::span(*text)));
    if (!outer)
        return propagate(outer);
    const Field *const dump = find(*outer, kDump);
    if (dump == nullptr)
        return failure("read", kFile, "it has no figures of a dump");
    auto inner = fields_of(dump->bytes);
    if (!inner)
        return propagate(inner);
    const Field *const frozen = find(*inner, kFrozenTime);
    return std::chrono::microseconds(frozen == nullptr ? 0 : frozen->value);
}

} // namespace singularity::host
