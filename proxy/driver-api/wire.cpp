// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/driver-api/wire.hpp"

#include "proxy/driver-api/api.hpp"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

namespace singularity::driver_api {

namespace {

std::size_t padding(std::size_t size) {
    return (kBufferAlignment - size % kBufferAlignment) % kBufferAlignment;
}

bool all_zero(std::span<const std::byte> bytes) {
    return std::ranges::all_of(bytes, [](std::byte value) { return value == std::byte{0}; });
}

} // namespace

std::unexpected<Error> refuse(Context context, std::string_view parameter, std::string why) {
    const auto *kind = context.kind == MessageKind::request ? "request" : "reply";
    return failure(fmt::format("accept the {} of", kind),
                   parameter.empty() ? context.symbol : fmt::format("{}, {}", context.symbol, parameter),
                   std::move(why));
}

Expected<void> check_buffer(Context context, std::string_view parameter, const View &view, Length expected,
                            bool nullable) {
    if (!view.present) {
        if (!nullable)
            return refuse(context, parameter, "it is NULL; this parameter must point to memory");
        return {};
    }
    if (!expected.valid())
        return refuse(context, parameter, "its length is negative or overflows");
    if (view.bytes.size() != expected.value())
        return refuse(
            context, parameter,
            fmt::format("it has {} bytes; the other parameters say {}", view.bytes.size(), expected.value()));
    return {};
}

Expected<void> check_string(Context context, std::string_view parameter, const View &view, bool nullable) {
    if (!view.present)
        return check_buffer(context, parameter, view, Length(0), nullable);
    const auto end = std::ranges::find(view.bytes, std::byte{0});
    if (end == view.bytes.end() || end + 1 != view.bytes.end())
        return refuse(context, parameter, "a string ends at its first NUL byte, and with it");
    return {};
}

Expected<void> check_range(Context context, std::string_view parameter, const HostRange &range,
                           Length expected) {
    if (!expected.valid())
        return refuse(context, parameter, "its length is negative or overflows");
    if (range.size != expected.value())
        return refuse(
            context, parameter,
            fmt::format("the range has {} bytes; the other parameters say {}", range.size, expected.value()));
    if (!(Length(range.address) + Length(range.size)).valid())
        return refuse(context, parameter,
                      fmt::format("{:#x} + {:#x} leaves the address space", range.address, range.size));
    return {};
}

Expected<void> check_nulls(Context context, std::string_view parameter, const View &view, std::size_t element,
                           std::initializer_list<std::size_t> offsets) {
    for (std::size_t start = 0; start + element <= view.bytes.size(); start += element)
        for (const auto offset : offsets)
            if (!all_zero(view.bytes.subspan(start + offset, sizeof(void *))))
                return refuse(context, parameter,
                              fmt::format("the pointer at offset {} must be NULL", offset));
    return {};
}

Expected<void> check_output(Context context, std::string_view parameter, const View &view,
                            const Output &output, std::int32_t result) {
    if (!view.present) {
        if (output.wanted && result == 0)
            return refuse(context, parameter, "the call succeeded and the output is missing");
        return {};
    }
    if (!output.wanted)
        return refuse(context, parameter, "the output was not asked for");
    const auto size = view.bytes.size();
    if (!output.capacity.valid() || size > output.capacity.value() || size % output.element != 0 ||
        (output.exact && size != output.capacity.value()))
        return refuse(context, parameter,
                      fmt::format("{} bytes returned; the caller has room for {}, in elements of {}", size,
                                  output.capacity.value(), output.element));
    return {};
}

void Writer::append(std::span<const std::byte> bytes) {
    if (used_ <= storage_.size() && bytes.size() <= storage_.size() - used_)
        std::ranges::copy(bytes, storage_.begin() + static_cast<std::ptrdiff_t>(used_));
    used_ += bytes.size();
}

void Writer::buffer(const View &view) {
    static constexpr std::array<std::byte, kBufferAlignment> kZeros{};
    if (!view.present)
        return;
    append(view.bytes);
    append(std::span(kZeros).first(padding(view.bytes.size())));
}

Expected<std::size_t> Writer::finish(Context context) {
    if (used_ > storage_.size())
        return refuse(context, "",
                      fmt::format("it takes {} bytes and there is room for {}", used_, storage_.size()));
    const std::uint64_t size = used_;
    std::memcpy(storage_.data() + offsetof(MessageHeader, size), &size, sizeof(size));
    return used_;
}

Expected<void> Reader::header(std::size_t fixed_size, ApiId legacy, ApiId per_thread) const {
    if (message_.size() < fixed_size)
        return refuse(context_, "",
                      fmt::format("{} bytes; the fixed part alone has {}", message_.size(), fixed_size));
    MessageHeader header{};
    std::memcpy(&header, message_.data(), sizeof(header));
    if (header.api != std::to_underlying(legacy) && header.api != std::to_underlying(per_thread))
        return refuse(context_, "", fmt::format("it is for function {}", header.api));
    if (header.kind != std::to_underlying(context_.kind))
        return refuse(context_, "", fmt::format("its kind is {}", header.kind));
    if (header.size != message_.size())
        return refuse(context_, "",
                      fmt::format("the header says {} bytes, there are {}", header.size, message_.size()));
    return {};
}

Expected<View> Reader::buffer(std::string_view parameter, Length bytes, bool present) {
    if (!present)
        return View{};
    const std::size_t left = message_.size() - at_;
    if (!bytes.valid() || bytes.value() > left)
        return refuse(context_, parameter,
                      bytes.valid() ? fmt::format("{} bytes announced, {} are there", bytes.value(), left)
                                    : std::string("its length is negative or overflows"));
    const std::size_t size = bytes.value();
    if (padding(size) > left - size || !all_zero(message_.subspan(at_ + size, padding(size))))
        return refuse(context_, parameter, "it is not padded with zeros to 8 bytes");
    const View view{.bytes = message_.subspan(at_, size), .present = true};
    at_ += size + padding(size);
    return view;
}

Expected<void> Reader::finish() const {
    if (at_ != message_.size())
        return refuse(context_, "", fmt::format("{} bytes follow its end", message_.size() - at_));
    return {};
}

Expected<ApiId> peek(std::span<const std::byte> message) {
    MessageHeader header{};
    if (message.size() < sizeof(header))
        return failure("read", "a message's header",
                       fmt::format("{} bytes; it has {}", message.size(), sizeof(header)));
    std::memcpy(&header, message.data(), sizeof(header));
    if (header.api >= api_table().size())
        return failure("read", "a message's header",
                       fmt::format("function {}; there are {}", header.api, api_table().size()));
    return static_cast<ApiId>(header.api);
}

View view_of_string(const char *text) {
    if (text == nullptr)
        return {};
    return {.bytes = std::as_bytes(std::span(text, std::strlen(text) + 1)), .present = true};
}

} // namespace singularity::driver_api
