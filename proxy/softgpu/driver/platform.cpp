// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/platform.hpp"

#include "driver/log.hpp"

#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include <dlfcn.h>
#include <pthread.h>

namespace singularity::softgpu::driver {

namespace {

std::atomic<Platform *> the_platform{nullptr};
std::atomic<bool> forked{false};

// A file in the directory that this library was loaded from.
std::string beside_this(const char *name) {
    Dl_info self{};
    if (dladdr(&the_platform, &self) == 0 || self.dli_fname == nullptr)
        return name;
    return std::filesystem::path(self.dli_fname).replace_filename(name);
}

} // namespace

Platform::Platform(const Config &config, const std::vector<unsigned> &physical_ordinals) : config_(config) {
    for (unsigned ordinal = 0; ordinal < physical_ordinals.size(); ++ordinal)
        devices_.push_back(std::make_unique<Device>(ordinal, physical_ordinals[ordinal], config_));
}

Result<Device *> Platform::device(CUdevice ordinal) const {
    if (ordinal < 0 || static_cast<std::size_t>(ordinal) >= devices_.size())
        return refused(CUDA_ERROR_INVALID_DEVICE);
    return devices_[static_cast<std::size_t>(ordinal)].get();
}

Workers &Platform::workers() {
    static auto &workers = *new Workers(static_cast<unsigned>(config_.threads)); // outlives every thread
    return workers;
}

CUresult initialize(unsigned flags) {
    static std::mutex &mutex = *new std::mutex; // outlives every thread
    static std::optional<CUresult> failed;
    if (flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    if (forked.load(std::memory_order_relaxed))
        return CUDA_ERROR_NOT_INITIALIZED;
    if (the_platform.load(std::memory_order_acquire) != nullptr)
        return CUDA_SUCCESS;
    const std::scoped_lock lock(mutex);
    if (failed)
        return *failed;
    if (the_platform.load(std::memory_order_acquire) != nullptr)
        return CUDA_SUCCESS;
    const auto config = read_config([](const char *name) -> const char * { return std::getenv(name); });
    if (!config) {
        kLog.error("{}", config.error().message());
        failed = CUDA_ERROR_INVALID_VALUE;
        return *failed;
    }
    std::vector<std::string> uuids;
    for (unsigned physical = 0; physical < static_cast<unsigned>(config->devices); ++physical)
        uuids.push_back(uuid_text(device_uuid(physical)));
    const auto visible = visible_devices(std::getenv("CUDA_VISIBLE_DEVICES"), uuids);
    if (visible.empty()) {
        failed = CUDA_ERROR_NO_DEVICE;
        return *failed;
    }
    if (config->addresses == Addresses::system)
        address_space().leave_to_system();
    set_compiler({config->compiler, [](const std::string &why) { kLog.warning("{}", why); },
                  beside_this("singularity-softgpu-compiler.so")});
    // The child of a fork has none of the threads, and its memory is a copy that nobody computes on.
    pthread_atfork(nullptr, nullptr, [] {
        forked = true;
        the_platform = nullptr;
    });
    the_platform.store(new Platform(*config, visible), std::memory_order_release);
    return CUDA_SUCCESS;
}

CUresult initialized() {
    return the_platform.load(std::memory_order_acquire) != nullptr ? CUDA_SUCCESS
                                                                   : CUDA_ERROR_NOT_INITIALIZED;
}

Platform &platform() { return *the_platform.load(std::memory_order_acquire); }

} // namespace singularity::softgpu::driver
