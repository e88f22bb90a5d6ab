// SPDX-License-Identifier: GPL-2.0-or-later
// Garbage collection. README.md has the protocol and why it is safe; the order of the steps here, and of the
// listings within them, is what the argument rests on.
#include "common/text.hpp"
#include "criu-hooks/store/maintenance.hpp"
#include "log.hpp"
#include "reach.hpp"
#include "rounds.hpp"
#include "state.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <sys/stat.h>

namespace singularity::store {
namespace {

using Names = std::set<std::string, std::less<>>;
using std::chrono::nanoseconds;

nanoseconds modified(const struct stat &status) {
    return std::chrono::seconds(status.st_mtim.tv_sec) + nanoseconds(status.st_mtim.tv_nsec);
}

class Collection {
  public:
    Collection(StoreState &store, UserSpace &space, const GcOptions &options, GcReport &report)
        : store_(store), space_(space), options_(options), report_(report) {}

    [[nodiscard]] Expected<void> run() {
        using Step = Expected<void> (Collection::*)();
        for (const Step step :
             {&Collection::read_clock, &Collection::break_dead_leases, &Collection::remove_leftovers,
              &Collection::finish_rounds, &Collection::condemn, &Collection::read_clock, &Collection::record,
              &Collection::finish_rounds}) {
            if (!report_.complete)
                return {};
            if (auto done = (this->*step)(); !done)
                return done;
        }
        return {};
    }

  private:
    // What time it is for whoever sets the times of files: on NFS that is the server.
    Expected<void> read_clock() {
        const std::string name = "clock." + random_name();
        if (auto file = space_.temporary.create_file(name); !file)
            return propagate(file);
        const auto status = space_.temporary.status(name);
        if (!status)
            return std::unexpected(status.error());
        now_ = modified(*status);
        if (auto removed = space_.temporary.remove(name); !removed)
            return propagate(removed);
        return {};
    }

    [[nodiscard]] nanoseconds age(const struct stat &status) const { return now_ - modified(status); }

    // False: the caller wants no more.
    bool go_on(std::string_view what, std::uint64_t done, std::uint64_t total) {
        if (options_.progress && !options_.progress({what, done, total, report_.removed_bytes}))
            report_.complete = false;
        return report_.complete;
    }

    [[nodiscard]] Expected<Names> leases() const {
        auto names = space_.pending.names();
        if (!names)
            return propagate(names);
        Names leases;
        for (std::string &name : *names)
            if (is_id(name))
                leases.insert(std::move(name));
        return leases;
    }

    // From here on a writer that only seemed dead cannot commit: its commit renames what is removed here.
    Expected<void> break_dead_leases() {
        const auto all = leases();
        if (!all)
            return std::unexpected(all.error());
        for (const std::string &name : *all) {
            const auto status = space_.pending.status(name);
            if (!status && status.error().code == ENOENT)
                continue;
            if (!status)
                return std::unexpected(status.error());
            if (age(*status) < store_.options.lease_timeout)
                continue;
            const auto removed = space_.pending.remove(name);
            if (!removed)
                return std::unexpected(removed.error());
            report_.broken += *removed ? 1 : 0;
        }
        return {};
    }

    // A temporary file is younger than its lease, so one whose lease is gone was left behind. Files of other
    // garbage collections have none and go by their age.
    Expected<void> remove_leftovers() {
        const auto names = space_.temporary.names();
        if (!names)
            return std::unexpected(names.error());
        const auto living = leases(); // after the files
        if (!living)
            return std::unexpected(living.error());
        for (const std::string &name : *names) {
            const std::string_view owner = std::string_view(name).substr(0, name.find('.'));
            if (living->contains(owner))
                continue;
            if (!is_id(owner)) {
                const auto status = space_.temporary.status(name);
                if (!status || age(*status) < store_.options.lease_timeout)
                    continue;
            }
            const auto removed = space_.temporary.remove(name);
            if (!removed)
                return std::unexpected(removed.error());
            report_.leftovers += *removed ? 1 : 0;
        }
        return {};
    }

    // Removes what was condemned in rounds that need not wait any more.
    Expected<void> finish_rounds() {
        const auto rounds = read_rounds(space_);
        if (!rounds)
            return std::unexpected(rounds.error());
        const auto living = leases(); // after the rounds
        if (!living)
            return std::unexpected(living.error());
        report_.writers = living->size();
        report_.waiting = 0;
        std::vector<const Round *> ready;
        for (const Round &round : rounds->whole) {
            const bool waits =
                round.settling || std::ranges::any_of(round.leases, [&living](const auto &lease) {
                    return living->contains(lease);
                });
            if (waits)
                report_.waiting += round.files.size();
            else
                ready.push_back(&round);
        }
        if (ready.empty())
            return {};
        const auto named = reach_of(space_); // after the leases
        if (!named)
            return std::unexpected(named.error());
        for (const Round *round : ready)
            if (auto finished = finish(*round, *named); !finished || !report_.complete)
                return finished;
        return {};
    }

    Expected<void> finish(const Round &round, const Reach &named) {
        if (auto finished = finish(round.files, named); !finished || !report_.complete)
            return finished;
        if (auto removed = space_.rounds.remove(round.name); !removed)
            return propagate(removed);
        return {};
    }

