// SPDX-License-Identifier: GPL-2.0-or-later
#include "program_memory.hpp"

#include "budget.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

std::map<std::uint32_t, std::size_t> &taken_by() {
    static std::map<std::uint32_t, std::size_t> taken;
    return taken;
}

std::size_t of_strings(const auto &strings) {
    std::size_t out = 0;
    for (const std::string &one : strings)
        out += one.size() + sizeof(std::string);
    return out;
}

} // namespace

Expected<ProgramMemory> ProgramMemory::take(std::uint32_t uid, std::size_t bytes) {
    const auto found = taken_by().find(uid);
    const std::size_t before = found == taken_by().end() ? 0 : found->second;
    if (auto why = budgets().refusal(Budget::program_bytes, uid, before, bytes))
        return failure("keep", "arguments and environment of a program", *why, EDQUOT);
    return count(uid, bytes);
}

ProgramMemory ProgramMemory::count(std::uint32_t uid, std::size_t bytes) {
    if (bytes != 0)
        taken_by()[uid] += bytes;
    return {uid, bytes};
}

ProgramMemory::~ProgramMemory() {
    if (bytes_ == 0)
        return;
    const auto found = taken_by().find(uid_);
    found->second -= bytes_;
    if (found->second == 0)
        taken_by().erase(found);
}

Expected<void> check_size(const node::Program &program) {
    const auto size = node::size_for_exec(program.arguments) + node::size_for_exec(program.environment);
    if (size > node::kProgramLimit)
        return failure(
            "start", program.arguments.empty() ? "a task" : quote(program.arguments.front()),
            fmt::format("its arguments and environment take {} bytes, and Linux starts nothing with more "
                        "than {} (execve(2)): unset variables, or put them into a file",
                        size, node::kProgramLimit),
            E2BIG);
    return {};
}

std::size_t memory_of(const node::Program &program) {
    return of_strings(program.arguments) + of_strings(program.environment) + program.directory.size() +
           program.cpus.size() + (program.limits.size() * sizeof(node::Limit));
}

std::size_t memory_of(const peers::wire::Program &program) {
    return of_strings(program.arguments()) + of_strings(program.environment()) + program.directory().size();
}

std::size_t memory_of(const node::Image &image) {
    std::size_t of_mounts = 0;
    for (const auto &one : image.mounts)
        of_mounts += one.source.size() + one.target.size() + sizeof(one);
    return of_mounts + image.directory.size() + image.account.size() + of_strings(image.groups);
}

std::size_t memory_of(const node::Spec &spec) {
    return memory_of(spec.image) + of_strings(spec.shown) + of_strings(spec.environment) +
           of_strings(spec.sockets) + of_strings(spec.commands) + spec.stand_in.size() + spec.backend.size() +
           (spec.groups.size() * sizeof(spec.groups.front()));
}

} // namespace singularity::agent
