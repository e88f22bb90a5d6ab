// SPDX-License-Identifier: GPL-2.0-or-later
// Functions that device code calls and the driver provides: vprintf, __assertfail, malloc, free,
// cudaGraphSetConditional.
#include "engine/block.hpp"
#include "engine/handlers.hpp"

#include <cstdio>
#include <cstring>

#include <fmt/core.h>

namespace singularity::softgpu::engine {

namespace {

constexpr std::size_t kMaxString = 1U << 16U;

// Argument `index` of the call of one lane.
std::uint64_t argument(const Context &context, const Op &op, std::size_t index, unsigned lane) {
    const Argument &from = context.code->calls[op.extra].arguments.at(index);
    std::uint64_t value = 0;
    if (from.row == kAbsent)
        std::memcpy(&value, context.local + lane * context.local_stride + context.local_base + from.from,
                    std::min<std::size_t>(from.size, sizeof(value)));
    else if (from.wide)
        value = row<std::uint64_t>(context, from.row)[lane];
    else
        value = row<std::uint32_t>(context, from.row)[lane];
    return value;
}

void set_result(const Context &context, const Op &op, unsigned lane, std::uint64_t value) {
    const CallSite &site = context.code->calls[op.extra];
    if (site.results.empty())
        return;
    const Argument &to = site.results.front();
    if (to.row == kAbsent)
        std::memcpy(context.local + lane * context.local_stride + context.local_base + to.to, &value,
                    std::min<std::size_t>(to.size, sizeof(value)));
    else if (to.wide)
        row<std::uint64_t>(context, to.row)[lane] = value;
    else
        row<std::uint32_t>(context, to.row)[lane] = static_cast<std::uint32_t>(value);
}

// Memory as a lane sees it, any number of bytes.
const std::byte *readable(Context &context, const Op &op, unsigned lane, std::uint64_t address,
                          std::uint64_t bytes) {
    Op access = op;
    access.immediate = address;
    access.base = Base::none;
    access.place = Place::generic;
    const std::uint32_t mask = context.mask;
    context.mask = 1U << lane;
    Access found;
    // One byte at a time has no alignment; both ends in one range is all between.
    resolve_general(context, access, 1, false, found);
    const std::byte *first = found.at[lane];
    access.immediate = address + bytes - 1;
    resolve_general(context, access, 1, false, found);
    context.mask = mask;
    if (found.at[lane] != first + bytes - 1)
        raise_address_fault(FaultKind::illegal_address, lane, address, bytes, Place::global, false);
    return first;
}

std::string read_string(Context &context, const Op &op, unsigned lane, std::uint64_t address) {
    std::string text;
    if (address == 0)
        return "(null)";
    while (text.size() < kMaxString) {
        const auto next = static_cast<char>(*readable(context, op, lane, address + text.size(), 1));
        if (next == '\0')
            break;
        text += next;
    }
    return text;
}

class ArgumentReader {
  public:
    ArgumentReader(Context &context, const Op &op, unsigned lane, std::uint64_t address)
        : context_(context), op_(op), lane_(lane), address_(address) {}
    // The next of the values that the compiler put into a structure.
    std::uint64_t next(std::uint64_t bytes) {
        at_ = (at_ + bytes - 1) / bytes * bytes;
        std::uint64_t value = 0;
        std::memcpy(&value, readable(context_, op_, lane_, address_ + at_, bytes), bytes);
        at_ += bytes;
        return value;
    }

