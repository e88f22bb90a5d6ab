// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/store/store.hpp"

#include "common/text.hpp"
#include "manifest_file.hpp"
#include "state.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <functional>
#include <thread>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>

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

template <std::size_t... I>
Expected<std::array<Directory, sizeof...(I)>>
children(const Directory &parent, Missing missing, const std::array<std::string_view, sizeof...(I)> &names,
         std::index_sequence<I...> /*numbers*/) {
    std::array<Expected<Directory>, sizeof...(I)> opened{parent.child(names[I], missing)...};
    for (auto &directory : opened)
        if (!directory)
            return propagate(directory);
    return std::array<Directory, sizeof...(I)>{*std::move(opened[I])...};
}

Summary summary_of(const Manifest &manifest) {
    Summary summary{manifest.id,   manifest.parent, manifest.job,   manifest.user,
                    manifest.tier, manifest.time,   manifest.sizes, manifest.nodes.size()};
    for (const VirtualNode &node : manifest.nodes)
        summary.devices += node.devices.size();
    for_each_image(manifest, [&summary](const auto &, const auto *, const auto &) { ++summary.images; });
    return summary;
}

} // namespace

std::string random_name() {
    std::uint64_t number = 0;
    // Up to 256 bytes are never cut short (getrandom(2)).
    while (::getrandom(&number, sizeof number, 0) != sizeof number) {
    }
    return fmt::format("{:016x}", number);
}

UserSpace::UserSpace(uid_t user, std::array<Directory, 8> directories)
    : uid(user), checkpoints(std::move(directories[0])), pending(std::move(directories[1])),
      temporary(std::move(directories[2])), condemned(std::move(directories[3])),
      rounds(std::move(directories[4])), damaged(std::move(directories[5])), usage(std::move(directories[6])),
      chunks_(std::move(directories[7])) {}

Expected<std::shared_ptr<UserSpace>> UserSpace::open(const Directory &users, uid_t uid, Missing missing) {
    // A name made of digits alone: whatever the user is called never becomes a path.
    auto top = users.child(std::to_string(uid), missing);
    if (!top)
        return propagate(top);
    // The rest may be missing where a crash has interrupted this very function.
    auto chunks = top->child("chunks", Missing::kCreate);
    if (!chunks)
        return propagate(chunks);
    constexpr std::array<std::string_view, 7> kNames{"checkpoints", "pending", "temporary", "condemned",
                                                     "rounds",      "damaged", "usage"};
    auto others = children(*top, Missing::kCreate, kNames, std::make_index_sequence<kNames.size()>());
    if (!others)
        return propagate(others);
    auto by_hash = chunks->child(kHashName, Missing::kCreate);
    if (!by_hash)
        return propagate(by_hash);
    auto &d = *others;
    return std::make_shared<UserSpace>(uid, std::array<Directory, 8>{std::move(d[0]), std::move(d[1]),
                                                                     std::move(d[2]), std::move(d[3]),
                                                                     std::move(d[4]), std::move(d[5]),
                                                                     std::move(d[6]), *std::move(by_hash)});
}

Expected<const Directory *> UserSpace::shard(std::size_t number, Missing missing) {
    const std::lock_guard lock(mutex_);
    auto &shard = shards_.at(number);
    if (!shard) {
        auto opened = chunks_.child(fmt::format("{:02x}", number), missing);
        if (!opened)
            return propagate(opened);
        shard = *std::move(opened);
    }
    return &*shard;
}

Expected<const Directory *> UserSpace::existing_shard(std::size_t number) {
    auto found = shard(number, Missing::kRefuse);
    if (!found && found.error().code == ENOENT)
        return nullptr;
    return found;
}

Expected<Manifest> load_manifest(const UserSpace &space, const std::string &id) {
    if (!is_id(id))
        return failure("read checkpoint", quote(id), "that is no id of a checkpoint", EINVAL);
    auto file = space.checkpoints.open_file(id);
    if (!file && file.error().code == ENOENT)
        return failure("read checkpoint", id, fmt::format("uid {} has none of that name", space.uid), ENOENT);
    if (!file)
        return propagate(file);
    const std::string path = space.checkpoints.path_of(id);
    auto manifest = read_manifest(*file, path);
    if (manifest && manifest->id != id)
        return failure("read manifest", path, "it is that of checkpoint " + quote(manifest->id));
    if (manifest && manifest->uid != space.uid)
        return failure("read manifest", path, fmt::format("it is one of uid {}", manifest->uid));
    return manifest;
}

Expected<void> publish_file(const Directory &temporary, const Directory &to, const std::string &name,
                            std::span<const std::byte> data) {
    const std::string beside = "gc." + random_name();
    auto file = temporary.create_file(beside);
    if (!file)
        return propagate(file);
    auto done = write_all(*file, data, 0, temporary.path_of(beside));
    if (done)
        done = sync_data(*file, temporary.path_of(beside));
    if (!done) {
        (void)temporary.remove(beside); // what remains, gc removes
        return done;
    }
    auto renamed = temporary.rename(beside, to, name);
    if (!renamed)
        return propagate(renamed);
    if (!*renamed)
        return failure("rename", temporary.path_of(beside), "it is gone");
    return to.sync();
}

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
