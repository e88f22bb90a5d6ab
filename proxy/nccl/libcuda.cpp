// SPDX-License-Identifier: GPL-2.0-or-later
#include "libcuda.hpp"

#include "proxy/client/nccl_table.hpp"
#include "proxy/libcuda/cuda.hpp"

#include <bit>
#include <cstring>
#include <memory>
#include <mutex>
#include <string>

#include <dlfcn.h>
#include <fmt/format.h>

namespace singularity::nccl {

namespace {

using client::NcclTable;
using client::NcclTarget;

// The library is opened, not linked: what the dynamic linker's auditor finds is what the program uses, and
// another one is refused in words.
struct Functions {
    decltype(&::cuInit) init = nullptr;
    decltype(&::cuGetExportTable) export_table = nullptr;
    decltype(&::cuGetErrorName) error_name = nullptr;
    decltype(&::cuDeviceGetCount) device_count = nullptr;
    decltype(&::cuDeviceGet) device = nullptr;
    decltype(&::cuDevicePrimaryCtxRetain) retain = nullptr;
    decltype(&::cuCtxGetCurrent) current = nullptr;
    decltype(&::cuCtxSetCurrent) set_current = nullptr;
    decltype(&::cuCtxPushCurrent_v2) push = nullptr;
    decltype(&::cuCtxPopCurrent_v2) pop = nullptr;
    decltype(&::cuMemAlloc_v2) allocate = nullptr;
    decltype(&::cuMemFree_v2) release = nullptr;
    decltype(&::cuEventCreate) create_event = nullptr;
    decltype(&::cuEventRecord) record_event = nullptr;
    decltype(&::cuStreamWaitEvent) wait_event = nullptr;
    decltype(&::cuEventDestroy_v2) destroy_event = nullptr;
};

// While one lives, a context is the calling thread's current one.
class Current {
  public:
    Current(const Functions &functions, const Place &place)
        : functions_(&functions), result_(functions.push(static_cast<CUcontext>(place.handle))) {}
    ~Current() {
        CUcontext context = nullptr;
        if (result_ == CUDA_SUCCESS)
            functions_->pop(&context);
    }
    Current(const Current &) = delete;
    Current &operator=(const Current &) = delete;
    Current(Current &&) = delete;
    Current &operator=(Current &&) = delete;

    [[nodiscard]] CUresult result() const { return result_; }

  private:
    const Functions *functions_;
    CUresult result_;
};

class Libcuda : public Driver, public Gate {
  public:
    [[nodiscard]] Expected<void> load();

    [[nodiscard]] Expected<Place> current() override;
    [[nodiscard]] Expected<Place> primary(int device) override;
    [[nodiscard]] Expected<int> devices() override;
    [[nodiscard]] Expected<StreamState> stream(const Place &place, Stream stream) override;
    [[nodiscard]] Expected<std::uint64_t> memory(const Place &place, const void *address,
                                                 std::size_t size) override;
    [[nodiscard]] Expected<void> order(const Place &place, Stream earlier, Stream later) override;
    [[nodiscard]] Expected<void> capture(const Place &place, Stream stream,
                                         std::unique_ptr<Captured> what) override;
    [[nodiscard]] Expected<void *> allocate(std::size_t size) override;
    [[nodiscard]] Expected<void> release(void *memory) override;
    [[nodiscard]] Expected<void> post(const Place &place, std::span<const std::byte> message) override;
    [[nodiscard]] Expected<void> ask(const Place &place, std::span<const std::byte> message,
                                     std::size_t reply_limit, const Take &take) override;
    [[nodiscard]] Expected<void> abort(const Place &place, std::uint64_t communicator) override;

    void join(const barrier::Member &member) override { table_->join(&member); }
    void leave(const barrier::Member &member) override { table_->leave(&member); }
    void enter(std::span<const barrier::Line> group) override { table_->enter(group.data(), group.size()); }
    void exit() override { table_->exit(); }

  private:
    [[nodiscard]] std::unexpected<Error> failed(std::string doing, std::string on, int result) const;
    [[nodiscard]] Expected<Place> place_of(CUcontext context) const;

