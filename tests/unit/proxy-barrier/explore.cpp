// SPDX-License-Identifier: GPL-2.0-or-later
// Every interleaving of small jobs with the barrier, on the code that runs: GateState and Coordinator.
//
// What is shown of every state that can be reached: when the coordinator says that the cut is there, nothing
// is half issued, whatever was issued can complete, and nobody can issue anything; from everywhere a cut can
// still be reached; and after it, once the gates are open, the job runs to its end. Two events a job, and
// some longer ones; SINGULARITY_TEST_EVENTS=3: every job of three, which takes minutes.
#include "cmocka.hpp"
#include "proxy/barrier/coordinator.hpp"
#include "proxy/barrier/gate_state.hpp"
#include "small_job.hpp"

#include <algorithm>
#include <cstdlib>
#include <functional>
#include <map>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace singularity;
using barrier::Coordinator;
using barrier::GateState;
using barrier::Kind;
using barrier::Line;
using barrier::Request;
using test::Job;
using test::kRanks;
using test::Step;

// A round may end without an answer that is settled although somebody could go on: he is slow. So often.
constexpr unsigned kMostDelays = 1;
// More than any job here has, unless rounds go on for ever.
constexpr std::size_t kMostStates = 300'000;

struct Process {
    std::size_t at = 0; // of its steps
    GateState gate;
    std::optional<Request> request; // on its way to it
    std::optional<barrier::Report> report;
    std::array<unsigned, kRanks> told{}; // messages from others that it has not read
    auto operator<=>(const Process &) const = default;
};

struct World {
    std::array<Process, kRanks> processes;
    Coordinator coordinator{1};
    unsigned delays = 0;
    bool complete = false;
    auto operator<=>(const World &) const = default;
};

// What makes a coordinator wrong, to see that this is noticed.
enum class Fault : std::uint8_t { none, stops_at_once, overlooks_pairs };

class Exploration {
  public:
    explicit Exploration(const Job &job, Fault fault = Fault::none) : job_(job), fault_(fault) {}

