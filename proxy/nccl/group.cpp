// SPDX-License-Identifier: GPL-2.0-or-later
#include "group.hpp"

#include "common/thread_owned.hpp"
#include "data_types.hpp"
#include "membership.hpp"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <thread>
#include <utility>

#include <pthread.h>

namespace singularity::nccl {

namespace {

// The program's signals are for the program's threads.
template <class Body>
std::thread new_thread(const char *name, Body body) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name);
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    return thread;
}

Result do_job(const Job &job) {
    const auto result = job.run();
    // The lane may be the subject; where it is not, it goes on as it was.
    auto expected = Result::in_progress;
    if (job.subject != nullptr)
        job.subject->state.compare_exchange_strong(expected, result);
    expected = Result::in_progress;
    job.lane->state.compare_exchange_strong(expected, Result::success);
    return result;
}

using Lanes = std::vector<std::vector<Job>>;

Lanes lanes_of(std::vector<Job> jobs) {
    Lanes lanes;
    for (auto &job : jobs) {
        auto found = std::ranges::find(lanes, job.lane, [](const auto &lane) { return lane.front().lane; });
        if (found == lanes.end())
            found = lanes.insert(lanes.end(), std::vector<Job>());
        found->push_back(std::move(job));
    }
    return lanes;
}

Result do_lane(const std::vector<Job> &lane) {
    auto first = Result::success;
    for (const auto &job : lane)
        if (const auto result = do_job(job); first == Result::success)
            first = result;
    return first;
}

// What the gate counts of a part: a line for each operation but those of a rank with itself.
void add_lines_of(const Communicator &communicator, std::span<const protocol::CollectiveOperation> operations,
                  std::vector<barrier::Line> &lines) {
    for (const auto &operation : operations) {
        const auto kind = static_cast<Kind>(operation.kind);
        barrier::Line line{.communicator = {.words = communicator.key}, .rank = communicator.rank};
        if (is_point_to_point(kind)) {
            if (operation.peer == communicator.rank)
                continue;
            line.kind = kind == Kind::send ? barrier::Kind::send : barrier::Kind::receive;
            line.peer = operation.peer;
        }
        lines.push_back(line);
    }
}

// The communicator's next group, in as many messages as it takes.
Expected<void> post_group(Library &library, Communicator &communicator, std::uint64_t stream,
                          std::span<const protocol::CollectiveOperation> operations) {
    const std::scoped_lock lock(communicator.order);
    const auto group = ++communicator.groups;
    while (!operations.empty()) {
        const auto piece = operations.first(std::min(operations.size(), protocol::kMostCollectives));
        operations = operations.subspan(piece.size());
        if (auto posted = post(library.driver, communicator.place,
                               protocol::Message<protocol::IssueCollectives>{
                                   .fixed = {.communicator = communicator.number,
                                             .stream = stream,
                                             .group = group,
                                             .more = operations.empty() ? 0U : 1U},
                                   .buffers = {protocol::view_of_elements(piece)}});
            !posted)
            return posted;
    }
    return {};
}

// One communicator's operations of a group that was captured. A graph may outlive the communicator.
class CapturedPart final : public Captured {
  public:
    CapturedPart(Library &library, CommunicatorPointer communicator,
                 std::vector<protocol::CollectiveOperation> operations)
        : library_(library), communicator_(std::move(communicator)), operations_(std::move(operations)) {}

    const char *unusable() override {
        auto &communicator = *communicator_;
        if (library_.communicators.find(communicator.handle()) != communicator_)
            return said(
                Result::invalid_usage,
                "the communicator of a captured collective has been destroyed or aborted: capture the "
                "graph again, with one that is there");
        if (communicator.finalized || communicator.revoked)
            return said(Result::invalid_usage,
                        "the communicator of a captured collective has been finalized or "
                        "revoked: capture the graph again, with another one");
        if (communicator.suspended)
            return said(Result::invalid_usage,
                        "the communicator of a captured collective is suspended (see ncclCommResume)");
        const auto state = ready(library_, communicator);
        return state == Result::success ? nullptr
                                        : said(state, "the communicator of a captured collective has failed");
    }

