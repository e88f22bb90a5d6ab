// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/config.hpp"

#include "common/settings.hpp"
#include "common/unique_fd.hpp"
#include "yaml.hpp"

#include <cerrno>
#include <cstdlib>
#include <tuple>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity {
namespace {

using namespace std::chrono_literals;
using settings::Boolean;
using settings::Choice;
using settings::Duration;
using settings::Integer;
using settings::Key;

// More GPUs than any cluster has; keeps products with a rank count inside 64 bits.
constexpr Integer kGpus{1, 1048576};

// clang-format off: one line per key
constexpr std::tuple kKeys{
    Key{"log_level",                 Choice{log::kLevels}, log::Level::kInfo, [](auto &c) -> auto & { return c.log_level; }},
    Key{"elastic.enabled",           Boolean{},            true,              [](auto &c) -> auto & { return c.elastic.enabled; }},
    Key{"elastic.min_gpus",          kGpus,                kGpus.least,       [](auto &c) -> auto & { return c.elastic.min_gpus; }},
    Key{"elastic.max_gpus",          kGpus,                kGpus.most,        [](auto &c) -> auto & { return c.elastic.max_gpus; }},
    Key{"slurmctld.decide",          Boolean{},            true,              [](auto &c) -> auto & { return c.slurmctld.decide; }},
    Key{"slurmctld.verify_interval", Duration{1s, 1h},     60s,               [](auto &c) -> auto & { return c.slurmctld.verify_interval; }},
    Key{"slurmctld.verify_sample",   Integer{1, 256},      32,                [](auto &c) -> auto & { return c.slurmctld.verify_sample; }},
};
// clang-format on

// What no single key's type can say.
Expected<void> check_together(const Config &config, const settings::Lines &lines,
                              std::string_view file_name) {
    if (config.elastic.min_gpus <= config.elastic.max_gpus)
        return {};
    // At least one of the two is set: the defaults agree.
    const bool max_is_set = lines.contains("elastic.max_gpus");
    const auto line = lines.find(max_is_set ? "elastic.max_gpus" : "elastic.min_gpus")->second;
    return std::unexpected(
        max_is_set ? yaml::error_at(file_name, line, "elastic.max_gpus",
                                    fmt::format("expected at least elastic.min_gpus, which is {}, found {}",
                                                config.elastic.min_gpus, config.elastic.max_gpus))
                   : yaml::error_at(file_name, line, "elastic.min_gpus",
                                    fmt::format("expected at most elastic.max_gpus, which is {}, found {}",
                                                config.elastic.max_gpus, config.elastic.min_gpus)));
}

std::unexpected<Error> refuse(const std::filesystem::path &path, std::string why, int code) {
    return failure("read", path.native(), std::move(why), code);
}

Expected<void> check_file(const UniqueFd &file, const std::filesystem::path &path) {
    struct stat status{};
    if (::fstat(file.get(), &status) != 0)
        return std::unexpected(errno_error("read", path.native()));
    if (!S_ISREG(status.st_mode)) {
        return refuse(path,
                      fmt::format("expected a regular file, found {}",
                                  S_ISDIR(status.st_mode) ? "a directory" : "a device, socket or pipe"),
                      S_ISDIR(status.st_mode) ? EISDIR : EINVAL);
    }
    if (status.st_uid != 0 && status.st_uid != ::geteuid()) {
        return refuse(
            path,
            fmt::format("expected a file of root or of user {}, found one of user {}; fix: chown root {}",
                        ::geteuid(), status.st_uid, path.native()),
            EPERM);
    }
    if ((status.st_mode & (S_IWGRP | S_IWOTH)) != 0) {
        return refuse(
            path,
            fmt::format(
                "expected a file that only its owner may write, found mode {:04o}; fix: chmod go-w {}",
                status.st_mode & 07777U, path.native()),
            EPERM);
    }
    if (std::cmp_greater(status.st_size, yaml::kMaxBytes)) {
        return refuse(
            path, fmt::format("expected at most {} bytes, found {}", yaml::kMaxBytes, status.st_size), EFBIG);
    }
    return {};
}

// To the end, though never much more than is allowed: the file may grow.
Expected<std::string> read_all(const UniqueFd &file, const std::filesystem::path &path) {
    std::string text;
    char part[16384];
    while (text.size() <= yaml::kMaxBytes) {
        const ssize_t got = ::read(file.get(), part, sizeof part);
        if (got == 0)
            break;
        if (got > 0)
            text.append(part, static_cast<std::size_t>(got));
        else if (errno != EINTR)
            return std::unexpected(errno_error("read", path.native()));
    }
    return text;
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
    // O_NONBLOCK: opening a pipe would wait for a writer.
    auto file = open_file(path, O_RDONLY | O_NOCTTY | O_NONBLOCK);
    if (!file) {
        if (file.error().code != ENOENT)
            return propagate(file);
        return refuse(
            path,
            "there is no such file; fix: create it (every key has a default, an empty file will do), or set "
            "SINGULARITY_CONF to where it is",
            ENOENT);
    }
    if (auto checked = check_file(*file, path); !checked)
        return propagate(checked);
    auto text = read_all(*file, path);
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

std::string to_yaml(const Config &config) { return settings::to_yaml(kKeys, config); }

} // namespace config
} // namespace singularity
