// SPDX-License-Identifier: GPL-2.0-or-later
// Operations of members whose devices are linked. A collective goes in pieces, which are as large as the
// member's memory of the device for them: each is staged there, goes to the others as the collective has it,
// and is reduced, each segment by one member in the order of ranks, so that the result is the same as without
// links. Nothing of a collective is begun before all members have said that they mean the same. What is sent
// and received goes as it is, one group's all at once.
#include "agreement.hpp"
#include "proxy/collectives/device.hpp"
#include "proxy/collectives/link.hpp"
#include "proxy/collectives/reduce.hpp"
#include "scaling.hpp"
#include "task.hpp"

#include <algorithm>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

namespace singularity::collectives {

namespace {

using protocol::CollectiveKind;
using protocol::CollectiveOperation;

constexpr std::size_t kLinkedPiece = std::size_t{4} << 20;
constexpr std::size_t kUnderWay = 2; // pieces; more wait for nothing but each other

// What goes at once, and is begun and ended once.
class Batch {
  public:
    explicit Batch(Link &link) : link_(link) {}
    void send(std::uint32_t to, std::uint64_t from, std::size_t size) {
        add(size, [&] { return link_.send(to, from, size); });
    }
    void receive(std::uint32_t from, std::uint64_t to, std::size_t size) {
        add(size, [&] { return link_.receive(from, to, size); });
    }
    [[nodiscard]] Expected<void> end(const std::function<bool()> &given_up) {
        if (!begun_)
            return done_;
        auto ended = link_.end(given_up); // also where something in it has failed
        return done_ ? ended : done_;
    }

  private:
    void add(std::size_t size, const auto &action) {
        if (size == 0 || !done_)
            return;
        if (!begun_) {
            done_ = link_.begin();
            begun_ = done_.has_value();
        }
        if (begun_)
            done_ = action();
    }

    Link &link_;
    bool begun_ = false;
    Expected<void> done_;
};

// Where the parts of one piece lie in a member's memory: what it gives, what it reduces, what it gets.
struct Layout {
    std::uint64_t input = 0;
    std::uint64_t operands = 0;
    std::uint64_t output = 0;

    explicit Layout(std::uint64_t memory)
        : input(memory), operands(memory + kLinkedPiece), output(operands + kLinkedPiece + kRests) {}
    // Each operand begins a line.
    static constexpr std::size_t kRests = kMostMembers * kLine;
    static constexpr std::size_t kSize = (3 * kLinkedPiece) + kRests;
};

class LinkedCollective final : public Task {
  public:
    LinkedCollective(Desk &desk, const CollectiveOperation &operation)
        : desk_(desk), link_(*desk.linked.link), device_(*desk.mover.on_device()),
          layout_(desk.linked.memory), operation_(operation), pattern_(kPatterns[operation.kind]),
          scaling_(operation, desk.group.size()), element_(element_size(operation.type)),
          members_(desk.group.size()), head_(head_of(operation, desk.rounds, Payload::linked)),
          parts_(pattern_.block_for_each || pattern_.takes == Takes::blocks ? members_ : 1),
          stride_(kLinkedPiece / parts_ / kLine * kLine), most_(stride_ / element_),
          pieces_((operation.count + most_ - 1) / most_), stages_(is(pattern_.stages)),
          takes_(is(pattern_.takers)) {
        if (pieces_ != 0)
            ++desk.rounds;
    }

    [[nodiscard]] std::uint32_t lane() const override { return 0; }
    [[nodiscard]] bool done() const override { return begun_ == pieces_ && marks_.empty(); }
    [[nodiscard]] std::optional<std::uint64_t> waits_for() const override { return std::nullopt; }
    [[nodiscard]] bool looks_at_mover() const override { return !marks_.empty(); }
    [[nodiscard]] Expected<bool> advance() override;

