// SPDX-License-Identifier: GPL-2.0-or-later
// A driver library small enough that a test knows what it does: memory that can be counted, streams that work
// in order on a thread, and kernels that do one thing each, by name:
//     spin     never ends by itself; the destruction of its context ends it
//     add      {u64 address, u64 count, u64 value}: adds the value to that many bytes
//     fail     the launch fails with CUDA_ERROR_INVALID_VALUE
//     print    prints "hello from the device" when somebody waits for it
// Modules are their image's bytes; an image that begins with "bad" is none.
#include "proxy/libcuda/cuda.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include <sys/mman.h>
#include <unistd.h>

namespace {

constexpr unsigned kQueue = 1024;
constexpr std::size_t kMemory = std::size_t{256} << 20;
constexpr CUtexObject kTexture = 0x7e00'0000;

struct Allocation {
    int fd;
    std::size_t size;
    unsigned uses = 1; // the handle and every mapping
};

struct Context;

struct Stream {
    explicit Stream(Context &of) : context(of), worker([this] { work(); }) {}
    ~Stream() { stop(); }
    Stream(const Stream &) = delete;
    Stream &operator=(const Stream &) = delete;
    Stream(Stream &&) = delete;
    Stream &operator=(Stream &&) = delete;

    void put(std::function<void()> job) {
        const std::scoped_lock lock(mutex);
        jobs.push_back(std::move(job));
        ++pending;
        changed.notify_all();
    }
    bool full() {
        const std::scoped_lock lock(mutex);
        return pending >= kQueue;
    }
    void wait_for_room() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return pending < kQueue || stopping; });
    }
    bool idle() {
        const std::scoped_lock lock(mutex);
        return pending == 0;
    }
    // false: the stream is gone
    bool wait() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return pending == 0 || stopping; });
        return !stopping;
    }
    void sleep_until_stopped() {
        std::unique_lock lock(mutex);
        changed.wait(lock, [this] { return stopping.load(); });
    }
    void stop() {
        {
            const std::scoped_lock lock(mutex);
            stopping = true;
            changed.notify_all();
        }
        if (worker.joinable())
            worker.join();
    }
    void work() {
        for (;;) {
            std::function<void()> job;
            {
                std::unique_lock lock(mutex);
                changed.wait(lock, [this] { return stopping || !jobs.empty(); });
                if (stopping)
                    return;
                job = std::move(jobs.front());
                jobs.pop_front();
            }
            job();
            const std::scoped_lock lock(mutex);
            --pending;
            changed.notify_all();
        }
    }

    Context &context;
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::function<void()>> jobs;
    unsigned pending = 0;
    std::atomic<bool> stopping = false;
    std::atomic<bool> prints = false;
    std::thread worker;
};

// `lock`: shared by whoever enqueues something; a copy that has to wait for its stream, and whoever finds the
// queue full, keeps it to itself, as NVIDIA's driver 580 does.
struct Context {
    std::shared_mutex lock;
    std::shared_ptr<Stream> legacy = std::make_shared<Stream>(*this);
    std::map<CUstream, std::shared_ptr<Stream>> streams;
};

std::mutex state;
std::size_t used = 0;
std::map<CUcontext, std::shared_ptr<Context>> contexts;
std::map<CUmemGenericAllocationHandle, std::shared_ptr<Allocation>> allocations;
std::map<CUdeviceptr, std::pair<std::size_t, std::shared_ptr<Allocation>>> mappings;
std::map<void *, std::size_t> registered;
struct Event {
    std::atomic<bool> over = true;
    std::shared_ptr<Stream> stream;
};
std::map<CUevent, std::shared_ptr<Event>> events;
std::map<CUmodule, std::string> modules;
std::map<CUfunction, std::string> functions;
std::uint64_t next_handle = 0x1000;
thread_local std::vector<CUcontext> stack;

template <class Handle>
Handle fresh() {
    next_handle += 16;
    return std::bit_cast<Handle>(next_handle);
}

CUcontext current() { return stack.empty() ? nullptr : stack.back(); }

std::shared_ptr<Stream> stream_of(CUstream handle) {
    const std::scoped_lock lock(state);
    const auto context = contexts.find(current());
    if (context == contexts.end())
        return nullptr;
    if (std::bit_cast<std::uint64_t>(handle) <= 1)
        return context->second->legacy;
    const auto found = context->second->streams.find(handle);
    return found == context->second->streams.end() ? nullptr : found->second;
}

void drop(const std::shared_ptr<Allocation> &allocation) {
    if (--allocation->uses != 0)
        return;
    used -= allocation->size;
    close(allocation->fd);
}

