// SPDX-License-Identifier: GPL-2.0-or-later
#include "compiler/region.hpp"

#include <algorithm>
#include <deque>
#include <utility>

namespace singularity::softgpu::compiler {

namespace {

constexpr std::size_t kMostSteps = 600;
constexpr std::size_t kMostBlocks = 200;
constexpr unsigned kMostRounds = 200; // of the search for what is known

bool is_constant(Ref ref) { return ref != kAbsent && (ref & engine::kConstant) != 0; }

// What the interpreter alone does may need any register that its instruction names.
void reads_of_other(const Code &code, const Rows &rows, const Op &op, std::vector<bool> &live) {
    const ptx::Function &function = *code.function;
    const auto read = [&](const ptx::Operand &operand, const auto &self) -> void {
        if (operand.kind == ptx::Operand::Kind::reg) {
            const std::uint32_t row = rows.of_register(operand.index);
            if (row != kNone)
                live[row] = true;
        } else if (operand.kind == ptx::Operand::Kind::vector) {
            for (std::uint32_t i = 0; i < operand.count; ++i)
                self(function.operands[operand.index + i], self);
        }
    };
    for (const Ref ref : op.o)
        if (const std::uint32_t row = rows.of(ref); row != kNone)
            live[row] = true;
    for (std::uint32_t row = 0; row < rows.size(); ++row)
        if (rows.temporary(row))
            live[row] = true;
    if (op.instruction >= function.instructions.size())
        return;
    const ptx::Instruction &instruction = function.instructions[op.instruction];
    for (std::uint32_t i = 0; i < instruction.operand_count; ++i)
        read(function.operands[instruction.operands + i], read);
    if (instruction.guard != kNone)
        if (const std::uint32_t row = rows.of_register(instruction.guard); row != kNone)
            live[row] = true;
    if (instruction.call != kNone) {
        const ptx::Call &call = function.calls[instruction.call];
        read(call.callee, read);
        for (const ptx::Operand &operand : call.arguments)
            read(operand, read);
        for (const ptx::Operand &operand : call.results)
            read(operand, read);
    }
}

std::vector<std::uint32_t> followers(const Code &code, std::uint32_t at) {
    const Op &op = code.ops[at];
    switch (code.kinds[at]) {
    case OpKind::branch:
        return {op.target};
    case OpKind::branch_if:
        return {op.target, at + 1};
    case OpKind::branch_table: {
        std::vector<std::uint32_t> all;
        for (std::uint64_t k = 0; k < op.immediate; ++k)
            all.push_back(code.extra[op.extra + k]);
        return all;
    }
    case OpKind::end:
        return {};
    default:
        return {at + 1};
    }
}

// Rows whose values are still needed, before each operation.
std::vector<std::vector<bool>> liveness(const Code &code, const Rows &rows) {
    const auto count = static_cast<std::uint32_t>(code.ops.size());
    std::vector<std::vector<bool>> live(count + 1, std::vector<bool>(rows.size(), false));
    std::vector<Effects> effects;
    for (std::uint32_t i = 0; i < count; ++i)
        effects.push_back(code.kinds[i] == OpKind::other || code.kinds[i] == OpKind::branch_table
                              ? Effects{}
                              : effects_of(code, i));
    for (bool changed = true; std::exchange(changed, false);)
        for (std::uint32_t i = count; i-- > 0;) {
            std::vector<bool> now(rows.size(), false);
            for (const std::uint32_t next : followers(code, i))
                for (std::uint32_t row = 0; row < rows.size(); ++row)
                    if (live[next][row])
                        now[row] = true;
            const bool guarded = i > 0 && code.kinds[i - 1] == OpKind::guard;
            if (code.kinds[i] == OpKind::other || code.kinds[i] == OpKind::branch_table) {
                reads_of_other(code, rows, code.ops[i], now);
            } else {
                for (const Ref ref : effects[i].writes)
                    if (const std::uint32_t row = rows.of(ref); row != kNone && !guarded)
                        now[row] = false;
                for (const Ref ref : effects[i].reads)
                    if (const std::uint32_t row = rows.of(ref); row != kNone)
                        now[row] = true;
            }
            if (now != live[i]) {
                live[i] = std::move(now);
                changed = true;
            }
        }
    return live;
}

// The form of an operation; nothing: the region ends here.
std::optional<Form> form_of(const Code &code, const Rows &rows, std::uint32_t at) {
    const Op &op = code.ops[at];
    const auto fits = [&](const Effects &effects) {
        const auto known = [&](Ref ref) {
            if (ref == kAbsent || is_constant(ref))
                return true;
            const std::uint32_t row = rows.of(ref);
            return row != kNone && rows.width(row) <= 8;
        };
        return std::ranges::all_of(effects.reads, known) && std::ranges::all_of(effects.writes, known);
    };
    const OpKind kind = code.kinds[at];
    switch (kind) {
    case OpKind::other:
    case OpKind::end:
    case OpKind::branch_table:
    case OpKind::guard:
    case OpKind::branch:
    case OpKind::branch_if:
        return std::nullopt;
    case OpKind::meet:
        return Form::meet;
    case OpKind::nothing:
        return Form::nothing;
    default:
        break;
    }
    if (!fits(effects_of(code, at)))
        return std::nullopt;
    using ptx::SpecialRegister;
    switch (kind) {
    case OpKind::copy:
        return Form::copy;
    case OpKind::special:
        switch (static_cast<SpecialRegister>(op.mode)) {
        case SpecialRegister::clock:
        case SpecialRegister::clock64:
        case SpecialRegister::clock_hi:
        case SpecialRegister::globaltimer:
        case SpecialRegister::globaltimer_lo:
        case SpecialRegister::globaltimer_hi:
            return std::nullopt;
        default:
            return Form::special;
        }
    case OpKind::frame_address:
        return Form::frame_address;
    case OpKind::parameter_address:
        return Form::parameter_address;
    case OpKind::load:
        return Form::load;
    case OpKind::store:
        return Form::store;
    case OpKind::plain:
    case OpKind::pair:
        return knows_value(code, at) ? Form::value : Form::callout;
    case OpKind::carry:
        return Form::callout;
    default:
        return Form::value;
    }
}

class Builder {
  public:
    Builder(const engine::NativeJob &job, Region &region) : code_(*job.code), job_(job), region_(region) {}

