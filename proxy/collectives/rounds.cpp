// SPDX-License-Identifier: GPL-2.0-or-later
// Collectives, in rounds (shape.hpp). What one stages, who reduces and who takes what is a table
// (patterns.hpp); the rest is the same for all. In a round of a reduction each member reduces one segment of
// what all have staged, in the order of ranks: the result depends on nothing else.
#include "agreement.hpp"
#include "patterns.hpp"
#include "proxy/collectives/reduce.hpp"
#include "scaling.hpp"
#include "stage.hpp"
#include "task.hpp"

#include <algorithm>
#include <cstring>
#include <deque>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace singularity::collectives {

namespace {

using protocol::CollectiveKind;
using protocol::CollectiveOperation;

class Rounds final : public Task {
  public:
    Rounds(Desk &desk, const CollectiveOperation &operation)
        : desk_(desk), stage_(Stage::make(desk, Group::Part::rounds)), operation_(operation),
          pattern_(kPatterns[operation.kind]), element_(element_size(operation.type)),
          members_(desk.group.size()), blocks_(pattern_.block_for_each ? members_ : 1),
          stride_(kRoundBytes / blocks_ / kLine * kLine), most_(stride_ / element_), base_(desk.rounds),
          rounds_((operation.count + most_ - 1) / most_), stages_(is(pattern_.stages)),
          takes_(is(pattern_.takers) ? pattern_.takes : Takes::nothing), scaling_(operation, members_) {
        desk.rounds += rounds_;
    }

    [[nodiscard]] std::uint32_t lane() const override { return 0; }
    [[nodiscard]] bool done() const override { return consumed_ == rounds_; }
    [[nodiscard]] std::optional<std::uint64_t> waits_for() const override {
        std::optional<std::uint64_t> mark;
        for (const auto *marks : {&staging_marks_, &reducing_marks_, &taking_marks_})
            if (!marks->empty())
                mark = std::min(mark.value_or(marks->front()), marks->front());
        return mark;
    }
    [[nodiscard]] Expected<bool> advance() override;

  private:
    using Step = Expected<bool> (Rounds::*)();
    [[nodiscard]] Expected<bool> begin_staging();
    [[nodiscard]] Expected<bool> end_staging();
    [[nodiscard]] Expected<bool> begin_reducing();
    [[nodiscard]] Expected<bool> end_reducing();
    [[nodiscard]] Expected<bool> begin_taking();
    [[nodiscard]] Expected<bool> end_taking();

    [[nodiscard]] bool is(Who who) const {
        return who == Who::all || (who == Who::root && operation_.peer == desk_.rank);
    }
    // Elements of a block in the operation's nth round.
    [[nodiscard]] std::uint64_t length(std::uint64_t nth) const {
        return std::min<std::uint64_t>(most_, operation_.count - (nth * most_));
    }
    [[nodiscard]] std::uint64_t offset(std::uint64_t nth) const { return nth * most_ * element_; }
    // Where a block lies in the program's memory, by the number of the block.
    [[nodiscard]] std::uint64_t in_program(std::uint64_t memory, std::uint32_t block,
                                           std::uint64_t nth) const {
        return memory + (block * operation_.count * element_) + offset(nth);
    }
    [[nodiscard]] std::size_t staged_at(std::uint64_t nth, std::uint32_t block) const {
        return desk_.group.shape().staged_at(base_ + nth) + kHead + (block * stride_);
    }
    // The part of a staged block that a member reduces: in bytes. With a block for each it is that block.
    struct Segment {
        std::size_t at = 0;
        std::size_t size = 0;
    };
    [[nodiscard]] Segment segment(std::uint32_t member, std::uint64_t nth) const {
        const auto whole = length(nth) * element_;
        if (pattern_.block_for_each)
            return {.at = member * stride_, .size = whole};
        const auto each = Shape::up((whole + members_ - 1) / members_, kLine);
        const auto begin = std::min(whole, member * each);
        return {.at = begin, .size = std::min(whole, begin + each) - begin};
    }
    [[nodiscard]] RoundHead head(std::uint64_t nth) const {
        return head_of(operation_, base_ + nth, stage_->on_device() ? Payload::on_device : Payload::in_areas);
    }
    [[nodiscard]] Expected<void> check_same(std::uint32_t member, std::uint64_t nth) const {
        return collectives::check_same(desk_.group, desk_.rank, head(nth), member);
    }
    [[nodiscard]] Expected<void> take(std::uint32_t member, std::size_t at, std::size_t size,
                                      std::uint64_t to);
    void offer(std::uint64_t nth);
    void reduced(std::uint64_t nth);

