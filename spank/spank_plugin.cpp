// SPDX-License-Identifier: GPL-2.0-or-later
#include "spank_plugin.hpp"

#include "agent/protocol/agent_messages.hpp"
#include "commands/notice.hpp"
#include "common/config.hpp"
#include "common/text.hpp"
#include "elastic_range.hpp"
#include "guarded_hook.hpp"
#include "local/notice.hpp"
#include "local/tree.hpp"
#include "local_mounts.hpp"
#include "log.hpp"
#include "options.hpp"
#include "task/variables.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <slurm/slurm_version.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::spank {

namespace {

constexpr const char *kElasticVariable = "SINGULARITY_ELASTIC";

void to_slurm_log(log::Level level, std::string_view line) {
    const int length = static_cast<int>(line.size());
    // NOLINTBEGIN(bugprone-suspicious-stringview-data-usage): the length goes with it
    switch (level) {
    case log::Level::kError:
    case log::Level::kWarning:
        slurm_error("%.*s", length, line.data());
        break;
    case log::Level::kInfo:
        slurm_info("%.*s", length, line.data());
        break;
    case log::Level::kDebug:
        slurm_debug("%.*s", length, line.data());
        break;
    }
    // NOLINTEND(bugprone-suspicious-stringview-data-usage)
}

std::string step_name(std::uint32_t step) {
    switch (step) {
    case SLURM_BATCH_SCRIPT:
        return "batch script";
    case SLURM_EXTERN_CONT:
        return "external step";
    case SLURM_INTERACTIVE_STEP:
        return "interactive step";
    default:
        return "step " + std::to_string(step);
    }
}

struct HostlistEnd {
    template <class List>
    void operator()(List *list) const {
        slurm_hostlist_destroy(list);
    }
};

constexpr std::size_t kListLimit = 131072; // of a list of hosts: what a variable may have (execve(2))

// "n[1-2]": n1, n2.
std::vector<std::string> expand_hosts(const char *text) {
    std::vector<std::string> out;
    auto *const list = slurm_hostlist_create(text);
    const std::unique_ptr<std::remove_pointer_t<decltype(list)>, HostlistEnd> owner(list);
    if (!owner)
        return out;
    while (char *const host = slurm_hostlist_shift(list)) {
        out.emplace_back(host);
        std::free(host); // NOLINT(cppcoreguidelines-no-malloc,cppcoreguidelines-owning-memory): slurm.h
    }
    return out;
}

int set_variable(spank_t spank, const char *name, const std::string &value) {
    const spank_err_t set = spank_setenv(spank, name, value.c_str(), 1);
    if (set != ESPANK_SUCCESS)
        kLog.error("cannot set {} for a task: {}", name, spank_strerror(set));
    return set;
}

// How often, and where.
int set_how_to_save(spank_t spank, const Request &request) {
    const auto every = std::to_string(request.checkpoint_every.count());
    if (const int set = set_variable(spank, task::kEveryVariable, every); set != ESPANK_SUCCESS)
        return set;
    return set_variable(spank, task::kStoreVariable, request.store);
}

// What is said by options, and not by the environment.
int set_or_unset(spank_t spank, const char *name, const std::string &value) {
    if (!value.empty())
        return set_variable(spank, name, value);
    static_cast<void>(spank_unsetenv(spank, name));
    return ESPANK_SUCCESS;
}

// The wrapper gets the program and its arguments behind its own name; or, where Slurm has no call for that,
// it takes the place of the program's name, which is put into the environment.
int put_in_front(spank_t spank, const char *wrapper) {
#if SLURM_VERSION_NUMBER >= SLURM_VERSION_NUM(23, 11, 0)
    const char *words[] = {wrapper};
    const spank_err_t done = spank_prepend_task_argv(spank, 1, words);
    if (done != ESPANK_SUCCESS)
        kLog.error("cannot run a task by {}: {}", wrapper, spank_strerror(done));
    return done;
#else
    int count = 0;
    char **words = nullptr;
    if (const spank_err_t got = spank_get_item(spank, S_JOB_ARGV, &count, &words);
        got != ESPANK_SUCCESS || count < 1) {
        kLog.error("cannot read a task's program: {}", spank_strerror(got));
        return ESPANK_ERROR;
    }
    if (const int set = set_variable(spank, task::kProgramVariable, words[0]); set != ESPANK_SUCCESS)
        return set;
    words[0] = strdup(wrapper); // this process is the task's: nobody else sees it
    return words[0] == nullptr ? ESPANK_ERROR : ESPANK_SUCCESS;
#endif
}

Expected<std::vector<std::string>> hosts_in(spank_t spank, const char *list) {
    std::string nodes(kListLimit, '\0');
    if (const spank_err_t got = spank_getenv(spank, list, nodes.data(), static_cast<int>(nodes.size()));
        got != ESPANK_SUCCESS)
        return failure("read", list, spank_strerror(got));
    nodes.resize(std::min(nodes.find('\0'), nodes.size()));
    auto hosts = expand_hosts(nodes.c_str());
    if (hosts.empty())
        return failure("read", list, fmt::format("{} is no list of hosts", quote(nodes)));
    return hosts;
}

// For singularity-task, all hosts of a step, or of a script's job.
int set_hosts(spank_t spank, const char *list) {
    const auto hosts = hosts_in(spank, list);
    if (!hosts) {
        kLog.error("{}", hosts.error().message());
        return ESPANK_ERROR;
    }
    return set_variable(spank, task::kHostsVariable, fmt::format("{}", fmt::join(*hosts, ",")));
}

// Which of its job's hosts those of a step are. A list that its user has changed says nothing.
int set_places(spank_t spank) {
    const auto all = hosts_in(spank, "SLURM_JOB_NODELIST");
    const auto own = hosts_in(spank, "SLURM_STEP_NODELIST");
    if (!all || !own)
        return ESPANK_SUCCESS;
    std::map<std::string_view, std::size_t> numbers;
    for (const auto &host : *all)
        numbers.emplace(host, numbers.size() + 1);
    std::vector<std::size_t> places;
    for (const auto &host : *own) {
        const auto found = numbers.find(host);
        if (found == numbers.end())
            return ESPANK_SUCCESS;
        places.push_back(found->second);
    }
    if (const int set = set_variable(spank, task::kJobHostsVariable, std::to_string(all->size()));
        set != ESPANK_SUCCESS)
        return set;
    return set_variable(spank, task::kPlacesVariable, fmt::format("{}", fmt::join(places, ",")));
}

// Why a step does not see its job's local directories: its tasks fail, and not the node.
std::optional<Error> local_trouble;

// srun has it from the batch script; in a job that runs for the first time there is none, nor where a user
// leaves it off: 0 decides nothing (local::open_tree).
std::uint32_t number_of_step(spank_t spank, const char *name) {
    std::uint32_t out = 0;
    std::array<char, 16> text{};
    if (spank_getenv(spank, name, text.data(), static_cast<int>(text.size())) == ESPANK_SUCCESS) {
        const std::string_view number(text.data());
        std::from_chars(number.data(), number.data() + number.size(), out);
    }
    return out;
}

Expected<UniqueFd> tree_of_step(spank_t spank, const std::filesystem::path &base, const std::string &name) {
    const auto started = std::chrono::seconds(number_of_step(spank, "SLURM_JOB_START_TIME"));
    return local::open_tree(base, name, number_of_step(spank, "SLURM_RESTART_COUNT"),
                            std::chrono::nanoseconds(started).count());
}

// As the agent has them; as singularity.yaml says, as long as no agent has been started on this host.
Expected<local::Notice> local_settings() {
    auto notice =
        local::read_notice(std::filesystem::path(agent::kDefaultSocket).parent_path() / local::kNotice);
    if (!notice)
        return propagate(notice);
    if (auto &left = *notice; left)
        return *std::move(left);
    auto settings = config::load_or_default(config::default_path());
    if (!settings)
        return propagate(settings);
    const auto &local = settings->local_directories;
    return local::Notice{.base = local.base, .paths = {local.paths.begin(), local.paths.end()}};
}

// The job's local directories, for this process and what it starts: the batch script, and who looks for a
// program or a working directory before it is in a virtual node.
std::optional<Error> show_local(spank_t spank, std::uint32_t job, std::uint32_t step) {
    auto settings = local_settings();
    if (!settings)
        return settings.error();
    if (settings->paths.empty())
        return std::nullopt;
    uid_t uid = 0;
    gid_t gid = 0;
    if (spank_get_item(spank, S_JOB_UID, &uid) != ESPANK_SUCCESS ||
        spank_get_item(spank, S_JOB_GID, &gid) != ESPANK_SUCCESS)
        return Error{"show", "a job its local directories", "Slurm does not say whose it is", 0};
    const auto &base = settings->base;
    const auto name = local::tree_name(uid, job);
    // A batch script begins a run of its job. Of which one is not known yet: its environment is made later.
    auto tree = step == SLURM_BATCH_SCRIPT ? local::begin_tree(base, name) : tree_of_step(spank, base, name);
    if (!tree)
        return tree.error();
    auto shown = show_local_directories(*settings, *tree, name, {.uid = uid, .gid = gid});
    return shown ? std::nullopt : std::optional(shown.error());
}

// What singularity-task must know of a batch script.
int set_script(spank_t spank, const Request &request) {
    using enum Config::Elastic::SaveScripts;
    if (request.save_script == kNo)
        return set_variable(spank, task::kScriptVariable, task::kScriptAgain);
    const auto *const how = request.save_script == kYes ? task::kSavedScript : task::kUntilSrun;
    if (const int set = set_variable(spank, task::kScriptVariable, how); set != ESPANK_SUCCESS)
        return set;
    if (const int set = set_how_to_save(spank, request); set != ESPANK_SUCCESS)
        return set;
    if (const int set = set_or_unset(spank, task::kPublishVariable, request.publish); set != ESPANK_SUCCESS)
        return set;
    return set_hosts(spank, "SLURM_JOB_NODELIST");
}

} // namespace

