// SPDX-License-Identifier: GPL-2.0-or-later
// The device that this daemon serves, with what its sessions have in common of it. Opening a driver takes up
// to seconds, so it can be left to the first client: until then the daemon is a process that listens.
#pragma once

#include "back_end.hpp"
#include "common/error.hpp"
#include "communicators.hpp"
#include "contents.hpp"
#include "residency.hpp"

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

namespace singularity::proxyd {

struct ServedDevice {
    std::unique_ptr<BackEnd> back_end;
    CollectiveParts collectives;
    std::shared_ptr<Residency> residency; // sessions may outlive the daemon
    std::shared_ptr<Contents> contents;   // as well
};

// Opened once, whoever wants it. Where that has failed it is not tried again: a driver that could not start
// says the same again in the same process. Any thread may call it.
class LateDevice {
  public:
    using Open = std::function<Expected<ServedDevice>()>;
    explicit LateDevice(Open open) : open_(std::move(open)) {}
    LateDevice(const LateDevice &) = delete;
    LateDevice &operator=(const LateDevice &) = delete;
    LateDevice(LateDevice &&) = delete;
    LateDevice &operator=(LateDevice &&) = delete;
    // Waits for what open_beside() has begun.
    ~LateDevice();

    // Null until it is open.
    [[nodiscard]] const ServedDevice *get() const { return opened_.load(std::memory_order_acquire); }
    // Why it is not, and never will be.
    [[nodiscard]] std::optional<Error> failed() const;
    // Waits until it is.
    [[nodiscard]] Expected<const ServedDevice *> open();
    // On a thread of its own, unless it has begun before; then calls on_end from there, however it ends.
    void open_beside(std::function<void()> on_end);
    // Somebody is at it: whoever ends now would wait for the driver.
    [[nodiscard]] bool is_opening() const { return opening_.load(); }

  private:
    Open open_;
    std::mutex first_; // who opens it; others wait
    std::atomic<const ServedDevice *> opened_ = nullptr;
    std::optional<ServedDevice> device_;
    mutable std::mutex lock_; // the error
    std::optional<Error> error_;
    std::atomic<bool> opening_ = false;
    std::once_flag begun_;
    std::thread thread_;
};

} // namespace singularity::proxyd