  private:
    enum class Stage : std::uint8_t { silent, said, agreed };
    struct Segment {
        std::size_t at = 0; // in what is reduced
        std::size_t size = 0;
    };
    [[nodiscard]] bool is(Who who) const {
        return who == Who::all || (who == Who::root && operation_.peer == desk_.rank);
    }
    [[nodiscard]] bool stages(std::uint32_t member) const {
        return pattern_.stages == Who::all || operation_.peer == member;
    }
    [[nodiscard]] bool takes(std::uint32_t member) const {
        return pattern_.takers == Who::all || operation_.peer == member;
    }
    [[nodiscard]] std::uint64_t length(std::uint64_t nth) const {
        return std::min<std::uint64_t>(most_, operation_.count - (nth * most_));
    }
    [[nodiscard]] std::uint64_t in_program(std::uint64_t memory, std::uint32_t block,
                                           std::uint64_t nth) const {
        return memory + (block * operation_.count * element_) + (nth * most_ * element_);
    }
    // Of what is staged, what goes to that member to be reduced: its block, or its part of the only one.
    [[nodiscard]] Segment segment(std::uint32_t member, std::size_t whole) const {
        if (pattern_.block_for_each)
            return {.at = member * stride_, .size = whole};
        const auto each = Shape::up((whole + members_ - 1) / members_, kLine);
        const auto begin = std::min(whole, member * each);
        return {.at = begin, .size = std::min(whole, begin + each) - begin};
    }
    [[nodiscard]] Expected<bool> agree();
    [[nodiscard]] Expected<void> begin(std::uint64_t nth);
    [[nodiscard]] Expected<void> stage(std::uint64_t nth);
    [[nodiscard]] Expected<void> reduce(std::size_t whole);
    [[nodiscard]] Expected<void> take_result(std::uint64_t nth);
    [[nodiscard]] Expected<void> exchange(std::uint64_t nth);