int init(spank_t spank, int argc, char **argv) noexcept {
    return guarded([&]() -> int {
        log::set_sink(to_slurm_log);
        for (int number = 0; number < argc; ++number)
            if (argv[number] != std::string_view(kPyxisArgument)) {
                kLog.error("plugstack.conf gives the argument '{}', but this plugin takes none but '{}': "
                           "remove it; settings are in {}",
                           argv[number], kPyxisArgument, config::default_path().string());
                return ESPANK_BAD_ARG;
            }
        return register_options(spank, argc != 0);
    });
}

int init_post_opt(spank_t spank) noexcept {
    return to_slurm(guarded([&]() -> int {
        if (auto resolved = resolve_options(); !resolved) {
            kLog.error("{}", resolved.error().message());
            // A node on which a step cannot be set up is drained; a task that fails is its user's alone.
            return spank_remote(spank) == 1 ? ESPANK_SUCCESS : ESPANK_ERROR;
        }
        if (!requested() || spank_remote(spank) != 1)
            return ESPANK_SUCCESS;
        std::uint32_t job = 0;
        std::uint32_t step = 0;
        if (spank_get_item(spank, S_JOB_ID, &job) != ESPANK_SUCCESS ||
            spank_get_item(spank, S_JOB_STEPID, &step) != ESPANK_SUCCESS)
            return ESPANK_SUCCESS; // slurmd itself, which has no job
        kLog.for_job(job).info("elastic, {} GPUs, {}", to_string(requested()->range), step_name(step));
        if (step != SLURM_BATCH_SCRIPT && step > SLURM_MAX_NORMAL_STEP_ID)
            return ESPANK_SUCCESS; // shells of salloc and the like stay where they are
        local_trouble = show_local(spank, job, step);
        return ESPANK_SUCCESS;
    }));
}