    bool build() {
        region_.full = job_.full;
        region_.live_at = liveness(code_, region_.rows);
        if (!find_blocks())
            return false;
        order();
        region_.seen = job_.rows;
        region_.seen.resize(region_.rows.size());
        for (const Block &block : region_.blocks)
            region_.live.push_back(region_.live_at[block.first]);
        find_changed();
        return find_known();
    }

  private:
    // Operations from the head on, as far as the region goes.
    bool find_blocks() {
        std::vector<bool> starts(code_.ops.size() + 1, false);
        for (std::uint32_t i = 0; i < code_.ops.size(); ++i)
            if (code_.kinds[i] == OpKind::branch || code_.kinds[i] == OpKind::branch_if) {
                starts[code_.ops[i].target] = true;
                starts[i + 1] = true;
            }
        starts[job_.head] = true; // where a loop comes back to it, a block ends: an operation is in one block
        std::deque<std::uint32_t> wanted{job_.head};
        index_[job_.head] = 0;
        region_.blocks.emplace_back().first = job_.head;
        std::size_t steps = 0;
        while (!wanted.empty()) {
            const std::uint32_t first = wanted.front();
            wanted.pop_front();
            Block block;
            block.first = first;
            std::uint32_t at = first;
            const auto follow = [&](std::uint32_t to) {
                const auto [known, added] =
                    index_.try_emplace(to, static_cast<std::uint32_t>(region_.blocks.size()));
                if (added) {
                    region_.blocks.emplace_back().first = to;
                    wanted.push_back(to);
                }
                return known->second;
            };
            for (;;) {
                block.last = at;
                if (steps >= kMostSteps || region_.blocks.size() >= kMostBlocks || at >= code_.ops.size())
                    break;
                if (at != first && starts[at]) {
                    block.end = Block::End::jump;
                    block.target = follow(at);
                    break;
                }
                const OpKind kind = code_.kinds[at];
                if (kind == OpKind::branch) {
                    block.end = Block::End::jump;
                    block.jump_costs = true;
                    block.target = follow(code_.ops[at].target);
                    break;
                }
                if (kind == OpKind::branch_if) {
                    block.end = Block::End::branch;
                    block.target = follow(code_.ops[at].target);
                    block.other = follow(at + 1);
                    break;
                }
                Step step;
                step.at = at;
                step.guarded = kind == OpKind::guard;
                step.op = step.guarded ? at + 1 : at;
                const auto form = form_of(code_, region_.rows, step.op);
                if (!form || (step.guarded && *form == Form::meet))
                    break;
                step.form = *form;
                if (step.form != Form::meet && step.form != Form::nothing) {
                    Effects effects = effects_of(code_, step.op);
                    step.reads = std::move(effects.reads);
                    step.writes = std::move(effects.writes);
                }
                block.steps.push_back(std::move(step));
                ++steps;
                at = block.steps.back().op + 1;
            }
            region_.blocks[index_.at(first)] = std::move(block);
        }
        region_.step_count = static_cast<std::uint32_t>(steps);
        return !region_.blocks[0].steps.empty() || region_.blocks[0].end != Block::End::leave;
    }