    Functions functions_;
    const NcclTable *table_ = nullptr;
};

template <class Function>
bool find(void *library, const char *name, Function &out) {
    out = std::bit_cast<Function>(dlsym(library, name));
    return out != nullptr;
}

NcclTarget target_of(const Place &place) {
    return {.session = place.session, .context = place.context, .device = place.device};
}

Expected<void> Libcuda::load() {
    void *const library = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library == nullptr) {
        const char *const why = dlerror();
        return failure("open", "libcuda.so.1", why != nullptr ? why : "no reason is given");
    }
    auto &all = functions_;
    if (!find(library, "cuInit", all.init) || !find(library, "cuGetExportTable", all.export_table) ||
        !find(library, "cuGetErrorName", all.error_name) ||
        !find(library, "cuDeviceGetCount", all.device_count) || !find(library, "cuDeviceGet", all.device) ||
        !find(library, "cuDevicePrimaryCtxRetain", all.retain) ||
        !find(library, "cuCtxGetCurrent", all.current) ||
        !find(library, "cuCtxSetCurrent", all.set_current) ||
        !find(library, "cuCtxPushCurrent_v2", all.push) || !find(library, "cuCtxPopCurrent_v2", all.pop) ||
        !find(library, "cuMemAlloc_v2", all.allocate) || !find(library, "cuMemFree_v2", all.release) ||
        !find(library, "cuEventCreate", all.create_event) ||
        !find(library, "cuEventRecord", all.record_event) ||
        !find(library, "cuStreamWaitEvent", all.wait_event) ||
        !find(library, "cuEventDestroy_v2", all.destroy_event))
        return failure("use", "libcuda.so.1", "functions of the CUDA driver are missing in it");
    const void *found = nullptr;
    const CUuuid id = std::bit_cast<CUuuid>(client::kNcclTable);
    if (all.export_table(&found, &id) != CUDA_SUCCESS || found == nullptr)
        return failure(
            "use", "libcuda.so.1",
            "it is not the device proxy's. This libnccl.so.2 works in programs that run through the "
            "proxy (singularityctl proxy run, or a job of slurm-singularity)");
    const auto *const table = static_cast<const NcclTable *>(found);
    if (table->version != client::kNcclTableVersion || table->size < sizeof(NcclTable))
        return failure(
            "use", "libcuda.so.1",
            fmt::format("it is of another release than this libnccl.so.2 (table version {} instead of {})",
                        table->version, client::kNcclTableVersion));
    table_ = table;
    if (const auto result = all.init(0); result != CUDA_SUCCESS)
        return failed("initialise", "the CUDA driver", result);
    return {};
}

std::unexpected<Error> Libcuda::failed(std::string doing, std::string on, int result) const {
    const char *name = nullptr;
    if (functions_.error_name(static_cast<CUresult>(result), &name) != CUDA_SUCCESS || name == nullptr)
        name = "an unknown CUresult";
    return failure(std::move(doing), std::move(on), name, result);
}

Expected<Place> Libcuda::place_of(CUcontext context) const {
    NcclTarget target{};
    if (const auto result = table_->target(context, &target); result != CUDA_SUCCESS)
        return failed("use", "the current context", result);
    return Place{
        .session = target.session, .context = target.context, .device = target.device, .handle = context};
}

Expected<Place> Libcuda::current() {
    CUcontext context = nullptr;
    if (const auto result = functions_.current(&context); result != CUDA_SUCCESS)
        return failed("ask for", "the current context", result);
    if (context != nullptr)
        return place_of(context);
    auto first = primary(0);
    if (first)
        if (const auto result = functions_.set_current(static_cast<CUcontext>(first->handle));
            result != CUDA_SUCCESS)
            return failed("make current", "the primary context of device 0", result);
    return first;
}

Expected<Place> Libcuda::primary(int device) {
    CUdevice found = 0;
    CUcontext context = nullptr;
    if (const auto result = functions_.device(&found, device); result != CUDA_SUCCESS)
        return failed("find", fmt::format("device {}", device), result);
    // Retained for good, as by the CUDA runtime.
    if (const auto result = functions_.retain(&context, found); result != CUDA_SUCCESS)
        return failed("retain", fmt::format("the primary context of device {}", device), result);
    return place_of(context);
}

Expected<int> Libcuda::devices() {
    int count = 0;
    if (const auto result = functions_.device_count(&count); result != CUDA_SUCCESS)
        return failed("count", "devices", result);
    return count;
}

Expected<StreamState> Libcuda::stream(const Place &place, Stream stream) {
    StreamState state;
    int capturing = 0;
    const auto target = target_of(place);
    if (const auto result = table_->stream(&target, stream, &state.wire, &capturing); result != CUDA_SUCCESS)
        return failed("use", fmt::format("stream {} on device {}", fmt::ptr(stream), place.device), result);
    state.capturing = capturing != 0;
    return state;
}

Expected<std::uint64_t> Libcuda::memory(const Place &place, const void *address, std::size_t size) {
    std::uint64_t wire = 0;
    const auto target = target_of(place);
    const auto result = table_->memory(&target, address, size, &wire);
    if (result == CUDA_SUCCESS)
        return wire;
    if (result == CUDA_ERROR_INVALID_VALUE)
        return failure("use", fmt::format("{} bytes at {}", size, fmt::ptr(address)),
                       "not all of it is allocated on the device or shared with it", result);
    if (result == CUDA_ERROR_INVALID_DEVICE)
        return failure("use", fmt::format("{} bytes at {}", size, fmt::ptr(address)),
                       fmt::format("it is not on device {}", place.device), result);
    return failed("look up", "an address", result);
}

Expected<void> Libcuda::order(const Place &place, Stream earlier, Stream later) {
    const Current scope(functions_, place);
    if (scope.result() != CUDA_SUCCESS)
        return failed("make current", "a communicator's context", scope.result());
    CUevent event = nullptr;
    auto result = functions_.create_event(&event, CU_EVENT_DISABLE_TIMING);
    if (result != CUDA_SUCCESS)
        return failed("create", "an event", result);
    result = functions_.record_event(event, earlier);
    if (result == CUDA_SUCCESS)
        result = functions_.wait_event(later, event, 0);
    const auto destroyed = functions_.destroy_event(event);
    if (result == CUDA_SUCCESS)
        result = destroyed;
    if (result != CUDA_SUCCESS)
        return failed("order", "the streams of a group", result);
    return {};
}

Expected<void> Libcuda::capture(const Place &place, Stream stream, std::unique_ptr<Captured> what) {
    const auto target = target_of(place);
    const client::NcclCaptured captured{
        .part = what.get(),
        .unusable = [](void *part) { return static_cast<Captured *>(part)->unusable(); },
        .issue =
            [](void *part, void *launch) {
                return static_cast<Captured *>(part)->issue(static_cast<Stream>(launch));
            },
        .release = [](void *part) { const std::unique_ptr<Captured> gone(static_cast<Captured *>(part)); }};
    if (const auto result = table_->capture(&target, stream, &captured); result != CUDA_SUCCESS)
        return failed("add a collective to the graph that is captured on",
                      fmt::format("stream {}", fmt::ptr(stream)), result);
    static_cast<void>(what.release()); // the graph's
    return {};
}

Expected<void *> Libcuda::allocate(std::size_t size) {
    if (auto place = current(); !place)
        return propagate(place);
    CUdeviceptr address = 0;
    if (const auto result = functions_.allocate(&address, size); result != CUDA_SUCCESS)
        return failed("allocate", fmt::format("{} bytes", size), result);
    return std::bit_cast<void *>(address);
}

Expected<void> Libcuda::release(void *memory) {
    if (const auto result = functions_.release(std::bit_cast<CUdeviceptr>(memory)); result != CUDA_SUCCESS)
        return failed("free", fmt::format("{}", fmt::ptr(memory)), result);
    return {};
}

Expected<void> Libcuda::post(const Place &place, std::span<const std::byte> message) {
    const auto target = target_of(place);
    if (const auto result = table_->post(&target, message.data(), message.size()); result != CUDA_SUCCESS)
        return failed("send to", fmt::format("the proxy of device {}", place.device), result);
    return {};
}

Expected<void> Libcuda::ask(const Place &place, std::span<const std::byte> message, std::size_t reply_limit,
                            const Take &take) {
    const auto target = target_of(place);
    const auto taken = [](void *taker, const void *reply, std::size_t size) {
        (*static_cast<const Take *>(taker))({static_cast<const std::byte *>(reply), size});
    };
    auto taker = take;
    if (const auto result = table_->ask(&target, message.data(), message.size(), reply_limit, taken, &taker);
        result != CUDA_SUCCESS)
        return failed("ask", fmt::format("the proxy of device {}", place.device), result);
    return {};
}

Expected<void> Libcuda::abort(const Place &place, std::uint64_t communicator) {
    const auto target = target_of(place);
    if (const auto result = table_->abort(&target, communicator); result != CUDA_SUCCESS)
        return failed("tell", fmt::format("the proxy of device {}", place.device), result);
    return {};
}

} // namespace

Expected<Loaded> load_driver() {
    static std::mutex lock;
    static Libcuda *loaded = nullptr;
    const std::scoped_lock hold(lock);
    if (loaded == nullptr) {
        auto driver = std::make_unique<Libcuda>();
        if (auto done = driver->load(); !done)
            return propagate(done);
        loaded = driver.release();
    }
    return Loaded{.driver = loaded, .gate = loaded};
}

} // namespace singularity::nccl
