// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/store/store.hpp"

#include "common/text.hpp"
#include "manifest_file.hpp"
#include "reader_state.hpp"
#include "state.hpp"
#include "writer_state.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <thread>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

namespace singularity::store {
namespace {

constexpr const char *kFormatFile = "store";
constexpr const char *kUsers = "users";
constexpr unsigned kMostThreads = 8;

std::string format_text() {
    return fmt::format("slurm-singularity checkpoint store\nformat 1\nhash {}\n", kHashName);
}

// Two hosts that make the same store at once write the same file.
Expected<void> make_store(const Directory &top) {
    auto names = top.names();
    if (!names)
        return propagate(names);
    const auto foreign = std::ranges::find_if(
        *names, [](const std::string &name) { return name != kUsers && !name.starts_with("new."); });
    if (foreign != names->end() && *foreign != kFormatFile)
        return failure("make a store in", top.path(),
                       fmt::format("{} is there already; give it a directory of its own", quote(*foreign)));
    const std::string text = format_text();
    const std::string beside = "new." + random_name();
    auto file = top.create_file(beside);
    if (!file)
        return propagate(file);
    if (auto done = write_all(*file, std::as_bytes(std::span(text)), 0, top.path_of(beside)); !done)
        return done;
    if (auto done = sync_data(*file, top.path_of(beside)); !done)
        return done;
    if (auto done = top.rename(beside, top, kFormatFile); !done)
        return propagate(done);
    return top.sync();
}

Expected<void> check_format(const Directory &top) {
    auto file = top.open_file(kFormatFile);
    if (!file)
        return propagate(file);
    const std::string expected = format_text();
    std::string found(2 * expected.size(), '\0');
    const auto size = read_all(*file, std::as_writable_bytes(std::span(found)), 0, top.path_of(kFormatFile));
    if (!size)
        return std::unexpected(size.error());
    found.resize(*size);
    if (found != expected)
        return failure("use the store", top.path(),
                       fmt::format("its file '{}' says {} where this program needs {}", kFormatFile,
                                   quote(found), quote(expected)));
    return {};
}

Summary summary_of(const Manifest &manifest) {
    Summary summary{manifest.id,   manifest.parent, manifest.job,   manifest.user,
                    manifest.tier, manifest.time,   manifest.sizes, manifest.nodes.size()};
    for (const VirtualNode &node : manifest.nodes)
        summary.devices += node.devices.size();
    for_each_image(manifest, [&summary](const auto &, const auto *, const auto &) { ++summary.images; });
    return summary;
}

// Sorts by time, also within a second, and nobody else has it.
std::string new_id() {
    constexpr std::int64_t kSecond = 1'000'000;
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    return fmt::format("{:%Y%m%dT%H%M%S}{:06}-{}", fmt::gmtime(static_cast<std::time_t>(now / kSecond)),
                       now % kSecond, random_name());
}

// Nobody asks for it where there is no quota.
Expected<Account> others_of(const StoreState &store, const UserSpace &space) {
    return store.options.quota == 0 ? Expected<Account>(Account()) : Account::open(space);
}

} // namespace

Expected<Store> Store::open(const std::filesystem::path &directory, const Options &options) {
    auto top = Directory::open(directory, options.create ? Missing::kCreate : Missing::kRefuse);
    if (!top)
        return propagate(top);
    auto checked = check_format(*top);
    if (!checked && checked.error().code == ENOENT) {
        if (!options.create)
            return failure("use the store", top->path(), "there is none in that directory", ENOENT);
        if (auto made = make_store(*top); !made)
            return propagate(made);
        checked = check_format(*top);
    }
    if (!checked)
        return propagate(checked);
    auto users = top->child(kUsers, Missing::kCreate);
    if (!users)
        return propagate(users);
    const unsigned threads = options.threads != 0
                                 ? options.threads
                                 : std::clamp(std::thread::hardware_concurrency(), 1U, kMostThreads);
    return Store(std::make_shared<StoreState>(options, *std::move(top), *std::move(users), threads));
}

Expected<std::vector<uid_t>> Store::users() const {
    auto names = state_->users.names();
    if (!names)
        return propagate(names);
    std::vector<uid_t> users;
    for (const std::string &name : *names) {
        uid_t uid = 0;
        const auto parsed = std::from_chars(name.data(), name.data() + name.size(), uid);
        if (parsed.ec != std::errc{} || parsed.ptr != name.data() + name.size() ||
            name != std::to_string(uid))
            return failure("list", state_->users.path(), quote(name) + " is no number of a user");
        users.push_back(uid);
    }
    std::ranges::sort(users);
    return users;
}

Expected<Listing> Store::list(uid_t uid) const {
    Listing listing;
    auto space = state_->space(uid, Missing::kRefuse);
    if (!space && space.error().code == ENOENT)
        return listing;
    if (!space)
        return propagate(space);
    auto names = (*space)->checkpoints.names();
    if (!names)
        return propagate(names);
    for (const std::string &name : *names) {
        auto manifest = load_manifest(**space, name);
        if (manifest)
            listing.checkpoints.push_back(summary_of(*manifest));
        else if (manifest.error().code != ENOENT) // removed meanwhile
            listing.damaged.push_back(std::move(manifest.error()));
    }
    std::ranges::sort(listing.checkpoints, [](const Summary &a, const Summary &b) {
        return std::tie(a.time, a.id) > std::tie(b.time, b.id);
    });
    return listing;
}

Expected<Manifest> Store::manifest(uid_t uid, const std::string &id) const {
    auto space = state_->space(uid, Missing::kRefuse);
    if (!space && space.error().code == ENOENT)
        return failure("read checkpoint", quote(id), fmt::format("uid {} has none", uid), ENOENT);
    if (!space)
        return propagate(space);
    return load_manifest(**space, id);
}

Expected<Writer> Store::begin(const Request &request) const {
    if (!request.parent.empty() && !is_id(request.parent))
        return failure("begin a checkpoint", "", quote(request.parent) + " is no id of its parent", EINVAL);
    auto space = state_->space(request.uid, Missing::kCreate);
    if (!space)
        return propagate(space);
    std::string id = new_id();
    // Before anything is looked for in the store.
    auto lease = Lease::take(*space, id, state_->options.lease_timeout);
    if (!lease)
        return propagate(lease);
    auto others = others_of(*state_, **space);
    if (!others)
        return propagate(others);
    return Writer(std::make_shared<WriterState>(state_, *std::move(space), request, std::move(id),
                                                *std::move(lease), *std::move(others)));
}

Expected<Writer> Store::join(uid_t uid, const std::string &id) const {
    if (!is_id(id))
        return failure("join checkpoint", quote(id), "that is no id of one", EINVAL);
    auto space = state_->space(uid, Missing::kRefuse);
    if (!space)
        return propagate(space);
    if (auto lease = (*space)->pending.status(id); !lease)
        return failure("join checkpoint", id, "nobody is writing it: " + lease.error().message(), ESTALE);
    auto others = others_of(*state_, **space);
    if (!others)
        return propagate(others);
    Request request;
    request.uid = uid;
    return Writer(std::make_shared<WriterState>(state_, *std::move(space), std::move(request), id, nullptr,
                                                *std::move(others)));
}

Expected<Checkpoint> Store::read(uid_t uid, const std::string &id) const {
    auto space = state_->space(uid, Missing::kRefuse);
    if (!space && space.error().code == ENOENT)
        return failure("read checkpoint", quote(id), fmt::format("uid {} has none", uid), ENOENT);
    if (!space)
        return propagate(space);
    // Before the manifest is read: what it names now stays.
    auto lease = Lease::take(*space, "read-" + random_name(), state_->options.lease_timeout);
    if (!lease)
        return propagate(lease);
    auto manifest = load_manifest(**space, id);
    if (!manifest)
        return propagate(manifest);
    return Checkpoint(std::make_shared<CheckpointState>(state_, *std::move(space), *std::move(manifest),
                                                        *std::move(lease)));
}

Expected<bool> Store::remove(uid_t uid, const std::string &id) const {
    if (!is_id(id))
        return failure("remove checkpoint", quote(id), "that is no id of a checkpoint", EINVAL);
    auto space = state_->space(uid, Missing::kRefuse);
    if (!space && space.error().code == ENOENT)
        return false;
    if (!space)
        return propagate(space);
    auto removed = (*space)->checkpoints.remove(id);
    if (!removed || !*removed)
        return removed;
    if (auto synced = (*space)->checkpoints.sync(); !synced)
        return propagate(synced);
    return true;
}

} // namespace singularity::store
