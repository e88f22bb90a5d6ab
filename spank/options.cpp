// SPDX-License-Identifier: GPL-2.0-or-later
#include "options.hpp"

#include "checkpoint_every.hpp"
#include "common/config.hpp"
#include "common/port_range.hpp"
#include "guarded_hook.hpp"
#include "image_options.hpp"
#include "log.hpp"
#include "publish_option.hpp"
#include "pyxis_options.hpp"

#include <algorithm>
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace singularity::spank {

namespace {

// The options as they were given.
struct Given {
    std::optional<std::string> elastic;
    std::optional<std::string> checkpoint_every;
    std::optional<std::string> store;
    std::optional<std::string> image;
    std::optional<std::string> mounts;
    std::optional<std::string> workdir;
    std::optional<std::string> root;
    std::optional<std::string> publish;
    std::map<std::size_t, std::string> pyxis; // by their numbers in its table
    std::optional<Config::Elastic::SaveScripts> save_script;
    bool off = false;
};

// Never destroyed: Slurm's threads may outlive main().
Given &given() {
    static Given &instance = *new Given;
    return instance;
}

std::optional<Request> &result() {
    static auto &instance = *new std::optional<Request>;
    return instance;
}

// An option without an argument reaches the node, and sruns inside sbatch, as these words: Slurm (22.05
// to 26.05) prints the null pointer into the environment variable that carries it.
constexpr std::string_view kNoArgument = "(null)";

std::string text_of(const char *argument) {
    return argument == nullptr || argument == kNoArgument ? "" : argument;
}

Expected<void> add_image(const Given &options, Request &out) {
    if (!options.image) {
        for (const auto &[name, value] : {std::pair("accept --singularity-mount", &options.mounts),
                                          std::pair("accept --singularity-workdir", &options.workdir),
                                          std::pair("accept --singularity-root", &options.root)})
            if (*value)
                return failure(name, **value,
                               "it is about an image: add --singularity-image=DIR, or leave it out");
        return {};
    }
    if (auto checked = check_image_option(*options.image); !checked)
        return checked;
    if (options.mounts)
        if (auto mounts = parse_image_mounts(*options.mounts); !mounts)
            return propagate(mounts);
    if (options.workdir)
        if (auto checked = check_workdir_option(*options.workdir); !checked)
            return checked;
    if (options.root)
        if (auto checked = check_root_option(*options.root); !checked)
            return checked;
    out.image = *options.image;
    out.mounts = options.mounts.value_or("");
    out.workdir = options.workdir.value_or("");
    out.root = options.root.value_or("");
    return {};
}

// What pyxis' options say becomes what ours say.
Expected<Given> with_pyxis(const Given &options) {
    Given out = options;
    ImageWords words{
        .image = options.image, .mounts = options.mounts, .workdir = options.workdir, .root = options.root};
    for (const auto &[number, argument] : options.pyxis)
        if (auto added = add_pyxis_option(number, argument, words); !added)
            return propagate(added);
    out.image = std::move(words.image);
    out.mounts = std::move(words.mounts);
    out.workdir = std::move(words.workdir);
    out.root = std::move(words.root);
    return out;
}

// In srun, sbatch or salloc, and not where the job runs.
bool is_at_submission() {
    const spank_context_t context = spank_context();
    return context == S_CTX_LOCAL || context == S_CTX_ALLOCATOR;
}

// srun in a batch script has that script's options, too, by variables as
// SLURM_SPANK__SLURM_SPANK_OPTION_singularity_singularity_image, without a value where it takes none: a step
// that is off is outside of its job's image.
bool is_of_job(std::string name, const std::string &value) {
    std::ranges::replace(name, '-', '_');
    const auto wanted = fmt::format("_OPTION_singularity_{}={}", name, value.empty() ? kNoArgument : value);
    for (char **one = environ; one != nullptr && *one != nullptr; ++one)
        if (const std::string_view entry(*one); entry.starts_with("SLURM_SPANK_") && entry.ends_with(wanted))
            return true;
    return false;
}

// Where the job runs its agent knows what its host allows: a job that was submitted when the site allowed
// more goes on.
Expected<void> add_publish(const Given &options, const Config::Network &network, Request &out) {
    if (!options.publish)
        return {};
    if (auto ports = parse_published_ports(*options.publish); !ports)
        return propagate(ports);
    const auto range = parse_port_range(network.publish);
    if (is_at_submission() && (!range || !range->any()))
        return failure(
            "accept --singularity-publish", *options.publish,
            "this cluster publishes no ports of jobs: ask its administrators for network.publish in "
            "singularity.yaml, or connect from within the job (ssh -R), and leave it out",
            EPERM);
    out.publish = *options.publish;
    return {};
}

Expected<Request> request_of(const Given &options) {
    auto settings = config::load_or_default(config::default_path());
    if (!settings)
        return propagate(settings);
    const auto &elastic = settings->elastic;
    // The configuration's own range is within 32 bits.
    const ElasticLimits limits{elastic.enabled, static_cast<std::uint32_t>(elastic.min_gpus),
                               static_cast<std::uint32_t>(elastic.max_gpus)};
    auto range = parse_elastic_range(options.elastic.value_or(""), limits);
    if (!range)
        return propagate(range);
    Request out{*range, std::chrono::floor<std::chrono::seconds>(elastic.checkpoint_every),
                {},     options.save_script.value_or(elastic.save_scripts),
                {},     {},
                {},     {},
                {}};
    if (options.checkpoint_every) {
        auto every = parse_checkpoint_every(*options.checkpoint_every, elastic.checkpoint_every_least);
        if (!every)
            return propagate(every);
        out.checkpoint_every = *every;
    }
    if (options.store) {
        auto chosen = config::chosen_store(settings->store, *options.store);
        if (!chosen)
            return propagate(chosen);
        out.store = chosen->native();
    }
    if (auto added = add_image(options, out); !added)
        return propagate(added);
    if (auto added = add_publish(options, settings->network, out); !added)
        return propagate(added);
    return out;
}

template <class Store>
int on_option(const Store &store) {
    return guarded([&]() -> int {
        store(given());
        return ESPANK_SUCCESS;
    });
}

int on_off(int /*value*/, const char * /*argument*/, int /*remote*/) {
    return on_option([](Given &options) { options.off = true; });
}

int on_elastic(int /*value*/, const char *argument, int /*remote*/) {
    return on_option([&](Given &options) { options.elastic = text_of(argument); });
}

int on_checkpoint_every(int /*value*/, const char *argument, int /*remote*/) {
    return on_option([&](Given &options) { options.checkpoint_every = text_of(argument); });
}

int on_store(int /*value*/, const char *argument, int /*remote*/) {
    return on_option([&](Given &options) { options.store = text_of(argument); });
}

int on_image(int /*value*/, const char *argument, int /*remote*/) {
    return on_option([&](Given &options) { options.image = text_of(argument); });
}

int on_mount(int /*value*/, const char *argument, int /*remote*/) {
    return on_option([&](Given &options) { options.mounts = text_of(argument); });
}

int on_workdir(int /*value*/, const char *argument, int /*remote*/) {
    return on_option([&](Given &options) { options.workdir = text_of(argument); });
}

int on_root(int /*value*/, const char *argument, int /*remote*/) {
    return on_option([&](Given &options) { options.root = text_of(argument); });
}

int on_publish(int /*value*/, const char *argument, int /*remote*/) {
    return on_option([&](Given &options) { options.publish = text_of(argument); });
}

int on_pyxis(int value, const char *argument, int /*remote*/) {
    return on_option(
        [&](Given &options) { options.pyxis[static_cast<std::size_t>(value)] = text_of(argument); });
}

int on_save_script(int /*value*/, const char * /*argument*/, int /*remote*/) {
    return on_option([](Given &options) { options.save_script = Config::Elastic::SaveScripts::kYes; });
}
int on_no_save_script(int /*value*/, const char * /*argument*/, int /*remote*/) {
    return on_option([](Given &options) { options.save_script = Config::Elastic::SaveScripts::kNo; });
}

// As struct spank_option has them; value: what stands for the argument in --help, nullptr: it takes none.
struct OptionRow {
    const char *name;
    const char *value;
    int has_argument; // as in getopt_long(3): 0 no, 1 yes, 2 if there is one
    const char *usage;
    spank_opt_cb_f callback;
};
constexpr OptionRow kOptions[] = {
    {"singularity-off", nullptr, 0,
     "[singularity] the job is not elastic, whatever its script or the environment says", on_off},
    {"singularity-elastic", "MIN-MAX", 2,
     "[singularity] let the job run on MIN to MAX GPUs (of the whole job), checkpointed and moved "
     "as the cluster needs; without a value: 1 to as many as requested",
     on_elastic},
    {"singularity-checkpoint-every", "TIME", 1,
     "[singularity] save an elastic job so often while it runs (minutes, minutes:seconds, "
     "hours:minutes:seconds, "
     "days-hours; 0 or off: never)",
     on_checkpoint_every},
    {"singularity-store", "DIR", 1,
     "[singularity] keep an elastic job's checkpoints in this store of the cluster "
     "(store.others in singularity.yaml)",
     on_store},
    {"singularity-image", "IMAGE", 1,
     "[singularity] run the tasks of an elastic job's steps with this as their root: a directory with a root "
     "file system, or a squashfs or Apptainer file (SIF) that holds one; the batch script stays outside",
     on_image},
    {"singularity-mount", "SRC:DST[:ro]", 1,
     "[singularity] mount the host's directory or file SRC at DST in the image; several with commas between "
     "them",
     on_mount},
    {"singularity-workdir", "DIR", 1,
     "[singularity] the working directory in the image; without it the one that Slurm gives", on_workdir},
    {"singularity-root", "writable or read-only", 1,
     "[singularity] whether programs may write to the root that is an image; without it as the site says",
     on_root},
    {"singularity-publish", "PORT[,PORT...]", 1,
     "[singularity] let connections reach these TCP ports of an elastic job's tasks, at ports of their hosts "
     "that "
     "the job's output and 'singularityctl status JOBID' say",
     on_publish},
    {"singularity-save-script", nullptr, 0,
     "[singularity] save an elastic job's batch script itself, with all that it has started and its sruns, "
     "and go on in its line",
     on_save_script},
    {"singularity-no-save-script", nullptr, 0,
     "[singularity] run an elastic job's batch script again from its first line, also one that has begun no "
     "srun (elastic.save_scripts in singularity.yaml)",
     on_no_save_script},
};

int register_option(spank_t spank, const OptionRow &row, int number = 0) {
    // spank.h wants these writable; Slurm copies them.
    std::string name = row.name;
    std::string value = row.value == nullptr ? "" : row.value;
    std::string usage = row.usage;
    spank_option option{};
    option.name = name.data();
    option.arginfo = row.value == nullptr ? nullptr : value.data();
    option.usage = usage.data();
    option.has_arg = row.has_argument;
    option.val = number;
    option.cb = row.callback;
    const spank_err_t registered = spank_option_register(spank, &option);
    if (registered != ESPANK_SUCCESS)
        kLog.error("cannot register --{}: {}", name, spank_strerror(registered));
    return registered;
}

constexpr const char *kNothingInAnImage =
    "--singularity-off leaves no elastic step that could be in an image: leave out one of them";

} // namespace

Expected<void> resolve_options() {
    result().reset();
    const Given &options = given();
    if (options.off) {
        for (const auto &[name, value] :
             {std::pair("singularity-image", &options.image), std::pair("singularity-mount", &options.mounts),
              std::pair("singularity-workdir", &options.workdir),
              std::pair("singularity-root", &options.root)})
            if (*value && is_at_submission() && !is_of_job(name, **value))
                return failure(fmt::format("accept --{}", name), **value, kNothingInAnImage, EINVAL);
        for (const auto &[number, value] : options.pyxis)
            if (const auto *const name = pyxis_options()[number].name;
                is_at_submission() && !is_of_job(name, value))
                return failure(fmt::format("accept --{}", name), value, kNothingInAnImage, EINVAL);
        return {};
    }
    if (options.save_script == Config::Elastic::SaveScripts::kYes && !options.elastic)
        return failure("accept", "--singularity-save-script",
                       "only elastic jobs are saved; add --singularity-elastic, or leave it out", EINVAL);
    for (const auto &[name, value] :
         {std::pair("accept --singularity-checkpoint-every", &options.checkpoint_every),
          std::pair("accept --singularity-store", &options.store)})
        if (*value && !options.elastic)
            return failure(name, **value,
                           "only elastic jobs are saved; add --singularity-elastic, or leave it out");
    for (const auto &[name, value] : {std::pair("accept --singularity-image", &options.image),
                                      std::pair("accept --singularity-mount", &options.mounts),
                                      std::pair("accept --singularity-workdir", &options.workdir),
                                      std::pair("accept --singularity-root", &options.root)})
        if (*value && !options.elastic)
            return failure(name, **value,
                           "only elastic jobs run in images; add --singularity-elastic, or leave it out");
    if (options.publish && !options.elastic)
        return failure(
            "accept --singularity-publish", *options.publish,
            "only elastic jobs have a network of their own, others are reached at their hosts as they "
            "are; add --singularity-elastic, or leave it out",
            EINVAL);
    for (const auto &[number, value] : options.pyxis)
        if (!options.elastic)
            return failure(fmt::format("accept --{}", pyxis_options()[number].name), value,
                           "only elastic jobs run in images; add --singularity-elastic, or leave it out");
    if (!options.elastic)
        return {};
    const auto all = with_pyxis(options);
    if (!all)
        return std::unexpected(all.error());
    auto request = request_of(*all);
    if (!request)
        return propagate(request);
    result() = std::move(*request);
    return {};
}

int register_options(spank_t spank, bool with_those_of_pyxis) {
    for (const OptionRow &row : kOptions)
        if (const int registered = register_option(spank, row); registered != ESPANK_SUCCESS)
            return registered;
    if (!with_those_of_pyxis)
        return ESPANK_SUCCESS;
    int number = 0;
    for (const PyxisOption &one : pyxis_options()) {
        const OptionRow row{.name = one.name,
                            .value = one.value,
                            .has_argument = one.value == nullptr ? 0 : 1,
                            .usage = one.usage,
                            .callback = on_pyxis};
        if (const int registered = register_option(spank, row, number++); registered != ESPANK_SUCCESS)
            return registered;
    }
    return ESPANK_SUCCESS;
}

const std::optional<Request> &requested() { return result(); }

bool switched_off() { return given().off; }

} // namespace singularity::spank
