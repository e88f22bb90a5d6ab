// SPDX-License-Identifier: GPL-2.0-or-later
#include "image_environment.hpp"

#include "common/exec.hpp"
#include "fd.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::init {

namespace {

constexpr const char *kEnvironment = "/etc/environment";
constexpr const char *kScripts = "/.singularity.d/env";
constexpr const char *kShell = "/bin/sh";
// Each in a function, which has arguments of its own; what one cannot read, another's is.
constexpr const char *kReadScripts = R"(_singularity_read() { . "$1"; }
for _singularity_script in /.singularity.d/env/*.sh; do
    if [ -f "$_singularity_script" ] && [ -r "$_singularity_script" ]; then _singularity_read "$_singularity_script" > /dev/null; fi
done
exec env -0)";
constexpr std::size_t kScriptsLimit = std::size_t{6} << 20; // Linux starts no program with more
constexpr int kScriptsPatience = 30000;                     // ms

// What an image knows nothing of.
constexpr std::array<std::string_view, 11> kOfJobPrefixes{
    "SLURM",  "SINGULARITY_",         "PMI",       "OMPI_",   "PRTE_", "I_MPI_", "HYDRA_",
    "MPICH_", "CUDA_VISIBLE_DEVICES", "CUDA_MPS_", "LD_AUDIT"};
constexpr std::array<std::string_view, 16> kOfJob{"HOME",
                                                  "USER",
                                                  "LOGNAME",
                                                  "PWD",
                                                  "OLDPWD",
                                                  "MAIL",
                                                  "TMPDIR",
                                                  "HOSTNAME",
                                                  "SHELL",
                                                  "SHLVL",
                                                  "KRB5CCNAME",
                                                  "XDG_RUNTIME_DIR",
                                                  "TERM",
                                                  "_",
                                                  "ROCR_VISIBLE_DEVICES",
                                                  "GPU_DEVICE_ORDINAL"};

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

namespace {

// What the scripts make of it, as NAME=VALUE and zero each; empty: there are none, or they do not come to an
// end.
std::string said_by_scripts(std::vector<std::string> &environment) {
    std::array<int, 2> ends{};
    if (access(kScripts, R_OK | X_OK) != 0 || access(kShell, X_OK) != 0 || pipe2(ends.data(), O_CLOEXEC) != 0)
        return {};
    const Fd reading(ends[0]);
    Fd writing(ends[1]);
    const pid_t shell = fork();
    if (shell == 0) {
        std::array<char *, 4> arguments{const_cast<char *>("sh"),
                                        const_cast<char *>("-c"), // execve does not write
                                        const_cast<char *>(kReadScripts), nullptr};
        const int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
        if (setpgid(0, 0) == 0 && dup2(null, STDIN_FILENO) >= 0 && dup2(writing.get(), STDOUT_FILENO) >= 0)
            execve(kShell, arguments.data(), exec_list(environment).data());
        _exit(EXIT_FAILURE);
    }
    writing = Fd();
    std::string out;
    const auto until = std::chrono::steady_clock::now() + std::chrono::milliseconds(kScriptsPatience);
    for (bool goes_on = shell > 0; goes_on;) {
        const auto left =
            std::chrono::ceil<std::chrono::milliseconds>(until - std::chrono::steady_clock::now());
        pollfd readable{.fd = reading.get(), .events = POLLIN, .revents = 0};
        std::array<char, 4096> text; // NOLINT(cppcoreguidelines-pro-type-member-init): read into
        const int ready = left.count() > 0 ? poll(&readable, 1, static_cast<int>(left.count())) : 0;
        const ssize_t got = ready > 0 ? read(reading.get(), text.data(), text.size()) : ready;
        if (got < 0 && errno == EINTR)
            continue;
        goes_on = got > 0 && out.size() < kScriptsLimit;
        if (goes_on)
            out.append(text.data(), static_cast<std::size_t>(got));
        else if (got != 0 || ready == 0 || out.size() >= kScriptsLimit)
            out.clear();
    }
    if (shell > 0) {
        kill(-shell, SIGKILL);
        kill(shell, SIGKILL);
        while (waitpid(shell, nullptr, 0) < 0 && errno == EINTR) {
        }
    }
    if (out.empty())
        dprintf(STDERR_FILENO,
                "singularity: the environment is without what the image's scripts in %s say: they failed, or "
                "ran for %d s\n",
                kScripts, kScriptsPatience / 1000);
    return out;
}

} // namespace

void add_scripts_of_image(std::vector<std::string> &environment) {
    const auto said = said_by_scripts(environment);
    if (said.empty())
        return;
    // Shells drop what is no name of theirs.
    std::erase_if(environment, [](const auto &entry) {
        const auto name = std::string_view(entry).substr(0, entry.find('='));
        return is_name(name) && !is_of_job(name);
    });
    for (std::size_t at = 0; at < said.size();) {
        const auto end = std::min(said.find('\0', at), said.size());
        const auto entry = std::string_view(said).substr(at, end - at);
        const auto name = entry.substr(0, entry.find('='));
        if (name.size() < entry.size() && is_name(name) && !is_of_job(name) &&
            !name.starts_with("_singularity_"))
            environment.emplace_back(entry);
        at = end + 1;
    }
}

} // namespace singularity::init