// Of an srun that a script has begun which is saved: whether there is a step to be saved with it.
int local_user_init(spank_t /*spank*/) noexcept {
    struct stat about{};
    constexpr char kBegun = 1;
    if (std::getenv(task::kGoesOnVariable) == nullptr || fstat(commands::kNotice, &about) != 0 ||
        !S_ISFIFO(about.st_mode))
        return ESPANK_SUCCESS;
    if (write(commands::kNotice, &kBegun, sizeof(kBegun)) != sizeof(kBegun))
        slurm_error("singularity: the batch script cannot be saved while this step runs: %s",
                    std::strerror(errno)); // NOLINT(concurrency-mt-unsafe): srun has not begun its threads
    return ESPANK_SUCCESS;
}

int task_init(spank_t spank) noexcept {
    return to_slurm(guarded([&]() -> int {
        if (auto resolved = resolve_options(); !resolved) {
            kLog.error("{}", resolved.error().message());
            return ESPANK_ERROR;
        }
        // srun has it from the batch script, in whose environment it is.
        if (switched_off())
            spank_unsetenv(spank, kElasticVariable);
        const auto &request = requested();
        if (!request)
            return ESPANK_SUCCESS;
        if (local_trouble) {
            kLog.error("{}", local_trouble->message());
            return ESPANK_ERROR;
        }
        if (const int set = set_variable(spank, kElasticVariable, to_string(request->range));
            set != ESPANK_SUCCESS)
            return set;
        std::uint32_t step = 0;
        if (const spank_err_t got = spank_get_item(spank, S_JOB_STEPID, &step); got != ESPANK_SUCCESS) {
            kLog.error("cannot tell which step a task is of: {}", spank_strerror(got));
            return got;
        }
        if (step == SLURM_BATCH_SCRIPT) {
            if (const int set = set_script(spank, *request); set != ESPANK_SUCCESS)
                return set;
            return put_in_front(spank, SINGULARITY_TASK);
        }
        if (step > SLURM_MAX_NORMAL_STEP_ID) // shells of salloc and the like stay where they are
            return ESPANK_SUCCESS;
        if (const int set = set_hosts(spank, "SLURM_STEP_NODELIST"); set != ESPANK_SUCCESS)
            return set;
        if (const int set = set_places(spank); set != ESPANK_SUCCESS)
            return set;
        if (const int set = set_how_to_save(spank, *request); set != ESPANK_SUCCESS)
            return set;
        for (const auto &[name, value] : {std::pair(task::kImageVariable, &request->image),
                                          std::pair(task::kMountsVariable, &request->mounts),
                                          std::pair(task::kWorkdirVariable, &request->workdir),
                                          std::pair(task::kRootVariable, &request->root),
                                          std::pair(task::kPublishVariable, &request->publish)})
            if (const int set = set_or_unset(spank, name, *value); set != ESPANK_SUCCESS)
                return set;
        return put_in_front(spank, SINGULARITY_TASK);
    }));
}

} // namespace singularity::spank