    // What is wrong, if anything.
    std::optional<std::string> run() {
        World first;
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
            auto &process = first.processes[rank];
            process.gate.join({.communicator = test::kAll, .rank = rank, .size = kRanks});
            if (rank < 2)
                process.gate.join({.communicator = test::kPair, .rank = rank, .size = 2});
            process.request = first.coordinator.first();
        }
        number_of(first, 0);
        for (std::size_t at = 0; at < worlds_.size(); ++at) {
            const World world = *worlds_[at];
            if (world.complete) {
                if (auto wrong = wrong_cut(world))
                    return wrong;
                good_.push_back(at);
                continue;
            }
            for_each_next(world, [&](const World &next) { number_of(next, at); });
            if (failure_)
                return failure_;
            if (worlds_.size() > kMostStates)
                return fmt::format("rounds without an end: {}", world.coordinator.behind());
        }
        return stuck();
    }
    [[nodiscard]] std::size_t states() const { return worlds_.size(); }

  private:
    void number_of(const World &world, std::size_t from) {
        const auto [entry, fresh] = numbers_.emplace(world, worlds_.size());
        if (fresh) {
            worlds_.push_back(&entry->first);
            before_.emplace_back();
        }
        before_[entry->second].push_back(from);
    }

    [[nodiscard]] const Step *next_step(const World &world, std::uint32_t rank) const {
        const auto at = world.processes[rank].at;
        return at < job_[rank].size() ? &job_[rank][at] : nullptr;
    }

    // How many of a line a rank has issued in its first steps.
    [[nodiscard]] unsigned issued(const World &world, std::uint32_t rank, const Line &line) const {
        unsigned number = 0;
        for (std::size_t at = 0; at < world.processes[rank].at; ++at)
            number += static_cast<unsigned>(std::ranges::count(job_[rank][at].group, line));
        return number;
    }

    // The lines that must have been issued as often for an operation of this one to complete.
    static std::vector<Line> partners(const Line &line) {
        if (line.kind != Kind::collective)
            return {{.communicator = line.communicator,
                     .rank = line.peer,
                     .peer = line.rank,
                     .kind = line.kind == Kind::send ? Kind::receive : Kind::send}};
        std::vector<Line> all;
        all.reserve(kRanks);
        for (std::uint32_t rank = 0; rank < (line.communicator == test::kAll ? kRanks : 2); ++rank)
            all.push_back({.communicator = line.communicator, .rank = rank});
        return all;
    }

    [[nodiscard]] bool all_complete(const World &world, std::uint32_t rank) const {
        for (std::size_t at = 0; at < world.processes[rank].at; ++at)
            for (const auto &line : job_[rank][at].group)
                for (const auto &partner : partners(line))
                    if (issued(world, partner.rank, partner) < issued(world, rank, line))
                        return false;
        return true;
    }

    [[nodiscard]] bool can_step(const World &world, std::uint32_t rank) const {
        const auto *step = next_step(world, rank);
        if (step == nullptr)
            return false;
        const auto &process = world.processes[rank];
        switch (step->what) {
        case Step::What::issue:
            return process.gate.may_pass();
        case Step::What::sync:
            return all_complete(world, rank);
        case Step::What::tell:
            return true;
        case Step::What::be_told:
            return process.told[step->peer] > 0;
        }
        return false;
    }

    [[nodiscard]] bool anybody_can_step(const World &world) const {
        for (std::uint32_t rank = 0; rank < kRanks; ++rank)
            if (can_step(world, rank))
                return true;
        return false;
    }

    void take_step(World &world, std::uint32_t rank) const {
        auto &process = world.processes[rank];
        const auto &step = job_[rank][process.at];
        ++process.at;
        if (step.what == Step::What::issue)
            process.gate.pass(step.group);
        else if (step.what == Step::What::tell)
            ++world.processes[step.peer].told[rank];
        else if (step.what == Step::What::be_told)
            --process.told[step.peer];
    }

    [[nodiscard]] bool held(const World &world, std::uint32_t rank) const {
        const auto *step = next_step(world, rank);
        return step != nullptr && step->what == Step::What::issue && !world.processes[rank].gate.may_pass();
    }

    void for_each_next(const World &world, const std::function<void(const World &)> &found) {
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
            const auto &process = world.processes[rank];
            if (can_step(world, rank)) {
                World next = world;
                take_step(next, rank);
                found(next);
            }
            if (process.request) {
                World next = world;
                auto &changed = next.processes[rank];
                changed.gate.apply(*process.request, held(world, rank));
                changed.request.reset();
                found(next);
            } else if (!process.report && process.gate.round() == world.coordinator.round()) {
                const bool settled = process.gate.settled(0);
                const bool slow = !settled && anybody_can_step(world);
                if (!slow || world.delays < kMostDelays) {
                    World next = world;
                    auto &changed = next.processes[rank];
                    changed.report = changed.gate.report(held(world, rank), 0);
                    changed.report->process = test::key(100 + rank);
                    next.delays += slow ? 1 : 0;
                    found(next);
                }
            }
        }
        if (std::ranges::all_of(world.processes,
                                [](const auto &process) { return process.report.has_value(); }))
            decide(world, found);
    }

    void decide(const World &world, const std::function<void(const World &)> &found) {
        World next = world;
        std::vector<barrier::Report> reports;
        for (auto &process : next.processes) {
            reports.push_back(*process.report);
            if (fault_ == Fault::overlooks_pairs)
                std::erase_if(reports.back().issued,
                              [](const auto &count) { return count.line.kind != Kind::collective; });
            process.report.reset();
        }
        auto decision = next.coordinator.decide(reports);
        if (!decision) {
            failure_ = decision.error().message();
            return;
        }
        next.complete = decision->complete || fault_ == Fault::stops_at_once;
        if (!next.complete)
            for (std::uint32_t rank = 0; rank < kRanks; ++rank)
                next.processes[rank].request = decision->requests.at(test::key(100 + rank));
        found(next);
    }

    [[nodiscard]] std::optional<std::string> wrong_cut(World world) const {
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
            if (!all_complete(world, rank))
                return fmt::format("rank {} has issued what others have not", rank);
            if (world.processes[rank].gate.may_pass())
                return fmt::format("rank {} can still issue", rank);
        }
        for (auto &process : world.processes)
            process.gate.apply(world.coordinator.release(), false);
        for (bool moved = true; moved;) {
            moved = false;
            for (std::uint32_t rank = 0; rank < kRanks; ++rank)
                while (can_step(world, rank)) {
                    take_step(world, rank);
                    moved = true;
                }
        }
        for (std::uint32_t rank = 0; rank < kRanks; ++rank)
            if (next_step(world, rank) != nullptr)
                return fmt::format("after the cut rank {} does not come to its end", rank);
        return std::nullopt;
    }

    // A state from which no cut can be reached.
    [[nodiscard]] std::optional<std::string> stuck() const {
        std::vector<bool> reaches(worlds_.size());
        auto left = good_;
        while (!left.empty()) {
            const auto at = left.back();
            left.pop_back();
            if (reaches[at])
                continue;
            reaches[at] = true;
            left.insert(left.end(), before_[at].begin(), before_[at].end());
        }
        const auto lost = std::ranges::find(reaches, false);
        if (lost == reaches.end())
            return std::nullopt;
        std::string where;
        const auto &world = *worlds_[static_cast<std::size_t>(lost - reaches.begin())];
        for (const auto &process : world.processes)
            where += fmt::format(" {}", process.at);
        return fmt::format("no cut can be reached in round {}, where ranks are at step{}",
                           world.coordinator.round(), where);
    }

    Job job_;
    Fault fault_;
    std::map<World, std::size_t> numbers_;
    std::vector<const World *> worlds_;
    std::vector<std::vector<std::size_t>> before_;
    std::vector<std::size_t> good_;
    std::optional<std::string> failure_;
};

