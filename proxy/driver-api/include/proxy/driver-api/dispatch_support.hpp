// SPDX-License-Identifier: GPL-2.0-or-later
// What the generated dispatch functions are made of.
#pragma once

#include "proxy/driver-api/dispatch.hpp"

#include <algorithm>
#include <bit>

namespace singularity::driver_api {

// Memory that the driver writes an output to. At least one element, so that a count of 0 has an address.
class OutputStorage {
  public:
    OutputStorage(bool wanted, std::uint64_t bytes, const View &initial) : wanted_(wanted), size_(bytes) {
        if (!wanted_)
            return;
        storage_.resize(std::max<std::uint64_t>(bytes, kSmallest));
        if (initial.present)
            std::ranges::copy(initial.bytes.first(std::min<std::size_t>(initial.bytes.size(), size_)),
                              storage_.begin());
    }

    template <class T>
    [[nodiscard]] T *as() {
        return wanted_ ? static_cast<T *>(static_cast<void *>(storage_.data())) : nullptr;
    }
    template <class T>
    [[nodiscard]] std::uint64_t value() const {
        T value{};
        if (wanted_ && size_ >= sizeof(T))
            std::memcpy(&value, storage_.data(), sizeof(T));
        return static_cast<std::uint64_t>(value);
    }
    // The first `count` handles become the client's; the rest is not the driver's.
    void name_handles(Objects &objects, unsigned kind, std::uint64_t count) {
        if (!wanted_)
            return;
        for (std::uint64_t at = 0; at + sizeof(std::uint64_t) <= size_; at += sizeof(std::uint64_t)) {
            std::uint64_t handle = 0;
            std::memcpy(&handle, storage_.data() + at, sizeof(handle));
            handle = at / sizeof(handle) < count && handle != 0 ? objects.name_of(kind, handle) : 0;
            std::memcpy(storage_.data() + at, &handle, sizeof(handle));
        }
    }
    [[nodiscard]] View view() const {
        return {.bytes = std::span(storage_).first(wanted_ ? size_ : 0), .present = wanted_};
    }

  private:
    static constexpr std::uint64_t kSmallest = 64;

    bool wanted_;
    std::uint64_t size_;
    std::vector<std::byte> storage_;
};

// Handles inside an input buffer. Nothing if one of them is unknown.
[[nodiscard]] inline std::optional<std::vector<std::uint64_t>> real_handles(Objects &objects, unsigned kind,
                                                                            const View &view) {
    std::vector<std::uint64_t> out(view.bytes.size() / sizeof(std::uint64_t));
    for (std::size_t at = 0; at < out.size(); ++at) {
        std::uint64_t handle = 0;
        std::memcpy(&handle, view.bytes.data() + at * sizeof(handle), sizeof(handle));
        const auto real = objects.real(kind, handle);
        if (!real)
            return std::nullopt;
        out[at] = *real;
    }
    return out;
}

// The API takes many inputs as pointers to what it does not change, but does not say const.
template <class T>
[[nodiscard]] T *input(const View &view) {
    return view.present ? static_cast<T *>(const_cast<void *>(static_cast<const void *>(view.bytes.data())))
                        : nullptr;
}

[[nodiscard]] inline const char *text(const View &view) { return input<const char>(view); }

// Encodes the reply into `out`.
template <class Request, class Reply>
[[nodiscard]] Expected<CUresult> finish(const Request &request, const Reply &reply, CUresult result,
                                        std::vector<std::byte> &out) {
    // The client's numbers say how much that is: a call that was refused for them has no outputs.
    const auto outputs = output_size(request);
    out.resize(kReplyOverhead + static_cast<std::size_t>(outputs && *outputs <= kMaxOutput ? *outputs : 0));
    const auto size = encode(request, reply, out);
    if (!size)
        return std::unexpected(size.error());
    out.resize(*size);
    return result;
}

} // namespace singularity::driver_api