bool is_registered(const void *address) {
    const std::scoped_lock lock(state);
    return std::ranges::any_of(registered, [at = std::bit_cast<std::uintptr_t>(address)](const auto &range) {
        const auto begin = std::bit_cast<std::uintptr_t>(range.first);
        return at >= begin && at - begin < range.second;
    });
}

void *pointer(CUdeviceptr address) { return std::bit_cast<void *>(address); }

template <class Job>
CUresult enqueue(Stream &stream, Job job) {
    {
        const std::shared_lock lock(stream.context.lock);
        if (!stream.full()) {
            stream.put(std::move(job));
            return CUDA_SUCCESS;
        }
    }
    const std::unique_lock alone(stream.context.lock);
    stream.wait_for_room();
    stream.put(std::move(job));
    return CUDA_SUCCESS;
}

// Memory that is not registered is copied before the call returns.
CUresult copy(void *to, const void *from, std::size_t size, CUstream stream, const void *host) {
    const auto on = stream_of(stream);
    if (on == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    const auto job = [to, from, size] { std::memcpy(to, from, size); };
    if (host == nullptr || is_registered(host))
        return enqueue(*on, job);
    const std::unique_lock alone(on->context.lock);
    on->put(job);
    return on->wait() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}

std::shared_ptr<Event> event_of(CUevent handle) {
    const std::scoped_lock lock(state);
    const auto found = events.find(handle);
    return found == events.end() ? nullptr : found->second;
}

CUresult synchronize(Stream &stream) {
    if (!stream.wait())
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (stream.prints.exchange(false)) {
        std::printf("hello from the device\n");
        std::fflush(stdout);
    }
    return CUDA_SUCCESS;
}

} // namespace

