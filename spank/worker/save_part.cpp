// SPDX-License-Identifier: GPL-2.0-or-later
// A node's part of a checkpoint of a job. It does one step after the other, each when the agent says so, whom
// the job's coordinator asks. As long as its part is not delivered nobody can commit the checkpoint, so it
// may undo what it has done whenever something fails, its agent included. From then on it stands still, if
// the node is not to go on, until it is told what has become of the checkpoint.
#include "jobs.hpp"
#include "log.hpp"
#include "saving.hpp"

#include <chrono>
#include <optional>

namespace singularity::worker {

namespace {

using namespace std::chrono_literals;
using agent::PartStep;

// The agent ends its side if the coordinator is not heard of.
constexpr auto kStepPatience = 2h;

class Part {
  public:
    Part(const agent::WorkSave &job, AgentLink &agent) : job_(job), agent_(agent), saving_(job, agent) {}

    Outcome run() {
        report_.node = job_.record.spec.name;
        auto done = work();
        if (!done && delivered_) {
            kLog.warning("{}: {}; what becomes of the virtual node is the job's to say",
                         job_.record.spec.name, done.error().message());
            saving_.leave();
            return {.report = std::unexpected(std::move(done.error())), .told = true};
        }
        if (!done)
            saving_.undo();
        saving_.end();
        if (!done)
            return {.report = std::unexpected(std::move(done.error())), .lost = saving_.lost()};
        return {.report = report_};
    }

  private:
    Expected<void> work() {
        if (auto begun = saving_.begin(); !begun)
            return begun;
        if (auto prepared = saving_.prepare(); !prepared)
            return prepared;
        if (auto told = agent_.tell(agent::WorkStepped{}); !told)
            return told;
        while (!over_) {
            auto packet = agent_.receive(Deadline::after(kStepPatience));
            if (!packet)
                return propagate(packet);
            auto done = take(*packet);
            if (!done)
                return done;
        }
        return {};
    }

    Expected<void> take(const node::Packet &packet) {
        if (const auto round = node::decode<agent::WorkRound>(packet.bytes)) {
            auto reports = saving_.round(*round);
            return reports ? agent_.tell(*reports) : propagate(reports);
        }
        const auto step = node::decode<agent::WorkStep>(packet.bytes);
        if (!step)
            return failure("understand", "the agent", "it says something else", EPROTO);
        switch (step->step) {
        case PartStep::hold: {
            auto cut = saving_.cut(report_);
            return cut ? agent_.tell(agent::WorkStepped{}) : cut;
        }
        case PartStep::resume: {
            auto resumed = saving_.resume();
            report_.pause_us = microseconds(saving_.pause());
            return resumed ? agent_.tell(agent::WorkRunning{}) : resumed;
        }
        case PartStep::store:
            return store();
        case PartStep::let_go:
            over_ = true;
            delivered_ = false;
            saving_.undo();
            return saving_.lost()
                       ? failure("let go on", job_.record.spec.name, "it is of no use any more", ECHILD)
                       : Expected<void>();
        }
        return failure("understand", "the agent", "it asks for a step that is none", EPROTO);
    }

    Expected<void> store() {
        auto opened = open_store(job_.store, false);
        if (!opened)
            return propagate(opened);
        auto writer = opened->join(job_.record.spec.uid, job_.part_of);
        if (!writer)
            return propagate(writer);
        if (auto described = saving_.describe(*writer); !described)
            return described;
        if (auto stored = saving_.store_images(*writer); !stored)
            return stored;
        report_.stored_bytes = writer->progress().stored;
        auto name = writer->leave_part();
        if (!name)
            return propagate(name);
        if (!job_.go_on)
            report_.pause_us = microseconds(saving_.pause());
        delivered_ = !job_.go_on; // one that runs again has nothing to wait for
        return agent_.tell(agent::WorkPart{.name = *name, .report = report_});
    }

    const agent::WorkSave &job_;
    AgentLink &agent_;
    Saving saving_;
    agent::ImageReport report_;
    bool delivered_ = false;
    bool over_ = false;
};

} // namespace

Outcome save_part(const agent::WorkSave &job, AgentLink &agent) { return Part(job, agent).run(); }

} // namespace singularity::worker
