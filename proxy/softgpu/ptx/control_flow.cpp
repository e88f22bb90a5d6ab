// SPDX-License-Identifier: GPL-2.0-or-later
#include "ptx/control_flow.hpp"

#include <algorithm>
#include <iterator>
#include <ranges>

namespace singularity::ptx {

namespace {

// Does a lane that executes the instruction never reach the next one, nor a branch target?
bool ends_lane(const Instruction &instruction, const Function &function, const Module &module) {
    switch (instruction.opcode) {
    case Opcode::exit:
    case Opcode::ret:
    case Opcode::trap:
        return true;
    case Opcode::call: {
        const Operand &callee = function.calls[instruction.call].callee;
        return callee.kind == Operand::Kind::function && module.functions[callee.index].noreturn;
    }
    default:
        return false;
    }
}

bool is_branch(const Instruction &instruction) {
    return instruction.opcode == Opcode::bra || instruction.opcode == Opcode::brx;
}

template <class Visit>
void for_each_target(const Instruction &instruction, Function &function, Visit visit) {
    for (std::uint32_t i = 0; i < instruction.operand_count; ++i) {
        Operand &operand = function.operands[instruction.operands + i];
        if (operand.kind == Operand::Kind::instruction)
            visit(operand);
        else if (operand.kind == Operand::Kind::branch_table)
            std::ranges::for_each(function.branch_tables[operand.index], visit);
    }
}

// Cooper, Harvey, Kennedy, "A Simple, Fast Dominance Algorithm", on the reversed graph. The root is one more
// node, to which everything that ends a lane leads.
class PostDominators {
  public:
    // only_ends: blocks that do nothing but end their lanes.
    PostDominators(const std::vector<Block> &blocks, const std::vector<bool> &only_ends)
        : root_(static_cast<std::uint32_t>(blocks.size())), predecessors_(blocks.size()),
          successors_(blocks.size()), number_(blocks.size() + 1, kNone), dominator_(blocks.size() + 1, kNone),
          to_root_(blocks.size(), false) {
        // Lanes that end do not come to any meeting point, so the others need not wait for them: a way that
        // only ends counts if there is no other.
        for (std::uint32_t b = 0; b < root_; ++b) {
            std::ranges::copy_if(blocks[b].successors, std::back_inserter(successors_[b]),
                                 [&](std::uint32_t successor) { return !only_ends[successor]; });
            if (successors_[b].empty())
                successors_[b] = blocks[b].successors;
            to_root_[b] = successors_[b].empty();
            for (const std::uint32_t successor : successors_[b])
                predecessors_[successor].push_back(b);
        }
        number_blocks();
        solve();
    }

    [[nodiscard]] std::uint32_t of(std::uint32_t block) const {
        return dominator_[block] == root_ ? kNone : dominator_[block];
    }

  private:
    void visit_from(std::uint32_t start) {
        struct Frame {
            std::uint32_t block;
            std::size_t next;
        };
        std::vector<Frame> stack{{start, 0}};
        seen_[start] = true;
        while (!stack.empty()) {
            Frame &top = stack.back();
            if (top.next == predecessors_[top.block].size()) {
                order_.push_back(top.block);
                stack.pop_back();
                continue;
            }
            const std::uint32_t next = predecessors_[top.block][top.next++];
            if (!seen_[next]) {
                seen_[next] = true;
                stack.push_back({next, 0});
            }
        }
    }

    // Post-order of the reversed graph. Blocks that never end (an endless loop) hang below the root through
    // the last of them, so that every block has a number.
    void number_blocks() {
        seen_.assign(root_, false);
        for (std::uint32_t b = 0; b < root_; ++b)
            if (to_root_[b] && !seen_[b])
                visit_from(b);
        for (std::uint32_t b = root_; b-- > 0;)
            if (!seen_[b]) {
                to_root_[b] = true;
                visit_from(b);
            }
        for (std::uint32_t i = 0; i < order_.size(); ++i)
            number_[order_[i]] = i;
        number_[root_] = root_;
    }

    [[nodiscard]] std::uint32_t common(std::uint32_t a, std::uint32_t b) const {
        while (a != b) {
            while (number_[a] < number_[b])
                a = dominator_[a];
            while (number_[b] < number_[a])
                b = dominator_[b];
        }
        return a;
    }

    void solve() {
        dominator_[root_] = root_;
        for (bool changed = true; changed;) {
            changed = false;
            for (const std::uint32_t block : order_ | std::views::reverse) {
                std::uint32_t found = to_root_[block] ? root_ : kNone;
                for (const std::uint32_t successor : successors_[block])
                    if (dominator_[successor] != kNone)
                        found = found == kNone ? successor : common(successor, found);
                changed |= dominator_[block] != found;
                dominator_[block] = found;
            }
        }
    }

    std::uint32_t root_;
    std::vector<std::vector<std::uint32_t>> predecessors_;
    std::vector<std::vector<std::uint32_t>> successors_;
    std::vector<std::uint32_t> number_;
    std::vector<std::uint32_t> dominator_;
    std::vector<bool> to_root_;
    std::vector<bool> seen_;
    std::vector<std::uint32_t> order_;
};

} // namespace

void build_control_flow(Function &function, const Module &module) {
    const auto &instructions = function.instructions;
    const auto count = static_cast<std::uint32_t>(instructions.size());
    function.blocks.clear();

    std::vector<bool> leader(count + 1, false);
    leader[0] = true;
    for (std::uint32_t i = 0; i < count; ++i) {
        if (i + 1 < count && (is_branch(instructions[i]) || ends_lane(instructions[i], function, module)))
            leader[i + 1] = true;
        for_each_target(instructions[i], function,
                        [&](const Operand &target) { leader[target.index] = true; });
    }

    // A label may stand after the last instruction: the block there is empty and ends.
    std::vector<std::uint32_t> block_of(count + 1, 0);
    for (std::uint32_t i = 0; i <= count; ++i) {
        if (leader[i]) {
            if (!function.blocks.empty())
                function.blocks.back().last = i;
            function.blocks.push_back({i, count, kNone, false, {}});
        }
        block_of[i] = static_cast<std::uint32_t>(function.blocks.size() - 1);
    }

    for (std::uint32_t b = 0; b < function.blocks.size(); ++b) {
        Block &block = function.blocks[b];
        bool falls_through = true;
        if (block.first != block.last) {
            const Instruction &last = instructions[block.last - 1];
            const bool always = last.guard == kNone;
            for_each_target(last, function, [&](Operand &target) {
                target.value = block_of[target.index];
                block.successors.push_back(block_of[target.index]);
            });
            block.ends = ends_lane(last, function, module);
            falls_through = !always || (!is_branch(last) && !block.ends);
        }
        if (falls_through && b + 1 < function.blocks.size())
            block.successors.push_back(b + 1);
        else if (falls_through)
            block.ends = true;
        std::ranges::sort(block.successors);
        const auto repeated = std::ranges::unique(block.successors);
        block.successors.erase(repeated.begin(), repeated.end());
    }

    std::vector<bool> only_ends(function.blocks.size(), false);
    for (std::uint32_t b = 0; b < function.blocks.size(); ++b) {
        const Block &block = function.blocks[b];
        only_ends[b] = block.first == block.last
                           ? block.ends
                           : block.first + 1 == block.last && instructions[block.first].guard == kNone &&
                                 ends_lane(instructions[block.first], function, module);
    }
    const PostDominators dominators(function.blocks, only_ends);
    for (std::uint32_t b = 0; b < function.blocks.size(); ++b)
        function.blocks[b].reconvergence = dominators.of(b);
}

} // namespace singularity::ptx
