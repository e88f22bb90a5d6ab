// SPDX-License-Identifier: GPL-2.0-or-later
#include "store_command.hpp"

#include "common/config.hpp"
#include "common/text.hpp"
#include "criu-hooks/store/maintenance.hpp"
#include "criu-hooks/store/store.hpp"

#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <CLI/CLI.hpp>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <pwd.h>
#include <unistd.h>

namespace singularity::spank {

namespace {

struct StoreOptions {
    std::filesystem::path directory; // empty: those of the configuration
    std::uint64_t quota = 0;         // bytes of one user; 0: no limit
    std::string user;                // name or number; empty: all
    std::string id;                  // empty: all
    bool set_aside = false;
    std::int64_t grace_s = std::chrono::seconds(store::GcOptions().grace).count();
    std::int64_t settle_s = store::GcOptions().settle.count();
};

// Set by SIGINT and SIGTERM: what can be cancelled ends with what it has done so far.
volatile std::sig_atomic_t interrupted = 0;

void interrupt(int /*signal*/) { interrupted = 1; }

std::string date(std::int64_t time) { return fmt::format("{:%Y-%m-%dT%H:%M:%SZ}", fmt::gmtime(time)); }

// One line that is written over again and again, for people only.
class PhaseLine {
  public:
    bool operator()(const store::Phase &phase) {
        const auto now = std::chrono::steady_clock::now();
        constexpr std::chrono::milliseconds kInterval{200};
        if (shown_ && now - last_ > kInterval) {
            last_ = now;
            used_ = true;
            std::cerr << fmt::format("\r{}: {}{}, {}   ", phase.what, phase.done,
                                     phase.total == 0 ? "" : fmt::format(" of {}", phase.total),
                                     byte_count(phase.bytes))
                      << std::flush;
        }
        return interrupted == 0;
    }
    void end() {
        if (std::exchange(used_, false))
            std::cerr << '\n';
    }

