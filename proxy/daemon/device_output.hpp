// SPDX-License-Identifier: GPL-2.0-or-later
// What the device prints. The driver writes it to this process's standard output; the text is the client's
// whose call has just waited for the device. (Two clients that wait at the same moment may get each other's
// lines: the driver does not say whose they are.)
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <cstddef>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace singularity::proxyd {

class DeviceOutput {
  public:
    // Puts a pipe in the place of descriptor 1 until the object's end. One in a process.
    [[nodiscard]] static Expected<std::unique_ptr<DeviceOutput>> capture();

    DeviceOutput(const DeviceOutput &) = delete;
    DeviceOutput &operator=(const DeviceOutput &) = delete;
    DeviceOutput(DeviceOutput &&) = delete;
    DeviceOutput &operator=(DeviceOutput &&) = delete;
    ~DeviceOutput();

    // What has been printed since the last call; nearly always nothing.
    [[nodiscard]] std::string collect();

  private:
    DeviceOutput(UniqueFd reader, UniqueFd before) : reader_(std::move(reader)), before_(std::move(before)) {}
    void drain(); // with lock_ held
    void watch(); // a thread: keeps the pipe from filling up while a call of the driver prints

    UniqueFd reader_;
    UniqueFd before_; // standard output as it was
    UniqueFd stop_;
    std::mutex lock_;
    std::string text_;
    bool overflown_ = false;
    std::thread watcher_;
};

} // namespace singularity::proxyd