    Expected<void> finish(const std::vector<std::string> &files, const Reach &named) {
        std::uint64_t done = 0;
        for (const std::string &file : files) {
            if (!go_on("removing", done++, files.size()))
                return {};
            const auto hash = Hash::from_hex(std::string_view(file).substr(0, file.find('.')));
            if (!hash)
                return failure("remove", space_.condemned.path_of(quote(file)), "that is no name of a chunk");
            auto finished = named.contains(*hash) ? restore(file, *hash) : remove(file);
            if (!finished)
                return finished;
        }
        return space_.condemned.sync();
    }

    Expected<void> restore(const std::string &file, const Hash &hash) {
        const auto shard = space_.shard(hash);
        if (!shard)
            return std::unexpected(shard.error());
        const auto there = (*shard)->status(hash.hex());
        if (there) // written anew since; and should that one be condemned meanwhile, its own round restores
                   // it
            return remove(file);
        const auto renamed = space_.condemned.rename(file, **shard, hash.hex());
        if (!renamed)
            return std::unexpected(renamed.error());
        report_.restored += *renamed ? 1 : 0;
        return {};
    }

    Expected<void> remove(const std::string &file) {
        const auto status = space_.condemned.status(file);
        if (!status && status.error().code == ENOENT)
            return {}; // an interrupted or a concurrent run was here
        if (!status)
            return std::unexpected(status.error());
        const auto removed = space_.condemned.remove(file);
        if (!removed)
            return std::unexpected(removed.error());
        report_.removed_chunks += *removed ? 1 : 0;
        report_.removed_bytes += *removed ? static_cast<std::uint64_t>(status->st_size) : 0;
        return {};
    }

    // Takes what nothing names out of the sight of writers.
    Expected<void> condemn() {
        const auto named = reach_of(space_);
        if (!named)
            return std::unexpected(named.error());
        for (std::size_t number = 0; number < kShards; ++number) {
            if (!go_on("looking for unused chunks", number, kShards))
                return {};
            const auto shard = space_.existing_shard(number);
            if (!shard)
                return std::unexpected(shard.error());
            if (*shard == nullptr)
                continue;
            const auto names = (*shard)->names();
            if (!names)
                return std::unexpected(names.error());
            for (const std::string &name : *names) {
                const auto hash = Hash::from_hex(name);
                if (!hash || named->contains(*hash))
                    continue;
                const auto status = (*shard)->status(name);
                if (!status || age(*status) < options_.grace)
                    continue;
                const auto renamed = (*shard)->rename(name, space_.condemned, name + "." + random_name());
                // A full disk may have no room for more names in that directory. What was condemned makes
                // some.
                if (!renamed && renamed.error().code == ENOSPC && report_.condemned > 0)
                    return {};
                if (!renamed)
                    return std::unexpected(renamed.error());
                report_.condemned += *renamed ? 1 : 0;
            }
        }
        return {};
    }

    // First the chunks, then the leases: every lease that was there when a chunk was condemned and is not
    // listed has ended by then. In between, hosts must have forgotten that the chunk ever had its old name.
    Expected<void> record() {
        auto fresh = space_.condemned.names();
        if (!fresh)
            return propagate(fresh);
        const auto rounds = read_rounds(space_);
        if (!rounds)
            return std::unexpected(rounds.error());
        for (const std::string &name : rounds->damaged_names) {
            kLog.warning("{} is damaged and is written anew", space_.rounds.path_of(name));
            if (auto removed = space_.rounds.remove(name); !removed)
                return propagate(removed);
        }
        Names recorded;
        std::vector<std::string> settled;
        std::vector<const Round *> replaced;
        for (const Round &round : rounds->whole) {
            recorded.insert(round.files.begin(), round.files.end());
            const auto status = space_.rounds.status(round.name);
            if (!round.settling || !status || age(*status) < options_.settle)
                continue;
            std::ranges::copy(round.files, std::back_inserter(settled));
            replaced.push_back(&round);
        }
        std::erase_if(*fresh, [&recorded](const std::string &name) {
            return recorded.contains(name) ||
                   !Hash::from_hex(std::string_view(name).substr(0, name.find('.'))).has_value();
        });
        if (options_.settle == std::chrono::seconds::zero())
            std::ranges::move(std::exchange(*fresh, {}), std::back_inserter(settled));
        const auto living = leases();
        if (!living)
            return std::unexpected(living.error());
        // With nobody to wait for there is no need of a round, for which a full disk would have no room.
        if (living->empty() && !settled.empty()) {
            const auto named = reach_of(space_); // after the leases
            if (!named)
                return std::unexpected(named.error());
            if (auto finished = finish(std::exchange(settled, {}), *named); !finished || !report_.complete)
                return finished;
        }
        if (auto written = write_rounds(space_, {{}, true, {}, {}}, *fresh); !written)
            return written;
        if (auto written = write_rounds(space_, {{}, false, {living->begin(), living->end()}, {}}, settled);
            !written)
            return written;
        for (const Round *round : replaced)
            if (auto removed = space_.rounds.remove(round->name); !removed)
                return propagate(removed);
        return {};
    }

    StoreState &store_;
    UserSpace &space_;
    const GcOptions &options_;
    GcReport &report_;
    nanoseconds now_{};
};

} // namespace

Expected<GcReport> collect_garbage(const Store &store, uid_t uid, const GcOptions &options) {
    GcReport report;
    auto space = store.state()->space(uid, Missing::kRefuse);
    if (!space && space.error().code == ENOENT)
        return report;
    if (!space)
        return propagate(space);
    Collection collection(*store.state(), **space, options, report);
    if (auto done = collection.run(); !done)
        return propagate(done);
    return report;
}

} // namespace singularity::store
