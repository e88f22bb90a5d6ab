// SPDX-License-Identifier: GPL-2.0-or-later
#include "statistics.hpp"

#include "records.hpp"

namespace singularity::host {
namespace {

// CRIU's images/stats.proto: stats_entry.dump, dump_stats_entry.frozen_time
constexpr std::uint32_t kDump = 1;
constexpr std::uint32_t kFrozenTime = 2;

} // namespace

Expected<std::chrono::microseconds> frozen_time(int images) {
    auto reader = RecordReader::open(images, "stats-dump", Magic::kStatistics);
    if (!reader)
        return propagate(reader);
    auto message = reader->next();
    if (!message)
        return propagate(message);
    const std::optional<Bytes> &bytes = *message;
    if (!bytes)
        return failure("read", reader->name(), "it is empty");
    auto outer = fields_of(*bytes);
    if (!outer)
        return propagate(outer);
    const Field *const dump = find(*outer, kDump);
    if (dump == nullptr)
        return failure("read", reader->name(), "it has no figures of a dump");
    auto inner = fields_of(dump->bytes);
    if (!inner)
        return propagate(inner);
    const Field *const frozen = find(*inner, kFrozenTime);
    return std::chrono::microseconds(frozen == nullptr ? 0 : frozen->value);
}

} // namespace singularity::host