  private:
    Context &context_;
    const Op &op_;
    unsigned lane_;
    std::uint64_t address_;
    std::uint64_t at_ = 0;
};

// One conversion, "%-8.3lf", by the host's printf with the argument in the type that it expects.
std::string convert(const std::string &specification, char kind, std::uint64_t bits, bool wide) {
    char text[512];
    const std::string head = specification.substr(0, specification.size());
    const auto print = [&](const std::string &format, auto value) {
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
        // The format was taken apart above: one conversion, of the type of the value.
        const int length = std::snprintf(text, sizeof(text), format.c_str(), value);
#pragma GCC diagnostic pop
        return std::string(
            text, static_cast<std::size_t>(std::clamp(length, 0, static_cast<int>(sizeof(text)) - 1)));
    };
    switch (kind) {
    case 'd':
    case 'i':
        return print(head + "lld", wide ? static_cast<long long>(bits)
                                        : static_cast<long long>(static_cast<std::int32_t>(bits)));
    case 'u':
    case 'x':
    case 'X':
    case 'o':
        return print(head + "ll" + kind,
                     wide ? static_cast<unsigned long long>(bits)
                          : static_cast<unsigned long long>(static_cast<std::uint32_t>(bits)));
    case 'c':
        return print(head + 'c', static_cast<int>(static_cast<unsigned char>(bits)));
    case 'p':
        return fmt::format("{:#x}", bits);
    default:
        return print(head + kind, std::bit_cast<double>(bits));
    }
}

std::string format(Context &context, const Op &op, unsigned lane, const std::string &text,
                   std::uint64_t arguments) {
    std::string out;
    ArgumentReader reader(context, op, lane, arguments);
    for (std::size_t at = 0; at < text.size(); ++at) {
        if (text[at] != '%') {
            out += text[at];
            continue;
        }
        if (at + 1 < text.size() && text[at + 1] == '%') {
            out += '%';
            ++at;
            continue;
        }
        std::string specification = "%";
        bool wide = false;
        std::size_t end = at + 1;
        for (; end < text.size(); ++end) {
            const char c = text[end];
            if (c == '*')
                specification += fmt::format("{}", static_cast<std::int32_t>(reader.next(4)));
            else if (c == 'l' || c == 'j' || c == 'z' || c == 't')
                wide = true;
            else if (std::strchr("-+ #0.123456789", c) != nullptr)
                specification += c;
            else if (c != 'h')
                break;
        }
        if (end >= text.size() || std::strchr("diuxXocpsfFeEgGaAn", text[end]) == nullptr ||
            specification.size() > 32) {
            out += text.substr(at, end - at + 1); // what is not known is printed as it is
            at = end;
            continue;
        }
        const char kind = text[end];
        if (kind == 's') {
            std::string shown = read_string(context, op, lane, reader.next(8));
            char padded[1024];
            specification += 's';
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral"
            const int length = std::snprintf(padded, sizeof(padded), specification.c_str(), shown.c_str());
#pragma GCC diagnostic pop
            out += length >= 0 && length < static_cast<int>(sizeof(padded)) ? std::string(padded) : shown;
        } else if (kind == 'n') {
            reader.next(8); // the device's printf does not write through it
        } else {
            const bool eight = wide || kind == 'p' || std::strchr("fFeEgGaA", kind) != nullptr;
            out += convert(specification, kind, reader.next(eight ? 8 : 4), wide);
        }
        at = end;
    }
    return out;
}

} // namespace

namespace control {

void print(Context &context, const Op &op) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        if ((context.mask & (1U << lane)) == 0)
            continue;
        const std::string text = read_string(context, op, lane, argument(context, op, 0, lane));
        context.block->print(format(context, op, lane, text, argument(context, op, 1, lane)));
        // The number of arguments, as cudart's printf gives it.
        std::uint64_t count = 0;
        for (std::size_t at = 0; at + 1 < text.size(); ++at)
            if (text[at] == '%') {
                ++at; // what follows is part of it
                count += text[at] != '%' ? 1 : 0;
            }
        set_result(context, op, lane, count);
    }
}

// __assertfail(const char *message, const char *file, unsigned line, const char *function, size_t char_size)
void assertion(Context &context, const Op &op) {
    const auto lane = static_cast<unsigned>(std::countr_zero(context.mask));
    const auto text = [&](std::size_t index) {
        return read_string(context, op, lane, argument(context, op, index, lane));
    };
    const unsigned thread = context.warp->index * kLanes + lane;
    const Dim3 &threads = context.block->run->launch->block;
    const Dim3 &block = context.block->index;
    raise_fault(FaultKind::assertion, lane,
                fmt::format("{}:{}: {}: block: [{},{},{}], thread: [{},{},{}] Assertion `{}` failed.",
                            text(1), static_cast<std::uint32_t>(argument(context, op, 2, lane)), text(3),
                            block.x, block.y, block.z, thread % threads.x, thread / threads.x % threads.y,
                            thread / threads.x / threads.y, text(0)));
}

void allocate(Context &context, const Op &op) {
    const auto &take = context.block->run->launch->device_malloc;
    for (unsigned lane = 0; lane < kLanes; ++lane)
        if ((context.mask & (1U << lane)) != 0)
            set_result(context, op, lane, take ? take(argument(context, op, 0, lane)) : 0);
}

void release(Context &context, const Op &op) {
    const auto &give = context.block->run->launch->device_free;
    for (unsigned lane = 0; lane < kLanes; ++lane)
        if ((context.mask & (1U << lane)) != 0)
            if (const std::uint64_t address = argument(context, op, 0, lane); address != 0 && give)
                give(address);
}

// cudaGraphSetConditional(cudaGraphConditionalHandle handle, unsigned value): of several lanes the last one's
// stays.
void set_conditional(Context &context, const Op &op) {
    const auto &set = context.block->run->launch->set_conditional;
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        if ((context.mask & (1U << lane)) == 0)
            continue;
        const std::uint64_t handle = argument(context, op, 0, lane);
        if (!set || !set(handle, static_cast<std::uint32_t>(argument(context, op, 1, lane))))
            raise_fault(
                FaultKind::trap, lane,
                fmt::format("cudaGraphSetConditional: the graph that runs has no conditional handle {:#x}",
                            handle));
    }
}

} // namespace control

} // namespace singularity::softgpu::engine
