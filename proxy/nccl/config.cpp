// SPDX-License-Identifier: GPL-2.0-or-later
#include "config.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace singularity::nccl {

namespace {

constexpr int kMostChannels = 64;
constexpr int kMostPolicies = 3; // NCCL_CTA_POLICY_EFFICIENCY | NCCL_CTA_POLICY_ZERO
constexpr std::size_t kLongestName = 255;

constexpr std::uint32_t version(std::uint32_t minor) { return 20000 + (minor * 100); }

// A field, since which version there is one, and which values it may have.
struct Field {
    const char *name;
    int Config::*member;
    std::uint32_t since;
    int least;
    int most;
};
constexpr std::array<Field, 12> kFields{{
    {"blocking", &Config::blocking, version(14), 0, 1},
    {"cgaClusterSize", &Config::cga_cluster_size, version(17), 0, INT_MAX},
    {"min/max channels", &Config::min_ctas, version(17), 1, INT_MAX},
    {"min/max channels", &Config::max_ctas, version(17), 1, INT_MAX},
    {"splitShare", &Config::split_share, version(18), 0, 1},
    {"trafficClass", &Config::traffic_class, version(25), INT_MIN, INT_MAX},
    {"collnetEnable", &Config::collnet_enable, version(27), 0, 1},
    {"policy", &Config::cta_policy, version(27), 0, kMostPolicies},
    {"shrinkShare", &Config::shrink_share, version(27), 0, 1},
    {"nvlsCTAs", &Config::nvls_ctas, version(27), 1, INT_MAX},
    {"nChannelsPerNetPeer", &Config::channels_per_net_peer, version(28), 1, kMostChannels},
    {"nvlinkCentricSched", &Config::nvlink_centric_sched, version(28), 0, 1},
}};

bool blocking_by_environment(bool otherwise) {
    const char *const wish = std::getenv("NCCL_COMM_BLOCKING");
    if (wish == nullptr || (std::string_view(wish) != "0" && std::string_view(wish) != "1"))
        return otherwise;
    return *wish == '1';
}

} // namespace

Outcome<Settings> settings_of(const Config *config) {
    Config known;
    if (config != nullptr) {
        std::size_t size = 0;
        std::memcpy(&size, config, sizeof(size));
        known.magic = 0;
        // An older program's is shorter; what it does not have keeps its default.
        std::memcpy(&known, config, std::min(size, sizeof(Config)));
        if (known.magic != kConfigMagic)
            return refused(Result::invalid_argument,
                           "ncclConfig_t argument not initialized via NCCL_CONFIG_INITIALIZER");
    }
    for (const auto &field : kFields) {
        auto &value = known.*field.member;
        if (known.version < field.since)
            value = kUndefined;
        if (value != kUndefined && (value < field.least || value > field.most))
            return refused(Result::invalid_argument, "Invalid config {} attribute value {}", field.name,
                           value);
    }
    if (known.min_ctas != kUndefined && known.max_ctas != kUndefined && known.min_ctas > known.max_ctas)
        return refused(Result::invalid_argument, "Invalid config min/max channels attribute value {}/{}",
                       known.min_ctas, known.max_ctas);
    Settings settings{.blocking = blocking_by_environment(known.blocking != 0), .name = {}};
    if (known.comm_name != nullptr && known.version >= version(27))
        settings.name.assign(known.comm_name, strnlen(known.comm_name, kLongestName));
    return settings;
}

Settings inherited(const Settings &parent) {
    return {.blocking = blocking_by_environment(parent.blocking), .name = parent.name};
}

} // namespace singularity::nccl
