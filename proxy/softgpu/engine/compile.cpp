// SPDX-License-Identifier: GPL-2.0-or-later
#include "engine/compile.hpp"

#include "common/text.hpp"
#include "engine/context.hpp"
#include "engine/handlers.hpp"

#include <algorithm>
#include <cstring>
#include <map>
#include <new>
#include <utility>

#include <fmt/core.h>

namespace singularity::softgpu::engine {

void AlignedBytes::Free::operator()(std::byte *memory) const {
    ::operator delete(memory, std::align_val_t{kRowAlignment});
}

AlignedBytes::AlignedBytes(std::size_t wanted)
    : bytes(static_cast<std::byte *>(
          ::operator new(std::max<std::size_t>(wanted, 1), std::align_val_t{kRowAlignment}))),
      size(wanted) {
    std::memset(bytes.get(), 0, wanted);
}

namespace {

using ptx::Flag;
using ptx::Function;
using ptx::Instruction;
using ptx::kNone;
using ptx::Opcode;
using ptx::Operand;
using ptx::Space;
using ptx::Type;

struct Unsupported {
    Error error;
};

struct BuiltIn {
    std::string_view name;
    Handler handler;
};
constexpr BuiltIn kBuiltIns[] = {{"vprintf", control::print},
                                 {"__assertfail", control::assertion},
                                 {"malloc", control::allocate},
                                 {"free", control::release}};

constexpr std::uint64_t round_up(std::uint64_t value, std::uint64_t to) { return (value + to - 1) / to * to; }

// Bytes per lane of the row of a value: 0 for predicates.
unsigned row_width(Type type) {
    if (type == Type::pred)
        return 0;
    const std::uint32_t size = ptx::type_size(type);
    return size <= 4 ? 4 : size;
}

std::string_view text_of(ptx::Field field, auto value) {
    return ptx::word_text(field, static_cast<std::uint8_t>(value));
}

// Operand 1 is a second destination of these, written `d|p`.
bool has_predicate_pair(const Instruction &instruction) {
    switch (instruction.opcode) {
    case Opcode::setp:
    case Opcode::shfl:
    case Opcode::elect:
        return true;
    case Opcode::lop3:
        return instruction.operation != ptx::Operation::none;
    case Opcode::match:
        return instruction.mode == ptx::Mode::all;
    default:
        return false;
    }
}

// Lanes that execute these leave the path of the others, or wait: a guard becomes a branch around them.
bool needs_own_path(const Instruction &instruction) {
    switch (instruction.opcode) {
    case Opcode::call:
    case Opcode::ret:
    case Opcode::exit:
    case Opcode::trap:
    case Opcode::brkpt:
    case Opcode::bar:
    case Opcode::barrier:
    case Opcode::shfl:
    case Opcode::vote:
    case Opcode::match:
    case Opcode::redux:
    case Opcode::elect:
    case Opcode::activemask:
    case Opcode::mma:
    case Opcode::ldmatrix:
    case Opcode::stmatrix:
    case Opcode::movmatrix:
    case Opcode::mbarrier:
    case Opcode::alloca:
        return true;
    default:
        return false;
    }
}

class FunctionCompiler {
  public:
    FunctionCompiler(const Layout &layout, std::uint32_t index)
        : layout_(layout), module_(*layout.module), function_(module_.functions[index]),
          code_(std::make_unique<Code>()), registers_(function_.registers.size(), kAbsent),
          uses_(function_.registers.size(), 0) {
        code_->function = &function_;
        code_->index = index;
    }

    std::unique_ptr<Code> compile() {
        if (function_.unsupported)
            throw Unsupported{*function_.unsupported};
        for (const auto *list : {&function_.parameters, &function_.results})
            for (const ptx::Parameter &parameter : *list)
                if (parameter.reg != kNone)
                    throw Unsupported{{"run", quote(function_.name), "its parameters are in registers", 0}};
        place_frame();
        count_uses();
        carry_ = new_predicate();
        std::vector<bool> meeting(function_.blocks.size() + 1, false);
        for (const ptx::Block &block : function_.blocks)
            if (block.reconvergence != kNone && block.successors.size() + (block.ends ? 1 : 0) > 1)
                meeting[block.reconvergence] = true;
        for (std::uint32_t b = 0; b < function_.blocks.size(); ++b) {
            const ptx::Block &block = function_.blocks[b];
            block_starts_.push_back(static_cast<std::uint32_t>(code_->ops.size()));
            if (meeting[b])
                add({.run = control::meet});
            for (at_ = block.first; at_ < block.last; ++at_)
                instruction(function_.instructions[at_], block);
        }
        at_ = function_.instructions.empty() ? 0
                                             : static_cast<std::uint32_t>(function_.instructions.size() - 1);
        add({.run = control::leave_function}); // falling off the end
        for (const auto &[op, block] : targets_)
            code_->ops[op].target = block_starts_.at(block);
        for (const auto &[op, block] : meetings_)
            code_->ops[op].meeting = block == kNone ? kNone : block_starts_.at(block);
        for (const auto &[at, block] : table_targets_)
            code_->extra[at] = block_starts_.at(block);
        finish_rows();
        return std::move(code_);
    }

  private:
    [[noreturn]] void unsupported(std::string why) const {
        const std::uint32_t line = at_ < function_.instructions.size() ? function_.instructions[at_].line : 0;
        throw Unsupported{{"run",
                           fmt::format("{} of {}, PTX line {}", spelled(), quote(function_.name), line),
                           std::move(why), 0}};
    }
    [[nodiscard]] std::string spelled() const {
        return at_ < function_.instructions.size() ? spell(function_.instructions[at_])
                                                   : std::string("the code");
    }

    // The lane's stack: locals, parameters of calls, own parameters, results.
    void place_frame() {
        const auto end_of = [](const std::vector<ptx::Parameter> &list) {
            return list.empty() ? 0 : list.back().offset + list.back().size;
        };
        call_parameters_ = round_up(function_.local_size, 16);
        code_->parameters = round_up(call_parameters_ + function_.param_size, 16);
        code_->results =
            round_up(code_->parameters + (function_.kernel ? 0 : end_of(function_.parameters)), 16);
        code_->frame = round_up(code_->results + end_of(function_.results), 16);
    }