std::string name(const std::vector<unsigned> &events) {
    std::string text;
    for (const auto event : events)
        text += fmt::format(" {}{}", event / 2, event % 2 != 0 ? "s" : "");
    return text;
}

Job job_of(const std::vector<unsigned> &events) {
    Job job;
    for (const auto event : events)
        test::add(job, static_cast<test::Event>(event / 2), event % 2 != 0);
    return job;
}

constexpr unsigned kEvents = 2 * static_cast<unsigned>(test::Event::end); // each without and with waiting

struct Tally {
    std::size_t jobs = 0;
    std::size_t states = 0;
};

void explore(const std::vector<unsigned> &events, Tally &tally) {
    Exploration exploration(job_of(events));
    if (const auto wrong = exploration.run())
        test::fail(fmt::format("job{}: {}", name(events), *wrong));
    ++tally.jobs;
    tally.states += exploration.states();
}

// All sequences of so many events.
void every_short_job(void ** /*state*/) {
    const char *given = std::getenv("SINGULARITY_TEST_EVENTS");
    const auto length = given != nullptr ? std::strtoul(given, nullptr, 10) : 2UL;
    Tally tally;
    std::vector<unsigned> events(length);
    for (bool more = true; more;) {
        explore(events, tally);
        auto at = events.begin();
        while (at != events.end() && ++*at == kEvents)
            *at++ = 0;
        more = at != events.end();
    }
    print_message("%zu jobs, %zu states\n", tally.jobs, tally.states);
}

void longer_jobs_by_chance(void ** /*state*/) {
    if (std::getenv("SINGULARITY_TEST_EVENTS") != nullptr)
        test::skip("SINGULARITY_TEST_EVENTS says what is wanted");
    const char *given = std::getenv("SINGULARITY_TEST_SEED");
    const auto seed =
        given != nullptr ? static_cast<unsigned>(std::strtoul(given, nullptr, 10)) : std::random_device{}();
    print_message("seed %u\n", seed);
    std::mt19937 chance(seed);
    Tally tally;
    for (unsigned job = 0; job < 12; ++job) {
        std::vector<unsigned> events(3 + job % 3);
        for (auto &event : events)
            event = static_cast<unsigned>(chance() % kEvents);
        explore(events, tally);
    }
    print_message("%zu jobs, %zu states\n", tally.jobs, tally.states);
}

// The exploration would see these.
void wrong_coordinators_are_noticed(void ** /*state*/) {
    const auto job = job_of({0, 4});
    assert_false(Exploration(job).run().has_value());
    for (const auto fault : {Fault::stops_at_once, Fault::overlooks_pairs})
        assert_true(Exploration(job, fault).run().has_value());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(every_short_job),
        cmocka_unit_test(longer_jobs_by_chance),
        cmocka_unit_test(wrong_coordinators_are_noticed),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