    void order() {
        std::vector<std::uint32_t> post;
        std::vector<std::uint8_t> seen(region_.blocks.size(), 0);
        std::vector<std::pair<std::uint32_t, unsigned>> stack{{0, 0}};
        seen[0] = 1;
        while (!stack.empty()) {
            auto &[block, next] = stack.back();
            const Block &its = region_.blocks[block];
            const std::uint32_t follower = next == 0 ? its.target : next == 1 ? its.other : kNone;
            if (next++ >= 2) {
                post.push_back(block);
                stack.pop_back();
            } else if (follower != kNone && seen[follower] == 0) {
                seen[follower] = 1;
                stack.emplace_back(follower, 0);
            }
        }
        std::vector<std::uint32_t> place(region_.blocks.size(), kNone);
        std::vector<Block> ordered;
        for (std::size_t i = post.size(); i-- > 0;) {
            place[post[i]] = static_cast<std::uint32_t>(ordered.size());
            ordered.push_back(std::move(region_.blocks[post[i]]));
        }
        for (Block &block : ordered) {
            block.target = block.target == kNone ? kNone : place[block.target];
            block.other = block.other == kNone ? kNone : place[block.other];
        }
        for (std::uint32_t b = 0; b < ordered.size(); ++b)
            for (const std::uint32_t to : {ordered[b].target, ordered[b].other})
                if (to != kNone)
                    ordered[to].from.push_back(b);
        region_.blocks = std::move(ordered);
    }

    void find_changed() {
        region_.changed.assign(region_.blocks.size(), std::vector<bool>(region_.rows.size(), false));
        for (bool again = true; std::exchange(again, false);)
            for (std::uint32_t b = 0; b < region_.blocks.size(); ++b) {
                std::vector<bool> now = region_.changed[b];
                for (const Step &step : region_.blocks[b].steps)
                    for (const Ref ref : step.writes)
                        if (const std::uint32_t row = region_.rows.of(ref); row != kNone)
                            now[row] = true;
                for (const std::uint32_t to : {region_.blocks[b].target, region_.blocks[b].other})
                    for (std::uint32_t row = 0; to != kNone && row < region_.rows.size(); ++row)
                        if (now[row] && !region_.changed[to][row])
                            region_.changed[to][row] = again = true;
            }
    }

    // The block that an anchor is made in; kNone: outside.
    [[nodiscard]] std::uint32_t home_of(std::uint32_t anchor) const {
        const std::uint32_t count = region_.rows.size();
        if (anchor < count)
            return kNone;
        const std::uint32_t block = anchor / count - 1;
        if (block < region_.blocks.size())
            return block;
        const std::uint32_t op =
            (anchor - count * (static_cast<std::uint32_t>(region_.blocks.size()) + 1)) / 16;
        return home_of_op_.at(op);
    }

