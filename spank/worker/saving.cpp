// SPDX-License-Identifier: GPL-2.0-or-later
#include "saving.hpp"

#include "common/text.hpp"
#include "criu-hooks/host/transfer.hpp"
#include "device_store.hpp"
#include "files.hpp"
#include "host_node.hpp"
#include "image_mark.hpp"
#include "local_files.hpp"
#include "log.hpp"
#include "node/process.hpp"
#include "proxy/barrier/messages.hpp"
#include "task_places.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <span>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <pwd.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::worker {

namespace {

using namespace std::chrono_literals;
using Clock = Deadline::Clock;

constexpr auto kDevicesPatience = 600s;
constexpr auto kDumpPatience = 600s;
constexpr auto kImagePatience = 30s; // for a file system that is slow: what has been seen by then counts
constexpr auto kStorePatience = 3600s;
constexpr auto kMarkPatience = 10s;
constexpr auto kHangUpPatience = 10s; // the init belongs to the user
constexpr auto kListenPatience = 10s; // for a proxy to listen
constexpr auto kLocalPatience = 600s;
constexpr unsigned kMebibyteBits = 20;
constexpr unsigned kGibibyteBits = 30;

} // namespace

std::uint64_t microseconds(Clock::duration span) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(span).count());
}

std::string user_name(uid_t uid) {
    const passwd *const entry = ::getpwuid(uid); // NOLINT(concurrency-mt-unsafe): before any thread
    return entry != nullptr ? entry->pw_name : std::to_string(uid);
}

Saving::Saving(const agent::WorkSave &job, AgentLink &agent)
    : job_(job), agent_(agent), room_(job.place.state, job.record.spec.name), devices_(job.record, room_) {}

Expected<void> Saving::begin() {
    auto settings = config::load_or_default(config::default_path());
    if (!settings)
        return propagate(settings);
    files_ = settings->files;
    local_quota_ = static_cast<std::uint64_t>(settings->local_directories.quota_gib) << kGibibyteBits;
    auto mark = Mark::make(room_, Deadline::after(kMarkPatience));
    if (!mark)
        return propagate(mark);
    mark_.emplace(std::move(*mark));
    if (auto seen = look_at_image(); !seen)
        return seen;
    return await_hang_up(job_.record, Deadline::after(kHangUpPatience));
}

// Once, and before the program stands still: it takes its time.
Expected<void> Saving::look_at_image() {
    if (!job_.record.spec.image.any() || image_)
        return {};
    auto marked = image_mark(job_.record, agent_, Deadline::after(kImagePatience));
    if (!marked)
        return propagate(marked);
    image_ = std::move(*marked);
    return {};
}

Expected<void> Saving::prepare() {
    staging_.reset();
    auto staging = host::Staging::make(job_.place.staging);
    if (!staging)
        return propagate(staging);
    staging_ = std::make_unique<host::Staging>(std::move(*staging));
    if (!devices_.any())
        return {};
    return devices_.prepare(staging_->directory(), agent_, Deadline::after(kDevicesPatience));
}

Expected<void> Saving::stop_ranks() {
    begun_ = Clock::now();
    if (!devices_.any())
        return {};
    auto barrier = devices_.stop_ranks(agent_);
    if (!barrier)
        return propagate(barrier);
    barrier_.emplace(std::move(*barrier));
    return {};
}

