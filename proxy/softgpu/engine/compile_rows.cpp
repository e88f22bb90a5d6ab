// SPDX-License-Identifier: GPL-2.0-or-later
// Where values are: rows of registers, constants and temporaries, and the lane's stack.
#include "engine/function_compiler.hpp"

#include <algorithm>
#include <cstring>
#include <new>

namespace singularity::softgpu::engine {

namespace {

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

} // namespace

void AlignedBytes::Free::operator()(std::byte *bytes) const {
    ::operator delete(bytes, std::align_val_t{kRowAlignment});
}

AlignedBytes::AlignedBytes(std::size_t wanted)
    : bytes(static_cast<std::byte *>(
          ::operator new(std::max<std::size_t>(wanted, 1), std::align_val_t{kRowAlignment}))),
      size(wanted) {
    std::memset(bytes.get(), 0, wanted);
}

unsigned row_width(Type type) {
    if (type == Type::pred)
        return 0;
    const std::uint32_t size = ptx::type_size(type);
    return size <= 4 ? 4 : size;
}

void FunctionCompiler::place_frame() {
    const auto end_of = [](const std::vector<ptx::Parameter> &list) {
        return list.empty() ? 0 : list.back().offset + list.back().size;
    };
    call_parameters_ = round_up(function_.local_size, 16);
    code_->parameters = round_up(call_parameters_ + function_.param_size, 16);
    code_->results = round_up(code_->parameters + (function_.kernel ? 0 : end_of(function_.parameters)), 16);
    code_->frame = round_up(code_->results + end_of(function_.results), 16);
}

void FunctionCompiler::count_uses() {
    const auto count = [&](const Operand &operand) {
        if (operand.kind == Operand::Kind::reg)
            ++uses_[operand.index];
    };
    std::ranges::for_each(function_.operands, count);
    for (const ptx::Call &call : function_.calls) {
        count(call.callee);
        std::ranges::for_each(call.results, count);
        std::ranges::for_each(call.arguments, count);
    }
    for (const Instruction &instruction : function_.instructions)
        if (instruction.guard != kNone)
            ++uses_[instruction.guard];
}

Ref FunctionCompiler::new_row(unsigned width) {
    const Ref at = rows_;
    rows_ += width * kLanes;
    if (rows_ >= kPredicateMark)
        unsupported("the function has too many registers");
    code_->row_list.push_back({at, width, kNone});
    return at;
}

Ref FunctionCompiler::new_predicate() {
    const Ref at = kPredicateMark | (4 * predicates_++);
    code_->row_list.push_back({at, 0, kNone});
    return at;
}

Ref FunctionCompiler::register_row(std::uint32_t slot) {
    Ref &row = registers_.at(slot);
    if (row == kAbsent) {
        const unsigned width = row_width(function_.registers[slot]);
        row = width == 0 ? new_predicate() : new_row(width);
        code_->row_list.back().slot = slot;
    }
    return row;
}

Ref FunctionCompiler::temporary(unsigned width) {
    auto &free = temporaries_[width];
    if (free.used == free.rows.size())
        free.rows.push_back(width == 0 ? new_predicate() : new_row(width));
    return free.rows[free.used++];
}

void FunctionCompiler::finish_rows() {
    const auto shift = static_cast<Ref>(round_up(std::uint64_t{predicates_} * 4, kRowAlignment));
    const auto placed = [&](Ref ref) -> Ref {
        if (ref == kAbsent || (ref & kConstant) != 0)
            return ref;
        return (ref & kPredicateMark) != 0 ? ref & ~kPredicateMark : ref + shift;
    };
    for (Op &op : code_->ops) {
        for (Ref &ref : op.o)
            ref = placed(ref);
        if (carries_.contains(static_cast<std::uint32_t>(&op - code_->ops.data())))
            op.extra = placed(op.extra);
    }
    for (const std::uint32_t at : rows_in_extra_)
        code_->extra[at] = placed(code_->extra[at]);
    for (CallSite &call : code_->calls)
        for (auto *list : {&call.arguments, &call.results})
            for (Argument &argument : *list)
                argument.row = placed(argument.row);
    for (RowOfFrame &row : code_->row_list)
        row.ref = placed(row.ref);
    code_->rows = rows_ + shift;
    code_->constants = AlignedBytes(constants_.size());
    std::ranges::copy(constants_, code_->constants.bytes.get());
}

Ref FunctionCompiler::constant(unsigned width, std::uint64_t value) {
    if (width == 4)
        value = static_cast<std::uint32_t>(value);
    const auto [known, added] = constant_rows_.try_emplace({width, value}, 0);
    if (!added)
        return known->second;
    const std::size_t at = constants_.size();
    const std::size_t bytes = width == 0 ? kRowAlignment : std::size_t{width} * kLanes;
    constants_.resize(at + bytes);
    if (width == 0) {
        const std::uint32_t bits = value != 0 ? kAllLanes : 0;
        std::memcpy(&constants_[at], &bits, sizeof(bits));
    } else {
        for (unsigned i = 0; i < kLanes; ++i)
            std::memcpy(&constants_[at + std::size_t{i} * width], &value, std::min(width, 8U));
    }
    return known->second = static_cast<Ref>(at) | kConstant;
}

std::uint32_t FunctionCompiler::extra_rows(const std::vector<Ref> &rows) {
    const auto at = static_cast<std::uint32_t>(code_->extra.size());
    for (const Ref row : rows) {
        rows_in_extra_.push_back(static_cast<std::uint32_t>(code_->extra.size()));
        code_->extra.push_back(row);
    }
    return at;
}

} // namespace singularity::softgpu::engine
