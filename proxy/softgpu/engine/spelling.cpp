// SPDX-License-Identifier: GPL-2.0-or-later
#include "engine/spelling.hpp"

#include <cstdint>
#include <string_view>

#include <fmt/core.h>

namespace singularity::softgpu::engine {

namespace {

std::string_view text_of(ptx::Field field, auto value) {
    return ptx::word_text(field, static_cast<std::uint8_t>(value));
}

} // namespace

std::string spell(const ptx::Instruction &instruction) {
    std::string text(ptx::opcode_text(instruction.opcode));
    const auto word = [&](ptx::Field field, auto value) {
        if (static_cast<std::uint8_t>(value) != 0)
            text += fmt::format(".{}", text_of(field, value));
    };
    word(ptx::Field::mode, instruction.mode);
    word(ptx::Field::semantics, instruction.semantics);
    word(ptx::Field::scope, instruction.scope);
    for (const ptx::Space space : instruction.spaces)
        word(ptx::Field::space, space);
    word(ptx::Field::comparison, instruction.comparison);
    word(ptx::Field::operation, instruction.operation);
    word(ptx::Field::rounding, instruction.rounding);
    for (unsigned flag = 1; flag <= ptx::kMostFlags; ++flag)
        if (instruction.has(static_cast<ptx::Flag>(flag)))
            word(ptx::Field::flag, flag);
    word(ptx::Field::vector, instruction.vector);
    word(ptx::Field::shape, instruction.shape);
    word(ptx::Field::geometry, instruction.geometry);
    for (const ptx::Type type : instruction.types)
        word(ptx::Field::type, type);
    return text;
}

} // namespace singularity::softgpu::engine
