// SPDX-License-Identifier: GPL-2.0-or-later
#include "parameters.hpp"

#include "communicator.hpp"

#include <array>

namespace singularity::nccl {

namespace {

Result unknown(const char *call, const char *key) {
    return refuse(Result::invalid_argument, "{} : there is no parameter {}", call, key);
}

} // namespace

Result bind_parameter(Parameter *const *out, const char *key) {
    constexpr const char *kName = "ncclParamBind";
    if (const auto bad = given(out, kName, "out"); bad != Result::success)
        return bad;
    if (const auto bad = given(key, kName, "key"); bad != Result::success)
        return bad;
    return unknown(kName, key);
}

Result get_parameter(const char *call, const Parameter *handle, const void *out) {
    if (const auto bad = given(handle, call, "h"); bad != Result::success)
        return bad;
    if (const auto bad = given_if(out != nullptr, call, "out"); bad != Result::success)
        return bad;
    return refuse(Result::invalid_argument, "{} : there is no such handle", call);
}

Result find_parameter(const char *key, const char **value, int *length) {
    constexpr const char *kName = "ncclParamGetParameter";
    if (const auto bad = given(key, kName, "key"); bad != Result::success)
        return bad;
    if (const auto bad = given(value, kName, "value"); bad != Result::success)
        return bad;
    if (const auto bad = given(length, kName, "valueLen"); bad != Result::success)
        return bad;
    *value = nullptr;
    *length = 0;
    return unknown(kName, key);
}

Result all_parameters(const char ***table, int *length) {
    static std::array<const char *, 1> none{};
    constexpr const char *kName = "ncclParamGetAllParameterKeys";
    if (const auto bad = given(table, kName, "table"); bad != Result::success)
        return bad;
    if (const auto bad = given(length, kName, "tableLen"); bad != Result::success)
        return bad;
    *table = none.data();
    *length = 0;
    return Result::success;
}

} // namespace singularity::nccl