    const char *issue(Stream stream) override {
        auto &communicator = *communicator_;
        const auto state = library_.driver.stream(communicator.place, stream);
        if (!state)
            return failed(state.error());
        std::vector<barrier::Line> lines;
        add_lines_of(communicator, operations_, lines);
        const Passage passage(library_.gate, lines);
        if (auto posted = post_group(library_, communicator, state->wire, operations_); !posted)
            return failed(posted.error());
        return nullptr;
    }

  private:
    static const char *said(Result result, const char *why) {
        note(fmt::format("{}: {}", why, text_of(result)));
        return last_error();
    }
    const char *failed(const Error &error) {
        communicator_->fail(Result::unhandled_cuda_error);
        note(error.message());
        return last_error();
    }

    Library &library_;
    CommunicatorPointer communicator_;
    std::vector<protocol::CollectiveOperation> operations_;
};

} // namespace

Group &Group::mine() { return ThreadOwned<Group>::mine(); }

Result Group::note(Result result) {
    if (result != Result::success && result != Result::in_progress)
        error_ = result;
    return result;
}

Result Group::agree_on_blocking(const Communicator &communicator) {
    if (blocking_.value_or(communicator.settings.blocking) != communicator.settings.blocking)
        return refuse(Result::invalid_argument,
                      "Blocking and nonblocking communicators are not allowed in the same group.");
    blocking_ = communicator.settings.blocking;
    return Result::success;
}

Result Group::add(Job job) {
    if (job.waits)
        blocking_ = true;
    else if (const auto bad = agree_on_blocking(job.subject != nullptr ? *job.subject : *job.lane);
             bad != Result::success) {
        job.drop();
        return bad;
    }
    jobs_.push_back(std::move(job));
    return Result::success;
}

Result Group::add(const CommunicatorPointer &communicator, Stream stream, const StreamState &state,
                  const protocol::CollectiveOperation &operation) {
    if (captured_.value_or(state.capturing) != state.capturing)
        return refuse(Result::invalid_usage,
                      "stream {} is {}being captured, and other streams of the group are{}: capture all of "
                      "them, or none",
                      fmt::ptr(stream), state.capturing ? "" : "not ", state.capturing ? " not" : "");
    captured_ = state.capturing;
    const auto wire = state.wire;
    auto part = std::ranges::find(parts_, communicator, &Part::communicator);
    if (part == parts_.end())
        part =
            parts_.insert(parts_.end(), Part{.communicator = communicator, .streams = {}, .operations = {}});
    if (std::ranges::find(part->streams, wire, &StreamUse::wire) == part->streams.end())
        part->streams.push_back({.stream = stream, .wire = wire});
    part->operations.push_back(operation);
    return Result::success;
}

Result Group::end(Library &library, Simulation *simulation) {
    if (depth_ == 0)
        return refuse(Result::invalid_usage, "ncclGroupEnd: not in a group call.");
    if (--depth_ > 0)
        return Result::success;
    // Whatever happens now, the thread's next group begins with nothing.
    const auto error = std::exchange(error_, Result::success);
    const bool blocking = std::exchange(blocking_, std::nullopt).value_or(true);
    auto jobs = std::exchange(jobs_, {});
    const auto parts = std::exchange(parts_, {});
    const bool captured = std::exchange(captured_, std::nullopt).value_or(false);
    if (error != Result::success) {
        for (const auto &job : jobs)
            job.drop();
        return error;
    }
    auto result = Result::success;
    if (!jobs.empty())
        result = blocking ? do_jobs(std::move(jobs)) : do_in_background(std::move(jobs));
    if (result != Result::success && result != Result::in_progress)
        return result;
    const auto issued = simulation != nullptr ? simulate(simulation, parts)
                        : captured            ? capture(library, parts)
                                              : issue(library, parts);
    return issued != Result::success ? issued : result;
}

Result Group::do_jobs(std::vector<Job> jobs) {
    const auto lanes = lanes_of(std::move(jobs));
    std::vector<std::thread> threads;
    std::vector<Result> results(lanes.size(), Result::success);
    for (std::size_t at = 1; at < lanes.size(); ++at)
        threads.push_back(new_thread("nccl-group", [&, at] { results[at] = do_lane(lanes[at]); }));
    results[0] = do_lane(lanes[0]);
    for (auto &thread : threads)
        thread.join();
    const auto failed = std::ranges::find_if(results, [](Result one) { return one != Result::success; });
    return failed == results.end() ? Result::success : *failed;
}