    bool find_known() {
        const std::uint32_t count = region_.rows.size();
        for (std::uint32_t b = 0; b < region_.blocks.size(); ++b)
            for (const Step &step : region_.blocks[b].steps)
                home_of_op_[step.op] = b;
        region_.known.assign(region_.blocks.size(), std::vector<Known>(count));
        const auto join = [&](std::uint32_t to, std::uint32_t row, const Known &value, bool back) {
            Known &old = region_.known[to][row];
            if (value.kind == Known::Kind::nothing)
                return false;
            // Loose only if it is on every way: what was never computed keeps the NaN that it is.
            const bool loose = value.loose && (old.kind == Known::Kind::nothing || old.loose);
            const Known own{Known::Kind::vector, region_.block_anchor(to, row), loose};
            Known joined = value;
            joined.loose = loose;
            if (value.kind == Known::Kind::vector && back) {
                const std::uint32_t home = home_of(value.anchor);
                if (home != kNone && home >= to)
                    joined = own;
            }
            if (old.kind != Known::Kind::nothing && (old.kind != joined.kind || old.anchor != joined.anchor))
                joined = own;
            if (joined.kind == Known::Kind::vector && (value.loose || old.loose))
                joined = own; // an anchor's looseness is where it was made
            if (region_.rows.width(row) == 0 && joined.kind == Known::Kind::vector)
                joined = own; // of predicates each vector is for itself
            if (joined == old)
                return false;
            old = joined;
            return true;
        };
        for (std::uint32_t row = 0; row < count; ++row)
            if (region_.live[0][row] && region_.rows.width(row) <= 8)
                join(0, row,
                     region_.seen[row].uniform ? Known{Known::Kind::uniform, kNone, false}
                                               : Known{Known::Kind::vector, region_.entry_anchor(row), false},
                     false);
        unsigned rounds = 0;
        for (bool again = true; std::exchange(again, false);) {
            if (++rounds > kMostRounds)
                return false;
            for (std::uint32_t b = 0; b < region_.blocks.size(); ++b) {
                std::vector<Known> state = region_.known[b];
                for (const Step &step : region_.blocks[b].steps) {
                    const auto results = results_of(region_, step, state);
                    for (std::size_t i = 0; i < results.size(); ++i)
                        if (const std::uint32_t row = region_.rows.of(step.writes[i]); row != kNone)
                            state[row] = results[i];
                }
                for (const std::uint32_t to : {region_.blocks[b].target, region_.blocks[b].other})
                    for (std::uint32_t row = 0; to != kNone && row < count; ++row)
                        if (region_.live[to][row] && region_.rows.width(row) <= 8)
                            again |= join(to, row, state[row], to <= b);
            }
        }
        return true;
    }

