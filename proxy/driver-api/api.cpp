// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/driver-api/api.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace singularity::driver_api {

const ApiInfo &api_info(ApiId id) { return api_table()[std::to_underlying(id)]; }

std::optional<ApiId> find_symbol(std::string_view symbol) {
    const auto table = api_table();
    const auto found = std::ranges::lower_bound(table, symbol, {}, &ApiInfo::symbol);
    if (found == table.end() || found->symbol != symbol)
        return std::nullopt;
    return static_cast<ApiId>(found - table.begin());
}

std::string_view to_string(ApiClass api_class) {
    static constexpr auto kNames = std::to_array<std::string_view>(
        {"local", "async", "sync", "create", "destroy", "manual", "unsupported"});
    return kNames[std::to_underlying(api_class)];
}

} // namespace singularity::driver_api
