// SPDX-License-Identifier: GPL-2.0-or-later
// What users take, and whether everything is whole.
#include "criu-hooks/store/maintenance.hpp"

#include "account.hpp"
#include "affected.hpp"
#include "chunk_file.hpp"
#include "common/text.hpp"
#include "manifest_file.hpp"
#include "reach.hpp"
#include "rounds.hpp"
#include "state.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace singularity::store {
namespace {

// Checks chunk files on the pool's threads and gathers what is wrong with them.
class Checks {
  public:
    Checks(StoreState &store, UserSpace &space, VerifyReport &report, const ProgressCallback &progress,
           std::uint64_t total)
        : store_(store), space_(space), report_(report), progress_(progress), total_(total) {}
    Checks(const Checks &) = delete;
    Checks &operator=(const Checks &) = delete;
    Checks(Checks &&) = delete;
    Checks &operator=(Checks &&) = delete;
    ~Checks() { wait(); }

    // A chunk that a manifest names, wherever it lies.
    [[nodiscard]] bool named(const Chunk &chunk) {
        return submit([this, chunk](Scratch &scratch) {
            std::vector<std::byte> content = store_.pool.take_buffer(chunk.size);
            auto read = read_chunk(space_, chunk, content, scratch);
            store_.pool.give_buffer(std::move(content));
            finish(chunk.hash, read ? Expected<std::uint32_t>(chunk.stored) : propagate(read));
        });
    }

    // A file in a directory of chunks; set aside if that is wanted and it is damaged.
    [[nodiscard]] bool file(const Directory &directory, const std::string &name, const Hash &hash,
                            bool set_aside) {
        return submit([this, &directory, name, hash, set_aside](Scratch &scratch) {
            auto checked = check_chunk_file(directory, name, hash, scratch);
            if (!checked && checked.error().code == ENOENT) // condemned meanwhile: it is no longer here
                checked = 0;
            if (!checked && checked.error().code == EBADMSG && set_aside)
                checked = std::unexpected(moved_away(directory, name, std::move(checked.error())));
            finish(hash, std::move(checked));
        });
    }

    void damage(Error error) {
        const std::lock_guard lock(mutex_);
        report_.damage.push_back(std::move(error));
    }

    void wait() {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return unfinished_ == 0; });
    }

    // Behind the last check.
    [[nodiscard]] const std::set<Hash> &damaged() {
        wait();
        return damaged_;
    }

  private:
    [[nodiscard]] Error moved_away(const Directory &directory, const std::string &name, Error error) const {
        const std::string aside = fmt::format("{}.{}", name, random_name());
        const auto moved = directory.rename(name, space_.damaged, aside);
        const auto durable = moved ? space_.damaged.sync() : Expected<void>(std::unexpected(moved.error()));
        error.why += durable ? fmt::format("; it was moved to {}", space_.damaged.path_of(aside))
                             : "; moving it away failed: " + durable.error().message();
        return error;
    }

    template <class Task>
    bool submit(Task task) {
        Phase phase{"checking chunks", 0, total_, 0};
        {
            const std::lock_guard lock(mutex_);
            phase.done = report_.chunks;
            phase.bytes = report_.bytes;
            ++unfinished_;
        }
        if (progress_ && !progress_(phase)) {
            report_.complete = false;
            const std::lock_guard lock(mutex_);
            --unfinished_;
            return false;
        }
        store_.pool.submit(std::move(task));
        return true;
    }

    void finish(const Hash &hash, Expected<std::uint32_t> checked) {
        const std::lock_guard lock(mutex_);
        ++report_.chunks;
        if (checked) {
            report_.bytes += *checked;
        } else {
            report_.damage.push_back(std::move(checked.error()));
            damaged_.insert(hash);
        }
        --unfinished_;
        changed_.notify_all();
    }

    StoreState &store_;
    UserSpace &space_;
    VerifyReport &report_;
    const ProgressCallback &progress_;
    std::uint64_t total_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t unfinished_ = 0;
    std::set<Hash> damaged_;
};

void sort_damage(VerifyReport &report) {
    std::ranges::sort(report.damage, {}, [](const Error &error) { return error.on; });
}

// The hash that a file in a directory of chunks is named after; behind it there may be "." and 16 digits.
std::optional<Hash> hash_in_name(const std::string &name, bool numbered) {
    constexpr std::size_t kDigits = 2 * Hash::kSize;
    if (name.size() < kDigits || (numbered ? name[kDigits] != '.' : name.size() != kDigits))
        return std::nullopt;
    return Hash::from_hex(std::string_view(name).substr(0, kDigits));
}

Error foreign_file(const Directory &directory, const std::string &name) {
    return {"verify", directory.path_of(quote(name)), "no file of the store has such a name", EBADMSG};
}

