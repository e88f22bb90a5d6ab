// SPDX-License-Identifier: GPL-2.0-or-later
// How much of the agent's memory the programs of one user may take.
#include "agent/job/job_plan.hpp"
#include "agent/limits/program_memory.hpp"
#include "cmocka.hpp"
#include "node/packet.hpp"

#include <cerrno>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace {

using namespace singularity::agent;
using singularity::test::expect_contains;
namespace node = singularity::node;

constexpr std::uint32_t kAlice = 1001;
constexpr std::uint32_t kBob = 1002;
constexpr std::size_t kMost = std::size_t{1} << 30; // per_user.program_mib

void a_user_has_a_share(void **) {
    constexpr std::size_t kHalf = kMost / 2;
    auto one = ProgramMemory::take(kAlice, kHalf);
    auto other = ProgramMemory::take(kAlice, kHalf);
    assert_true(one.has_value() && other.has_value());
    const auto refused = ProgramMemory::take(kAlice, 1);
    assert_false(refused.has_value());
    assert_int_equal(refused.error().code, EDQUOT);
    expect_contains(refused.error().message(),
                    "uid 1001 has 1.0 GiB of arguments and environments already and wants 1 B more, and "
                    "per_user.program_mib in singularity.yaml allows 1.0 GiB: start fewer tasks");
    assert_true(ProgramMemory::take(kAlice, 0).has_value());
    assert_true(ProgramMemory::take(kBob, kMost).has_value());
    assert_true(ProgramMemory::take(0, 3 * kMost).has_value());
    std::optional<ProgramMemory> moved(std::move(*one));
    assert_false(ProgramMemory::take(kAlice, 1).has_value());
    moved.reset();
    assert_true(ProgramMemory::take(kAlice, kHalf).has_value());
    assert_false(ProgramMemory::take(kAlice, kHalf + 1).has_value());
    // What is there already is there.
    std::optional<ProgramMemory> found(ProgramMemory::count(kAlice, kMost));
    assert_false(ProgramMemory::take(kAlice, 1).has_value());
    found.reset();
    assert_true(ProgramMemory::take(kAlice, kHalf).has_value());
    assert_false(ProgramMemory::take(kBob, kMost + 1).has_value());
}

// fs/exec.c: six mebibytes, of strings with their zeros and pointers.
void what_linux_never_starts_is_refused(void **) {
    node::Program program;
    program.arguments = {"/bin/true"};
    const std::size_t first = program.arguments[0].size() + 1 + sizeof(char *);
    program.environment = {std::string(node::kProgramLimit - first - 1 - sizeof(char *), 'x')};
    assert_true(check_size(program).has_value());
    program.environment[0] += 'x';
    const auto refused = check_size(program);
    assert_false(refused.has_value());
    assert_int_equal(refused.error().code, E2BIG);
    expect_contains(refused.error().message(),
                    "'/bin/true': its arguments and environment take 6291457 bytes");
    expect_contains(refused.error().message(), "more than 6291456 (execve(2)): unset variables");
    program.environment.assign(node::kProgramLimit / (1 + sizeof(char *)) + 1, std::string());
    assert_false(check_size(program).has_value());
}

// A packet's strings take no more than execve(2) counts; so what Linux starts fits into one.
void whatever_linux_starts_fits_into_a_packet(void **) {
    node::InitStart start;
    start.program.environment.assign(node::kProgramLimit / (1 + sizeof(char *)), std::string());
    assert_true(check_size(start.program).has_value());
    assert_true(node::encode(start).size() < node::kPacketLimit);
    assert_true(memory_of(start.program) >= start.program.environment.size() * sizeof(std::string));
    const auto message = message_of(start.program);
    assert_true(message.ByteSizeLong() < node::kPacketLimit);
    assert_int_equal(memory_of(message), memory_of(start.program));
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(a_user_has_a_share),
        cmocka_unit_test(what_linux_never_starts_is_refused),
        cmocka_unit_test(whatever_linux_starts_fits_into_a_packet),
    };
    return cmocka_run_group_tests_name("memory of programs", tests, nullptr, nullptr);
}