    void count_uses() {
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

    // Rows. Predicates are laid out first, when their number is known: until then their references are
    // marked.
    static constexpr Ref kPredicateMark = 1U << 30U;
    Ref new_predicate() { return kPredicateMark | (4 * predicates_++); }
    Ref new_row(unsigned width) {
        const Ref at = rows_;
        rows_ += width * kLanes;
        if (rows_ >= kPredicateMark)
            unsupported("the function has too many registers");
        return at;
    }
    Ref register_row(std::uint32_t slot) {
        Ref &row = registers_.at(slot);
        if (row == kAbsent) {
            const unsigned width = row_width(function_.registers[slot]);
            row = width == 0 ? new_predicate() : new_row(width);
        }
        return row;
    }
    Ref temporary(unsigned width) {
        auto &free = temporaries_[width];
        if (free.used == free.rows.size())
            free.rows.push_back(width == 0 ? new_predicate() : new_row(width));
        return free.rows[free.used++];
    }
    void finish_rows() {
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
        code_->rows = rows_ + shift;
        code_->constants = AlignedBytes(constants_.size());
        std::ranges::copy(constants_, code_->constants.bytes.get());
    }

    Ref constant(unsigned width, std::uint64_t value) {
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

    Op &add(Op op) {
        op.instruction = at_;
        return code_->ops.emplace_back(op);
    }

    // Executed by the lanes that the guard lets, if the instruction has one.
    void add_guarded(const Op &op) {
        const Instruction &instruction = function_.instructions[at_];
        if (instruction.guard != kNone && !needs_own_path(instruction))
            add({.run = control::guard,
                 .o = {register_row(instruction.guard), kAbsent, kAbsent, kAbsent, kAbsent, kAbsent},
                 .mode = instruction.guard_negated ? std::uint8_t{1} : std::uint8_t{0}});
        add(op);
    }

    void add_move(Handler handler, Ref destination, Ref source) {
        add({.run = handler, .o = {destination, source, kAbsent, kAbsent, kAbsent, kAbsent}});
    }

    // The address of a variable, a parameter or a function, as a value. Known: an immediate; else the
    // operation that makes it.
    struct Address {
        Handler made_by = nullptr;
        std::uint64_t value = 0;
    };
    Address address_of(const Operand &operand) {
        switch (operand.kind) {
        case Operand::Kind::variable: {
            const ptx::Variable &variable = module_.variables[operand.index];
            if (variable.space == Space::shared)
                return {nullptr, layout_.module_shared[operand.index] + operand.value};
            const std::uint64_t address = (*layout_.addresses)[operand.index];
            if (address == 0 && variable.size != 0)
                unsupported(fmt::format("{} has no address", quote(variable.name)));
            return {nullptr, address + operand.value};
        }
        case Operand::Kind::own_variable: {
            const ptx::Variable &variable = function_.variables[operand.index];
            if (variable.space == Space::shared)
                return {nullptr, layout_.own_shared[code_->index][operand.index] + operand.value};
            return {control::frame_address, frame_offset(operand)};
        }
        case Operand::Kind::parameter:
            if (function_.kernel)
                return {control::parameter_address,
                        function_.parameters[operand.index].offset + operand.value};
            return {control::frame_address, frame_offset(operand)};
        case Operand::Kind::result:
            return {control::frame_address, frame_offset(operand)};
        case Operand::Kind::function:
            return {nullptr, kFunctionWindow | (std::uint64_t{resolve_alias(module_, operand.index)} << 4U)};
        default:
            unsupported("an operand has no address");
        }
    }

    std::uint64_t frame_offset(const Operand &operand) const {
        switch (operand.kind) {
        case Operand::Kind::own_variable: {
            const ptx::Variable &variable = function_.variables[operand.index];
            return (variable.space == Space::param ? call_parameters_ : 0) + variable.offset + operand.value;
        }
        case Operand::Kind::parameter:
            return code_->parameters + function_.parameters[operand.index].offset + operand.value;
        default:
            return code_->results + function_.results[operand.index].offset + operand.value;
        }
    }

    Ref source(const Operand &operand) { return source(operand, operand.type); }
    Ref source(const Operand &operand, Type type) {
        const unsigned width = row_width(type);
        switch (operand.kind) {
        case Operand::Kind::reg: {
            const Ref row = register_row(operand.index);
            const unsigned own = row_width(function_.registers[operand.index]);
            if (own == width) {
                if (!operand.negated)
                    return row;
                const Ref inverse = temporary(0);
                add_move(predicate_not(), inverse, row);
                return inverse;
            }
            if ((own != 4 && own != 8) || (width != 4 && width != 8))
                unsupported("a register does not fit its operand");
            const Ref fitted = temporary(width);
            add_move(own == 8               ? handlers().narrow
                     : ptx::is_signed(type) ? handlers().widen_signed
                                            : handlers().widen_unsigned,
                     fitted, row);
            return fitted;
        }
        case Operand::Kind::immediate:
            return constant(width, operand.value);
        case Operand::Kind::special: {
            const Ref row = temporary(width);
            add({.run = control::special,
                 .o = {row, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent},
                 .immediate = width,
                 .mode = static_cast<std::uint8_t>(operand.index)});
            return row;
        }
        case Operand::Kind::variable:
        case Operand::Kind::own_variable:
        case Operand::Kind::parameter:
        case Operand::Kind::result:
        case Operand::Kind::function: {
            const Address address = address_of(operand);
            if (address.made_by == nullptr)
                return constant(width, address.value);
            const Ref row = temporary(width);
            add({.run = address.made_by,
                 .o = {row, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent},
                 .immediate = address.value,
                 .mode = static_cast<std::uint8_t>(width)});
            return row;
        }
        default:
            unsupported("an operand cannot be read");
        }
    }

    static Handler predicate_not() {
        Instruction instruction;
        instruction.opcode = Opcode::not_;
        instruction.types[0] = Type::pred;
        return handlers().logic(instruction, Op{});
    }
    static Handler integer_handler(Opcode opcode, Type type) {
        Instruction instruction;
        instruction.opcode = opcode;
        instruction.types[0] = type;
        const Handler handler = handlers().integer(instruction, Op{});
        return handler != nullptr ? handler : handlers().logic(instruction, Op{});
    }

    // A destination whose register is wider than what is written to it: extended afterwards.
    struct Destination {
        Ref written = kAbsent;
        Ref wide = kAbsent;
        bool is_signed = false;
    };
    Destination destination(const Operand &operand) {
        const unsigned width = row_width(operand.type);
        if (operand.kind == Operand::Kind::none)
            return {temporary(width), kAbsent, false};
        if (operand.kind != Operand::Kind::reg)
            unsupported("the destination is not a register");
        const Ref row = register_row(operand.index);
        const unsigned own = row_width(function_.registers[operand.index]);
        if (own == width)
            return {row, kAbsent, false};
        if (own != 8 || width != 4)
            unsupported("the destination does not fit its register");
        return {temporary(4), row, ptx::is_signed(operand.type)};
    }
    void finish(const Destination &destination) {
        if (destination.wide == kAbsent)
            return;
        const Handler widen = destination.is_signed ? handlers().widen_signed : handlers().widen_unsigned;
        add_guarded(
            {.run = widen, .o = {destination.wide, destination.written, kAbsent, kAbsent, kAbsent, kAbsent}});
    }

    const Operand &operand(const Instruction &instruction, std::uint32_t at) const {
        return function_.operands[instruction.operands + at];
    }

    std::uint32_t extra_rows(const std::vector<Ref> &rows) {
        const auto at = static_cast<std::uint32_t>(code_->extra.size());
        for (const Ref row : rows) {
            rows_in_extra_.push_back(static_cast<std::uint32_t>(code_->extra.size()));
            code_->extra.push_back(row);
        }
        return at;
    }

    // Where an access goes; Op::o[5] is the row of its address.
    void set_address(Op &op, const Operand &address, Space space, std::uint64_t bytes) {
        op.immediate = address.value;
        op.base = Base::none;
        switch (space) {
        case Space::global:
        case Space::constant:
            op.place = Place::global;
            break;
        case Space::shared:
        case Space::shared_cta:
        case Space::shared_cluster:
            op.place = Place::shared;
            break;
        case Space::local:
            op.place = Place::local;
            break;
        case Space::param:
        case Space::param_entry:
        case Space::param_func: // by a register: where mov got it from
            op.place = function_.kernel && address.kind != Operand::Kind::own_variable ? Place::global
                                                                                       : Place::local;
            break;
        default:
            op.place = Place::generic;
            break;
        }
        switch (address.kind) {
        case Operand::Kind::reg: {
            const unsigned width = row_width(function_.registers[address.index]);
            if (width != 4 && width != 8)
                unsupported("the address is in no register of 32 or 64 bits");
            op.base = width == 4 ? Base::row32 : Base::row64;
            op.o[5] = register_row(address.index);
            return;
        }
        case Operand::Kind::immediate:
            return;
        case Operand::Kind::parameter:
            if (function_.kernel) {
                const ptx::Parameter &parameter = function_.parameters[address.index];
                op.immediate = parameter.offset + address.value;
                if (op.immediate > function_.parameter_size ||
                    bytes > function_.parameter_size - op.immediate)
                    unsupported(fmt::format("it reads behind the parameters of {}", quote(function_.name)));
                op.place = Place::parameter;
                return;
            }
            break;
        default:
            break;
        }
        const Address known = address_of(address);
        op.immediate = known.value;
        if (known.made_by != nullptr)
            op.place = Place::frame;
        else if (op.place == Place::generic && is_shared(address))
            op.place = Place::shared;
    }
    [[nodiscard]] bool is_shared(const Operand &operand) const {
        const ptx::Variable &variable = operand.kind == Operand::Kind::variable
                                            ? module_.variables[operand.index]
                                            : function_.variables[operand.index];
        return variable.space == Space::shared;
    }

    static bool is_ordered(const Instruction &instruction) {
        return instruction.semantics != ptx::Semantics::none && instruction.semantics != ptx::Semantics::weak;
    }

    void load(const Instruction &instruction) {
        const Operand &to = operand(instruction, 0);
        const Type type = instruction.types[0];
        Op op;
        std::vector<Destination> destinations;
        std::vector<Ref> rows;
        const std::uint32_t count = to.kind == Operand::Kind::vector ? to.count : 1;
        for (std::uint32_t i = 0; i < count; ++i) {
            Operand element = to.kind == Operand::Kind::vector ? function_.operands[to.index + i] : to;
            element.type = type;
            destinations.push_back(destination(element));
            rows.push_back(destinations.back().written);
        }
        op.count = static_cast<std::uint8_t>(count);
        op.o[0] = rows[0];
        if (count > 1)
            op.extra = extra_rows(rows);
        set_address(op, operand(instruction, 1), instruction.spaces[0],
                    std::uint64_t{ptx::type_size(type)} * count);
        op.run = handlers().load(type, op);
        if (is_ordered(instruction)) // the lane may be waiting for what another writes
            add({.run = control::yield_turn});
        emit(op);
        std::ranges::for_each(destinations, [&](const Destination &each) { finish(each); });
    }

    void store(const Instruction &instruction) {
        const Operand &from = operand(instruction, 1);
        const Type type = instruction.types[0];
        Op op;
        std::vector<Ref> rows;
        const std::uint32_t count = from.kind == Operand::Kind::vector ? from.count : 1;
        for (std::uint32_t i = 0; i < count; ++i) {
            const Operand &element =
                from.kind == Operand::Kind::vector ? function_.operands[from.index + i] : from;
            rows.push_back(source(element, type));
        }
        op.count = static_cast<std::uint8_t>(count);
        op.o[1] = rows[0];
        if (count > 1)
            op.extra = extra_rows(rows);
        set_address(op, operand(instruction, 0), instruction.spaces[0],
                    std::uint64_t{ptx::type_size(type)} * count);
        op.run = handlers().store(type, op);
        emit(op);
    }

    void emit(const Op &op) {
        if (op.run == nullptr)
            unsupported("the engine does not know it");
        add_guarded(op);
    }

    // mov: from what is no plain value.
    bool move(const Instruction &instruction) {
        const Operand &to = operand(instruction, 0);
        const Operand &from = operand(instruction, 1);
        const Type type = instruction.types[0];
        if (to.kind == Operand::Kind::vector || from.kind == Operand::Kind::vector) {
            move_tuple(instruction, to, from, type);
            return true;
        }
        const Destination into = destination(to);
        if (from.kind == Operand::Kind::special) {
            add_guarded({.run = control::special,
                         .o = {into.written, kAbsent, kAbsent, kAbsent, kAbsent, kAbsent},
                         .immediate = row_width(type),
                         .mode = static_cast<std::uint8_t>(from.index)});
            finish(into);
            return true;
        }
        return false;
    }

    void move_tuple(const Instruction &, const Operand &to, const Operand &from, Type type) {
        const bool unpacks = to.kind == Operand::Kind::vector;
        const Operand &tuple = unpacks ? to : from;
        const Operand &whole = unpacks ? from : to;
        if (whole.kind == Operand::Kind::vector) { // element by element: mov.v2 and the like
            unsupported("tuples on both sides");
        }
        Op op;
        op.count = tuple.count;
        op.mode = static_cast<std::uint8_t>(ptx::type_size(type));
        std::vector<Ref> rows;
        std::vector<Destination> destinations;
        const std::uint32_t part = ptx::type_size(type) / std::max<std::uint32_t>(tuple.count, 1);
        for (std::uint32_t i = 0; i < tuple.count; ++i) {
            Operand element = function_.operands[tuple.index + i];
            if (element.type == Type::none)
                unsupported("a tuple does not divide its register");
            // A part in a register wider than itself is read as it is; its upper bits are cut off.
            if (element.kind == Operand::Kind::reg && row_width(function_.registers[element.index]) == 8 &&
                part < 8)
                unsupported("an element of the tuple does not fit its register");
            if (unpacks) {
                destinations.push_back(destination(element));
                rows.push_back(destinations.back().written);
            } else {
                rows.push_back(source(element));
            }
        }
        op.extra = extra_rows(rows);
        Operand typed = whole;
        typed.type = type;
        const Destination into = unpacks ? Destination{} : destination(typed);
        op.o[0] = unpacks ? source(typed) : into.written;
        op.run = unpacks ? handlers().unpack(part, ptx::type_size(type))
                         : handlers().pack(part, ptx::type_size(type));
        emit(op);
        finish(into);
        std::ranges::for_each(destinations, [&](const Destination &each) { finish(each); });
    }

    void convert_address(const Instruction &instruction) {
        const Destination into = destination(operand(instruction, 0));
        const Ref from = source(operand(instruction, 1));
        const unsigned width = row_width(instruction.types[0]);
        std::uint64_t window = 0;
        switch (instruction.spaces[0]) {
        case Space::shared:
        case Space::shared_cta:
        case Space::shared_cluster:
            window = kSharedWindow;
            break;
        case Space::local:
            window = kLocalWindow;
            break;
        default: // a parameter of a function is on the lane's stack, of a kernel at an ordinary address
            if ((instruction.spaces[0] == Space::param || instruction.spaces[0] == Space::param_func) &&
                !function_.kernel)
                window = kLocalWindow;
            break;
        }
        Op op;
        op.o[0] = into.written;
        op.o[1] = from;
        if (width != 8) {
            if (window != 0)
                unsupported("generic addresses have 64 bits");
            op.run = integer_handler(Opcode::mov, Type::u32);
        } else if (window == 0) {
            op.run = integer_handler(Opcode::mov, Type::u64);
        } else if (instruction.has(Flag::to)) {
            op.run = integer_handler(Opcode::and_, Type::b64);
            op.o[2] = constant(8, kWindowMask);
        } else {
            op.run = integer_handler(Opcode::add, Type::u64);
            op.o[2] = constant(8, window);
        }
        emit(op);
        finish(into);
    }

    void branch(const Instruction &instruction, const ptx::Block &block) {
        if (instruction.opcode == Opcode::brx) {
            const Operand &table = operand(instruction, 1);
            if (table.kind != Operand::Kind::branch_table)
                unsupported("it has no table of targets");
            const auto &targets = function_.branch_tables[table.index];
            Op op;
            op.run = control::branch_table;
            op.o[0] = source(operand(instruction, 0));
            op.extra = static_cast<std::uint32_t>(code_->extra.size());
            op.immediate = targets.size();
            for (const Operand &target : targets) {
                table_targets_.emplace_back(static_cast<std::uint32_t>(code_->extra.size()),
                                            static_cast<std::uint32_t>(target.value));
                code_->extra.push_back(0);
            }
            if (instruction.guard != kNone) {
                // The lanes that the guard stops go on after it, which is the next block.
                Op skip{.run = control::branch_if};
                skip.o[0] = register_row(instruction.guard);
                skip.mode = instruction.guard_negated ? 0 : 1;
                meetings_.emplace_back(size(), block.reconvergence);
                targets_.emplace_back(size(), block_index(block) + 1);
                add(skip);
            }
            meetings_.emplace_back(size(), block.reconvergence);
            add(op);
            return;
        }
        const Operand &target = operand(instruction, 0);
        Op op;
        op.run = instruction.guard == kNone ? control::branch : control::branch_if;
        if (instruction.guard != kNone) {
            op.o[0] = register_row(instruction.guard);
            op.mode = instruction.guard_negated ? 1 : 0;
            meetings_.emplace_back(size(), block.reconvergence);
        }
        targets_.emplace_back(size(), static_cast<std::uint32_t>(target.value));
        add(op);
    }
    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(code_->ops.size()); }
    [[nodiscard]] std::uint32_t block_index(const ptx::Block &block) const {
        return static_cast<std::uint32_t>(&block - function_.blocks.data());
    }

    Argument argument(const Operand &operand, const ptx::Parameter &parameter) {
        Argument made;
        made.size = static_cast<std::uint32_t>(parameter.size);
        if (operand.kind == Operand::Kind::own_variable &&
            function_.variables[operand.index].space == Space::param) {
            const ptx::Variable &variable = function_.variables[operand.index];
            made.size = static_cast<std::uint32_t>(std::min(variable.size, parameter.size));
            made.from = frame_offset(operand);
            return made;
        }
        if (parameter.size > 8)
            unsupported("a register cannot be passed for a parameter of this size");
        made.row = source(operand, parameter.type);
        made.wide = row_width(parameter.type) == 8;
        return made;
    }

    void call(const Instruction &instruction) {
        const ptx::Call &call = function_.calls[instruction.call];
        const std::vector<ptx::Parameter> *parameters = nullptr;
        const std::vector<ptx::Parameter> *results = nullptr;
        Op op;
        op.extra = static_cast<std::uint32_t>(code_->calls.size());
        if (call.callee.kind == Operand::Kind::function) {
            const std::uint32_t index = resolve_alias(module_, call.callee.index);
            const Function &callee = module_.functions[index];
            parameters = &callee.parameters;
            results = &callee.results;
            op.target = index;
            op.run = control::call;
            if (!callee.defined) {
                const auto *known =
                    std::ranges::find(kBuiltIns, std::string_view(callee.name), &BuiltIn::name);
                if (known == std::ranges::end(kBuiltIns))
                    unsupported(fmt::format("function {} is not defined", quote(callee.name)));
                op.run = known->handler;
            }
        } else {
            op.run = control::call_indirect;
            op.o[0] = source(call.callee, Type::u64);
            if (call.targets.kind == Operand::Kind::prototype) {
                const ptx::Prototype &prototype = function_.prototypes[call.targets.index];
                parameters = &prototype.parameters;
                results = &prototype.results;
            } else if (call.targets.kind == Operand::Kind::call_targets &&
                       !function_.call_targets[call.targets.index].empty()) {
                const Function &first = module_.functions[function_.call_targets[call.targets.index].front()];
                parameters = &first.parameters;
                results = &first.results;
            } else {
                unsupported("an indirect call without a prototype");
            }
        }
        if (call.arguments.size() != parameters->size() || call.results.size() != results->size())
            unsupported("the numbers of arguments and parameters differ");
        CallSite site;
        for (std::size_t i = 0; i < parameters->size(); ++i) {
            Argument made = argument(call.arguments[i], (*parameters)[i]);
            made.to = (*parameters)[i].offset;
            site.arguments.push_back(made);
        }
        for (std::size_t i = 0; i < results->size(); ++i) {
            const Operand &result = call.results[i];
            Argument made;
            made.size = static_cast<std::uint32_t>((*results)[i].size);
            made.from = (*results)[i].offset;
            if (result.kind == Operand::Kind::own_variable) {
                made.size = static_cast<std::uint32_t>(
                    std::min<std::uint64_t>(made.size, function_.variables[result.index].size));
                made.to = frame_offset(result);
            } else if (result.kind == Operand::Kind::reg && made.size <= 8) {
                made.row = register_row(result.index);
                made.wide = row_width(function_.registers[result.index]) == 8;
            } else if (result.kind == Operand::Kind::none) {
                continue;
            } else {
                unsupported("a result cannot be put there");
            }
            site.results.push_back(made);
        }
        code_->calls.push_back(std::move(site));
        add(op);
        if (op.run == control::call_indirect) // lanes that called different functions meet here
            add({.run = control::meet});
    }

    // bar.sync a[, b]; bar.arrive a, b; bar.red d, a[, b], p
    void barrier(const Instruction &instruction) {
        if (instruction.mode == ptx::Mode::warp) {
            Op op;
            op.o[2] = source(operand(instruction, 0));
            collective(instruction, op);
            return;
        }
        if (instruction.scope == ptx::Scope::cluster) {
            add({.run = instruction.mode == ptx::Mode::arrive ? control::cluster_arrive
                                                              : control::cluster_wait});
            return;
        }
        Op op;
        op.run = control::barrier;
        op.mode = static_cast<std::uint8_t>(instruction.mode);
        std::uint32_t next = 0;
        Destination into;
        if (instruction.mode == ptx::Mode::red) {
            into = destination(operand(instruction, next++));
            op.o[0] = into.written;
            op.key = static_cast<std::uint16_t>(instruction.operation);
        }
        op.o[1] = source(operand(instruction, next++));
        const bool predicate_last = instruction.mode == ptx::Mode::red;
        const std::uint32_t left = instruction.operand_count - next - (predicate_last ? 1 : 0);
        if (left > 0 && operand(instruction, next).kind != Operand::Kind::none)
            op.o[2] = source(operand(instruction, next));
        if (predicate_last)
            op.o[3] = source(operand(instruction, instruction.operand_count - 1));
        add(op);
        finish(into);
    }

    void collective(const Instruction &instruction, Op op) {
        op.run = select_collective(instruction);
        op.immediate = collective_index(instruction);
        if (op.run == nullptr)
            unsupported("the engine does not know it");
        op.key = static_cast<std::uint16_t>((static_cast<unsigned>(instruction.opcode) << 8U) ^
                                            (static_cast<unsigned>(instruction.mode) << 4U) ^
                                            (static_cast<unsigned>(instruction.operation) << 2U) ^
                                            static_cast<unsigned>(instruction.types[0]));
        add(op);
    }

    static std::uint8_t float_mode(const Instruction &instruction) {
        constexpr std::pair<Flag, unsigned> bits[] = {{Flag::ftz, 1}, {Flag::sat, 2},      {Flag::relu, 4},
                                                      {Flag::nan, 8}, {Flag::xorsign, 16}, {Flag::abs, 32},
                                                      {Flag::oob, 64}};
        unsigned mode = 0;
        for (const auto &[flag, bit] : bits)
            mode |= instruction.has(flag) ? bit : 0;
        if (instruction.opcode == Opcode::cvt && instruction.has(Flag::satfinite))
            mode |= 8;
        return static_cast<std::uint8_t>(mode);
    }

    // What true is, of set.
    static std::uint64_t truth(Type type, Type compared) {
        const bool pair = compared == Type::f16x2 || compared == Type::bf16x2;
        switch (type) {
        case Type::f32:
            return 0x3F800000U;
        case Type::f16:
        case Type::f16x2:
            return 0x3C00U;
        case Type::bf16:
        case Type::bf16x2:
            return 0x3F80U;
        default:
            return pair ? 0xFFFFU : 0xFFFFFFFFU;
        }
    }

    void set_modes(const Instruction &instruction, Op &op) {
        using ptx::Rounding;
        const Rounding rounding = instruction.rounding;
        if (rounding == Rounding::rz || rounding == Rounding::rm || rounding == Rounding::rp)
            op.rounding = static_cast<std::uint8_t>(rounding);
        switch (instruction.opcode) {
        case Opcode::setp:
            op.mode = static_cast<std::uint8_t>(instruction.operation);
            op.access = 1;
            break;
        case Opcode::set:
            op.mode = static_cast<std::uint8_t>(instruction.operation);
            op.immediate = truth(instruction.types[0], instruction.types[1]);
            break;
        case Opcode::testp:
            op.mode = static_cast<std::uint8_t>(instruction.operation);
            break;
        case Opcode::slct:
            op.mode = instruction.types[1] != Type::f32 ? 0 : instruction.has(Flag::ftz) ? 2 : 1;
            break;
        case Opcode::prmt:
            op.mode = instruction.mode == ptx::Mode::none
                          ? 0
                          : static_cast<std::uint8_t>(static_cast<unsigned>(instruction.mode) -
                                                      static_cast<unsigned>(ptx::Mode::f4e) + 1);
            break;
        case Opcode::addc:
        case Opcode::subc:
        case Opcode::madc:
            op.mode = instruction.has(Flag::cc) ? 3 : 2;
            break;
        default:
            if (instruction.has(Flag::cc))
                op.mode = 1;
            else if (ptx::is_float(instruction.types[0]) || instruction.opcode == Opcode::cvt)
                op.mode = float_mode(instruction);
            else if (instruction.types[2] != Type::none) // vadd2 and its kin
                op.mode = static_cast<std::uint8_t>((instruction.has(Flag::sat) ? 1U : 0U) |
                                                    (instruction.has(Flag::accumulate) ? 2U : 0U) |
                                                    (ptx::is_signed(instruction.types[0]) ? 4U : 0U) |
                                                    (ptx::is_signed(instruction.types[1]) ? 8U : 0U) |
                                                    (ptx::is_signed(instruction.types[2]) ? 16U : 0U));
            break;
        }
    }

    void logic_table(const Instruction &instruction, Op &op) {
        const bool with_predicate = instruction.operation != ptx::Operation::none;
        const std::uint32_t first = with_predicate ? 2 : 1;
        const Operand &table = operand(instruction, first + 3);
        if (table.kind != Operand::Kind::immediate)
            unsupported("the truth table is not a constant");
        op.immediate = table.value;
        for (std::uint32_t i = 0; i < 3; ++i)
            op.o[first + i] = source(operand(instruction, first + i));
        if (with_predicate) {
            op.mode = static_cast<std::uint8_t>(instruction.operation);
            op.o[5] = source(operand(instruction, 6));
        }
    }

    // Instructions whose operands are rows: destination first, the sources after it.
    void plain(const Instruction &instruction) {
        Op op;
        const bool pair = has_predicate_pair(instruction);
        const Destination into = destination(operand(instruction, 0));
        op.o[0] = into.written;
        if (pair && operand(instruction, 1).kind != Operand::Kind::none)
            op.o[1] = destination(operand(instruction, 1)).written;
        if (instruction.opcode == Opcode::lop3) {
            logic_table(instruction, op);
        } else {
            if (instruction.operand_count > op.o.size())
                unsupported("it has too many operands");
            for (std::uint32_t i = pair ? 2 : 1; i < instruction.operand_count; ++i)
                if (operand(instruction, i).kind != Operand::Kind::none)
                    op.o[i] = source(operand(instruction, i));
        }
        set_modes(instruction, op);
        const HandlerSet &set = handlers();
        for (const Selector select : {set.half, set.floating, set.convert, set.integer, set.logic})
            if (op.run == nullptr)
                op.run = select(instruction, op);
        const bool carries = instruction.has(Flag::cc) || instruction.opcode == Opcode::addc ||
                             instruction.opcode == Opcode::subc || instruction.opcode == Opcode::madc;
        if (carries)
            op.extra = carry_;
        emit(op);
        if (carries)
            carries_[size() - 1] = true;
        finish(into);
    }

    void collective_instruction(const Instruction &instruction) {
        Op op;
        const bool pair = has_predicate_pair(instruction);
        const Destination into = destination(operand(instruction, 0));
        op.o[0] = into.written;
        if (pair && operand(instruction, 1).kind != Operand::Kind::none)
            op.o[1] = destination(operand(instruction, 1)).written;
        // The member mask goes to o[2]; the values after it.
        Ref members = kAbsent;
        std::vector<Ref> values;
        for (std::uint32_t i = pair ? 2 : 1; i < instruction.operand_count; ++i) {
            const Operand &each = operand(instruction, i);
            if (each.kind == Operand::Kind::none)
                continue;
            values.push_back(source(each));
        }
        const bool synchronous = instruction.has(Flag::sync);
        if (synchronous && !values.empty()) {
            members = values.back();
            values.pop_back();
        }
        op.o[2] = members;
        for (std::size_t i = 0; i < values.size() && i < 3; ++i)
            op.o[3 + i] = values[i];
        op.mode = static_cast<std::uint8_t>(instruction.mode);
        collective(instruction, op);
        finish(into);
    }

    void atomic(const Instruction &instruction) {
        const bool reduction = instruction.opcode == Opcode::red;
        const std::uint32_t first = reduction ? 0 : 1; // the address
        Op op;
        std::vector<Destination> destinations;
        const Operand &value = operand(instruction, first + 1);
        const std::uint32_t count = value.kind == Operand::Kind::vector ? value.count : 1;
        op.count = static_cast<std::uint8_t>(count);
        std::vector<Ref> results;
        std::vector<Ref> values;
        for (std::uint32_t i = 0; i < count; ++i) {
            const Operand &element =
                value.kind == Operand::Kind::vector ? function_.operands[value.index + i] : value;
            values.push_back(source(element, instruction.types[0]));
            if (reduction)
                continue;
            const Operand &to = operand(instruction, 0);
            Operand result = to.kind == Operand::Kind::vector ? function_.operands[to.index + i] : to;
            result.type = instruction.types[0];
            if (result.kind == Operand::Kind::none ||
                (result.kind == Operand::Kind::reg && uses_[result.index] == 1)) {
                results.push_back(kAbsent);
                continue;
            }
            destinations.push_back(destination(result));
            results.push_back(destinations.back().written);
        }
        op.o[0] = results.empty() ? kAbsent : results[0];
        op.o[1] = values[0];
        if (instruction.operation == ptx::Operation::cas)
            op.o[2] = source(operand(instruction, first + 2), instruction.types[0]);
        if (count > 1) {
            results.resize(count, kAbsent);
            values.insert(values.end(), results.begin(), results.end());
            op.extra = extra_rows(values); // values, then results
        }
        set_address(op, operand(instruction, first), instruction.spaces[0],
                    std::uint64_t{ptx::type_size(instruction.types[0])} * count);
        op.mode = instruction.has(Flag::noftz) ? 1 : 0;
        op.run = select_atomic(instruction);
        emit(op);
        std::ranges::for_each(destinations, [&](const Destination &each) { finish(each); });
    }

    // The operands of mma, ldmatrix and their kin are tuples: their rows are in `extra`, one after the other.
    void matrix(const Instruction &instruction) {
        Op op;
        std::vector<Ref> rows;
        std::vector<Destination> destinations;
        for (std::uint32_t i = 0; i < instruction.operand_count; ++i) {
            const Operand &each = operand(instruction, i);
            if (each.kind == Operand::Kind::none)
                continue;
            if (each.memory) {
                set_address(op, each,
                            instruction.spaces[0] == Space::none ? Space::none : instruction.spaces[0], 16);
                continue;
            }
            const bool writes = i == 0 && instruction.opcode != Opcode::stmatrix;
            const std::uint32_t count = each.kind == Operand::Kind::vector ? each.count : 1;
            for (std::uint32_t k = 0; k < count; ++k) {
                const Operand &element =
                    each.kind == Operand::Kind::vector ? function_.operands[each.index + k] : each;
                if (element.kind == Operand::Kind::reg) {
                    rows.push_back(register_row(element.index));
                } else if (writes) {
                    rows.push_back(destination(element).written);
                } else {
                    rows.push_back(source(element));
                }
            }
            op.key = static_cast<std::uint16_t>(op.key |
                                                (count << (4 * std::min(i, 3U)))); // lengths of the tuples
        }
        op.extra = extra_rows(rows);
        op.count = static_cast<std::uint8_t>(rows.size());
        op.run = select_matrix(instruction);
        if (op.run == nullptr)
            unsupported("the engine does not know it");
        add(op);
    }

    // cp.async and mbarrier.
    void asynchronous(const Instruction &instruction) {
        Op op;
        op.run = select_asynchronous(instruction);
        op.mode = static_cast<std::uint8_t>(instruction.mode);
        if (op.run == nullptr)
            unsupported("the engine does not know it");
        if (instruction.opcode == Opcode::cp && instruction.operand_count >= 3) {
            set_address(op, operand(instruction, 0), instruction.spaces[0], 4);
            Op second;
            set_address(second, operand(instruction, 1), Space::global, 4);
            // The source: its row in o[1], what is added to it as a constant row in o[2].
            op.o[1] = second.base == Base::row64 ? second.o[5] : constant(8, 0);
            if (second.base == Base::row32)
                unsupported("the source's address has 32 bits");
            op.o[2] = constant(8, second.immediate);
            const Operand &bytes = operand(instruction, 2);
            if (bytes.kind != Operand::Kind::immediate)
                unsupported("the number of bytes is not a constant");
            op.key = static_cast<std::uint16_t>(bytes.value);
            if (instruction.operand_count > 3 && operand(instruction, 3).kind != Operand::Kind::none)
                op.o[3] = source(operand(instruction, 3), Type::u32);
            emit(op);
            return;
        }
        Destination into;
        std::uint32_t values = 1;
        for (std::uint32_t i = 0; i < instruction.operand_count; ++i) {
            const Operand &each = operand(instruction, i);
            if (each.memory) {
                set_address(op, each, instruction.spaces[0], 8);
            } else if (i == 0 && instruction.opcode == Opcode::mbarrier &&
                       instruction.mode != ptx::Mode::init && instruction.mode != ptx::Mode::expect_tx &&
                       instruction.mode != ptx::Mode::complete_tx && instruction.mode != ptx::Mode::inval) {
                into = destination(each);
                op.o[0] = into.written;
            } else if (each.kind != Operand::Kind::none && values < 5) {
                op.o[values++] =
                    instruction.has(Flag::parity) && i == 2 ? source(each, Type::u32) : source(each);
            }
        }
        op.access = static_cast<std::uint8_t>((instruction.has(Flag::parity) ? 2U : 0U) |
                                              (instruction.has(Flag::expects) ? 4U : 0U) |
                                              (instruction.has(Flag::noinc) ? 8U : 0U));
        emit(op);
        finish(into);
    }

    void stack(const Instruction &instruction) {
        Op op;
        if (instruction.opcode == Opcode::stackrestore) {
            op.run = control::nothing; // what alloca took is given back when the function returns
            add(op);
            return;
        }
        const Destination into = destination(operand(instruction, 0));
        op.o[0] = into.written;
        op.mode = static_cast<std::uint8_t>(row_width(instruction.types[0]));
        if (instruction.opcode == Opcode::alloca) {
            op.run = control::allocate_stack;
            op.o[1] = source(operand(instruction, 1));
            op.immediate = 16;
            if (instruction.operand_count > 2 && operand(instruction, 2).kind == Operand::Kind::immediate)
                op.immediate = std::max<std::uint64_t>(operand(instruction, 2).value, 1);
        } else {
            op.run = control::save_stack;
        }
        add(op);
        finish(into);
    }

    void instruction(const Instruction &instruction, const ptx::Block &block) {
        for (auto &[width, free] : temporaries_)
            free.used = 0;
        const bool skipped = instruction.guard != kNone && needs_own_path(instruction);
        std::uint32_t skip = 0;
        if (skipped) {
            skip = size();
            Op op{.run = control::branch_if};
            op.o[0] = register_row(instruction.guard);
            op.mode = instruction.guard_negated ? 0 : 1;
            add(op);
        }
        body(instruction, block);
        if (skipped) {
            code_->ops[skip].target = size();
            code_->ops[skip].meeting = size();
            add({.run = control::meet});
        }
    }

    void body(const Instruction &instruction, const ptx::Block &block) {
        switch (instruction.opcode) {
        case Opcode::bra:
        case Opcode::brx:
            branch(instruction, block);
            return;
        case Opcode::call:
            call(instruction);
            return;
        case Opcode::ret:
            add({.run = control::leave_function});
            return;
        case Opcode::exit:
            add({.run = control::exit_lanes});
            return;
        case Opcode::trap:
            add({.run = control::trap});
            return;
        case Opcode::brkpt:
            add({.run = control::breakpoint});
            return;
        case Opcode::nanosleep:
            add({.run = control::yield_turn});
            return;
        case Opcode::membar:
        case Opcode::fence:
            add({.run = control::fence});
            return;
        case Opcode::pmevent:
        case Opcode::griddepcontrol:
        case Opcode::prefetch:
        case Opcode::prefetchu:
        case Opcode::applypriority:
        case Opcode::discard: // hints: leaving memory as it is is one of the things they allow
            return;
        case Opcode::ld:
        case Opcode::ldu:
            load(instruction);
            return;
        case Opcode::st:
            store(instruction);
            return;
        case Opcode::atom:
        case Opcode::red:
            atomic(instruction);
            return;
        case Opcode::bar:
        case Opcode::barrier:
            barrier(instruction);
            return;
        case Opcode::shfl:
        case Opcode::vote:
        case Opcode::match:
        case Opcode::redux:
        case Opcode::elect:
        case Opcode::activemask:
            collective_instruction(instruction);
            return;
        case Opcode::mma:
        case Opcode::ldmatrix:
        case Opcode::stmatrix:
        case Opcode::movmatrix:
            matrix(instruction);
            return;
        case Opcode::cp:
        case Opcode::mbarrier:
            asynchronous(instruction);
            return;
        case Opcode::cvta:
            convert_address(instruction);
            return;
        case Opcode::isspacep: {
            Op op;
            op.o[0] = destination(operand(instruction, 0)).written;
            op.o[1] = source(operand(instruction, 1));
            op.mode = static_cast<std::uint8_t>(instruction.spaces[0]);
            op.run = control::is_space;
            emit(op);
            return;
        }
        case Opcode::mapa: { // a cluster is one block: rank 0 is the block itself
            Op op;
            const Destination into = destination(operand(instruction, 0));
            op.o[0] = into.written;
            op.o[1] = source(operand(instruction, 1));
            op.run = integer_handler(Opcode::mov, instruction.types[0]);
            emit(op);
            finish(into);
            return;
        }
        case Opcode::getctarank: {
            Op op;
            const Destination into = destination(operand(instruction, 0));
            op.o[0] = into.written;
            op.o[1] = constant(row_width(operand(instruction, 0).type), 0);
            op.run = integer_handler(Opcode::mov, Type::u32);
            emit(op);
            finish(into);
            return;
        }
        case Opcode::alloca:
        case Opcode::stacksave:
        case Opcode::stackrestore:
            stack(instruction);
            return;
        case Opcode::mov:
            if (!move(instruction))
                plain(instruction);
            return;
        default:
            plain(instruction);
            return;
        }
    }

    struct Temporaries {
        std::vector<Ref> rows;
        std::size_t used = 0;
    };

    const Layout &layout_;
    const ptx::Module &module_;
    const Function &function_;
    std::unique_ptr<Code> code_;
    std::vector<Ref> registers_; // by slot
    std::vector<std::uint32_t> uses_;
    std::map<unsigned, Temporaries> temporaries_; // by width; free again after each instruction
    std::uint32_t predicates_ = 0;
    Ref rows_ = 0;
    Ref carry_ = kAbsent;
    std::map<std::pair<unsigned, std::uint64_t>, Ref> constant_rows_;
    std::vector<std::byte> constants_;
    std::vector<std::uint32_t> block_starts_;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> targets_, meetings_, table_targets_;
    std::vector<std::uint32_t> rows_in_extra_;
    std::map<std::uint32_t, bool> carries_;
    std::uint64_t call_parameters_ = 0;
    std::uint32_t at_ = 0;
};

} // namespace

std::string spell(const Instruction &instruction) {
    std::string text(ptx::opcode_text(instruction.opcode));
    const auto word = [&](ptx::Field field, auto value) {
        if (static_cast<std::uint8_t>(value) != 0)
            text += fmt::format(".{}", text_of(field, value));
    };
    word(ptx::Field::mode, instruction.mode);
    word(ptx::Field::semantics, instruction.semantics);
    word(ptx::Field::scope, instruction.scope);
    for (const Space space : instruction.spaces)
        word(ptx::Field::space, space);
    word(ptx::Field::comparison, instruction.comparison);
    word(ptx::Field::operation, instruction.operation);
    word(ptx::Field::rounding, instruction.rounding);
    for (unsigned flag = 1; flag <= 32; ++flag)
        if (instruction.has(static_cast<Flag>(flag)))
            word(ptx::Field::flag, flag);
    word(ptx::Field::vector, instruction.vector);
    word(ptx::Field::shape, instruction.shape);
    for (const Type type : instruction.types)
        word(ptx::Field::type, type);
    return text;
}

bool is_built_in(const Function &function) {
    return !function.defined && std::ranges::find(kBuiltIns, std::string_view(function.name),
                                                  &BuiltIn::name) != std::ranges::end(kBuiltIns);
}

std::uint32_t resolve_alias(const ptx::Module &module, std::uint32_t function) {
    for (std::size_t steps = 0; steps <= module.aliases.size(); ++steps) {
        const auto alias = std::ranges::find(module.aliases, function, &ptx::Alias::function);
        if (alias == module.aliases.end())
            break;
        function = alias->target;
    }
    return function;
}

Expected<std::unique_ptr<Code>> compile_function(const Layout &layout, std::uint32_t index) {
    try {
        return FunctionCompiler(layout, index).compile();
    } catch (Unsupported &problem) {
        return std::unexpected(std::move(problem.error));
    }
}

} // namespace singularity::softgpu::engine