Expected<agent::WorkReports> Saving::round(const agent::WorkRound &round) {
    begun_ = Clock::now(); // the last one is the one that stops the last rank
    agent::WorkReports out;
    if (!devices_.any())
        return out;
    const std::chrono::milliseconds patience(std::min<std::uint64_t>(round.patience_ms, 60'000));
    if (!barrier_) {
        auto opened = devices_.barrier(Deadline::after(kListenPatience));
        if (!opened)
            return propagate(opened);
        barrier_.emplace(std::move(*opened));
    }
    auto otherwise = barrier::decode_request(std::as_bytes(std::span(round.otherwise)));
    if (!otherwise)
        return propagate(otherwise);
    std::map<barrier::Key, barrier::Request> requests;
    for (const auto &one : round.requests) {
        auto request = barrier::decode_request(std::as_bytes(std::span(one.bytes)));
        if (!request)
            return propagate(request);
        requests.emplace(barrier::Key{.words = {one.high, one.low}}, std::move(*request));
    }
    auto reports = barrier_->round(requests, *otherwise, patience);
    if (!reports)
        return propagate(reports);
    for (const auto &report : *reports) {
        const auto bytes = barrier::encode(report);
        const auto *const text = reinterpret_cast<const char *>(bytes.data());
        out.reports.push_back({.high = report.process.words[0],
                               .low = report.process.words[1],
                               .bytes = {text, text + bytes.size()}});
    }
    return out;
}

Expected<void> Saving::cut(agent::ImageReport &report) {
    touched_ = true;
    // Gates of clients that have been let go of do not hear that it has ended.
    const auto barrier = std::exchange(barrier_, std::nullopt);
    if (devices_.any()) {
        if (auto hidden = devices_.hide(); !hidden)
            return hidden;
        auto saved = devices_.save(staging_->directory(), agent_, Deadline::after(kDevicesPatience));
        if (!saved)
            return propagate(saved);
        report.devices_bytes = saved->bytes;
        report.memory_bytes = saved->memory;
        report.device_bytes = saved->device;
    }
    auto outside = outside_of(job_.record);
    if (!outside)
        return propagate(outside);
    // The host image has a directory of its own: all of that is restored by CRIU.
    const auto images = staging_->path() / "host";
    if (mkdir(images.c_str(), 0700) != 0)
        return std::unexpected(errno_error("make", images.native()));
    auto directory = open_file(images, O_RDONLY | O_DIRECTORY);
    if (!directory)
        return propagate(directory);
    const bool runs_on =
        job_.go_on && !devices_.any() && job_.part_of.empty() && job_.record.spec.local.empty();
    const auto context = context_of(job_.record.spec, agent_, "saving processes");
    auto dumped = host::dump(
        context,
        {.init = job_.record.init.pid,
         .images = directory->get(),
         .descriptors = std::move(outside->descriptors),
         .mounts = mounts_in(job_.record, room_),
         .afterwards = runs_on ? host::Afterwards::kRun : host::Afterwards::kStop,
         .local_directories = {},
         .neighbours = job_.part_of.empty() ? std::vector<std::string>() : neighbours_of(job_.record.spec),
         .others_are_reset = has_way_out(job_.record.spec),
         .goes_on = job_.go_on,
         .owner = owner_of(job_.record.spec),
         .since = job_.record.made,
         .largest_copy = static_cast<std::uint64_t>(files_.largest_copy_mib) << kMebibyteBits,
         .all_copies = static_cast<std::uint64_t>(files_.all_copies_mib) << kMebibyteBits},
        Deadline::after(kDumpPatience));
    if (!dumped) {
        lost_ = dumped.error().code == host::kNodeLost;
        return propagate(dumped);
    }
    // Its init cannot tell of a rank that ends while it is saved. A checkpoint without that rank would take
    // the place of one with it, and the job that is restored from it would fail.
    const auto has_ended = [&](std::int32_t task) {
        return std::ranges::find(dumped->alive, task) == dumped->alive.end();
    };
    if (!job_.part_of.empty() && std::ranges::any_of(job_.tasks, has_ended))
        return failure("save", job_.record.spec.name, "one of its tasks has just ended", EAGAIN);
    written_ = std::move(dumped->written);
    for (const auto &name : dumped->not_copied)
        add_notice(report,
                   fmt::format("{} is open for writing and too large to be copied into the checkpoint "
                               "(files.largest_copy_mib, files.all_copies_mib): if what it holds now "
                               "is changed later, a restore cannot undo that",
                               quote(name)));
    auto origin = save_local(job_.record, local_quota_, dumped->written_in_kept, directory->get(), agent_,
                             Deadline::after(kLocalPatience),
                             [&report](std::string text) { add_notice(report, std::move(text)); });
    if (!origin)
        return propagate(origin);
    local_origin_ = *std::move(origin);
    if (image_ && image_->mark.empty())
        add_notice(report,
                   fmt::format("the image {} could not be looked at: a restore of this checkpoint cannot "
                               "tell whether it is still the same ({})",
                               quote(job_.record.spec.image.directory), image_->why));
    if (!job_.part_of.empty())
        if (auto placed = save_task_places(job_, *dumped, directory->get()); !placed)
            return placed;
    report.host_bytes = dumped->bytes;
    report.processes = dumped->processes;
    // The agent writes no more of it until the node runs again.
    return copy_logs(room_.path(), images);
}

Expected<void> Saving::store_images(store::Writer &writer) {
    const auto &name = job_.record.spec.name;
    const auto deadline = Deadline::after(kStorePatience);
    agent_.progress("writing the program's files to the disk");
    if (auto on_disk =
            host::write_to_disk(std::exchange(written_, {}), [this] { return agent_.still_wanted(); });
        !on_disk)
        return on_disk;
    for (std::uint32_t device = 0; device < devices_.devices(); ++device) {
        const auto file = Devices::file(devices_.proxy_of(device));
        const UniqueFd stream(openat(staging_->directory(), file.c_str(), O_RDONLY | O_CLOEXEC));
        if (!stream)
            return std::unexpected(errno_error("open", file));
        const DeviceShare share{
            .device = device, .devices = devices_.devices(), .proxies = devices_.proxies()};
        auto stored = store_device(stream.get(), share, writer, name, deadline, [&](std::uint64_t) {
            agent_.progress("storing devices", writer.progress().given);
            return agent_.still_wanted();
        });
        if (!stored)
            return stored;
    }
    agent_.progress("storing processes", writer.progress().given);
    auto directory = open_file(staging_->path() / "host", O_RDONLY | O_DIRECTORY);
    if (!directory)
        return propagate(directory);
    return host::save(directory->get(), writer, name, cuts_of_local(directory->get()));
}

Expected<void> Saving::describe(store::Writer &writer) {
    if (auto looked = look_at_image(); !looked)
        return looked;
    auto record = job_.record;
    record.spec.local_origin = local_origin_;
    store::Attributes attributes{{kRecord, node::encoded(record)}};
    if (image_)
        attributes.emplace_back(kImage, image_->mark);
    if (!job_.part_of.empty())
        attributes.emplace_back(kRanks, std::string(job_.ranks.begin(), job_.ranks.end()));
    return writer.describe(record.spec.name, {}, attributes);
}

Expected<void> Saving::resume() {
    if (devices_.any()) {
        if (auto brought = devices_.resume(Deadline::after(kDevicesPatience)); !brought)
            return brought;
        if (auto shown = devices_.show(); !shown)
            return shown;
    }
    if (auto resumed = host::resume(job_.record.init.pid); !resumed)
        return resumed;
    if (auto attached = devices_.await_clients(job_.record.init.pid, agent_); !attached)
        return attached;
    touched_ = false;
    return {};
}

void Saving::undo() {
    barrier_.reset();
    if (!touched_ || lost_)
        return;
    if (auto resumed = resume(); !resumed) {
        kLog.error("{}: {}: it is of no use any more", job_.record.spec.name, resumed.error().message());
        lost_ = true;
    }
}

void Saving::end() {
    staging_.reset();
    if (mark_)
        if (auto removed = mark_->remove(); !removed)
            kLog.error("{}", removed.error().message());
}

void Saving::leave() { staging_.reset(); }

} // namespace singularity::worker
