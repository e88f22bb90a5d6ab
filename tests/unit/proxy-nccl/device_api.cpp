// SPDX-License-Identifier: GPL-2.0-or-later
// What came with NCCL 2.28 and later: the device API's host side, suspension, parameters.
#include "device_api.hpp"

#include "collective.hpp"
#include "fixture.hpp"
#include "parameters.hpp"
#include "suspension.hpp"

#include <array>
#include <cstring>

using namespace singularity;
using namespace singularity::test;

namespace {

// A pointer that is good for nothing but not to be NULL.
template <class T>
T *somewhere() {
    return std::bit_cast<T *>(std::uintptr_t{64});
}

Team team_of(Result (*ask)(Library &, CommunicatorHandle, Team *), World &world, CommunicatorHandle handle) {
    Team team{.ranks = -1, .rank = -1, .stride = -1};
    World::expect(ask(world.library, handle, &team), Result::success);
    return team;
}

void assert_team(const Team &team, int ranks, int rank, int stride) {
    assert_int_equal(team.ranks, ranks);
    assert_int_equal(team.rank, rank);
    assert_int_equal(team.stride, stride);
}

void each_rank_is_an_lsa_team_of_its_own(void ** /*state*/) {
    World world;
    const auto four = world.all(4);
    for (int own = 0; own < 4; ++own) {
        assert_team(team_of(world_team, world, four[own]), 4, own, 1);
        assert_team(team_of(lsa_team, world, four[own]), 1, 0, 1);
        assert_team(team_of(rail_team, world, four[own]), 4, own, 1);
    }
}

void ranks_of_teams_are_translated(void ** /*state*/) {
    World world;
    const auto four = world.all(4);
    const auto translate = [&](const auto &ask, int own, const Team &team, int rank) {
        int out = -9;
        World::expect(ask(world.library, four[own], team, rank, &out), Result::success);
        return out;
    };
    const Team every{.ranks = 4, .rank = 3, .stride = 1};
    assert_int_equal(translate(rank_in_world, 3, every, 1), 1);
    assert_int_equal(translate(rank_in_lsa, 3, every, 3), 0);
    assert_int_equal(translate(rank_in_lsa, 3, every, 2), -1); // not of the LSA team
    // Ranks 1 and 3 of the world.
    const Team odd{.ranks = 2, .rank = 0, .stride = 2};
    assert_int_equal(translate(rank_in_world, 1, odd, 1), 3);
    const Team alone{.ranks = 1, .rank = 0, .stride = 1};
    assert_int_equal(translate(rank_in_world, 2, alone, 0), 2);
}

void teams_are_those_of_ready_communicators(void ** /*state*/) {
    World world;
    const auto id = new_unique_id().value();
    Config config;
    config.blocking = 0;
    CommunicatorHandle waiting = nullptr;
    World::expect(init_rank(world.library, &waiting, 2, 0, 1, &id, &config), Result::in_progress);
    Team team{};
    World::expect(world_team(world.library, waiting, &team), Result::invalid_argument,
                  "before the previous operation");
    World::expect(singularity::nccl::abort(world.library, waiting), Result::success);
    World::expect(world_team(world.library, waiting, &team), Result::invalid_argument, "corrupted");
    World::expect(lsa_team(world.library, nullptr, &team), Result::invalid_argument, "comm argument is NULL");

    // Who is in it is known of a failed one, too.
    const auto two = world.all(2);
    world.driver.fail_all(Result::remote_error, "rank 0 is gone");
    auto now = Result::success;
    World::expect(async_error(world.library, two[1], &now), Result::success);
    World::expect(now, Result::remote_error);
    assert_team(team_of(world_team, world, two[1]), 2, 1, 1);
}

Properties asking(std::uint32_t version, std::size_t size) {
    Properties all;
    std::memset(&all, 0x5a, sizeof(all));
    all.size = size;
    all.magic = kPropertiesMagic;
    all.version = version;
    return all;
}

void properties_say_that_there_is_no_device_api(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    auto all = asking(23007, sizeof(Properties));
    World::expect(query_properties(world.library, two[1], &all), Result::success);
    assert_int_equal(all.size, sizeof(Properties));
    assert_int_equal(all.version, 23007);
    assert_int_equal(all.rank, 1);
    assert_int_equal(all.ranks, 2);
    assert_int_equal(all.cuda_device, 1);
    assert_int_equal(all.nvml_device, 1);
    assert_false(all.device_api || all.multimem || all.host_rma);
    assert_true(all.gin == GinType::none && all.railed_gin == GinType::none);
    assert_int_equal(all.lsa_teams, 2);
}

void not_more_is_written_than_properties_hold(void ** /*state*/) {
    World world;
    const auto one = world.one();
    auto first = asking(22902, kFirstPropertiesSize);
    World::expect(query_properties(world.library, one, &first), Result::success);
    assert_int_equal(first.ranks, 1);
    assert_int_equal(first.lsa_teams, 0x5a5a5a5a);
    // Of a later version, with members that are not known.
    struct Later {
        Properties known;
        std::array<char, 16> more;
    } later{.known = asking(23200, sizeof(Later)), .more = {'x'}};
    World::expect(query_properties(world.library, one, &later.known), Result::success);
    assert_int_equal(later.known.lsa_teams, 1);
    assert_int_equal(later.more[0], 'x');
}

void wrong_properties_are_refused(void ** /*state*/) {
    World world;
    const auto one = world.one();
    auto all = asking(23007, sizeof(Properties));
    World::expect(query_properties(world.library, nullptr, &all), Result::invalid_argument);
    World::expect(query_properties(world.library, one, nullptr), Result::invalid_argument,
                  "props argument is NULL");
    all.magic = 0;
    World::expect(query_properties(world.library, one, &all), Result::invalid_usage,
                  "NCCL_COMM_PROPERTIES_INITIALIZER");
    all = asking(22809, sizeof(Properties));
    World::expect(query_properties(world.library, one, &all), Result::invalid_usage, "version 22809");
    all = asking(23007, kFirstPropertiesSize - 1);
    World::expect(query_properties(world.library, one, &all), Result::invalid_usage, "39 bytes");
    assert_int_equal(all.ranks, 0x5a5a5a5a);
    World::expect(destroy(world.library, one), Result::success);
    World::expect(query_properties(world.library, one, &all), Result::invalid_argument, "corrupted");
}

void there_are_no_device_communicators(void ** /*state*/) {
    World world;
    const auto one = world.one();
    const auto *const requirements = somewhere<const DeviceCommunicatorRequirements>();
    const auto *const device = somewhere<const DeviceCommunicator>();
    constexpr const char *kWhy = "cannot reach the memory of other ranks";
    World::expect(create_device_communicator(world.library, one, requirements, device), Result::invalid_usage,
                  kWhy);
    World::expect(destroy_device_communicator(world.library, one, device), Result::invalid_usage, kWhy);
    World::expect(create_device_communicator(world.library, one, nullptr, device), Result::invalid_argument,
                  "reqs argument is NULL");
    World::expect(create_device_communicator(world.library, one, requirements, nullptr),
                  Result::invalid_argument, "outDevComm argument is NULL");
    World::expect(destroy_device_communicator(world.library, one, nullptr), Result::invalid_argument,
                  "devComm argument is NULL");
    World::expect(create_device_communicator(world.library, nullptr, requirements, device),
                  Result::invalid_argument, "comm argument is NULL");
    World::expect(destroy_device_communicator(world.library, nullptr, device), Result::invalid_argument,
                  "comm argument is NULL");
    // What fails in a group is what the group ends with.
    Group::mine().start();
    World::expect(create_device_communicator(world.library, one, requirements, device),
                  Result::invalid_usage);
    World::expect(Group::mine().end(world.library), Result::invalid_usage);
    World::expect(destroy(world.library, one), Result::success);
    World::expect(create_device_communicator(world.library, one, requirements, device),
                  Result::invalid_argument, "corrupted");
}

void requirements_are_refused_and_slots_counted(void ** /*state*/) {
    World::expect(create_requirement("ncclLLA2ACreateRequirement", somewhere<const ResourceHandle>(),
                                     somewhere<const ResourceRequirements>()),
                  Result::invalid_usage, "ncclLLA2ACreateRequirement : there are no device communicators");
    World::expect(create_requirement("x", nullptr, somewhere<const ResourceRequirements>()),
                  Result::invalid_argument, "outHandle");
    World::expect(create_requirement("x", somewhere<const ResourceHandle>(), nullptr),
                  Result::invalid_argument, "outReq");
    assert_int_equal(slots(10, 8), 10);
    assert_int_equal(slots(10, 9), 20);
    assert_int_equal(slots(10, 1), 10);
    assert_int_equal(slots(0, 16), 0);
}

void nothing_is_one_sided(void ** /*state*/) {
    World world;
    const auto two = world.all(2);
    World::expect(one_sided(world.library, "Signal", two[0]), Result::invalid_argument,
                  "Signal : One sided RMA: host RMA is not supported");
    World::expect(one_sided(world.library, "Signal", nullptr), Result::invalid_argument,
                  "comm argument is NULL");
    Group::mine().start();
    World::expect(one_sided(world.library, "PutSignal", two[0]), Result::invalid_argument);
    World::expect(Group::mine().end(world.library), Result::invalid_argument);
    World::expect(revoke(world.library, two[0], kRevokeDefault), Result::success);
    World::expect(one_sided(world.library, "WaitSignal", two[0]), Result::invalid_usage, "was revoked");
}

void there_are_no_windows_to_point_into(void ** /*state*/) {
    World world;
    const auto one = world.one();
    void *out = somewhere<void>();
    World::expect(window_memory(world.library, one, &out), Result::success);
    assert_null(out);
    World::expect(window_memory(world.library, one, nullptr), Result::invalid_argument, "outUserPtr");
    World::expect(window_memory(world.library, nullptr, &out), Result::invalid_argument);
    constexpr const char *kName = "ncclGetPeerDevicePointer";
    World::expect(window_pointer(kName, somewhere<Window>(), &out), Result::invalid_argument,
                  "there is no such window");
    World::expect(window_pointer(kName, nullptr, &out), Result::invalid_argument, "window argument is NULL");
    World::expect(window_pointer(kName, somewhere<Window>(), nullptr), Result::invalid_argument,
                  "outPtr argument is NULL");
}

void a_suspended_communicator_has_no_operations(void ** /*state*/) {
    World world;
    const auto one = world.one();
    const auto statistic = [&](MemoryStatistic which) {
        std::uint64_t out = 77;
        World::expect(memory_statistic(world.library, one, which, &out), Result::success);
        return out;
    };
    const Call send{.kind = Kind::send, .communicator = one};
    World::expect(resume(world.library, one), Result::invalid_usage, "not suspended");
    World::expect(suspend(world.library, one, 0), Result::success);
    assert_int_equal(statistic(MemoryStatistic::is_suspended), 0);
    World::expect(suspend(world.library, one, kSuspendMemory), Result::success);
    assert_int_equal(statistic(MemoryStatistic::is_suspended), 1);
    World::expect(perform(world.library, send), Result::invalid_usage, "communicator is suspended");
    World::expect(suspend(world.library, one, kSuspendMemory), Result::invalid_usage, "suspended already");
    World::expect(resume(world.library, one), Result::success);
    World::expect(perform(world.library, send), Result::success);
    for (const auto which :
         {MemoryStatistic::can_be_suspended, MemoryStatistic::persistent, MemoryStatistic::total})
        assert_int_equal(statistic(which), 0);
    // One that is suspended can end.
    World::expect(suspend(world.library, one, kSuspendMemory), Result::success);
    World::expect(destroy(world.library, one), Result::success);
    World::expect(resume(world.library, one), Result::invalid_argument, "corrupted");
}

void suspension_needs_a_communicator(void ** /*state*/) {
    World world;
    const auto one = world.one();
    std::uint64_t out = 0;
    World::expect(suspend(world.library, nullptr, kSuspendMemory), Result::invalid_argument);
    World::expect(suspend(world.library, nullptr, 0), Result::invalid_argument);
    World::expect(resume(world.library, nullptr), Result::invalid_argument);
    World::expect(memory_statistic(world.library, nullptr, MemoryStatistic::total, &out),
                  Result::invalid_argument);
    World::expect(memory_statistic(world.library, one, MemoryStatistic::total, nullptr),
                  Result::invalid_argument, "value argument is NULL");
    World::expect(memory_statistic(world.library, one, static_cast<MemoryStatistic>(4), &out),
                  Result::invalid_argument, "there is no statistic 4");
}

void there_are_no_parameters(void ** /*state*/) {
    Parameter *handle = nullptr;
    World::expect(bind_parameter(&handle, "NCCL_IB_HCA"), Result::invalid_argument,
                  "there is no parameter NCCL_IB_HCA");
    assert_null(handle);
    World::expect(bind_parameter(nullptr, "NCCL_IB_HCA"), Result::invalid_argument, "out argument is NULL");
    World::expect(bind_parameter(&handle, nullptr), Result::invalid_argument, "key argument is NULL");
    const int value = 0;
    World::expect(get_parameter("ncclParamGetI32", nullptr, &value), Result::invalid_argument, "h argument");
    World::expect(get_parameter("ncclParamGetI32", somewhere<Parameter>(), nullptr),
                  Result::invalid_argument);
    World::expect(get_parameter("ncclParamGetI32", somewhere<Parameter>(), &value), Result::invalid_argument,
                  "there is no such handle");
    const char *text = "before";
    int length = 9;
    World::expect(find_parameter("NCCL_IB_HCA", &text, &length), Result::invalid_argument, "NCCL_IB_HCA");
    assert_null(text);
    assert_int_equal(length, 0);
    World::expect(find_parameter(nullptr, &text, &length), Result::invalid_argument);
    const char **table = nullptr;
    length = 9;
    World::expect(all_parameters(&table, &length), Result::success);
    assert_non_null(table);
    assert_int_equal(length, 0);
    World::expect(all_parameters(nullptr, &length), Result::invalid_argument);
    World::expect(all_parameters(&table, nullptr), Result::invalid_argument);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(each_rank_is_an_lsa_team_of_its_own),
        cmocka_unit_test(ranks_of_teams_are_translated),
        cmocka_unit_test(teams_are_those_of_ready_communicators),
        cmocka_unit_test(properties_say_that_there_is_no_device_api),
        cmocka_unit_test(not_more_is_written_than_properties_hold),
        cmocka_unit_test(wrong_properties_are_refused),
        cmocka_unit_test(there_are_no_device_communicators),
        cmocka_unit_test(requirements_are_refused_and_slots_counted),
        cmocka_unit_test(nothing_is_one_sided),
        cmocka_unit_test(there_are_no_windows_to_point_into),
        cmocka_unit_test(a_suspended_communicator_has_no_operations),
        cmocka_unit_test(suspension_needs_a_communicator),
        cmocka_unit_test(there_are_no_parameters),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
