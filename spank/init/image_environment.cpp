// SPDX-License-Identifier: GPL-2.0-or-later
#include "image_environment.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::init {

namespace {

constexpr const char *kEnvironment = "/etc/environment";
constexpr const char *kScripts = "/.singularity.d/env";
constexpr const char *kShell = "/bin/sh";
constexpr const char *kReadScripts =
    R"(for file in /.singularity.d/env/*.sh; do [ -f "$file" ] && . "$file"; done; exec "$@")";

// What an image knows nothing of.
constexpr std::array<std::string_view, 4> kOfJobPrefixes{"SLURM", "SINGULARITY_", "PMI", "LD_AUDIT"};
constexpr std::array<std::string_view, 9> kOfJob{
    "HOME", "USER", "LOGNAME", "PWD", "OLDPWD", "MAIL", "TMPDIR", "CUDA_VISIBLE_DEVICES", "HOSTNAME"};

std::string_view trimmed(std::string_view text) {
    constexpr std::string_view kBlank = " \t\r";
    const auto begin = text.find_first_not_of(kBlank);
    if (begin == std::string_view::npos)
        return {};
    return text.substr(begin, text.find_last_not_of(kBlank) - begin + 1);
}

bool is_name(std::string_view name) {
    constexpr std::string_view kFirst = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_";
    constexpr std::string_view kAll = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789";
    return !name.empty() && kFirst.contains(name.front()) &&
           name.find_first_not_of(kAll) == std::string_view::npos;
}

bool is_of_job(std::string_view name) {
    return std::ranges::find(kOfJob, name) != kOfJob.end() ||
           std::ranges::any_of(kOfJobPrefixes, [name](auto prefix) { return name.starts_with(prefix); });
}

std::string_view without_quotes(std::string_view value) {
    if (value.size() >= 2 && value.front() == value.back() && (value.front() == '"' || value.front() == '\''))
        return value.substr(1, value.size() - 2);
    return value;
}

void set(std::vector<std::string> &environment, std::string_view name, std::string_view value) {
    std::string entry(name);
    entry += '=';
    const auto found =
        std::ranges::find_if(environment, [&](const auto &one) { return one.starts_with(entry); });
    entry += value;
    if (found == environment.end())
        environment.push_back(std::move(entry));
    else
        *found = std::move(entry);
}

} // namespace

void add_environment_of_image(std::vector<std::string> &environment, std::string_view text) {
    constexpr std::string_view kExport = "export ";
    while (!text.empty()) {
        const auto end = text.find('\n');
        auto line = trimmed(text.substr(0, end));
        text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
        if (line.starts_with(kExport))
            line = trimmed(line.substr(kExport.size()));
        const auto name = line.substr(0, line.find('='));
        if (name.size() == line.size() || !is_name(name) || is_of_job(name) ||
            line.find('\0') != std::string_view::npos)
            continue;
        set(environment, name, without_quotes(line.substr(name.size() + 1)));
    }
}

std::string environment_of_image() {
    const int file = open(kEnvironment, O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
    if (file < 0)
        return {};
    std::string out;
    struct stat about{};
    if (fstat(file, &about) == 0 && S_ISREG(about.st_mode)) {
        out.resize(std::min(static_cast<std::size_t>(about.st_size), kImageEnvironmentLimit));
        std::size_t done = 0;
        while (done < out.size()) {
            const ssize_t got = pread(file, out.data() + done, out.size() - done, static_cast<off_t>(done));
            if (got == 0 || (got < 0 && errno != EINTR))
                break;
            done += got < 0 ? 0 : static_cast<std::size_t>(got);
        }
        out.resize(done);
    }
    close(file);
    return out;
}

void add_scripts_of_image(std::vector<std::string> &arguments) {
    if (access(kScripts, R_OK | X_OK) != 0 || access(kShell, X_OK) != 0)
        return;
    arguments.insert(arguments.begin(), {kShell, "-c", kReadScripts, "sh"});
}

} // namespace singularity::init
