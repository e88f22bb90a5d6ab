// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/config.hpp"

#include "common/outside.hpp"
#include "common/port_range.hpp"
#include "common/settings.hpp"
#include "common/trusted_file.hpp"
#include "yaml.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <initializer_list>
#include <tuple>

#include <fmt/format.h>
#include <sys/stat.h>

namespace singularity {
namespace {

using namespace std::chrono_literals;
using settings::AbsolutePath;
using settings::AbsolutePaths;
using settings::Boolean;
using settings::Choice;
using settings::Duration;
using settings::Integer;
using settings::Key;
using settings::OutsideText;
using settings::PortRangeText;
using settings::Text;

// More GPUs than any cluster has; keeps products with a rank count inside 64 bits.
constexpr Integer kGpus{1, 1048576};

constexpr Duration kEvery{0s, 8760h};
constexpr Duration kEveryLeast{1s, 24h};
constexpr Duration kLookEvery{0s, 1h};
constexpr Duration kCheckAfter{0s, 24h};
constexpr Duration kGpuTurn{100ms, 1h};

constexpr Integer kPercent{0, 100};
// Of Slurm's 32 bits half is above what a job has without any factor.
constexpr Integer kWeight{0, 100'000'000};
// One a minute is more than any checkpoint allows.
constexpr Integer kMoves{0, 60};
constexpr Duration kLeastRun{0s, 24h};
constexpr const char *kStore = "/var/lib/singularity/store";
constexpr const char *kLocal = "/var/spool/singularity/local";
// A pebibyte; in bytes it is far inside 64 bits.
constexpr Integer kQuota{0, 1048576};
constexpr Integer kCopies{0, 1048576}; // MiB
constexpr Integer kPort{1, 65535};
constexpr Integer kHeld{1, 65536};
constexpr const char *kMunge = "/run/munge/munge.socket.2";

constexpr std::initializer_list<std::filesystem::path> kNoPaths{};
// No path is a constant.
struct OnePath {
    const char *path;
    operator std::vector<std::filesystem::path>() const { return {path}; } // NOLINT(*-explicit-*): a default
};
constexpr OnePath kHomes{"/home"};

using SaveScripts = Config::Elastic::SaveScripts;
constexpr std::array<std::pair<std::string_view, SaveScripts>, 3> kSaveScripts{{
    {"until srun", SaveScripts::kUntilSrun},
    {"true", SaveScripts::kYes},
    {"false", SaveScripts::kNo},
}};

using Writable = Config::Containers::Writable;
constexpr std::array<std::pair<std::string_view, Writable>, 3> kWritable{{
    {"beside local_directories", Writable::kBesideLocal},
    {"always", Writable::kAlways},
    {"never", Writable::kNever},
}};

// clang-format off: one line per key
constexpr std::tuple kKeys{
    Key{"log_level",                  Choice{log::kLevels}, log::Level::kInfo, [](auto &c) -> auto & { return c.log_level; }},
    Key{"elastic.enabled",            Boolean{},            true,              [](auto &c) -> auto & { return c.elastic.enabled; }},
    Key{"elastic.min_gpus",           kGpus,                kGpus.least,       [](auto &c) -> auto & { return c.elastic.min_gpus; }},
    Key{"elastic.max_gpus",           kGpus,                kGpus.most,        [](auto &c) -> auto & { return c.elastic.max_gpus; }},
    Key{"elastic.checkpoint_every",       kEvery,           30min,             [](auto &c) -> auto & { return c.elastic.checkpoint_every; }},
    Key{"elastic.checkpoint_every_least", kEveryLeast,      5min,              [](auto &c) -> auto & { return c.elastic.checkpoint_every_least; }},
    Key{"elastic.look_every",         kLookEvery,           1min,              [](auto &c) -> auto & { return c.elastic.look_every; }},
    Key{"elastic.check_after",        kCheckAfter,          20s,               [](auto &c) -> auto & { return c.elastic.check_after; }},
    Key{"elastic.save_scripts",       Choice{kSaveScripts}, SaveScripts::kUntilSrun, [](auto &c) -> auto & { return c.elastic.save_scripts; }},
    Key{"elastic.save_running_steps", Boolean{},            true,              [](auto &c) -> auto & { return c.elastic.save_running_steps; }},
    Key{"elastic.hide_unsavable",     Boolean{},            true,              [](auto &c) -> auto & { return c.elastic.hide_unsavable; }},
    Key{"elastic.gpu_turn",           kGpuTurn,             10s,               [](auto &c) -> auto & { return c.elastic.gpu_turn; }},
    Key{"files.largest_copy_mib",     kCopies,              16,                [](auto &c) -> auto & { return c.files.largest_copy_mib; }},
    Key{"files.all_copies_mib",       kCopies,              256,               [](auto &c) -> auto & { return c.files.all_copies_mib; }},
    Key{"files.keep_aside",           Boolean{},            false,             [](auto &c) -> auto & { return c.files.keep_aside; }},
    Key{"local_directories.paths",    AbsolutePaths{8},     kNoPaths,          [](auto &c) -> auto & { return c.local_directories.paths; }},
    Key{"local_directories.base",     AbsolutePath{},       kLocal,            [](auto &c) -> auto & { return c.local_directories.base; }},
    Key{"local_directories.quota_gib", kQuota,              32,                [](auto &c) -> auto & { return c.local_directories.quota_gib; }},
    Key{"slurmctld.decide",           Boolean{},            true,              [](auto &c) -> auto & { return c.slurmctld.decide; }},
    Key{"slurmctld.verify_interval",  Duration{1s, 1h},     60s,               [](auto &c) -> auto & { return c.slurmctld.verify_interval; }},
    Key{"slurmctld.verify_sample",    Integer{1, 256},      32,                [](auto &c) -> auto & { return c.slurmctld.verify_sample; }},
    Key{"premium.guarantee_percent",  kPercent,             95,                [](auto &c) -> auto & { return c.premium.guarantee_percent; }},
    Key{"premium.moves_per_hour",     kMoves,               2,                 [](auto &c) -> auto & { return c.premium.moves_per_hour; }},
    Key{"premium.least_run",          kLeastRun,            10min,             [](auto &c) -> auto & { return c.premium.least_run; }},
    Key{"standard.guarantee_percent", kPercent,             70,                [](auto &c) -> auto & { return c.standard.guarantee_percent; }},
    Key{"standard.moves_per_hour",    kMoves,               4,                 [](auto &c) -> auto & { return c.standard.moves_per_hour; }},
    Key{"standard.least_run",         kLeastRun,            5min,              [](auto &c) -> auto & { return c.standard.least_run; }},
    Key{"basic.guarantee_percent",    kPercent,             0,                 [](auto &c) -> auto & { return c.basic.guarantee_percent; }},
    Key{"basic.moves_per_hour",       kMoves,               12,                [](auto &c) -> auto & { return c.basic.moves_per_hour; }},
    Key{"basic.least_run",            kLeastRun,            1min,              [](auto &c) -> auto & { return c.basic.least_run; }},
    Key{"planner.every",              Duration{1s, 10min},  10s,               [](auto &c) -> auto & { return c.planner.every; }},
    Key{"planner.metrics",            AbsolutePath{true},   "",                [](auto &c) -> auto & { return c.planner.metrics; }},
    Key{"planner.priority_weight",    kWeight,              1'000'000,         [](auto &c) -> auto & { return c.planner.priority_weight; }},
    Key{"planner.horizon",            Duration{1s, 1h},     2min,              [](auto &c) -> auto & { return c.planner.horizon; }},
    Key{"planner.margin_percent",     kPercent,             30,                [](auto &c) -> auto & { return c.planner.margin_percent; }},
    Key{"planner.payback",            Duration{1s, 24h},    15min,             [](auto &c) -> auto & { return c.planner.payback; }},
    Key{"planner.service_quantum",    Duration{1s, 1000h},  1h,                [](auto &c) -> auto & { return c.planner.service_quantum; }},
    Key{"planner.strict_tiers",       Boolean{},            true,              [](auto &c) -> auto & { return c.planner.strict_tiers; }},
    Key{"store.directory",            AbsolutePath{},       kStore,            [](auto &c) -> auto & { return c.store.directory; }},
    Key{"store.others",               AbsolutePaths{15},   kNoPaths,          [](auto &c) -> auto & { return c.store.others; }},
    Key{"store.quota_gib",            kQuota,               0,                 [](auto &c) -> auto & { return c.store.quota_gib; }},
    Key{"agents.address",             Text{0, 15},          "",                [](auto &c) -> auto & { return c.agents.address; }},
    Key{"agents.port",                kPort,                8474,              [](auto &c) -> auto & { return c.agents.port; }},
    Key{"agents.vxlan_port",          kPort,                8475,              [](auto &c) -> auto & { return c.agents.vxlan_port; }},
    Key{"agents.patience",            Duration{2s, 10min},  30s,               [](auto &c) -> auto & { return c.agents.patience; }},
    Key{"agents.munge_socket",        AbsolutePath{},       kMunge,            [](auto &c) -> auto & { return c.agents.munge_socket; }},
    Key{"agents.metrics",             AbsolutePath{true},   "",                [](auto &c) -> auto & { return c.agents.metrics; }},
    Key{"agents.nccl",                AbsolutePath{true},   "",                [](auto &c) -> auto & { return c.agents.nccl; }},
    Key{"agents.run_without_slurm",   Boolean{},            false,             [](auto &c) -> auto & { return c.agents.run_without_slurm; }},
    Key{"network.outside",            OutsideText{},        "everything",      [](auto &c) -> auto & { return c.network.outside; }},
    Key{"network.publish",            PortRangeText{},      "nothing",         [](auto &c) -> auto & { return c.network.publish; }},
    Key{"containers.enabled",         Boolean{},            true,              [](auto &c) -> auto & { return c.containers.enabled; }},
    Key{"containers.mounts",          AbsolutePaths{16},    kHomes,            [](auto &c) -> auto & { return c.containers.mounts; }},
    Key{"containers.writable",        Choice{kWritable},    Writable::kBesideLocal, [](auto &c) -> auto & { return c.containers.writable; }},
    Key{"per_user.connections",       Integer{16, 4096},    1024,              [](auto &c) -> auto & { return c.per_user.connections; }},
    Key{"per_user.nodes",             kHeld,                256,               [](auto &c) -> auto & { return c.per_user.nodes; }},
    Key{"per_user.jobs",              kHeld,                64,                [](auto &c) -> auto & { return c.per_user.jobs; }},
    Key{"per_user.scripts",           kHeld,                256,               [](auto &c) -> auto & { return c.per_user.scripts; }},
    Key{"per_user.restores",          Integer{1, 1024},     8,                 [](auto &c) -> auto & { return c.per_user.restores; }},
    Key{"per_user.workers",           Integer{8, 4096},     256,               [](auto &c) -> auto & { return c.per_user.workers; }},
    Key{"per_user.questions",         Integer{1, 4096},     128,               [](auto &c) -> auto & { return c.per_user.questions; }},
    Key{"per_user.notes",             Integer{16, 65536},   1024,              [](auto &c) -> auto & { return c.per_user.notes; }},
    Key{"per_user.closing",           Integer{4, 4096},     128,               [](auto &c) -> auto & { return c.per_user.closing; }},
    Key{"per_user.ranks",             Integer{1, 1048576},  16384,             [](auto &c) -> auto & { return c.per_user.ranks; }},
    Key{"per_user.tasks",             Integer{1, 1048576},  16384,             [](auto &c) -> auto & { return c.per_user.tasks; }},
    Key{"per_user.ports",             Integer{1, 1024},     64,                [](auto &c) -> auto & { return c.per_user.ports; }},
    Key{"per_user.program_mib",       Integer{8, 1048576},  1024,              [](auto &c) -> auto & { return c.per_user.program_mib; }},
    Key{"per_user.output_mib",        Integer{8, 1048576},  1024,              [](auto &c) -> auto & { return c.per_user.output_mib; }},
};
// clang-format on

// Two keys of which the first may not be above the second.
struct Order {
    std::string_view low;
    std::string_view high;
    std::int64_t low_value;
    std::int64_t high_value;
    // As the file has them.
    std::string low_text;
    std::string high_text;
};

Order order_of(std::string_view low, std::string_view high, std::int64_t low_value, std::int64_t high_value) {
    return {low, high, low_value, high_value, fmt::format("{}", low_value), fmt::format("{}", high_value)};
}

Order order_of(std::string_view low, std::string_view high, std::chrono::milliseconds low_value,
               std::chrono::milliseconds high_value) {
    const Duration any{};
    return {low,
            high,
            low_value.count(),
            high_value.count(),
            settings::to_yaml(any, low_value),
            settings::to_yaml(any, high_value)};
}

Expected<void> check_order(const Order &order, const settings::Lines &lines, std::string_view file_name) {
    if (order.low_value <= order.high_value)
        return {};
    // At least one of the two is set: the defaults agree. The error is at the one that is set, high before
    // low.
    const auto high = lines.find(order.high);
    if (high != lines.end()) {
        return std::unexpected(yaml::error_at(file_name, high->second, order.high,
                                              fmt::format("expected at least {}, which is {}, found {}",
                                                          order.low, order.low_text, order.high_text)));
    }
    return std::unexpected(yaml::error_at(file_name, lines.find(order.low)->second, order.low,
                                          fmt::format("expected at most {}, which is {}, found {}",
                                                      order.high, order.high_text, order.low_text)));
}

// As people write it: with a slash at the end, or two in the middle.
bool is_same_directory(const std::filesystem::path &one, const std::filesystem::path &other) {
    return (one / "").lexically_normal() == (other / "").lexically_normal();
}

// Each is there once, however it is written.
Expected<void> check_stores(const Config::Store &stores, const settings::Lines &lines,
                            std::string_view file_name) {
    const auto all = config::all_stores(stores);
    for (auto one = all.begin(); one != all.end(); ++one)
        if (std::any_of(all.begin(), one,
                        [one](const auto &before) { return is_same_directory(before, *one); }))
            return std::unexpected(yaml::error_at(file_name, lines.find("store.others")->second,
                                                  "store.others",
                                                  fmt::format("expected each store once, and other ones than "
                                                              "store.directory, which is {}, found {} again",
                                                              stores.directory.native(), one->native())));
    return {};
}

bool is_within(const std::filesystem::path &path, const std::filesystem::path &top) {
    const auto inner = (path / "").lexically_normal();
    const auto outer = (top / "").lexically_normal();
    return inner.native().starts_with(outer.native());
}

// One in another would be mounted twice; the root is everything.
Expected<void> check_local(const Config::LocalDirectories &local, const settings::Lines &lines,
                           std::string_view file_name) {
    // As the kernel names mounts.
    for (const auto &one : local.paths)
        if (one.native() != one.lexically_normal().native() || !one.has_filename() ||
            is_within(local.base, one))
            return std::unexpected(yaml::error_at(file_name, lines.find("local_directories.paths")->second,
                                                  "local_directories.paths",
                                                  fmt::format("expected directories without //, . and .. and "
                                                              "without a / at the end, none of them above "
                                                              "local_directories.base ({}), found {}",
                                                              local.base.native(), one.native())));
    for (const auto &one : local.paths)
        for (const auto &other : local.paths)
            if (is_within(one, other) != (&one == &other) || is_within("/", one))
                return std::unexpected(yaml::error_at(
                    file_name, lines.find("local_directories.paths")->second, "local_directories.paths",
                    fmt::format("expected directories of which none is in another, nor the "
                                "root, found {} and {}",
                                other.native(), one.native())));
    return {};
}

// As check_local wants them, for the same reasons.
Expected<void> check_containers(const Config::Containers &containers, const settings::Lines &lines,
                                std::string_view file_name) {
    const auto refuse = [&](const std::filesystem::path &found) {
        return std::unexpected(
            yaml::error_at(file_name, lines.find("containers.mounts")->second, "containers.mounts",
                           fmt::format("expected directories without //, . and .. and "
                                       "without a / at the end, none of them the root or in "
                                       "another, found {}",
                                       found.native())));
    };
    for (const auto &one : containers.mounts) {
        if (one.native() != one.lexically_normal().native() || !one.has_filename())
            return refuse(one);
        for (const auto &other : containers.mounts)
            if (&one != &other && is_within(one, other))
                return refuse(one);
    }
    return {};
}

// An agent that is restarted finds its port free.
Expected<void> check_publish(const Config &config, const settings::Lines &lines, std::string_view file_name) {
    const auto range = parse_port_range(config.network.publish).value_or(PortRange{});
    if (config.agents.port < 0 || !range.has(static_cast<std::uint64_t>(config.agents.port)))
        return {};
    return std::unexpected(yaml::error_at(file_name, lines.find("network.publish")->second, "network.publish",
                                          fmt::format("expected a range without agents.port, which is {}, "
                                                      "found {}",
                                                      config.agents.port, config.network.publish)));
}

// What no single key's type can say.
Expected<void> check_together(const Config &config, const settings::Lines &lines,
                              std::string_view file_name) {
    // Never is not too often.
    const auto every = config.elastic.checkpoint_every == 0ms ? config.elastic.checkpoint_every_least
                                                              : config.elastic.checkpoint_every;
    const std::array orders{
        order_of("elastic.min_gpus", "elastic.max_gpus", config.elastic.min_gpus, config.elastic.max_gpus),
        order_of("elastic.checkpoint_every_least", "elastic.checkpoint_every",
                 config.elastic.checkpoint_every_least, every),
        order_of("standard.guarantee_percent", "premium.guarantee_percent", config.standard.guarantee_percent,
                 config.premium.guarantee_percent),
        order_of("basic.guarantee_percent", "standard.guarantee_percent", config.basic.guarantee_percent,
                 config.standard.guarantee_percent),
    };
    for (const Order &order : orders) {
        if (auto checked = check_order(order, lines, file_name); !checked)
            return checked;
    }
    if (auto checked = check_local(config.local_directories, lines, file_name); !checked)
        return checked;
    if (auto checked = check_containers(config.containers, lines, file_name); !checked)
        return checked;
    if (auto checked = check_publish(config, lines, file_name); !checked)
        return checked;
    return check_stores(config.store, lines, file_name);
}

std::unexpected<Error> refuse(const std::filesystem::path &path, std::string why, int code) {
    return failure("read", path.native(), std::move(why), code);
}

} // namespace

Config::Config() { settings::set_defaults(kKeys, *this); }

namespace config {

Expected<Config> parse(std::string_view text, std::string_view file_name) {
    Config config;
    auto lines = settings::read(kKeys, config, text, file_name);
    if (!lines)
        return propagate(lines);
    if (auto checked = check_together(config, *lines, file_name); !checked)
        return propagate(checked);
    return config;
}

Expected<Config> load(const std::filesystem::path &path) {
    auto text = read_trusted_file(path, yaml::kMaxBytes);
    if (!text && text.error().code == ENOENT)
        return refuse(
            path,
            "there is no such file; fix: create it (every key has a default, an empty file will do), or set "
            "SINGULARITY_CONF to where it is",
            ENOENT);
    if (!text)
        return propagate(text);
    return parse(*text, path.native());
}

Expected<Config> load_or_default(const std::filesystem::path &path) {
    auto loaded = load(path);
    if (loaded || loaded.error().code != ENOENT)
        return loaded;
    struct stat status{};
    if (::lstat(path.c_str(), &status) == 0)
        return refuse(path, "it is a link to a file that does not exist; fix: remove or correct the link",
                      ENOENT);
    return Config();
}

std::filesystem::path default_path() {
    const char *const chosen = ::secure_getenv("SINGULARITY_CONF");
    return chosen != nullptr && *chosen != '\0' ? chosen : "/etc/slurm/singularity.yaml";
}

Expected<std::filesystem::path> chosen_store(const Config::Store &stores, std::string_view directory) {
    if (directory.empty())
        return stores.directory;
    std::string list;
    for (const auto &one : all_stores(stores)) {
        if (is_same_directory(directory, one))
            return one;
        list += (list.empty() ? "" : ", ") + one.native();
    }
    return failure(
        "use the checkpoint store", std::string(directory),
        fmt::format("this cluster has: {} (store.directory and store.others in singularity.yaml)", list),
        EINVAL);
}

std::vector<std::filesystem::path> all_stores(const Config::Store &stores) {
    auto out = stores.others;
    out.insert(out.begin(), stores.directory);
    return out;
}

std::string to_yaml(const Config &config) { return settings::to_yaml(kKeys, config); }

} // namespace config
} // namespace singularity
