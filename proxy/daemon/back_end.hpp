// SPDX-License-Identifier: GPL-2.0-or-later
// The driver library behind this daemon, and one device of it.
#pragma once

#include "common/error.hpp"
#include "driver_api/backend.hpp"
#include "proxy/channel/packet.hpp"

#include <filesystem>
#include <memory>
#include <string>

namespace singularity::proxyd {

// The name of a result, "CUDA_ERROR_INVALID_VALUE", for logs.
[[nodiscard]] std::string result_name(const driver_api::Backend &driver, CUresult result);

class BackEnd {
  public:
    // Opens the library (it is never closed: its threads live on), starts the driver, and asks everything
    // about the device that clients want to know.
    [[nodiscard]] static Expected<std::unique_ptr<BackEnd>> open(const std::filesystem::path &library,
                                                                 int ordinal);
    // With functions that are already there, for tests and the fuzzer: nothing is asked.
    [[nodiscard]] static std::unique_ptr<BackEnd> with(const driver_api::Backend &driver);

    [[nodiscard]] const driver_api::Backend &driver() const { return driver_; }
    // The software GPU's, whatever it is named.
    [[nodiscard]] bool is_software() const;
    [[nodiscard]] CUdevice device() const { return device_; }
    [[nodiscard]] const channel::DeviceIdentity &identity() const { return identity_; }

  private:
    BackEnd() = default;
    [[nodiscard]] Expected<void> check_symbols(const std::filesystem::path &library) const;
    [[nodiscard]] Expected<void> identify(const std::filesystem::path &library, int ordinal);
    void ask_context();
    void ask_granularity();

    driver_api::Backend driver_{};
    CUdevice device_ = 0;
    channel::DeviceIdentity identity_{};
};

} // namespace singularity::proxyd