    Desk &desk_;
    Link &link_;
    DeviceWork &device_;
    Layout layout_;
    CollectiveOperation operation_;
    Pattern pattern_;
    Scaling scaling_;
    std::size_t element_;
    std::uint32_t members_;
    RoundHead head_; // all pieces are of one round
    std::uint32_t parts_;
    std::size_t stride_; // bytes from part to part
    std::uint64_t most_; // elements of a part in one piece
    std::uint64_t pieces_;
    bool stages_;
    bool takes_;
    Stage stage_ = Stage::silent;
    std::uint64_t begun_ = 0; // pieces
    std::deque<std::uint64_t> marks_;
};

Expected<bool> LinkedCollective::advance() {
    bool moved = false;
    while (!done()) {
        if (stage_ != Stage::agreed) {
            if (auto on = agree(); !on || !*on)
                return on ? Expected<bool>(moved) : on;
        } else if (!marks_.empty() && (begun_ == pieces_ || marks_.size() == kUnderWay)) {
            if (auto passed = desk_.mover.passed(marks_.front()); !passed || !*passed)
                return passed ? Expected<bool>(moved) : passed;
            marks_.pop_front();
        } else {
            if (auto begun = begin(begun_); !begun)
                return propagate(begun);
            auto mark = desk_.mover.mark();
            if (!mark)
                return propagate(mark);
            marks_.push_back(*mark);
            ++begun_;
        }
        moved = true;
    }
    return moved;
}

// Payload is in nobody's area, so a round is consumed as soon as all have been heard.
Expected<bool> LinkedCollective::agree() {
    auto &group = desk_.group;
    if (stage_ == Stage::silent) {
        if (head_.round >= kDepth)
            if (auto there = all_have(group, kConsumed, head_.round - kDepth + 1); !there || !*there)
                return there;
        say(group, desk_.rank, head_);
        group.publish(desk_.rank, kStaged, head_.round + 1);
        stage_ = Stage::said;
        return true;
    }
    if (auto there = all_have(group, kStaged, head_.round + 1); !there || !*there)
        return there;
    for (std::uint32_t member = 0; member < members_; ++member)
        if (auto same = check_same(group, desk_.rank, head_, member); !same)
            return propagate(same);
    group.publish(desk_.rank, kConsumed, head_.round + 1);
    stage_ = Stage::agreed;
    return scaling_.get_ready(desk_.mover).transform([] { return true; });
}

Expected<void> LinkedCollective::begin(std::uint64_t nth) {
    auto begun = stage(nth);
    if (!begun)
        return begun;
    if (!pattern_.reduces)
        return exchange(nth);
    if (begun = reduce(length(nth) * element_); !begun)
        return begun;
    return take_result(nth);
}

Expected<void> LinkedCollective::stage(std::uint64_t nth) {
    const std::uint32_t blocks = pattern_.block_for_each ? members_ : 1;
    for (std::uint32_t block = 0; stages_ && block < blocks; ++block) {
        const auto at = layout_.input + (block * stride_);
        auto staged = device_.fetch(in_program(operation_.input, block, nth), at, length(nth) * element_);
        if (staged && scaling_.needed())
            staged = device_.scale(operation_.type, at, scaling_.scalar(), length(nth));
        if (!staged)
            return staged;
    }
    return {};
}

// Each gets its segment of all, which it reduces to where it lies in the output, or to its begin.
Expected<void> LinkedCollective::reduce(std::size_t whole) {
    const auto mine = segment(desk_.rank, whole);
    const auto stride = Shape::up(mine.size, kLine);
    Batch batch(link_);
    for (std::uint32_t member = 0; member < members_; ++member) {
        if (member == desk_.rank)
            continue;
        const auto theirs = segment(member, whole);
        batch.send(member, layout_.input + theirs.at, theirs.size);
        batch.receive(member, layout_.operands + (member * stride), mine.size);
    }
    auto done = batch.end(desk_.linked.given_up);
    if (!done || mine.size == 0)
        return done;
    done = device_.fetch(layout_.input + mine.at, layout_.operands + (desk_.rank * stride), mine.size);
    if (!done)
        return done;
    const bool divides = adjustment(operation_.type, operation_.reduction) == Adjustment::divide_result;
    return device_.reduce({.type = operation_.type,
                           .step = step_of(operation_.reduction),
                           .operands = layout_.operands,
                           .stride = stride,
                           .members = members_,
                           .divisor = divides ? members_ : 0,
                           .result = layout_.output + (pattern_.block_for_each ? 0 : mine.at),
                           .count = mine.size / element_});
}

Expected<void> LinkedCollective::take_result(std::uint64_t nth) {
    const auto whole = length(nth) * element_;
    Batch batch(link_);
    if (pattern_.takes == Takes::result) {
        const auto mine = segment(desk_.rank, whole);
        for (std::uint32_t member = 0; member < members_; ++member) {
            if (member == desk_.rank)
                continue;
            if (takes(member))
                batch.send(member, layout_.output + mine.at, mine.size);
            if (takes_) {
                const auto theirs = segment(member, whole);
                batch.receive(member, layout_.output + theirs.at, theirs.size);
            }
        }
    }
    if (auto done = batch.end(desk_.linked.given_up); !done || !takes_)
        return done;
    return device_.deliver(layout_.output, in_program(operation_.output, 0, nth), whole);
}

Expected<void> LinkedCollective::exchange(std::uint64_t nth) {
    const auto size = length(nth) * element_;
    const auto block_for = [this](std::uint32_t member) {
        return pattern_.block_for_each ? member * stride_ : 0;
    };
    // A root's comes alone.
    const auto place_of = [this](std::uint32_t member) {
        return pattern_.stages == Who::all ? member : std::uint32_t{0};
    };
    Batch batch(link_);
    for (std::uint32_t member = 0; member < members_; ++member) {
        if (member == desk_.rank)
            continue;
        if (stages_ && takes(member))
            batch.send(member, layout_.input + block_for(member), size);
        if (takes_ && stages(member))
            batch.receive(member, layout_.output + (place_of(member) * stride_), size);
    }
    auto done = batch.end(desk_.linked.given_up);
    for (std::uint32_t member = 0; done && takes_ && member < members_; ++member)
        if (member != desk_.rank && stages(member))
            done = device_.deliver(layout_.output + (place_of(member) * stride_),
                                   in_program(operation_.output, place_of(member), nth), size);
        else if (member == desk_.rank && stages_)
            done = device_.deliver(layout_.input + block_for(member),
                                   in_program(operation_.output, place_of(member), nth), size);
    return done;
}

class LinkedPairs final : public Task {
  public:
    LinkedPairs(Desk &desk, std::vector<CollectiveOperation> operations)
        : desk_(desk), operations_(std::move(operations)) {}
    [[nodiscard]] std::uint32_t lane() const override { return 0; }
    [[nodiscard]] bool done() const override { return done_; }
    [[nodiscard]] std::optional<std::uint64_t> waits_for() const override { return std::nullopt; }
    [[nodiscard]] bool looks_at_mover() const override { return mark_ && !done_; }
    [[nodiscard]] Expected<bool> advance() override;