    const Code &code_;
    const engine::NativeJob &job_;
    Region &region_;
    std::unordered_map<std::uint32_t, std::uint32_t> index_;
    std::unordered_map<std::uint32_t, std::uint32_t> home_of_op_;
};

bool same_in_all_lanes(ptx::SpecialRegister special) {
    using ptx::SpecialRegister;
    switch (special) {
    case SpecialRegister::tid_x:
    case SpecialRegister::tid_y:
    case SpecialRegister::tid_z:
    case SpecialRegister::laneid:
    case SpecialRegister::lanemask_eq:
    case SpecialRegister::lanemask_lt:
    case SpecialRegister::lanemask_le:
    case SpecialRegister::lanemask_ge:
    case SpecialRegister::lanemask_gt:
        return false;
    default:
        return true;
    }
}

} // namespace

Rows::Rows(const Code &code) : code_(code), of_slot_(code.function->registers.size(), kNone) {
    for (std::uint32_t i = 0; i < code.row_list.size(); ++i) {
        index_[code.row_list[i].ref] = i;
        if (code.row_list[i].slot != kNone)
            of_slot_[code.row_list[i].slot] = i;
    }
}

std::uint32_t Rows::of(Ref ref) const {
    if (ref == kAbsent || is_constant(ref))
        return kNone;
    const auto found = index_.find(ref);
    return found == index_.end() ? kNone : found->second;
}

std::uint32_t Rows::of_register(std::uint32_t slot) const {
    return slot < of_slot_.size() ? of_slot_[slot] : kNone;
}

Effects effects_of(const Code &code, std::uint32_t at) {
    const Op &op = code.ops[at];
    Effects effects;
    const auto read = [&](Ref ref) {
        if (ref != kAbsent)
            effects.reads.push_back(ref);
    };
    const auto write = [&](Ref ref) {
        if (ref != kAbsent)
            effects.writes.push_back(ref);
    };
    const auto tuple = [&](const auto &visit, Ref single) {
        if (op.count <= 1)
            return visit(single);
        for (unsigned k = 0; k < op.count; ++k)
            visit(code.extra[op.extra + k]);
    };
    switch (code.kinds[at]) {
    case OpKind::plain:
    case OpKind::pair:
    case OpKind::carry: {
        const bool pair = code.kinds[at] == OpKind::pair;
        write(op.o[0]);
        if (pair)
            write(op.o[1]);
        for (std::size_t i = pair ? 2 : 1; i < op.o.size(); ++i)
            read(op.o[i]);
        if (code.kinds[at] == OpKind::carry) {
            write(op.extra);
            read(op.extra);
        }
        break;
    }
    case OpKind::pack:
        write(op.o[0]);
        for (unsigned k = 0; k < op.count; ++k)
            read(code.extra[op.extra + k]);
        break;
    case OpKind::unpack:
        read(op.o[0]);
        for (unsigned k = 0; k < op.count; ++k)
            write(code.extra[op.extra + k]);
        break;
    case OpKind::copy:
    case OpKind::invert:
    case OpKind::widen_unsigned:
    case OpKind::widen_signed:
    case OpKind::narrow:
        write(op.o[0]);
        read(op.o[1]);
        break;
    case OpKind::mask:
    case OpKind::add:
        write(op.o[0]);
        read(op.o[1]);
        read(op.o[2]);
        break;
    case OpKind::load:
        tuple(write, op.o[0]);
        read(op.o[5]);
        break;
    case OpKind::store:
        tuple(read, op.o[1]);
        read(op.o[5]);
        break;
    case OpKind::special:
    case OpKind::frame_address:
    case OpKind::parameter_address:
        write(op.o[0]);
        break;
    case OpKind::guard:
    case OpKind::branch_if:
        read(op.o[0]);
        break;
    default:
        break;
    }
    return effects;
}

Known known_of(const Region &region, const std::vector<Known> &state, Ref ref) {
    const std::uint32_t row = region.rows.of(ref);
    return row == kNone ? Known{Known::Kind::uniform, kNone, false} : state[row];
}

std::vector<Known> results_of(const Region &region, const Step &step, const std::vector<Known> &state) {
    const Code &code = *region.code;
    const Op &op = code.ops[step.op];
    const auto uniform = [&](Ref ref) { return known_of(region, state, ref).kind == Known::Kind::uniform; };
    bool all = std::ranges::all_of(step.reads, uniform);
    if (step.form == Form::load)
        all &= op.place != engine::Place::local && op.place != engine::Place::frame;
    if (step.form == Form::callout || step.form == Form::store)
        all = false;
    if (step.form == Form::special)
        all = same_in_all_lanes(static_cast<ptx::SpecialRegister>(op.mode));
    if (step.guarded)
        all = all && uniform(code.ops[step.at].o[0]) && std::ranges::all_of(step.writes, uniform);
    std::vector<Known> results;
    const ptx::Instruction &instruction = code.instruction(op);
    const bool makes_float = step.form == Form::value && code.kinds[step.op] == OpKind::plain &&
                             instruction.types[0] == Type::f32 && (op.mode & 2U) == 0;
    for (std::size_t i = 0; i < step.writes.size(); ++i) {
        Known result{all ? Known::Kind::uniform : Known::Kind::vector,
                     all ? kNone : region.step_anchor(step, i), false};
        if (makes_float) {
            switch (instruction.opcode) {
            case Opcode::add:
            case Opcode::sub:
            case Opcode::mul:
            case Opcode::mad:
            case Opcode::fma:
            case Opcode::div:
            case Opcode::rcp:
            case Opcode::sqrt:
                result.loose = true;
                break;
            default:
                break;
            }
        }
        if (step.form == Form::copy)
            result.loose = known_of(region, state, op.o[1]).loose;
        if (step.guarded) {
            result.loose = result.loose && known_of(region, state, step.writes[i]).loose;
        } else if (!all && step.form == Form::copy) {
            const Known source = known_of(region, state, op.o[1]);
            const std::uint32_t row = region.rows.of(step.writes[i]);
            if (row != kNone && region.rows.width(row) != 0)
                result = source;
        } else if (!all && step.form == Form::value) {
            const OpKind kind = code.kinds[step.op];
            const bool integer = kind == OpKind::add ||
                                 (kind == OpKind::plain && !ptx::is_float(instruction.types[0]) &&
                                  ptx::type_size(instruction.types[0]) >= 4 &&
                                  (instruction.opcode == Opcode::add || instruction.opcode == Opcode::sub));
            if (integer) {
                const Known first = known_of(region, state, op.o[1]);
                const Known second = known_of(region, state, op.o[2]);
                const bool sum = kind == OpKind::add || instruction.opcode == Opcode::add;
                if (first.kind == Known::Kind::vector && second.kind == Known::Kind::uniform && !first.loose)
                    result = first;
                else if (sum && first.kind == Known::Kind::uniform && second.kind == Known::Kind::vector &&
                         !second.loose)
                    result = second;
            }
        }
        results.push_back(result);
    }
    return results;
}

std::optional<Region> make_region(const engine::NativeJob &job) {
    Region region(*job.code);
    Builder builder(job, region);
    if (!builder.build())
        return std::nullopt;
    return region;
}

} // namespace singularity::softgpu::compiler
