// SPDX-License-Identifier: GPL-2.0-or-later
// Sends and receives: pieces go through slots of the sender's area, and each side counts its own.
#include "agreement.hpp"
#include "proxy/collectives/reduce.hpp"
#include "stage.hpp"
#include "task.hpp"

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <utility>

#include <fmt/format.h>

namespace singularity::collectives {

namespace {

using protocol::CollectiveOperation;

// What the sender says in front of each piece: the receiver must mean the same.
struct PieceHead {
    std::uint64_t total = 0; // bytes of the whole message
    std::uint64_t at = 0;
    bool operator==(const PieceHead &) const = default;
};
static_assert(sizeof(PieceHead) <= kHead);

class Pair : public Task {
  public:
    Pair(Desk &desk, const CollectiveOperation &operation, std::uint64_t memory)
        : desk_(desk), stage_(Stage::make(desk, Group::Part::slots)), peer_(operation.peer), memory_(memory),
          total_(operation.count * element_size(operation.type)) {}
    [[nodiscard]] bool done() const override { return done_ == total_; }
    [[nodiscard]] std::optional<std::uint64_t> waits_for() const override {
        return marks_.empty() ? std::nullopt : std::optional(marks_.front().mark);
    }
    [[nodiscard]] Expected<bool> advance() override {
        bool moved = false;
        for (;;) {
            auto begun = begun_ == total_ ? Expected<bool>(false) : begin_one();
            if (!begun)
                return begun;
            auto ended = marks_.empty() ? Expected<bool>(false) : end_one();
            if (!ended)
                return ended;
            if (!*begun && !*ended)
                return moved;
            moved = true;
        }
    }

  protected:
    [[nodiscard]] virtual Expected<bool> begin_one() = 0;
    // A piece's copy has ended.
    virtual void ended(std::uint64_t begin, std::size_t size) = 0;

    [[nodiscard]] std::size_t next_size() const {
        return static_cast<std::size_t>(std::min<std::uint64_t>(desk_.group.shape().slot, total_ - begun_));
    }
    [[nodiscard]] Expected<bool> copy_begun() {
        auto mark = desk_.mover.mark();
        if (!mark)
            return propagate(mark);
        marks_.push_back({.mark = *mark, .begin = begun_, .size = next_size()});
        begun_ += next_size();
        return true;
    }

    Desk &desk_;
    std::unique_ptr<Stage> stage_;
    std::uint32_t peer_;
    std::uint64_t memory_;
    std::uint64_t total_;
    std::uint64_t begun_ = 0; // bytes
    std::uint64_t done_ = 0;

  private:
    [[nodiscard]] Expected<bool> end_one() {
        const auto &first = marks_.front();
        if (auto passed = desk_.mover.passed(first.mark); !passed || !*passed)
            return passed;
        ended(first.begin, first.size);
        done_ += first.size;
        marks_.pop_front();
        return true;
    }

    struct Copy {
        std::uint64_t mark;
        std::uint64_t begin;
        std::size_t size;
    };
    std::deque<Copy> marks_;
};

class Send final : public Pair {
  public:
    Send(Desk &desk, const CollectiveOperation &operation)
        : Pair(desk, operation, operation.input), counter_(desk.group.shape().sent_to(peer_)) {}
    [[nodiscard]] std::uint32_t lane() const override { return 1 + peer_; }

  protected:
    [[nodiscard]] Expected<bool> begin_one() override {
        auto &group = desk_.group;
        const auto piece = group.read(desk_.rank, counter_) + underway_;
        const bool left = group.read(peer_, kLeft) != 0;
        if (piece >= group.read(peer_, group.shape().received_from(desk_.rank)) + kSlots) {
            if (left)
                return has_left(peer_);
            return false;
        }
        const auto at = group.shape().slot_at(peer_, piece);
        if (auto begun = stage_->fetch(memory_ + begun_, at + kHead, next_size()); !begun)
            return propagate(begun);
        ++underway_;
        return copy_begun();
    }
    void ended(std::uint64_t begin, std::size_t size) override {
        auto &group = desk_.group;
        const auto piece = group.read(desk_.rank, counter_);
        const auto at = group.shape().slot_at(peer_, piece);
        const PieceHead head{.total = total_, .at = begin};
        std::memcpy(group.area(desk_.rank).bytes(at, sizeof(head)).data(), &head, sizeof(head));
        --underway_;
        group.offer(desk_.rank, at, kHead + size, peer_);
        group.publish(desk_.rank, counter_, piece + 1);
    }

  private:
    std::uint32_t counter_;
    std::uint64_t underway_ = 0;
};

class Receive final : public Pair {
  public:
    Receive(Desk &desk, const CollectiveOperation &operation)
        : Pair(desk, operation, operation.output), counter_(desk.group.shape().received_from(peer_)) {}
    [[nodiscard]] std::uint32_t lane() const override { return 1 + desk_.group.size() + peer_; }

  protected:
    [[nodiscard]] Expected<bool> begin_one() override {
        auto &group = desk_.group;
        const auto piece = group.read(desk_.rank, counter_) + underway_;
        const bool left = group.read(peer_, kLeft) != 0;
        if (group.read(peer_, group.shape().sent_to(desk_.rank)) <= piece) {
            if (left)
                return has_left(peer_);
            return false;
        }
        const auto at = group.shape().slot_at(desk_.rank, piece);
        PieceHead theirs;
        std::memcpy(&theirs, group.area(peer_).bytes(at, sizeof(theirs)).data(), sizeof(theirs));
        if (const PieceHead mine{.total = total_, .at = begun_}; theirs != mine)
            return failure(
                "receive from", fmt::format("rank {}", peer_),
                fmt::format("it sends {} bytes where rank {} expects {}", theirs.total, desk_.rank, total_),
                EINVAL);
        if (auto begun = stage_->deliver(peer_, at + kHead, next_size(), memory_ + begun_); !begun)
            return propagate(begun);
        ++underway_;
        return copy_begun();
    }
    void ended(std::uint64_t /*begin*/, std::size_t /*size*/) override {
        auto &group = desk_.group;
        --underway_;
        group.publish(desk_.rank, counter_, group.read(desk_.rank, counter_) + 1);
    }

  private:
    std::uint32_t counter_;
    std::uint64_t underway_ = 0;
};

} // namespace

std::unique_ptr<Task> make_send(Desk &desk, const CollectiveOperation &operation) {
    return std::make_unique<Send>(desk, operation);
}

std::unique_ptr<Task> make_receive(Desk &desk, const CollectiveOperation &operation) {
    return std::make_unique<Receive>(desk, operation);
}

} // namespace singularity::collectives