    Desk &desk_;
    std::unique_ptr<Stage> stage_;
    CollectiveOperation operation_;
    Pattern pattern_;
    std::size_t element_;
    std::uint32_t members_;
    std::uint32_t blocks_;
    std::size_t stride_; // bytes from block to block in the staging area
    std::uint64_t most_; // elements of a block in one round
    std::uint64_t base_; // the communicator's number of the first round
    std::uint64_t rounds_;
    bool stages_;
    Takes takes_;
    Scaling scaling_;
    // How many of the rounds have got so far.
    std::uint64_t staging_ = 0;
    std::uint64_t staged_ = 0;
    std::uint64_t reducing_ = 0;
    std::uint64_t reduced_ = 0;
    std::uint64_t taking_ = 0;
    std::uint64_t consumed_ = 0;
    std::deque<std::uint64_t> staging_marks_;
    std::deque<std::uint64_t> reducing_marks_; // of reductions that end by themselves
    std::deque<std::uint64_t> taking_marks_;
};

Expected<bool> Rounds::advance() {
    constexpr std::array<Step, 6> kSteps{&Rounds::begin_staging,  &Rounds::end_staging,
                                         &Rounds::begin_reducing, &Rounds::end_reducing,
                                         &Rounds::begin_taking,   &Rounds::end_taking};
    if (auto ready = scaling_.get_ready(desk_.mover); !ready)
        return propagate(ready);
    bool moved = false;
    for (const auto step : kSteps)
        for (;;) {
            auto done = (this->*step)();
            if (!done)
                return done;
            if (!*done)
                break;
            moved = true;
        }
    return moved;
}

Expected<bool> Rounds::begin_staging() {
    if (staging_ == rounds_)
        return false;
    const auto round = base_ + staging_;
    if (round >= kDepth)
        if (auto there = all_have(desk_.group, kConsumed, round - kDepth + 1); !there || !*there)
            return there;
    if (stages_)
        for (std::uint32_t block = 0; block < blocks_; ++block) {
            const auto at = staged_at(staging_, block);
            auto begun =
                stage_->fetch(in_program(operation_.input, block, staging_), at, length(staging_) * element_);
            if (begun && scaling_.needed() && stage_->on_device())
                begun = stage_->scale(operation_.type, at, scaling_.scalar(), length(staging_));
            if (!begun)
                return propagate(begun);
        }
    auto mark = desk_.mover.mark();
    if (!mark)
        return propagate(mark);
    staging_marks_.push_back(*mark);
    ++staging_;
    return true;
}

Expected<bool> Rounds::end_staging() {
    if (staging_marks_.empty())
        return false;
    if (auto passed = desk_.mover.passed(staging_marks_.front()); !passed || !*passed)
        return passed;
    staging_marks_.pop_front();
    const auto nth = staged_++;
    if (!stages_)
        return true;
    if (scaling_.needed() && !stage_->on_device())
        for (std::uint32_t block = 0; block < blocks_; ++block)
            if (auto scaled =
                    stage_->scale(operation_.type, staged_at(nth, block), scaling_.scalar(), length(nth));
                !scaled)
                return propagate(scaled);
    say(desk_.group, desk_.rank, head(nth));
    offer(nth);
    desk_.group.publish(desk_.rank, kStaged, base_ + staged_);
    return true;
}

// To distant members: each gets what it will read.
void Rounds::offer(std::uint64_t nth) {
    auto &group = desk_.group;
    const auto whole = length(nth) * element_;
    if (!pattern_.reduces && !pattern_.block_for_each) {
        group.offer(desk_.rank, staged_at(nth, 0), whole,
                    pattern_.takers == Who::root ? operation_.peer : Group::kEverybody);
        return;
    }
    for (std::uint32_t member = 0; member < members_; ++member) {
        const auto part = segment(member, nth);
        group.offer(desk_.rank, staged_at(nth, 0) + part.at, part.size, member);
    }
}

Expected<bool> Rounds::begin_reducing() {
    if (reducing_ == staged_)
        return false;
    const auto nth = reducing_;
    const auto mine = segment(desk_.rank, nth);
    const bool reduces = pattern_.reduces && mine.size != 0;
    if (reduces) {
        if (auto there = all_have(desk_.group, kStaged, base_ + nth + 1); !there || !*there)
            return there;
        for (std::uint32_t member = 0; member < members_; ++member)
            if (auto same = check_same(member, nth); !same)
                return propagate(same);
        if (auto begun = stage_->reduce(operation_.type, operation_.reduction, staged_at(nth, 0) + mine.at,
                                        desk_.group.shape().reduced_at(base_ + nth), mine.size / element_);
            !begun)
            return propagate(begun);
    }
    ++reducing_;
    if (!(stage_->on_device() && reduces) && reducing_marks_.empty()) {
        reduced(nth);
        return true;
    }
    auto mark = desk_.mover.mark();
    if (!mark)
        return propagate(mark);
    reducing_marks_.push_back(*mark);
    return true;
}

Expected<bool> Rounds::end_reducing() {
    if (reducing_marks_.empty())
        return false;
    if (auto passed = desk_.mover.passed(reducing_marks_.front()); !passed || !*passed)
        return passed;
    reducing_marks_.pop_front();
    reduced(reduced_);
    return true;
}

void Rounds::reduced(std::uint64_t nth) {
    ++reduced_;
    const auto mine = segment(desk_.rank, nth);
    if (!pattern_.reduces || mine.size == 0)
        return;
    if (takes_ != Takes::my_part)
        desk_.group.offer(desk_.rank, desk_.group.shape().reduced_at(base_ + nth), mine.size,
                          pattern_.takers == Who::root ? operation_.peer : Group::kEverybody);
    desk_.group.publish(desk_.rank, kReduced, base_ + reduced_);
}

Expected<void> Rounds::take(std::uint32_t member, std::size_t at, std::size_t size, std::uint64_t to) {
    return stage_->deliver(member, at, size, to);
}

Expected<bool> Rounds::begin_taking() {
    if (taking_ == reduced_)
        return false;
    const auto nth = taking_;
    const auto value = base_ + nth + 1;
    const auto size = length(nth) * element_;
    auto &group = desk_.group;
    const auto to = [&](std::uint32_t block) { return in_program(operation_.output, block, nth); };
    Expected<void> taken;
    // Everything must be there before anything is taken: a round is taken once.
    switch (takes_) {
    case Takes::nothing:
        break;
    case Takes::roots:
        if (auto there = has(group, operation_.peer, kStaged, value); !there || !*there)
            return there;
        taken = check_same(operation_.peer, nth);
        if (taken && (!stages_ || operation_.input != operation_.output))
            taken = take(operation_.peer, staged_at(nth, 0), size, to(0));
        break;
    case Takes::blocks:
    case Takes::mine: {
        const bool of_all = pattern_.stages == Who::all;
        const auto first = of_all ? 0 : operation_.peer;
        const auto last = of_all ? members_ : first + 1;
        for (auto member = first; member < last; ++member)
            if (auto there = has(group, member, kStaged, value); !there || !*there)
                return there;
        const auto block = takes_ == Takes::mine ? desk_.rank : 0;
        for (auto member = first; member < last && taken; ++member) {
            taken = check_same(member, nth);
            const auto place = to(of_all ? member : 0);
            const bool in_place = member == desk_.rank && place == in_program(operation_.input, block, nth);
            if (taken && !in_place)
                taken = take(member, staged_at(nth, block), size, place);
        }
        break;
    }
    case Takes::result:
        for (std::uint32_t member = 0; member < members_; ++member)
            if (segment(member, nth).size != 0)
                if (auto there = has(group, member, kReduced, value); !there || !*there)
                    return there;
        for (std::uint32_t member = 0; member < members_ && taken; ++member)
            if (const auto part = segment(member, nth); part.size != 0)
                taken = take(member, group.shape().reduced_at(base_ + nth), part.size, to(0) + part.at);
        break;
    case Takes::my_part:
        taken = take(desk_.rank, group.shape().reduced_at(base_ + nth), size, to(0));
        break;
    }
    if (!taken)
        return propagate(taken);
    auto mark = desk_.mover.mark();
    if (!mark)
        return propagate(mark);
    taking_marks_.push_back(*mark);
    ++taking_;
    return true;
}

Expected<bool> Rounds::end_taking() {
    if (taking_marks_.empty())
        return false;
    if (auto passed = desk_.mover.passed(taking_marks_.front()); !passed || !*passed)
        return passed;
    taking_marks_.pop_front();
    ++consumed_;
    desk_.group.publish(desk_.rank, kConsumed, base_ + consumed_);
    return true;
}

} // namespace

std::unique_ptr<Task> make_rounds(Desk &desk, const CollectiveOperation &operation) {
    return std::make_unique<Rounds>(desk, operation);
}

std::unique_ptr<Task> make_task(Desk &desk, const CollectiveOperation &operation) {
    switch (static_cast<CollectiveKind>(operation.kind)) {
    case CollectiveKind::send:
        return make_send(desk, operation);
    case CollectiveKind::receive:
        return make_receive(desk, operation);
    default:
        return make_rounds(desk, operation);
    }
}

} // namespace singularity::collectives