extern "C" {

// It takes as long as there is a file of the name in FAKE_DRIVER_HOLD.
CUresult cuInit(unsigned) {
    const char *const hold = std::getenv("FAKE_DRIVER_HOLD");
    while (hold != nullptr && access(hold, F_OK) == 0)
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    return CUDA_SUCCESS;
}
CUresult cuDriverGetVersion(int *version) {
    *version = 13000;
    return CUDA_SUCCESS;
}
CUresult cuGetErrorName(CUresult error, const char **name) {
    *name = error == CUDA_ERROR_CONTEXT_IS_DESTROYED ? "CUDA_ERROR_CONTEXT_IS_DESTROYED" : "CUDA_ERROR_FAKE";
    return CUDA_SUCCESS;
}
CUresult cuDeviceGet(CUdevice *device, int ordinal) {
    *device = ordinal;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetCount(int *count) {
    *count = 2;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetName(char *name, int length, CUdevice) {
    std::snprintf(name, static_cast<std::size_t>(length), "fake device");
    return CUDA_SUCCESS;
}
CUresult cuDeviceTotalMem_v2(size_t *bytes, CUdevice) {
    *bytes = kMemory;
    return CUDA_SUCCESS;
}
CUresult cuDeviceGetAttribute(int *value, CUdevice_attribute attribute, CUdevice) {
    if (attribute == CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR)
        *value = 9;
    else if (attribute >= CU_DEVICE_ATTRIBUTE_MAX)
        return CUDA_ERROR_INVALID_VALUE;
    else
        *value = static_cast<int>(attribute);
    return CUDA_SUCCESS;
}
CUresult cuCtxCreate_v2(CUcontext *context, unsigned, CUdevice) {
    const std::scoped_lock lock(state);
    *context = fresh<CUcontext>();
    contexts.emplace(*context, std::make_shared<Context>());
    stack.push_back(*context);
    return CUDA_SUCCESS;
}
CUresult cuCtxDestroy_v2(CUcontext context) {
    std::shared_ptr<Context> going;
    {
        const std::scoped_lock lock(state);
        const auto found = contexts.find(context);
        if (found == contexts.end())
            return CUDA_ERROR_INVALID_CONTEXT;
        going = std::move(found->second);
        contexts.erase(found);
        std::erase(stack, context);
    }
    going->legacy->stop();
    for (const auto &[handle, stream] : going->streams)
        stream->stop();
    return CUDA_SUCCESS;
}
CUresult cuCtxPopCurrent_v2(CUcontext *context) {
    *context = current();
    if (!stack.empty())
        stack.pop_back();
    return CUDA_SUCCESS;
}
CUresult cuCtxSetCurrent(CUcontext context) {
    if (!stack.empty())
        stack.pop_back();
    if (context != nullptr)
        stack.push_back(context);
    return CUDA_SUCCESS;
}
CUresult cuCtxSynchronize(void) {
    std::vector<std::shared_ptr<Stream>> all{stream_of(nullptr)};
    if (all.front() == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    {
        const std::scoped_lock lock(state);
        if (const auto context = contexts.find(current()); context != contexts.end())
            for (const auto &[handle, stream] : context->second->streams)
                all.push_back(stream);
    }
    auto result = CUDA_SUCCESS;
    for (const auto &stream : all)
        if (const auto ended = synchronize(*stream); ended != CUDA_SUCCESS)
            result = ended;
    return result;
}
CUresult cuCtxGetStreamPriorityRange(int *least, int *greatest) {
    *least = 0;
    *greatest = -5;
    return CUDA_SUCCESS;
}
CUresult cuMemGetInfo_v2(size_t *free, size_t *total) {
    const std::scoped_lock lock(state);
    *free = kMemory - used;
    *total = kMemory;
    return CUDA_SUCCESS;
}
// The one table that the daemon asks for: where multiprocessors lie.
CUresult cuGetExportTable(const void **table, const CUuuid *id) {
    static constexpr std::array<unsigned char, 16> kPlaces{0x17, 0x34, 0xdc, 0x26, 0x80, 0x0d, 0x47, 0x45,
                                                           0x87, 0x26, 0xc0, 0xf1, 0xe7, 0xdd, 0x8b, 0xca};
    static constexpr size_t kPairs = 66;
    using Tell = CUresult (*)(unsigned char **, unsigned char **);
    using Free = CUresult (*)(unsigned char *, unsigned char *);
    static const Tell kTell = [](unsigned char **groups, unsigned char **positions) {
        *groups = static_cast<unsigned char *>(std::malloc(kPairs));
        *positions = static_cast<unsigned char *>(std::malloc(kPairs));
        for (size_t pair = 0; pair < kPairs; ++pair) {
            (*groups)[pair] = static_cast<unsigned char>(pair % 8);
            (*positions)[pair] = static_cast<unsigned char>(pair / 8);
        }
        return CUDA_SUCCESS;
    };
    static const Free kFree = [](unsigned char *groups, unsigned char *positions) {
        std::free(groups);
        std::free(positions);
        return CUDA_SUCCESS;
    };
    static const auto kTable = [] {
        std::array<std::uintptr_t, 17> slots{sizeof(slots)};
        slots[4] = std::bit_cast<std::uintptr_t>(kTell);
        slots[13] = std::bit_cast<std::uintptr_t>(kFree);
        return slots;
    }();
    if (std::memcmp(static_cast<const void *>(id->bytes), kPlaces.data(), kPlaces.size()) != 0)
        return CUDA_ERROR_NOT_FOUND;
    *table = kTable.data();
    return CUDA_SUCCESS;
}
// As NVIDIA's driver: a wish counts from 32 MiB on, at a multiple of that.
CUresult cuMemAddressReserve(CUdeviceptr *address, size_t size, size_t, CUdeviceptr wish,
                             unsigned long long) {
    constexpr size_t kGranted = size_t{32} << 20;
    if (size < kGranted || wish % kGranted != 0)
        wish = 0;
    void *got = mmap(pointer(wish), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (got == MAP_FAILED)
        return CUDA_ERROR_OUT_OF_MEMORY;
    *address = std::bit_cast<CUdeviceptr>(got);
    return CUDA_SUCCESS;
}
CUresult cuMemAddressFree(CUdeviceptr address, size_t size) {
    return munmap(pointer(address), size) == 0 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuMemCreate(CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *,
                     unsigned long long) {
    const std::scoped_lock lock(state);
    if (size > kMemory - used)
        return CUDA_ERROR_OUT_OF_MEMORY;
    const int fd = memfd_create("fake", MFD_CLOEXEC);
    if (fd < 0 || ftruncate(fd, static_cast<off_t>(size)) != 0)
        return CUDA_ERROR_OPERATING_SYSTEM;
    used += size;
    *handle = fresh<CUmemGenericAllocationHandle>();
    allocations[*handle] = std::make_shared<Allocation>(Allocation{.fd = fd, .size = size});
    return CUDA_SUCCESS;
}
CUresult cuMemRelease(CUmemGenericAllocationHandle handle) {
    const std::scoped_lock lock(state);
    const auto found = allocations.find(handle);
    if (found == allocations.end())
        return CUDA_ERROR_INVALID_VALUE;
    drop(found->second);
    allocations.erase(found);
    return CUDA_SUCCESS;
}
CUresult cuMemMap(CUdeviceptr address, size_t size, size_t offset, CUmemGenericAllocationHandle handle,
                  unsigned long long) {
    const std::scoped_lock lock(state);
    const auto found = allocations.find(handle);
    if (found == allocations.end() || size > found->second->size)
        return CUDA_ERROR_INVALID_VALUE;
    if (mmap(pointer(address), size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, found->second->fd,
             static_cast<off_t>(offset)) == MAP_FAILED)
        return CUDA_ERROR_OPERATING_SYSTEM;
    ++found->second->uses;
    mappings[address] = {size, found->second};
    return CUDA_SUCCESS;
}
CUresult cuMemUnmap(CUdeviceptr address, size_t size) {
    const std::scoped_lock lock(state);
    const auto found = mappings.find(address);
    if (found == mappings.end() || found->second.first != size)
        return CUDA_ERROR_INVALID_VALUE;
    mmap(pointer(address), size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, 0);
    drop(found->second.second);
    mappings.erase(found);
    return CUDA_SUCCESS;
}
CUresult cuMemSetAccess(CUdeviceptr, size_t, const CUmemAccessDesc *, size_t) { return CUDA_SUCCESS; }
CUresult cuMemHostRegister_v2(void *address, size_t size, unsigned) {
    const std::scoped_lock lock(state);
    return registered.emplace(address, size).second ? CUDA_SUCCESS
                                                    : CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED;
}
CUresult cuMemHostUnregister(void *address) {
    const std::scoped_lock lock(state);
    return registered.erase(address) == 1 ? CUDA_SUCCESS : CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED;
}
CUresult cuMemcpyHtoDAsync_v2(CUdeviceptr to, const void *from, size_t size, CUstream stream) {
    return copy(pointer(to), from, size, stream, from);
}
CUresult cuMemcpyDtoHAsync_v2(void *to, CUdeviceptr from, size_t size, CUstream stream) {
    return copy(to, pointer(from), size, stream, to);
}
CUresult cuMemcpyDtoDAsync_v2(CUdeviceptr to, CUdeviceptr from, size_t size, CUstream stream) {
    return copy(pointer(to), pointer(from), size, stream, nullptr);
}
CUresult cuMemsetD8Async(CUdeviceptr to, unsigned char value, size_t count, CUstream stream) {
    const auto on = stream_of(stream);
    if (on == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    return enqueue(*on, [to, value, count] { std::memset(pointer(to), value, count); });
}
CUresult cuStreamCreate(CUstream *handle, unsigned) {
    const std::scoped_lock lock(state);
    const auto context = contexts.find(current());
    if (context == contexts.end())
        return CUDA_ERROR_INVALID_CONTEXT;
    *handle = fresh<CUstream>();
    context->second->streams.emplace(*handle, std::make_shared<Stream>(*context->second));
    return CUDA_SUCCESS;
}
CUresult cuStreamQuery(CUstream handle) {
    const auto stream = stream_of(handle);
    if (stream == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    return stream->idle() ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuStreamSynchronize(CUstream handle) {
    const auto stream = stream_of(handle);
    return stream == nullptr ? CUDA_ERROR_INVALID_CONTEXT : synchronize(*stream);
}
CUresult cuLaunchHostFunc(CUstream handle, CUhostFn function, void *data) {
    const auto stream = stream_of(handle);
    if (stream == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    return enqueue(*stream, [function, data] { function(data); });
}
CUresult cuStreamDestroy_v2(CUstream handle) {
    std::shared_ptr<Stream> going;
    {
        const std::scoped_lock lock(state);
        for (auto &[context, what] : contexts)
            if (auto found = what->streams.extract(handle); !found.empty())
                going = std::move(found.mapped());
    }
    if (going == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    static_cast<void>(going->wait());
    going->stop();
    return CUDA_SUCCESS;
}
// Looks again and again, as a device does.
CUresult cuStreamWaitValue32_v2(CUstream handle, CUdeviceptr address, cuuint32_t value, unsigned flags) {
    const auto stream = stream_of(handle);
    if (stream == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (flags != CU_STREAM_WAIT_VALUE_GEQ)
        return CUDA_ERROR_NOT_SUPPORTED;
    return enqueue(*stream, [raw = stream.get(), address, value] {
        const auto &word = *static_cast<const std::atomic<std::uint32_t> *>(pointer(address));
        while (!raw->stopping && static_cast<std::int32_t>(word.load() - value) < 0)
            std::this_thread::sleep_for(std::chrono::microseconds(50));
    });
}
CUresult cuMemHostAlloc(void **memory, size_t size, unsigned) {
    *memory = std::aligned_alloc(4096, size);
    return *memory == nullptr ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_SUCCESS;
}
CUresult cuMemFreeHost(void *memory) {
    std::free(memory);
    return CUDA_SUCCESS;
}
CUresult cuMemHostGetDevicePointer_v2(CUdeviceptr *device, void *memory, unsigned) {
    *device = std::bit_cast<CUdeviceptr>(memory);
    return CUDA_SUCCESS;
}
CUresult cuEventCreate(CUevent *handle, unsigned) {
    const std::scoped_lock lock(state);
    *handle = fresh<CUevent>();
    events.emplace(*handle, std::make_shared<Event>());
    return CUDA_SUCCESS;
}
CUresult cuEventDestroy_v2(CUevent handle) {
    const std::scoped_lock lock(state);
    return events.erase(handle) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuEventRecord(CUevent handle, CUstream stream_handle) {
    const auto stream = stream_of(stream_handle);
    const auto event = event_of(handle);
    if (stream == nullptr || event == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    event->over = false;
    event->stream = stream;
    return enqueue(*stream, [event] { event->over = true; });
}
CUresult cuEventQuery(CUevent handle) {
    const auto event = event_of(handle);
    if (event == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    return event->over ? CUDA_SUCCESS : CUDA_ERROR_NOT_READY;
}
CUresult cuEventSynchronize(CUevent handle) {
    const auto event = event_of(handle);
    if (event == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    return event->over || event->stream->wait() ? CUDA_SUCCESS : CUDA_ERROR_CONTEXT_IS_DESTROYED;
}
// A number that is no address of anything, as NVIDIA's.
CUresult cuTexObjectCreate(CUtexObject *texture, const CUDA_RESOURCE_DESC *resource,
                           const CUDA_TEXTURE_DESC *, const CUDA_RESOURCE_VIEW_DESC *) {
    *texture = kTexture + resource->res.linear.sizeInBytes;
    return CUDA_SUCCESS;
}
CUresult cuTexObjectDestroy(CUtexObject texture) {
    return texture > kTexture ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult cuModuleLoadDataEx(CUmodule *module, const void *image, unsigned, CUjit_option *, void **) {
    if (std::strncmp(static_cast<const char *>(image), "bad", 3) == 0)
        return CUDA_ERROR_INVALID_IMAGE;
    const std::scoped_lock lock(state);
    *module = fresh<CUmodule>();
    modules[*module] = static_cast<const char *>(image);
    return CUDA_SUCCESS;
}
CUresult cuModuleUnload(CUmodule module) {
    const std::scoped_lock lock(state);
    return modules.erase(module) == 1 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_HANDLE;
}
CUresult cuModuleGetFunction(CUfunction *function, CUmodule module, const char *name) {
    const std::scoped_lock lock(state);
    if (!modules.contains(module) || !modules[module].contains(name))
        return CUDA_ERROR_NOT_FOUND;
    *function = fresh<CUfunction>();
    functions[*function] = name;
    return CUDA_SUCCESS;
}
CUresult cuLaunchKernel(CUfunction function, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned,
                        unsigned, CUstream handle, void **, void **extra) {
    std::string name;
    {
        const std::scoped_lock lock(state);
        const auto found = functions.find(function);
        if (found == functions.end())
            return CUDA_ERROR_INVALID_HANDLE;
        name = found->second;
    }
    const auto stream = stream_of(handle);
    if (stream == nullptr)
        return CUDA_ERROR_INVALID_CONTEXT;
    if (name == "fail")
        return CUDA_ERROR_INVALID_VALUE;
    if (name == "print")
        stream->prints = true;
    if (name == "spin")
        stream->put([raw = stream.get()] { raw->sleep_until_stopped(); });
    if (name == "add") {
        std::uint64_t parameters[3] = {};
        if (extra == nullptr || extra[0] != CU_LAUNCH_PARAM_BUFFER_POINTER ||
            *static_cast<size_t *>(extra[3]) != sizeof(parameters))
            return CUDA_ERROR_INVALID_VALUE;
        std::memcpy(parameters, extra[1], sizeof(parameters));
        stream->put([address = parameters[0], count = parameters[1], value = parameters[2]] {
            auto *bytes = static_cast<unsigned char *>(pointer(address));
            for (std::uint64_t index = 0; index < count; ++index)
                bytes[index] = static_cast<unsigned char>(bytes[index] + value);
        });
    }
    return CUDA_SUCCESS;
}

} // extern "C"
