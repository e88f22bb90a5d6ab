// SPDX-License-Identifier: GPL-2.0-or-later
#include "code_options.hpp"

#include "log.hpp"

#include <algorithm>
#include <bit>
#include <cstring>

namespace singularity::client {

namespace {

bool is_log(CUjit_option option) {
    return option == CU_JIT_INFO_LOG_BUFFER || option == CU_JIT_ERROR_LOG_BUFFER;
}

bool points_elsewhere(CUjit_option option) {
    switch (option) {
    case CU_JIT_GLOBAL_SYMBOL_NAMES:
    case CU_JIT_GLOBAL_SYMBOL_ADDRESSES:
    case CU_JIT_REFERENCED_KERNEL_NAMES:
    case CU_JIT_REFERENCED_VARIABLE_NAMES:
        return true;
    default:
        return false;
    }
}

} // namespace

JitOptions::JitOptions(unsigned count, CUjit_option *options, void **values)
    : count_(count), options_(options), values_(values) {
    if (count != 0 && (options == nullptr || values == nullptr)) {
        result_ = CUDA_ERROR_INVALID_VALUE;
        return;
    }
    for (unsigned index = 0; index < count; ++index) {
        const auto value = std::bit_cast<std::uint64_t>(values[index]);
        switch (options[index]) {
        case CU_JIT_INFO_LOG_BUFFER:
            info_.text = static_cast<char *>(values[index]);
            break;
        case CU_JIT_ERROR_LOG_BUFFER:
            error_.text = static_cast<char *>(values[index]);
            break;
        case CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES:
            info_.size = static_cast<unsigned>(value);
            break;
        case CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES:
            error_.size = static_cast<unsigned>(value);
            break;
        default:
            break;
        }
        if (points_elsewhere(options[index])) {
            kLog.warning("compiler option {} is not supported", static_cast<int>(options[index]));
            result_ = CUDA_ERROR_NOT_SUPPORTED;
            return;
        }
        wire_.push_back({.option = static_cast<std::uint32_t>(options[index]),
                         .value = is_log(options[index]) ? std::uint64_t{value != 0} : value});
    }
}

driver_api::View JitOptions::view() const {
    return protocol::view_of_elements(std::span<const protocol::CodeOption>(wire_));
}

void JitOptions::write(const Log &log, std::string_view text) {
    if (log.text == nullptr || log.size == 0)
        return;
    const auto length = std::min(log.size - 1, text.size());
    std::memcpy(log.text, text.data(), length);
    log.text[length] = '\0';
}

void JitOptions::finish_logs(std::string_view info, std::string_view error) const {
    write(info_, info);
    write(error_, error);
}

void JitOptions::finish(const std::array<driver_api::View, 3> &reply) const {
    const auto &[options, info, error] = reply;
    for (std::size_t index = 0;
         index < protocol::element_count<protocol::CodeOption>(options) && index < count_; ++index) {
        const auto option = protocol::element<protocol::CodeOption>(options, index);
        if (option.option == static_cast<std::uint32_t>(options_[index]) && !is_log(options_[index]))
            values_[index] = std::bit_cast<void *>(option.value);
    }
    finish_logs(protocol::text_of(info), protocol::text_of(error));
}

} // namespace singularity::client