  private:
    bool shown_ = ::isatty(STDERR_FILENO) == 1;
    bool used_ = false;
    std::chrono::steady_clock::time_point last_;
};

Expected<uid_t> uid_of(const std::string &user) {
    uid_t uid = 0;
    const auto parsed = std::from_chars(user.data(), user.data() + user.size(), uid);
    if (parsed.ec == std::errc{} && parsed.ptr == user.data() + user.size())
        return uid;
    if (const passwd *entry = ::getpwnam(user.c_str()); entry != nullptr)
        return entry->pw_uid;
    return failure("find user", quote(user), "there is no user of that name", ENOENT);
}

Expected<std::vector<uid_t>> users_of(const store::Store &opened, const StoreOptions &options) {
    if (options.user.empty())
        return opened.users();
    const auto uid = uid_of(options.user);
    if (!uid)
        return std::unexpected(uid.error());
    return std::vector<uid_t>{*uid};
}

// The user to whom the checkpoint belongs.
Expected<uid_t> owner_of(const store::Store &opened, const StoreOptions &options) {
    const auto users = users_of(opened, options);
    if (!users)
        return std::unexpected(users.error());
    for (const uid_t uid : *users) {
        const auto manifest = opened.manifest(uid, options.id);
        if (manifest || manifest.error().code != ENOENT)
            return manifest ? Expected<uid_t>(uid) : std::unexpected(manifest.error());
    }
    return failure("find checkpoint", quote(options.id), "nobody has one of that name", ENOENT);
}

Expected<bool> list(const store::Store &opened, const StoreOptions &options) {
    const auto users = users_of(opened, options);
    if (!users)
        return std::unexpected(users.error());
    bool whole = true;
    fmt::print("{:<39} {:<20} {:<10} {:<10} {:>10} {:>10} {:>10} {}\n", "CHECKPOINT", "TIME", "USER", "JOB",
               "CONTENT", "STORED", "ADDED", "PARENT");
    for (const uid_t uid : *users) {
        const auto listing = opened.list(uid);
        if (!listing)
            return std::unexpected(listing.error());
        for (const auto &checkpoint : listing->checkpoints)
            fmt::print("{:<39} {:<20} {:<10} {:<10} {:>10} {:>10} {:>10} {}\n", checkpoint.id,
                       date(checkpoint.time), escaped(checkpoint.user), escaped(checkpoint.job),
                       byte_count(checkpoint.sizes.content), byte_count(checkpoint.sizes.stored),
                       byte_count(checkpoint.sizes.added),
                       checkpoint.parent.empty() ? "-" : checkpoint.parent);
        for (const Error &error : listing->damaged)
            std::cerr << "singularityctl: " << error.message() << '\n';
        whole = whole && listing->damaged.empty();
        if (const auto used = usage(opened, uid); used)
            fmt::print("uid {}: {} checkpoints, {}{} in {} chunks\n", uid, used->checkpoints,
                       byte_count(used->bytes),
                       options.quota == 0 ? "" : fmt::format(" of {}", byte_count(options.quota)),
                       used->chunks);
    }
    return whole;
}

void show_attributes(const store::Attributes &attributes, int indent) {
    for (const auto &[name, value] : attributes)
        fmt::print("{:{}}{}: {}\n", "", indent, escaped(name), escaped(value));
}

void show_images(const std::vector<store::Image> &images, int indent) {
    for (const store::Image &image : images)
        fmt::print("{:{}}image {}: {}, {} chunks\n", "", indent, escaped(image.name),
                   byte_count(image.size()), image.chunks.size());
}

Expected<bool> show(const store::Store &opened, const StoreOptions &options) {
    const auto uid = owner_of(opened, options);
    if (!uid)
        return std::unexpected(uid.error());
    const auto manifest = opened.manifest(*uid, options.id);
    if (!manifest)
        return std::unexpected(manifest.error());
    fmt::print("checkpoint: {}\nparent: {}\njob: {}\nuser: {} (uid {}, gid {})\ntier: {}\ntime: {}\n",
               manifest->id, manifest->parent.empty() ? "-" : escaped(manifest->parent),
               escaped(manifest->job), escaped(manifest->user), manifest->uid, manifest->gid,
               escaped(manifest->tier), date(manifest->time));
    fmt::print("content: {} ({} zeros)\nstored: {} ({} added by this checkpoint)\n",
               byte_count(manifest->sizes.content), byte_count(manifest->sizes.zeros),
               byte_count(manifest->sizes.stored), byte_count(manifest->sizes.added));
    show_attributes(manifest->attributes, 0);
    for (const store::VirtualNode &node : manifest->nodes) {
        fmt::print("virtual node {}\n", escaped(node.name));
        show_attributes(node.attributes, 2);
        show_images(node.images, 2);
        for (const store::Device &device : node.devices) {
            fmt::print("  device {}\n", escaped(device.name));
            show_attributes(device.attributes, 4);
            show_images(device.images, 4);
        }
    }
    return true;
}

Expected<bool> verify(const store::Store &opened, const StoreOptions &options) {
    std::vector<uid_t> users;
    if (options.id.empty()) {
        auto all = users_of(opened, options);
        if (!all)
            return propagate(all);
        users = *std::move(all);
    } else {
        const auto owner = owner_of(opened, options);
        if (!owner)
            return std::unexpected(owner.error());
        users = {*owner};
    }
    bool whole = true;
    PhaseLine line;
    const auto progress = [&line](const store::Phase &phase) { return line(phase); };
    for (const uid_t uid : users) {
        const auto report = options.id.empty() ? store::verify_all(opened, uid, options.set_aside, progress)
                                               : store::verify(opened, uid, options.id, progress);
        line.end();
        if (!report)
            return std::unexpected(report.error());
        for (const Error &error : report->damage)
            std::cerr << "singularityctl: " << error.message() << '\n';
        for (const store::Affected &affected : report->affected)
            std::cerr << fmt::format("singularityctl: checkpoint {} of job {} cannot be restored; {}\n",
                                     affected.id, quote(affected.job),
                                     affected.previous.empty()
                                         ? "there is no earlier one that can"
                                         : "the previous one that can is " + affected.previous);
        fmt::print("uid {}: {} manifests and {} chunks ({}) checked, {} damaged{}\n", uid, report->manifests,
                   report->chunks, byte_count(report->bytes), report->damage.size(),
                   report->complete ? "" : "; interrupted");
        whole = whole && report->damage.empty() && report->complete;
    }
    return whole;
}

Expected<bool> collect(const store::Store &opened, const StoreOptions &options) {
    const auto users = users_of(opened, options);
    if (!users)
        return std::unexpected(users.error());
    PhaseLine line;
    store::GcOptions gc;
    gc.grace = std::chrono::seconds(options.grace_s);
    gc.settle = std::chrono::seconds(options.settle_s);
    gc.progress = [&line](const store::Phase &phase) { return line(phase); };
    bool all = true;
    for (const uid_t uid : *users) {
        const auto report = collect_garbage(opened, uid, gc);
        line.end();
        if (!report)
            return std::unexpected(report.error());
        fmt::print(
            "uid {}: {} chunks ({}) removed, {} wait for a later run, {} restored; {} dead writers, {} of "
            "their files removed; {} writers and readers at work{}\n",
            uid, report->removed_chunks, byte_count(report->removed_bytes), report->waiting, report->restored,
            report->broken, report->leftovers, report->writers, report->complete ? "" : "; interrupted");
        all = all && report->complete;
    }
    return all;
}

Expected<bool> remove(const store::Store &opened, const StoreOptions &options) {
    const auto uid = owner_of(opened, options);
    if (!uid)
        return std::unexpected(uid.error());
    const auto removed = opened.remove(*uid, options.id);
    if (removed && *removed)
        fmt::print("checkpoint {} is removed; its content goes with the next 'singularityctl store gc'\n",
                   options.id);
    return removed;
}

using Action = Expected<bool> (*)(const store::Store &, const StoreOptions &);

// What the command line leaves open is as in the configuration. The stores of which it speaks.
Expected<std::vector<std::filesystem::path>> complete(StoreOptions &options) {
    if (::geteuid() != 0)
        return failure(
            "use", "the checkpoint store",
            "it belongs to root, because a restore runs as root: run this as root, or ask an administrator",
            EPERM);
    const auto settings = config::load_or_default(config::default_path());
    if (!settings)
        return std::unexpected(settings.error());
    options.quota = static_cast<std::uint64_t>(settings->store.quota_gib) << 30U;
    if (!options.directory.empty())
        return std::vector{options.directory};
    return config::all_stores(settings->store);
}

int complain(const Error &error) {
    std::cerr << "singularityctl: " << error.message() << '\n';
    return EXIT_FAILURE;
}

// Where the checkpoint is; in the first, which then says so, if it is nowhere.
std::vector<std::filesystem::path> with_checkpoint(std::vector<std::filesystem::path> directories,
                                                   const StoreOptions &options) {
    for (const auto &directory : directories) {
        const auto opened = store::Store::open(directory);
        const auto owner = opened ? owner_of(*opened, options) : std::unexpected(opened.error());
        if (owner)
            return {directory};
        if (owner.error().code != ENOENT)
            complain(owner.error());
    }
    directories.resize(1);
    return directories;
}

// All have their turn, also behind one that cannot be used. Nobody has to have written to any but the first.
int run_in(const std::vector<std::filesystem::path> &directories, Action action,
           const StoreOptions &options) {
    int status = EXIT_SUCCESS;
    for (const auto &directory : directories) {
        const bool is_first = directory == directories.front();
        const auto opened = store::Store::open(directory);
        if (!opened && opened.error().code == ENOENT && !is_first)
            continue;
        if (directories.size() > 1)
            fmt::print("{}store {}\n", is_first ? "" : "\n", escaped(directory.native()));
        const auto done = opened ? action(*opened, options) : std::unexpected(opened.error());
        if (!done)
            status = complain(done.error());
        else if (!*done)
            status = EXIT_FAILURE;
        if (interrupted != 0)
            break;
    }
    return status;
}

int run(Action action, StoreOptions options) {
    struct sigaction handler{};
    handler.sa_handler = interrupt;
    for (const int signal : {SIGINT, SIGTERM})
        ::sigaction(signal, &handler, nullptr);
    auto directories = complete(options);
    if (!directories)
        return complain(directories.error());
    if (directories->size() > 1 && !options.id.empty())
        directories = with_checkpoint(*std::move(directories), options);
    return run_in(*directories, action, options);
}

enum class Id : std::uint8_t { kNone, kOptional, kRequired };

struct Command {
    const char *name;
    const char *help;
    Action action;
    Id id;
};

constexpr Command kCommands[] = {
    {"ls", "checkpoints, newest first, and what each user takes of store.quota_gib", list, Id::kNone},
    {"show", "what a checkpoint consists of", show, Id::kRequired},
    {"verify",
     "read everything, or all that one checkpoint needs, and compare it with its hashes; name what is "
     "damaged and which "
     "checkpoint to use instead",
     verify, Id::kOptional},
    {"gc", "remove what no checkpoint needs; safe at any time and beside everything else", collect,
     Id::kNone},
    {"rm", "remove a checkpoint", remove, Id::kRequired},
};

} // namespace

void add_store_command(CLI::App &app, int &status) {
    CLI::App *command = app.add_subcommand("store", "the checkpoint store; for root");
    command->require_subcommand(1);
    const auto options = std::make_shared<StoreOptions>();
    command
        ->add_option(
            "--store", options->directory,
            "the store's directory; without it all of singularity.yaml (store.directory, store.others)")
        ->envname("SINGULARITY_STORE");
    command->add_option("--user", options->user, "only this user's, by name or number");
    for (const Command &entry : kCommands) {
        CLI::App *one = command->add_subcommand(entry.name, entry.help);
        one->fallthrough(); // --store and --user are understood behind it as well
        if (entry.id != Id::kNone)
            one->add_option("CHECKPOINT", options->id, "its id")
                ->required(entry.id == Id::kRequired)
                ->check([](const std::string &id) { return id.empty() ? "an id is not empty" : ""; });
        if (entry.action == verify)
            one->add_flag(
                "--set-aside", options->set_aside,
                "move damaged chunks away, so that the next checkpoint with their content writes them anew");
        if (entry.action == collect) {
            one->add_option("--grace", options->grace_s, "leave chunks alone that are younger, in seconds")
                ->check(CLI::NonNegativeNumber)
                ->capture_default_str();
            one->add_option(
                   "--settle", options->settle_s,
                   "how long other hosts may believe in removed names, in seconds: 0 for a local file "
                   "system or Lustre, twice acdirmax for NFS")
                ->check(CLI::NonNegativeNumber)
                ->capture_default_str();
        }
        one->callback([&entry, options, &status] { status = run(entry.action, *options); });
    }
}

} // namespace singularity::spank
