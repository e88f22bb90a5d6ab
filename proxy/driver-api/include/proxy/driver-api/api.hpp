// SPDX-License-Identifier: GPL-2.0-or-later
// Every function of the driver library by id, name and class.
#pragma once

#include "driver_api/api_id.hpp" // generated: enum class ApiId, kCudaVersion

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace singularity::driver_api {

// How a call is answered; driver_api.annotations explains each.
enum class ApiClass : std::uint8_t { local, async, sync, create, destroy, manual, unsupported };

struct ApiInfo {
    std::string_view symbol; // as exported
    std::string_view name;   // as cuGetProcAddress knows it
    ApiClass api_class;
    ApiId legacy;     // the same function on the legacy default stream; itself where there is one only
    ApiId per_thread; // the same on the per-thread default stream; itself where there is one only
};

// Ordered by symbol; an ApiId is an index into it.
[[nodiscard]] std::span<const ApiInfo> api_table();
[[nodiscard]] const ApiInfo &api_info(ApiId id);
[[nodiscard]] std::optional<ApiId> find_symbol(std::string_view symbol);
[[nodiscard]] std::string_view to_string(ApiClass api_class);

} // namespace singularity::driver_api
