// SPDX-License-Identifier: GPL-2.0-or-later
// The C edge: NCCL's names and parameters. As in NVIDIA's library the strong symbols are pnccl*, and nccl*
// are weak ones beside them, which a profiler may take the place of.
#include "buffers.hpp"
#include "collective.hpp"
#include "device_api.hpp"
#include "group.hpp"
#include "libcuda.hpp"
#include "lifecycle.hpp"
#include "parameters.hpp"
#include "proxy/nccl/abi.hpp"
#include "proxy/nccl/device_abi.hpp"
#include "suspension.hpp"

#include <cstdint>
#include <exception>
#include <memory>
#include <mutex>

using namespace singularity::nccl;

namespace {

// Made by the first call that needs it, and never destroyed.
Outcome<Library *> library() {
    static std::mutex lock;
    static Library *made = nullptr;
    const std::scoped_lock hold(lock);
    if (made == nullptr) {
        const auto loaded = load_driver();
        if (!loaded)
            return refused(Result::system_error, "{}", loaded.error().message());
        made = std::make_unique<Library>(*loaded->driver, *loaded->gate).release();
    }
    return made;
}

// Nothing may be thrown into the program, which may be in C.
template <class Body>
Result guarded(Body body) noexcept {
    try {
        return body();
    } catch (const std::bad_alloc &) {
        note("there is no memory left");
        return Result::system_error;
    } catch (const std::exception &error) {
        note(error.what());
        return Result::internal_error;
    }
}

// function(library, arguments...)
template <class Function, class... Arguments>
Result with(Function function, Arguments... arguments) noexcept {
    return guarded([&] {
        const auto all = library();
        return all ? function(**all, arguments...) : Group::mine().note_if_open(all.error());
    });
}

// For functions without a result code; otherwise: what they return where there is no answer.
template <class Value, class Function, class... Arguments>
Value answer(Value otherwise, Function function, Arguments... arguments) noexcept {
    auto out = otherwise;
    static_cast<void>(with(function, arguments..., &out));
    return out;
}

Result requirement(const char *call, const ResourceHandle *handle, const ResourceRequirements *out) noexcept {
    return guarded([&] { return create_requirement(call, handle, out); });
}
Result pointer(const char *call, WindowHandle window, void *const *out) noexcept {
    return guarded([&] { return window_pointer(call, window, out); });
}
Result parameter(const char *call, const Parameter *handle, const void *out) noexcept {
    return guarded([&] { return get_parameter(call, handle, out); });
}
Result one_sided_call(const char *call, CommunicatorHandle communicator) noexcept {
    return with([call](Library &all, CommunicatorHandle one) { return one_sided(all, call, one); },
                communicator);
}

Result collective(Kind kind, const void *input, void *output, std::size_t count, DataType type,
                  Reduction reduction, int peer, CommunicatorHandle communicator, Stream stream) {
    return with(perform, Call{.kind = kind,
                              .input = input,
                              .output = output,
                              .count = count,
                              .type = type,
                              .reduction = reduction,
                              .peer = peer,
                              .communicator = communicator,
                              .stream = stream});
}

Result unique_id(UniqueId *out) {
    if (const auto bad = given(out, "GetUniqueId", "out"); bad != Result::success)
        return bad;
    const auto id = new_unique_id();
    if (!id)
        return id.error();
    *out = *id;
    return Result::success;
}

Result version(int *out) {
    if (out == nullptr)
        return Result::invalid_argument;
    *out = kVersion;
    return Result::success;
}

// Needs no driver: a program may begin a group before anything else.
Result group_start() {
    Group::mine().start();
    return Result::success;
}
Result group_end(Library &all, Simulation *simulation) { return Group::mine().end(all, simulation); }

} // namespace

#define NCCL_EXPORT [[gnu::visibility("default")]]
// The same function under its other name.
#define NCCL_ALSO(name) [[gnu::visibility("default"), gnu::weak, gnu::alias("p" #name)]]

