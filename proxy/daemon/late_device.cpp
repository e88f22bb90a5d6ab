// SPDX-License-Identifier: GPL-2.0-or-later
#include "late_device.hpp"

#include <cerrno>
#include <exception>
#include <utility>

namespace singularity::proxyd {

LateDevice::~LateDevice() {
    if (thread_.joinable())
        thread_.join();
}

std::optional<Error> LateDevice::failed() const {
    const std::scoped_lock lock(lock_);
    return error_;
}

Expected<const ServedDevice *> LateDevice::open() {
    const std::scoped_lock first(first_);
    if (const auto *const device = get())
        return device;
    if (auto before = failed())
        return std::unexpected(std::move(*before));
    opening_.store(true);
    auto made = [this]() -> Expected<ServedDevice> {
        try {
            return open_();
        } catch (const std::exception &error) { // memory that is not there
            return failure("open", "the device", error.what(), ENOMEM);
        }
    }();
    opening_.store(false);
    if (!made) {
        const std::scoped_lock lock(lock_);
        error_ = made.error();
        return propagate(made);
    }
    device_.emplace(std::move(*made));
    opened_.store(&*device_, std::memory_order_release);
    return &*device_;
}

void LateDevice::open_beside(std::function<void()> on_end) {
    std::call_once(begun_, [&] {
        opening_.store(true); // before the thread is there
        thread_ = std::thread([this, on_end = std::move(on_end)] {
            static_cast<void>(open()); // failed() has the error
            on_end();
        });
    });
}

} // namespace singularity::proxyd
