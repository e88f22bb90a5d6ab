// SPDX-License-Identifier: GPL-2.0-or-later
#include "state.hpp"

#include <cerrno>
#include <utility>

#include <fmt/format.h>
#include <sys/random.h>

namespace singularity::store {
namespace {

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

} // namespace singularity::store
