// SPDX-License-Identifier: GPL-2.0-or-later
// ncclGroupStart and ncclGroupEnd: what a thread has asked for since, and how it is done together. Every call
// outside of a group is a group of its own.
#pragma once

#include "communicator.hpp"
#include "proxy/protocol/collective.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <vector>

namespace singularity::nccl {

// Something about a communicator as a whole: made, split, finalized. It may wait for other ranks, so those of
// a group are done side by side, but for those of one lane, which are done in the order of their calls.
struct Job {
    CommunicatorPointer lane;    // whose members take part
    CommunicatorPointer subject; // whose state the result is; may be the lane
    std::function<Result()> run;
    std::function<void()> drop; // the group has failed: it is not run
    bool waits = false;         // the call returns when it is done even where the communicator does not block
};

class Group {
  public:
    // The calling thread's.
    [[nodiscard]] static Group &mine();

    void start() { ++depth_; }
    // simulation: nothing is issued, and how long it would have taken is said there.
    [[nodiscard]] Result end(Library &library, Simulation *simulation = nullptr);
    // An error of a call within the group is what the group ends with; hands it back.
    Result note(Result result);
    // The same for errors of calls that do not get so far as to be a group of their own.
    Result note_if_open(Result result) { return depth_ > 0 ? note(result) : result; }

    [[nodiscard]] Result add(Job job);
    // stream: as the program gave it, and how it stands. What is captured is left to each launch of the
    // graph.
    [[nodiscard]] Result add(const CommunicatorPointer &communicator, Stream stream, const StreamState &state,
                             const protocol::CollectiveOperation &operation);

  private:
    struct StreamUse {
        Stream stream;
        std::uint64_t wire;
    };
    struct Part {
        CommunicatorPointer communicator;
        std::vector<StreamUse> streams; // the first is the one that the operations are put on
        std::vector<protocol::CollectiveOperation> operations;
    };

    [[nodiscard]] Result agree_on_blocking(const Communicator &communicator);
    [[nodiscard]] static Result do_jobs(std::vector<Job> jobs);
    [[nodiscard]] static Result do_in_background(std::vector<Job> jobs);
    [[nodiscard]] static Result issue(Library &library, const std::vector<Part> &parts);
    [[nodiscard]] static Result issue(Library &library, const Part &part);
    [[nodiscard]] static Result capture(Library &library, const std::vector<Part> &parts);
    [[nodiscard]] static Result simulate(Simulation *simulation, const std::vector<Part> &parts);

    int depth_ = 0;
    Result error_ = Result::success;
    std::optional<bool> blocking_; // of all communicators that jobs are about
    std::optional<bool> captured_; // whether all streams are
    std::vector<Job> jobs_;
    std::vector<Part> parts_;
};

// A call as a group of its own, or as a part of the one that has begun.
template <class Body>
[[nodiscard]] Result in_group(Library &library, Body body) {
    auto &group = Group::mine();
    group.start();
    const auto result = group.note(body(group));
    const auto ended = group.end(library);
    return ended != Result::success ? ended : result;
}

} // namespace singularity::nccl