  private:
    [[nodiscard]] Expected<void> begin();
    // Who has left without its part of what is under way.
    [[nodiscard]] Expected<void> look_at_peers() const;

    Desk &desk_;
    std::vector<CollectiveOperation> operations_;
    std::optional<std::uint64_t> mark_;
    bool done_ = false;
};

Expected<bool> LinkedPairs::advance() {
    if (done_)
        return false;
    if (!mark_) {
        auto begun = begin();
        auto mark = begun ? desk_.mover.mark() : propagate(begun);
        if (!mark)
            return propagate(mark);
        mark_ = *mark;
        return true;
    }
    auto passed = desk_.mover.passed(*mark_);
    if (!passed)
        return passed;
    done_ = *passed;
    if (!done_)
        if (auto there = look_at_peers(); !there)
            return propagate(there);
    return done_;
}

Expected<void> LinkedPairs::begin() {
    auto &group = desk_.group;
    Batch batch(*desk_.linked.link);
    for (const auto &operation : operations_) {
        const auto size = operation.count * element_size(operation.type);
        const bool sends = operation.kind == std::to_underlying(CollectiveKind::send);
        if (sends)
            batch.send(operation.peer, operation.input, size);
        else
            batch.receive(operation.peer, operation.output, size);
        const auto counter =
            sends ? Shape::sent_to(operation.peer) : group.shape().received_from(operation.peer);
        group.publish(desk_.rank, counter, group.read(desk_.rank, counter) + 1);
    }
    auto ended = batch.end([this] { return desk_.linked.given_up() || !look_at_peers(); });
    if (auto there = look_at_peers(); !ended && !there)
        return there;
    return ended;
}

Expected<void> LinkedPairs::look_at_peers() const {
    const auto &group = desk_.group;
    const auto &shape = group.shape();
    for (const auto &operation : operations_) {
        const auto peer = operation.peer;
        const bool left = group.read(peer, kLeft) != 0; // first: it has written everything before
        const bool sends = operation.kind == std::to_underlying(CollectiveKind::send);
        const auto mine = group.read(desk_.rank, sends ? Shape::sent_to(peer) : shape.received_from(peer));
        const auto theirs =
            group.read(peer, sends ? shape.received_from(desk_.rank) : Shape::sent_to(desk_.rank));
        if (left && theirs < mine)
            return has_left(peer);
    }
    return {};
}

} // namespace

std::size_t linked_memory() { return Layout::kSize; }

// As NCCL has it: collectives one after the other, then all that is sent and received.
std::vector<std::unique_ptr<Task>> make_linked(Desk &desk, std::span<const CollectiveOperation> operations) {
    std::vector<std::unique_ptr<Task>> tasks;
    std::vector<CollectiveOperation> pairs;
    for (const auto &operation : operations)
        if (operation.kind < std::to_underlying(CollectiveKind::send))
            tasks.push_back(std::make_unique<LinkedCollective>(desk, operation));
        else
            pairs.push_back(operation);
    if (!pairs.empty())
        tasks.push_back(std::make_unique<LinkedPairs>(desk, std::move(pairs)));
    return tasks;
}

} // namespace singularity::collectives
