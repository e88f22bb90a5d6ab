// SPDX-License-Identifier: GPL-2.0-or-later
#include "records.hpp"

#include "common/slurm/note.hpp"
#include "subject.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <ctime>
#include <set>
#include <type_traits>

#include <fmt/format.h>

namespace singularity::planner {

namespace {

static_assert(std::is_trivially_copyable_v<Record>);

// In front of the records. Another layout has another size or version: what it says is not used.
struct Heading {
    std::array<char, 8> magic{'s', 'i', 'n', 'g', 'p', 'l', 'a', 'n'};
    std::uint32_t version = 3;
    std::uint32_t size_of_record = sizeof(Record);
    std::uint64_t records = 0;
    std::uint64_t sum = 0;
    bool operator==(const Heading &) const = default;
};

// FNV-1a: against a file that was cut off or is another's, not against people: it belongs to root.
std::uint64_t sum_of(std::string_view bytes) {
    std::uint64_t sum = 14695981039346656037ULL;
    for (const char byte : bytes)
        sum = (sum ^ static_cast<unsigned char>(byte)) * 1099511628211ULL;
    return sum;
}

policy::Milliseconds milliseconds(std::time_t seconds) {
    return policy::Milliseconds{seconds} * policy::kSecond;
}

// When it went on, or began: what it has done before in this run was done by its last one. now: it has not
// yet.
policy::Milliseconds ready(const slurm::Job &job, policy::Milliseconds now) {
    const auto note = slurm::Note::parse(job.admin_comment).value_or(slurm::Note());
    const auto started = milliseconds(job.started);
    if (job.restarts == 0 || !range_of(job))
        return started;
    const auto resumed = note.number("resumed");
    const auto when = resumed ? milliseconds(static_cast<std::time_t>(*resumed)) : 0;
    return when < started ? now : when;
}

policy::Fraction speed_now(const slurm::Job &job, std::span<const policy::Size> sizes) {
    const auto has = gpus_of(job);
    for (const auto &size : sizes)
        if (size.gpus == has)
            return size.speed;
    return policy::kOne;
}

void advance(Record &record, const slurm::Job &job, std::span<const policy::Size> sizes,
             policy::Milliseconds now) {
    if (!job.running) {
        record.ledger.advance(now, 0, 0);
        return;
    }
    const auto from = std::min(now, ready(job, now));
    const auto gpus = gpus_of(job);
    if (record.ledger.until() < from)
        record.ledger.advance(from, 0, gpus);
    record.ledger.advance(now, speed_now(job, sizes), gpus);
}

void see_to_move(Record &record, const slurm::Job &job, policy::Milliseconds now) {
    if (record.moving_until == 0)
        return;
    const bool again = job.restarts != record.runs;
    const bool runs = job.running && again && ready(job, now) < now;
    const bool waits = job.pending && !job.completing && again &&
                       (record.moving_to == 0 || job.waiting == slurm::Waiting::kForSize);
    if (runs)
        record.cost = std::max<policy::Milliseconds>(policy::kSecond, ready(job, now) - record.moving_since);
    if (runs || waits || now >= record.moving_until)
        record.moving_until = 0;
}

// A size that was given to it, and with which Slurm does not let it start, is taken back by what follows: it
// is planned for with less.
void see_to_limits(Record &record, const slurm::Job &job, policy::Milliseconds now) {
    const bool settled = record.resized != 0 && now - record.resized >= kSettled;
    if (job.pending && job.waiting == slurm::Waiting::kForSize && settled) {
        record.refused = gpus_of(job);
        record.refused_until = now + kRefused;
    } else if (now >= record.refused_until) {
        record.refused = 0;
        record.refused_until = 0;
    }
    if (job.running && record.moving_until == 0)
        record.resized = 0;
}

} // namespace

void Records::look(std::span<const slurm::Job> jobs, policy::Milliseconds now) {
    std::set<std::uint64_t> there;
    for (const auto &job : jobs) {
        if (!job.running && !job.pending && job.fate != slurm::Fate::kStays)
            continue;
        if (gpus_of(job) == 0)
            continue;
        there.insert(job.id);
        auto found = records_.find(job.id);
        if (found == records_.end()) {
            // One that waits for other things than room is not eligible, whatever Slurm's record says.
            const bool eligible = job.running || job.waiting == slurm::Waiting::kForRoom;
            if (!eligible)
                continue;
            auto since = job.eligible > 0 ? milliseconds(job.eligible) : now;
            if (job.running && since > milliseconds(job.started))
                since = milliseconds(job.started);
            found =
                records_
                    .emplace(job.id, Record{.job = job.id, .ledger = policy::Ledger(std::min(since, now))})
                    .first;
        }
        auto &record = found->second;
        record.speeds.look(job, gpus_of(job));
        advance(record, job, sizes_of(job), now);
        see_to_move(record, job, now);
        see_to_limits(record, job, now);
        if (job.running) {
            record.yielded = false;
            record.offered = 0;
            record.excused_until = 0;
        } else if (record.excused_until != 0 && now >= record.excused_until) {
            record.excused_until = 0;
        }
    }
    std::erase_if(records_, [&](const auto &entry) { return !there.contains(entry.first); });
    std::erase_if(targets_, [&](const auto &entry) {
        const auto *const record = find(entry.first);
        return record == nullptr || record->moving_until == 0;
    });
}

std::vector<policy::Size> Records::sizes_of(const slurm::Job &job) const {
    const auto found = records_.find(job.id);
    if (found == records_.end())
        return planner::sizes_of(job, Speeds(), allowed_);
    const auto &record = found->second;
    auto allowed = allowed_;
    if (record.refused > 0)
        allowed.most = std::min(allowed.most, job.pending ? record.refused / 2 : gpus_of(job));
    return planner::sizes_of(job, record.speeds, allowed);
}

std::vector<slurm::GpuShare> Records::target_of(std::uint64_t job) const {
    const auto found = targets_.find(job);
    return found == targets_.end() ? std::vector<slurm::GpuShare>() : found->second;
}

Record *Records::find(std::uint64_t job) {
    const auto found = records_.find(job);
    return found == records_.end() ? nullptr : &found->second;
}

std::string Records::write() const {
    std::string body(records_.size() * sizeof(Record), '\0');
    std::size_t at = 0;
    for (const auto &[job, record] : records_) {
        std::memcpy(body.data() + at, &record, sizeof(Record));
        at += sizeof(Record);
    }
    Heading heading;
    heading.records = records_.size();
    heading.sum = sum_of(body);
    std::string out(sizeof(Heading), '\0');
    std::memcpy(out.data(), &heading, sizeof(Heading));
    return out + body;
}

Expected<void> Records::read(std::string_view bytes, std::string_view name) {
    const auto wrong = [&](const std::string &why) {
        return failure("use", std::string(name),
                       why + ": the ledgers of all jobs begin anew; remove the file if it stays", EBADMSG);
    };
    Heading heading;
    if (bytes.size() < sizeof(Heading))
        return wrong(fmt::format("it has {} bytes and no heading", bytes.size()));
    std::memcpy(&heading, bytes.data(), sizeof(Heading));
    const auto body = bytes.substr(sizeof(Heading));
    Heading expected;
    expected.records = body.size() / sizeof(Record);
    expected.sum = sum_of(body);
    if (heading != expected || body.size() % sizeof(Record) != 0)
        return wrong("it is cut off, damaged, or of another version of the planner");
    std::map<std::uint64_t, Record> found;
    for (std::size_t at = 0; at < body.size(); at += sizeof(Record)) {
        Record record;
        std::memcpy(static_cast<void *>(&record), body.data() + at, sizeof(Record));
        found.emplace(record.job, record);
    }
    records_ = std::move(found);
    return {};
}

} // namespace singularity::planner