extern "C" {

NCCL_EXPORT Result pncclGetVersion(int *out) { return version(out); }
NCCL_EXPORT Result pncclGetUniqueId(UniqueId *out) {
    return guarded([&] { return unique_id(out); });
}
NCCL_EXPORT const char *pncclGetErrorString(Result result) { return text_of(result); }
NCCL_EXPORT const char *pncclGetLastError(CommunicatorHandle /*unused*/) { return last_error(); }
NCCL_EXPORT void pncclResetDebugInit() { read_log_settings(); }
// The one name without a second.
NCCL_EXPORT void ncclResetDebugInitInternal() { read_log_settings(); }

NCCL_EXPORT Result pncclMemAlloc(void **out, std::size_t size) { return with(allocate, out, size); }
NCCL_EXPORT Result pncclMemFree(void *memory) { return with(release, memory); }

NCCL_EXPORT Result pncclCommInitRank(CommunicatorHandle *out, int ranks, UniqueId id, int own) {
    return with(init_rank, out, ranks, own, 1, &id, nullptr);
}
NCCL_EXPORT Result pncclCommInitRankConfig(CommunicatorHandle *out, int ranks, UniqueId id, int own,
                                           Config *config) {
    return with(init_rank, out, ranks, own, 1, &id, config);
}
NCCL_EXPORT Result pncclCommInitRankScalable(CommunicatorHandle *out, int ranks, int own, int ids,
                                             UniqueId *id, Config *config) {
    return with(init_rank, out, ranks, own, ids, id, config);
}
NCCL_EXPORT Result pncclCommInitAll(CommunicatorHandle *out, int devices, const int *list) {
    return with(init_all, out, devices, list);
}
NCCL_EXPORT Result pncclCommSplit(CommunicatorHandle parent, int color, int key, CommunicatorHandle *out,
                                  Config *config) {
    return with(split, parent, color, key, out, config);
}
NCCL_EXPORT Result pncclCommShrink(CommunicatorHandle parent, int *excluded, int number,
                                   CommunicatorHandle *out, Config *config, int flags) {
    return with(shrink, parent, excluded, number, out, config, flags);
}

NCCL_EXPORT Result pncclCommFinalize(CommunicatorHandle communicator) { return with(finalize, communicator); }
NCCL_EXPORT Result pncclCommDestroy(CommunicatorHandle communicator) { return with(destroy, communicator); }
NCCL_EXPORT Result pncclCommAbort(CommunicatorHandle communicator) {
    return with(singularity::nccl::abort, communicator);
}
NCCL_EXPORT Result pncclCommRevoke(CommunicatorHandle communicator, int flags) {
    return with(singularity::nccl::revoke, communicator, flags);
}

NCCL_EXPORT Result pncclCommGetAsyncError(CommunicatorHandle communicator, Result *out) {
    return with(async_error, communicator, out);
}
NCCL_EXPORT Result pncclCommCount(CommunicatorHandle communicator, int *out) {
    return with(singularity::nccl::count, communicator, out);
}
NCCL_EXPORT Result pncclCommCuDevice(CommunicatorHandle communicator, int *out) {
    return with(device, communicator, out);
}
NCCL_EXPORT Result pncclCommUserRank(CommunicatorHandle communicator, int *out) {
    return with(singularity::nccl::rank, communicator, out);
}

NCCL_EXPORT Result pncclCommRegister(CommunicatorHandle communicator, void *memory, std::size_t size,
                                     void **out) {
    return with(enroll, communicator, memory, size, out);
}
NCCL_EXPORT Result pncclCommDeregister(CommunicatorHandle communicator, void *registration) {
    return with(withdraw, communicator, registration);
}
NCCL_EXPORT Result pncclCommWindowRegister(CommunicatorHandle communicator, void *memory, std::size_t size,
                                           WindowHandle *out, int flags) {
    return with(open_window, communicator, memory, size, out, flags);
}
NCCL_EXPORT Result pncclCommWindowDeregister(CommunicatorHandle communicator, WindowHandle window) {
    return with(close_window, communicator, window);
}

NCCL_EXPORT Result pncclRedOpCreatePreMulSum(Reduction *out, void *scalar, DataType type, Residence residence,
                                             CommunicatorHandle communicator) {
    return with(create_premultiplied_sum, out, scalar, type, residence, communicator);
}
NCCL_EXPORT Result pncclRedOpDestroy(Reduction reduction, CommunicatorHandle communicator) {
    return with(destroy_reduction, reduction, communicator);
}

NCCL_EXPORT Result pncclReduce(const void *input, void *output, std::size_t number, DataType type,
                               Reduction reduction, int root, CommunicatorHandle communicator,
                               Stream stream) {
    return collective(Kind::reduce, input, output, number, type, reduction, root, communicator, stream);
}
NCCL_EXPORT Result pncclBcast(void *buffer, std::size_t number, DataType type, int root,
                              CommunicatorHandle communicator, Stream stream) {
    return collective(Kind::broadcast, buffer, buffer, number, type, Reduction::sum, root, communicator,
                      stream);
}
NCCL_EXPORT Result pncclBroadcast(const void *input, void *output, std::size_t number, DataType type,
                                  int root, CommunicatorHandle communicator, Stream stream) {
    return collective(Kind::broadcast, input, output, number, type, Reduction::sum, root, communicator,
                      stream);
}
NCCL_EXPORT Result pncclAllReduce(const void *input, void *output, std::size_t number, DataType type,
                                  Reduction reduction, CommunicatorHandle communicator, Stream stream) {
    return collective(Kind::all_reduce, input, output, number, type, reduction, 0, communicator, stream);
}
NCCL_EXPORT Result pncclReduceScatter(const void *input, void *output, std::size_t number, DataType type,
                                      Reduction reduction, CommunicatorHandle communicator, Stream stream) {
    return collective(Kind::reduce_scatter, input, output, number, type, reduction, 0, communicator, stream);
}
NCCL_EXPORT Result pncclAllGather(const void *input, void *output, std::size_t number, DataType type,
                                  CommunicatorHandle communicator, Stream stream) {
    return collective(Kind::all_gather, input, output, number, type, Reduction::sum, 0, communicator, stream);
}
NCCL_EXPORT Result pncclAlltoAll(const void *input, void *output, std::size_t number, DataType type,
                                 CommunicatorHandle communicator, Stream stream) {
    return collective(Kind::all_to_all, input, output, number, type, Reduction::sum, 0, communicator, stream);
}
NCCL_EXPORT Result pncclGather(const void *input, void *output, std::size_t number, DataType type, int root,
                               CommunicatorHandle communicator, Stream stream) {
    return collective(Kind::gather, input, output, number, type, Reduction::sum, root, communicator, stream);
}
NCCL_EXPORT Result pncclScatter(const void *input, void *output, std::size_t number, DataType type, int root,
                                CommunicatorHandle communicator, Stream stream) {
    return collective(Kind::scatter, input, output, number, type, Reduction::sum, root, communicator, stream);
}
NCCL_EXPORT Result pncclSend(const void *buffer, std::size_t number, DataType type, int peer,
                             CommunicatorHandle communicator, Stream stream) {
    return collective(Kind::send, buffer, nullptr, number, type, Reduction::sum, peer, communicator, stream);
}
NCCL_EXPORT Result pncclRecv(void *buffer, std::size_t number, DataType type, int peer,
                             CommunicatorHandle communicator, Stream stream) {
    return collective(Kind::receive, nullptr, buffer, number, type, Reduction::sum, peer, communicator,
                      stream);
}

NCCL_EXPORT Result pncclGroupStart() {
    return guarded([] { return group_start(); });
}
NCCL_EXPORT Result pncclGroupEnd() { return with(group_end, nullptr); }
NCCL_EXPORT Result pncclGroupSimulateEnd(Simulation *simulation) { return with(group_end, simulation); }

// The device API's host side, and what came with 2.29 and 2.30.

NCCL_EXPORT Result pncclCommGetUniqueId(CommunicatorHandle communicator, UniqueId *out) {
    return with(grow_id, communicator, out);
}
NCCL_EXPORT Result pncclCommGrow(CommunicatorHandle parent, int ranks, const UniqueId *id, int own,
                                 CommunicatorHandle *out, Config *config) {
    return with(grow, parent, ranks, id, own, out, config);
}
NCCL_EXPORT Result pncclCommSuspend(CommunicatorHandle communicator, int flags) {
    return with(suspend, communicator, flags);
}
NCCL_EXPORT Result pncclCommResume(CommunicatorHandle communicator) { return with(resume, communicator); }
NCCL_EXPORT Result pncclCommMemStats(CommunicatorHandle communicator, MemoryStatistic which,
                                     std::uint64_t *out) {
    return with(memory_statistic, communicator, which, out);
}
NCCL_EXPORT Result pncclCommQueryProperties(CommunicatorHandle communicator, Properties *properties) {
    return with(query_properties, communicator, properties);
}
NCCL_EXPORT Team pncclTeamWorld(CommunicatorHandle communicator) {
    return answer(Team{}, world_team, communicator);
}
NCCL_EXPORT Team pncclTeamLsa(CommunicatorHandle communicator) {
    return answer(Team{}, lsa_team, communicator);
}
NCCL_EXPORT Team pncclTeamRail(CommunicatorHandle communicator) {
    return answer(Team{}, rail_team, communicator);
}
NCCL_EXPORT int pncclTeamRankToWorld(CommunicatorHandle communicator, Team team, int rank) {
    return answer(-1, rank_in_world, communicator, team, rank);
}
NCCL_EXPORT int pncclTeamRankToLsa(CommunicatorHandle communicator, Team team, int rank) {
    return answer(-1, rank_in_lsa, communicator, team, rank);
}
NCCL_EXPORT Result pncclDevCommCreate(CommunicatorHandle communicator,
                                      const DeviceCommunicatorRequirements *requirements,
                                      DeviceCommunicator *out) {
    return with(create_device_communicator, communicator, requirements, out);
}
NCCL_EXPORT Result pncclDevCommDestroy(CommunicatorHandle communicator, const DeviceCommunicator *one) {
    return with(destroy_device_communicator, communicator, one);
}
NCCL_EXPORT int pncclLLA2ACalcSlots(int elements, int element_size) { return slots(elements, element_size); }
NCCL_EXPORT Result pncclLLA2ACreateRequirement(int /*blocks*/, int /*slots*/, ResourceHandle *handle,
                                               ResourceRequirements *out) {
    return requirement("ncclLLA2ACreateRequirement", handle, out);
}
NCCL_EXPORT Result pncclLsaBarrierCreateRequirement(Team /*team*/, int /*barriers*/, ResourceHandle *handle,
                                                    ResourceRequirements *out) {
    return requirement("ncclLsaBarrierCreateRequirement", handle, out);
}
NCCL_EXPORT Result pncclGinBarrierCreateRequirement(CommunicatorHandle /*communicator*/, Team /*team*/,
                                                    int /*barriers*/, ResourceHandle *handle,
                                                    ResourceRequirements *out) {
    return requirement("ncclGinBarrierCreateRequirement", handle, out);
}
NCCL_EXPORT Result pncclGinOutboxCreateRequirement(int /*blocks*/, int /*size_log2*/, ResourceHandle *handle,
                                                   ResourceRequirements *out) {
    return requirement("ncclGinOutboxCreateRequirement", handle, out);
}
NCCL_EXPORT Result pncclGinInboxA2ACreateRequirement(Team /*peers*/, int /*blocks*/, int /*size_log2*/,
                                                     ResourceHandle *handle, ResourceRequirements *out) {
    return requirement("ncclGinInboxA2ACreateRequirement", handle, out);
}
NCCL_EXPORT Result pncclWinGetUserPtr(CommunicatorHandle communicator, WindowHandle /*window*/, void **out) {
    return with(window_memory, communicator, out);
}
NCCL_EXPORT Result pncclGetLsaDevicePointer(WindowHandle window, std::size_t /*offset*/, int /*lsa_rank*/,
                                            void **out) {
    return pointer("ncclGetLsaDevicePointer", window, out);
}
NCCL_EXPORT Result pncclGetPeerDevicePointer(WindowHandle window, std::size_t /*offset*/, int /*peer*/,
                                             void **out) {
    return pointer("ncclGetPeerDevicePointer", window, out);
}
NCCL_EXPORT Result pncclGetMultimemDevicePointer(WindowHandle window, std::size_t /*offset*/,
                                                 MultimemHandle /*multimem*/, void **out) {
    return pointer("ncclGetMultimemDevicePointer", window, out);
}
NCCL_EXPORT Result pncclGetLsaMultimemDevicePointer(WindowHandle window, std::size_t /*offset*/, void **out) {
    return pointer("ncclGetLsaMultimemDevicePointer", window, out);
}
NCCL_EXPORT Result pncclPutSignal(const void * /*buffer*/, std::size_t /*number*/, DataType /*type*/,
                                  int /*peer*/, WindowHandle /*window*/, std::size_t /*offset*/,
                                  int /*signal*/, int /*context*/, unsigned /*flags*/,
                                  CommunicatorHandle communicator, Stream /*stream*/) {
    return one_sided_call("PutSignal", communicator);
}
NCCL_EXPORT Result pncclSignal(int /*peer*/, int /*signal*/, int /*context*/, unsigned /*flags*/,
                               CommunicatorHandle communicator, Stream /*stream*/) {
    return one_sided_call("Signal", communicator);
}
NCCL_EXPORT Result pncclWaitSignal(int /*number*/, SignalDescription * /*all*/,
                                   CommunicatorHandle communicator, Stream /*stream*/) {
    return one_sided_call("WaitSignal", communicator);
}
NCCL_EXPORT Result pncclParamBind(Parameter **out, const char *key) {
    return guarded([&] { return bind_parameter(out, key); });
}
NCCL_EXPORT Result pncclParamGetI8(Parameter *handle, std::int8_t *out) {
    return parameter("ncclParamGetI8", handle, out);
}
NCCL_EXPORT Result pncclParamGetI16(Parameter *handle, std::int16_t *out) {
    return parameter("ncclParamGetI16", handle, out);
}
NCCL_EXPORT Result pncclParamGetI32(Parameter *handle, std::int32_t *out) {
    return parameter("ncclParamGetI32", handle, out);
}
NCCL_EXPORT Result pncclParamGetI64(Parameter *handle, std::int64_t *out) {
    return parameter("ncclParamGetI64", handle, out);
}
NCCL_EXPORT Result pncclParamGetU8(Parameter *handle, std::uint8_t *out) {
    return parameter("ncclParamGetU8", handle, out);
}
NCCL_EXPORT Result pncclParamGetU16(Parameter *handle, std::uint16_t *out) {
    return parameter("ncclParamGetU16", handle, out);
}
NCCL_EXPORT Result pncclParamGetU32(Parameter *handle, std::uint32_t *out) {
    return parameter("ncclParamGetU32", handle, out);
}
NCCL_EXPORT Result pncclParamGetU64(Parameter *handle, std::uint64_t *out) {
    return parameter("ncclParamGetU64", handle, out);
}
NCCL_EXPORT Result pncclParamGetStr(Parameter *handle, const char **out) {
    return parameter("ncclParamGetStr", handle, out);
}
NCCL_EXPORT Result pncclParamGet(Parameter *handle, void *out, int /*most*/, int * /*length*/) {
    return parameter("ncclParamGet", handle, out);
}
NCCL_EXPORT Result pncclParamGetParameter(const char *key, const char **value, int *length) {
    return guarded([&] { return find_parameter(key, value, length); });
}
NCCL_EXPORT Result pncclParamGetAllParameterKeys(const char ***table, int *length) {
    return guarded([&] { return all_parameters(table, length); });
}
NCCL_EXPORT void pncclParamDumpAll() {}

NCCL_ALSO(ncclGetVersion) Result ncclGetVersion(int *out);
NCCL_ALSO(ncclGetUniqueId) Result ncclGetUniqueId(UniqueId *out);
NCCL_ALSO(ncclGetErrorString) const char *ncclGetErrorString(Result result);
NCCL_ALSO(ncclGetLastError) const char *ncclGetLastError(CommunicatorHandle /*unused*/);
NCCL_ALSO(ncclResetDebugInit) void ncclResetDebugInit();
NCCL_ALSO(ncclMemAlloc) Result ncclMemAlloc(void **out, std::size_t size);
NCCL_ALSO(ncclMemFree) Result ncclMemFree(void *memory);
NCCL_ALSO(ncclCommInitRank) Result ncclCommInitRank(CommunicatorHandle *out, int ranks, UniqueId id, int own);
NCCL_ALSO(ncclCommInitRankConfig)
Result ncclCommInitRankConfig(CommunicatorHandle *out, int ranks, UniqueId id, int own, Config *config);
NCCL_ALSO(ncclCommInitRankScalable)
Result ncclCommInitRankScalable(CommunicatorHandle *out, int ranks, int own, int ids, UniqueId *id,
                                Config *config);
NCCL_ALSO(ncclCommInitAll) Result ncclCommInitAll(CommunicatorHandle *out, int devices, const int *list);
NCCL_ALSO(ncclCommSplit)
Result ncclCommSplit(CommunicatorHandle parent, int color, int key, CommunicatorHandle *out, Config *config);
NCCL_ALSO(ncclCommShrink)
Result ncclCommShrink(CommunicatorHandle parent, int *excluded, int number, CommunicatorHandle *out,
                      Config *config, int flags);
NCCL_ALSO(ncclCommFinalize) Result ncclCommFinalize(CommunicatorHandle communicator);
NCCL_ALSO(ncclCommDestroy) Result ncclCommDestroy(CommunicatorHandle communicator);
NCCL_ALSO(ncclCommAbort) Result ncclCommAbort(CommunicatorHandle communicator);
NCCL_ALSO(ncclCommRevoke) Result ncclCommRevoke(CommunicatorHandle communicator, int flags);
NCCL_ALSO(ncclCommGetAsyncError) Result ncclCommGetAsyncError(CommunicatorHandle communicator, Result *out);
NCCL_ALSO(ncclCommCount) Result ncclCommCount(CommunicatorHandle communicator, int *out);
NCCL_ALSO(ncclCommCuDevice) Result ncclCommCuDevice(CommunicatorHandle communicator, int *out);
NCCL_ALSO(ncclCommUserRank) Result ncclCommUserRank(CommunicatorHandle communicator, int *out);
NCCL_ALSO(ncclCommRegister)
Result ncclCommRegister(CommunicatorHandle communicator, void *memory, std::size_t size, void **out);
NCCL_ALSO(ncclCommDeregister) Result ncclCommDeregister(CommunicatorHandle communicator, void *registration);
NCCL_ALSO(ncclCommWindowRegister)
Result ncclCommWindowRegister(CommunicatorHandle communicator, void *memory, std::size_t size,
                              WindowHandle *out, int flags);
NCCL_ALSO(ncclCommWindowDeregister)
Result ncclCommWindowDeregister(CommunicatorHandle communicator, WindowHandle window);
NCCL_ALSO(ncclRedOpCreatePreMulSum)
Result ncclRedOpCreatePreMulSum(Reduction *out, void *scalar, DataType type, Residence residence,
                                CommunicatorHandle communicator);
NCCL_ALSO(ncclRedOpDestroy) Result ncclRedOpDestroy(Reduction reduction, CommunicatorHandle communicator);
NCCL_ALSO(ncclReduce)
Result ncclReduce(const void *input, void *output, std::size_t number, DataType type, Reduction reduction,
                  int root, CommunicatorHandle communicator, Stream stream);
NCCL_ALSO(ncclBcast)
Result ncclBcast(void *buffer, std::size_t number, DataType type, int root, CommunicatorHandle communicator,
                 Stream stream);
NCCL_ALSO(ncclBroadcast)
Result ncclBroadcast(const void *input, void *output, std::size_t number, DataType type, int root,
                     CommunicatorHandle communicator, Stream stream);
NCCL_ALSO(ncclAllReduce)
Result ncclAllReduce(const void *input, void *output, std::size_t number, DataType type, Reduction reduction,
                     CommunicatorHandle communicator, Stream stream);
NCCL_ALSO(ncclReduceScatter)
Result ncclReduceScatter(const void *input, void *output, std::size_t number, DataType type,
                         Reduction reduction, CommunicatorHandle communicator, Stream stream);
NCCL_ALSO(ncclAllGather)
Result ncclAllGather(const void *input, void *output, std::size_t number, DataType type,
                     CommunicatorHandle communicator, Stream stream);
NCCL_ALSO(ncclAlltoAll)
Result ncclAlltoAll(const void *input, void *output, std::size_t number, DataType type,
                    CommunicatorHandle communicator, Stream stream);
NCCL_ALSO(ncclGather)
Result ncclGather(const void *input, void *output, std::size_t number, DataType type, int root,
                  CommunicatorHandle communicator, Stream stream);
NCCL_ALSO(ncclScatter)
Result ncclScatter(const void *input, void *output, std::size_t number, DataType type, int root,
                   CommunicatorHandle communicator, Stream stream);
NCCL_ALSO(ncclSend)
Result ncclSend(const void *buffer, std::size_t number, DataType type, int peer,
                CommunicatorHandle communicator, Stream stream);
NCCL_ALSO(ncclRecv)
Result ncclRecv(void *buffer, std::size_t number, DataType type, int peer, CommunicatorHandle communicator,
                Stream stream);
NCCL_ALSO(ncclGroupStart) Result ncclGroupStart();
NCCL_ALSO(ncclGroupEnd) Result ncclGroupEnd();
NCCL_ALSO(ncclGroupSimulateEnd) Result ncclGroupSimulateEnd(Simulation *simulation);

NCCL_ALSO(ncclCommGetUniqueId) Result ncclCommGetUniqueId(CommunicatorHandle communicator, UniqueId *out);
NCCL_ALSO(ncclCommGrow)
Result ncclCommGrow(CommunicatorHandle parent, int ranks, const UniqueId *id, int own,
                    CommunicatorHandle *out, Config *config);
NCCL_ALSO(ncclCommSuspend) Result ncclCommSuspend(CommunicatorHandle communicator, int flags);
NCCL_ALSO(ncclCommResume) Result ncclCommResume(CommunicatorHandle communicator);
NCCL_ALSO(ncclCommMemStats)
Result ncclCommMemStats(CommunicatorHandle communicator, MemoryStatistic which, std::uint64_t *out);
NCCL_ALSO(ncclCommQueryProperties)
Result ncclCommQueryProperties(CommunicatorHandle communicator, Properties *properties);
NCCL_ALSO(ncclTeamWorld) Team ncclTeamWorld(CommunicatorHandle communicator);
NCCL_ALSO(ncclTeamLsa) Team ncclTeamLsa(CommunicatorHandle communicator);
NCCL_ALSO(ncclTeamRail) Team ncclTeamRail(CommunicatorHandle communicator);
NCCL_ALSO(ncclTeamRankToWorld) int ncclTeamRankToWorld(CommunicatorHandle communicator, Team team, int rank);
NCCL_ALSO(ncclTeamRankToLsa) int ncclTeamRankToLsa(CommunicatorHandle communicator, Team team, int rank);
NCCL_ALSO(ncclDevCommCreate)
Result ncclDevCommCreate(CommunicatorHandle communicator, const DeviceCommunicatorRequirements *requirements,
                         DeviceCommunicator *out);
NCCL_ALSO(ncclDevCommDestroy)
Result ncclDevCommDestroy(CommunicatorHandle communicator, const DeviceCommunicator *one);
NCCL_ALSO(ncclLLA2ACalcSlots) int ncclLLA2ACalcSlots(int elements, int element_size);
NCCL_ALSO(ncclLLA2ACreateRequirement)
Result ncclLLA2ACreateRequirement(int /*blocks*/, int /*slots*/, ResourceHandle *handle,
                                  ResourceRequirements *out);
NCCL_ALSO(ncclLsaBarrierCreateRequirement)
Result ncclLsaBarrierCreateRequirement(Team /*team*/, int /*barriers*/, ResourceHandle *handle,
                                       ResourceRequirements *out);
NCCL_ALSO(ncclGinBarrierCreateRequirement)
Result ncclGinBarrierCreateRequirement(CommunicatorHandle /*communicator*/, Team /*team*/, int /*barriers*/,
                                       ResourceHandle *handle, ResourceRequirements *out);
NCCL_ALSO(ncclGinOutboxCreateRequirement)
Result ncclGinOutboxCreateRequirement(int /*blocks*/, int /*size_log2*/, ResourceHandle *handle,
                                      ResourceRequirements *out);
NCCL_ALSO(ncclGinInboxA2ACreateRequirement)
Result ncclGinInboxA2ACreateRequirement(Team /*peers*/, int /*blocks*/, int /*size_log2*/,
                                        ResourceHandle *handle, ResourceRequirements *out);
NCCL_ALSO(ncclWinGetUserPtr)
Result ncclWinGetUserPtr(CommunicatorHandle communicator, WindowHandle /*window*/, void **out);
NCCL_ALSO(ncclGetLsaDevicePointer)
Result ncclGetLsaDevicePointer(WindowHandle window, std::size_t /*offset*/, int /*lsa_rank*/, void **out);
NCCL_ALSO(ncclGetPeerDevicePointer)
Result ncclGetPeerDevicePointer(WindowHandle window, std::size_t /*offset*/, int /*peer*/, void **out);
NCCL_ALSO(ncclGetMultimemDevicePointer)
Result ncclGetMultimemDevicePointer(WindowHandle window, std::size_t /*offset*/, MultimemHandle /*multimem*/,
                                    void **out);
NCCL_ALSO(ncclGetLsaMultimemDevicePointer)
Result ncclGetLsaMultimemDevicePointer(WindowHandle window, std::size_t /*offset*/, void **out);
NCCL_ALSO(ncclPutSignal)
Result ncclPutSignal(const void * /*buffer*/, std::size_t /*number*/, DataType /*type*/, int /*peer*/,
                     WindowHandle /*window*/, std::size_t /*offset*/, int /*signal*/, int /*context*/,
                     unsigned /*flags*/, CommunicatorHandle communicator, Stream /*stream*/);
NCCL_ALSO(ncclSignal)
Result ncclSignal(int /*peer*/, int /*signal*/, int /*context*/, unsigned /*flags*/,
                  CommunicatorHandle communicator, Stream /*stream*/);
NCCL_ALSO(ncclWaitSignal)
Result ncclWaitSignal(int /*number*/, SignalDescription * /*all*/, CommunicatorHandle communicator,
                      Stream /*stream*/);
NCCL_ALSO(ncclParamBind) Result ncclParamBind(Parameter **out, const char *key);
NCCL_ALSO(ncclParamGetI8) Result ncclParamGetI8(Parameter *handle, std::int8_t *out);
NCCL_ALSO(ncclParamGetI16) Result ncclParamGetI16(Parameter *handle, std::int16_t *out);
NCCL_ALSO(ncclParamGetI32) Result ncclParamGetI32(Parameter *handle, std::int32_t *out);
NCCL_ALSO(ncclParamGetI64) Result ncclParamGetI64(Parameter *handle, std::int64_t *out);
NCCL_ALSO(ncclParamGetU8) Result ncclParamGetU8(Parameter *handle, std::uint8_t *out);
NCCL_ALSO(ncclParamGetU16) Result ncclParamGetU16(Parameter *handle, std::uint16_t *out);
NCCL_ALSO(ncclParamGetU32) Result ncclParamGetU32(Parameter *handle, std::uint32_t *out);
NCCL_ALSO(ncclParamGetU64) Result ncclParamGetU64(Parameter *handle, std::uint64_t *out);
NCCL_ALSO(ncclParamGetStr) Result ncclParamGetStr(Parameter *handle, const char **out);
NCCL_ALSO(ncclParamGet) Result ncclParamGet(Parameter *handle, void *out, int /*most*/, int * /*length*/);
NCCL_ALSO(ncclParamGetParameter)
Result ncclParamGetParameter(const char *key, const char **value, int *length);
NCCL_ALSO(ncclParamGetAllParameterKeys) Result ncclParamGetAllParameterKeys(const char ***table, int *length);
NCCL_ALSO(ncclParamDumpAll) void ncclParamDumpAll();

} // extern "C"
