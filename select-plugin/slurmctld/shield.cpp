// SPDX-License-Identifier: GPL-2.0-or-later
#include "shield.hpp"

#include "common/trusted_file.hpp"
#include "log.hpp"
#include "slurm_records.hpp"

#include <cerrno>
#include <exception>
#include <stdexcept>

#include <sys/stat.h>

namespace singularity {

namespace {

// A million jobs' ids are less.
constexpr std::size_t kMostProtection = std::size_t{1} << 24U;

// The layout is trusted where hooks are asked: what is no job now never was one.
std::uint32_t id_of(const void *job) {
    std::uint32_t id = 0;
    const auto view = records::DirectReader().open(records::kJobLayout, job);
    if (!view)
        throw std::runtime_error(view.error().message());
    if (const auto read = view->read(records::kJob_job_id, id); !read)
        throw std::runtime_error(read.error().message());
    return id;
}

// What a visit of slurmctld's list does; it must not throw.
struct Sorting {
    const host::Lists *lists = nullptr;
    const Protection *protection = nullptr;
    hooks::List *allowed = nullptr;
    std::exception_ptr failed;

    static int visit(void *job, void *argument) noexcept {
        auto &self = *static_cast<Sorting *>(argument);
        try {
            if (!self.protection->covers(id_of(job)))
                self.lists->append(self.allowed, job);
            return 0;
        } catch (...) {
            self.failed = std::current_exception();
            return -1;
        }
    }
};

} // namespace

hooks::Candidates Shield::candidates(const hooks::JobTest &test) {
    hooks::Candidates all(test.preemption_candidates, [](hooks::List *) noexcept {});
    const auto protection = protection_.load();
    if (test.preemption_candidates == nullptr || !protection)
        return all;
    switch (protection->spared_for(id_of(test.job), std::time(nullptr))) {
    case Spared::kNobody:
        return all;
    case Spared::kAll:
        return {nullptr, all.get_deleter()};
    case Spared::kCovered:
        break;
    }
    hooks::Candidates allowed(lists_.create(nullptr), lists_.destroy);
    Sorting sorting{
        .lists = &lists_, .protection = protection.get(), .allowed = allowed.get(), .failed = nullptr};
    lists_.for_each(test.preemption_candidates, Sorting::visit, &sorting);
    if (sorting.failed)
        std::rethrow_exception(sorting.failed);
    if (lists_.count(allowed.get()) == 0)
        return {nullptr, all.get_deleter()};
    return allowed;
}

std::optional<std::chrono::milliseconds> ProtectionReader::step() noexcept {
    try {
        const auto looked = look();
        const auto now = looked ? std::string() : looked.error().message();
        if (!now.empty() && now != trouble_)
            kLog.error("Slurm's own preemption knows nothing of singularity-planner's plans: {}", now);
        trouble_ = now;
    } catch (const std::exception &exception) {
        kLog.error("cannot read {}: {}", path_.native(), exception.what());
    }
    return kEvery;
}

Expected<void> ProtectionReader::look() {
    struct stat status{};
    if (::stat(path_.c_str(), &status) != 0) {
        if (errno != ENOENT)
            return std::unexpected(errno_error("read", path_.native()));
        // There is no planner, or it has ended.
        if (version_ != Version())
            shield_.learn({});
        version_ = {};
        return {};
    }
    const Version version{
        .inode = status.st_ino, .second = status.st_mtim.tv_sec, .nanosecond = status.st_mtim.tv_nsec};
    if (version == version_)
        return {};
    auto text = read_trusted_file(path_, kMostProtection);
    if (!text)
        return propagate(text);
    auto protection = Protection::parse(*text, path_.native());
    if (!protection)
        return propagate(protection);
    shield_.learn(std::move(*protection));
    version_ = version;
    return {};
}

} // namespace singularity