Result Group::do_in_background(std::vector<Job> jobs) {
    std::promise<void> done;
    const auto background = done.get_future().share();
    for (const auto &job : jobs)
        for (const auto &one : {job.lane, job.subject})
            if (one != nullptr) {
                one->state = Result::in_progress;
                const std::scoped_lock lock(one->background_lock);
                one->background = background;
            }
    new_thread("nccl-group", [all = std::move(jobs), done = std::move(done)]() mutable {
        static_cast<void>(do_jobs(std::move(all)));
        done.set_value();
    }).detach();
    return Result::in_progress;
}

Result Group::issue(Library &library, const std::vector<Part> &parts) {
    if (parts.empty())
        return Result::success;
    std::vector<barrier::Line> lines;
    for (const auto &part : parts)
        add_lines_of(*part.communicator, part.operations, lines);
    const Passage passage(library.gate, lines);
    auto result = Result::success;
    // A failure of one communicator is no reason to hold up the ranks that wait for the others.
    for (const auto &part : parts)
        if (const auto issued = issue(library, part); result == Result::success)
            result = issued;
    return result;
}

Result Group::issue(Library &library, const Part &part) {
    auto &communicator = *part.communicator;
    const auto failed = [&](const Error &error) {
        communicator.fail(Result::unhandled_cuda_error);
        return refuse(Result::unhandled_cuda_error, error);
    };
    // Operations of one group on several streams begin when all of these are there, and all wait for their
    // end.
    const auto &first = part.streams.front();
    const auto others = std::span(part.streams).subspan(1);
    for (const auto &other : others)
        if (auto ordered = library.driver.order(communicator.place, other.stream, first.stream); !ordered)
            return failed(ordered.error());
    if (auto posted = post_group(library, communicator, first.wire, part.operations); !posted)
        return failed(posted.error());
    for (const auto &other : others)
        if (auto ordered = library.driver.order(communicator.place, first.stream, other.stream); !ordered)
            return failed(ordered.error());
    return Result::success;
}

// Operations on several streams are one node of their graph, as they are one group.
Result Group::capture(Library &library, const std::vector<Part> &parts) {
    for (const auto &part : parts) {
        auto &communicator = *part.communicator;
        const auto &first = part.streams.front();
        const auto others = std::span(part.streams).subspan(1);
        Expected<void> done;
        for (const auto &other : others)
            if (done)
                done = library.driver.order(communicator.place, other.stream, first.stream);
        if (done)
            done = library.driver.capture(
                communicator.place, first.stream,
                std::make_unique<CapturedPart>(library, part.communicator, part.operations));
        for (const auto &other : others)
            if (done)
                done = library.driver.order(communicator.place, first.stream, other.stream);
        if (!done) // nothing was issued: the communicator is as it was
            return refuse(Result::unhandled_cuda_error, done.error());
    }
    return Result::success;
}

Result Group::simulate(Simulation *simulation, const std::vector<Part> &parts) {
    // A rough model of a collective between hosts: so long to begin, so many bytes in a microsecond.
    constexpr double kBegin = 20.0;
    constexpr double kBytesInMicrosecond = 10000.0;
    Simulation known{};
    std::size_t size = 0;
    std::memcpy(&size, simulation, sizeof(size));
    size = std::min(size, sizeof(known));
    std::memcpy(&known, simulation, size);
    if (known.magic != kSimulationMagic)
        return refuse(Result::invalid_argument,
                      "ncclSimInfo_t argument not initialized via NCCL_SIM_INFO_INITIALIZER");
    double longest = 0.0;
    for (const auto &part : parts) {
        double time = kBegin;
        for (const auto &operation : part.operations)
            time += static_cast<double>(operation.count) * static_cast<double>(kTypeSizes[operation.type]) /
                    kBytesInMicrosecond;
        longest = std::max(longest, time);
    }
    if (!parts.empty())
        known.estimated_time = static_cast<float>(longest);
    std::memcpy(simulation, &known, size);
    return Result::success;
}

} // namespace singularity::nccl
