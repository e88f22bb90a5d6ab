// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/jit.hpp"

#include <algorithm>
#include <bit>
#include <cstdint>
#include <cstring>

namespace singularity::softgpu::driver {

JitOptions::JitOptions(unsigned count, CUjit_option *options, void **values)
    : count_(options == nullptr || values == nullptr ? 0 : count), options_(options), values_(values) {}

void **JitOptions::find(CUjit_option option) {
    for (unsigned at = 0; at < count_; ++at)
        if (options_[at] == option)
            return values_ + at;
    return nullptr;
}

// The value of a size option is the room on entry and what was written on return.
void JitOptions::fill(CUjit_option buffer_option, CUjit_option size_option, std::string_view text) {
    void **const buffer = find(buffer_option);
    void **const size = find(size_option);
    if (buffer == nullptr || *buffer == nullptr || size == nullptr)
        return;
    const std::size_t room = std::bit_cast<std::uintptr_t>(*size) & UINT32_MAX;
    std::size_t written = 0;
    if (room != 0) {
        written = std::min(text.size(), room - 1);
        std::memcpy(*buffer, text.data(), written);
        static_cast<char *>(*buffer)[written] = '\0';
    }
    *size = std::bit_cast<void *>(std::uintptr_t{written});
}

void JitOptions::say_error(std::string_view text) {
    fill(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, text);
    fill(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, {});
}

void JitOptions::done() {
    fill(CU_JIT_ERROR_LOG_BUFFER, CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES, {});
    fill(CU_JIT_INFO_LOG_BUFFER, CU_JIT_INFO_LOG_BUFFER_SIZE_BYTES, {});
    if (void **const time = find(CU_JIT_WALL_TIME); time != nullptr) {
        const float milliseconds =
            std::chrono::duration<float, std::milli>(std::chrono::steady_clock::now() - start_).count();
        *time = std::bit_cast<void *>(std::uintptr_t{std::bit_cast<std::uint32_t>(milliseconds)});
    }
}

} // namespace singularity::softgpu::driver