// All files of a shard, or with nothing for its number of the directory of the condemned. False: cancelled.
Expected<bool> check_directory(Checks &checks, const Directory &directory, std::optional<std::size_t> shard,
                               bool set_aside, Reach &found) {
    const auto names = directory.names();
    if (!names)
        return std::unexpected(names.error());
    for (const std::string &name : *names) {
        const auto hash = hash_in_name(name, !shard);
        if (!hash || (shard && UserSpace::shard_number(*hash) != *shard)) {
            checks.damage(foreign_file(directory, name));
            continue;
        }
        found.add(*hash, 0);
        if (!checks.file(directory, name, *hash, set_aside))
            return false;
    }
    return true;
}

} // namespace

Expected<Usage> usage(const Store &store, uid_t uid) {
    const auto space = store.state()->space(uid, Missing::kRefuse);
    if (!space && space.error().code == ENOENT)
        return Usage{};
    if (!space)
        return std::unexpected(space.error());
    const auto reach = reach_of(**space);
    if (!reach)
        return std::unexpected(reach.error());
    return Usage{reach->manifests, reach->bytes(), reach->chunks()};
}

Expected<VerifyReport> verify(const Store &store, uid_t uid, const std::string &id,
                              const ProgressCallback &progress) {
    VerifyReport report;
    report.manifests = 1;
    const auto checkpoint = store.read(uid, id);
    if (!checkpoint) {
        if (checkpoint.error().code == ENOENT || checkpoint.error().code == EINVAL)
            return std::unexpected(checkpoint.error());
        report.damage.push_back(checkpoint.error());
        return report;
    }
    auto space = store.state()->space(uid, Missing::kRefuse);
    if (!space)
        return propagate(space);
    std::vector<Chunk> chunks;
    for_each_image(checkpoint->manifest(), [&chunks](const auto &, const auto *, const Image &image) {
        std::ranges::copy_if(image.chunks, std::back_inserter(chunks),
                             [](const Chunk &chunk) { return chunk.stored != 0; });
    });
    std::ranges::sort(chunks, {}, &Chunk::hash);
    chunks.erase(std::ranges::unique(chunks, {}, &Chunk::hash).begin(), chunks.end());
    Checks checks(*store.state(), **space, report, progress, chunks.size());
    for (const Chunk &chunk : chunks)
        if (!checks.named(chunk))
            break;
    auto affected = affected_by(**space, checks.damaged(), id);
    if (!affected)
        return propagate(affected);
    report.affected = *std::move(affected);
    sort_damage(report);
    return report;
}

Expected<VerifyReport> verify_all(const Store &store, uid_t uid, bool set_aside,
                                  const ProgressCallback &progress) {
    VerifyReport report;
    const auto opened = store.state()->space(uid, Missing::kRefuse);
    if (!opened && opened.error().code == ENOENT)
        return report;
    if (!opened)
        return std::unexpected(opened.error());
    UserSpace &space = **opened;
    Reach named;
    const auto names = space.checkpoints.names();
    if (!names)
        return std::unexpected(names.error());
    for (const std::string &name : *names) {
        const auto manifest = load_manifest(space, name);
        if (!manifest && manifest.error().code == ENOENT)
            continue; // removed meanwhile
        ++report.manifests;
        if (manifest)
            named.add(*manifest);
        else
            report.damage.push_back(manifest.error());
    }
    const auto rounds = read_rounds(space);
    if (!rounds)
        return std::unexpected(rounds.error());
    std::ranges::copy(rounds->damaged, std::back_inserter(report.damage));
    auto account = check_account(space);
    if (!account)
        return propagate(account);
    if (std::optional<Error> &wrong = *account)
        report.damage.push_back(std::move(*wrong));
    Checks checks(*store.state(), space, report, progress, named.chunks());
    Reach found;
    bool going = true;
    for (std::size_t number = 0; going && number <= kShards; ++number) {
        const bool last = number == kShards;
        const auto shard =
            last ? Expected<const Directory *>(&space.condemned) : space.existing_shard(number);
        if (!shard)
            return std::unexpected(shard.error());
        if (*shard == nullptr)
            continue;
        const auto went =
            check_directory(checks, **shard, last ? std::nullopt : std::optional(number), set_aside, found);
        if (!went)
            return std::unexpected(went.error());
        going = *went;
    }
    found.seal();
    for (std::size_t i = 0; going && i < names->size(); ++i) {
        const auto manifest = load_manifest(space, (*names)[i]);
        if (!manifest)
            continue; // reported above, or removed meanwhile
        for_each_image(*manifest, [&](const auto &, const auto *, const Image &image) {
            for (const Chunk &chunk : image.chunks)
                if (going && chunk.stored != 0 && !found.contains(chunk.hash)) {
                    found.add(chunk.hash, 0); // once
                    found.seal();
                    going = checks.named(chunk);
                }
        });
    }
    auto affected = affected_by(space, checks.damaged());
    if (!affected)
        return propagate(affected);
    report.affected = *std::move(affected);
    sort_damage(report);
    return report;
}

} // namespace singularity::store
