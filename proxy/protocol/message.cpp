// SPDX-License-Identifier: GPL-2.0-or-later
// The part of encoding and decoding that is the same for all messages.
#include "proxy/protocol/message.hpp"

#include <fmt/format.h>

namespace singularity::protocol::detail {

namespace {

bool all_zero(std::span<const std::byte> bytes) {
    return std::ranges::all_of(bytes, [](std::byte value) { return value == std::byte{0}; });
}

// Copies if there is room; counts in any case.
class Appender {
  public:
    explicit Appender(std::span<std::byte> storage) : storage_(storage) {}

    void bytes(const void *from, std::size_t size) {
        if (size != 0 && at_ <= storage_.size() && size <= storage_.size() - at_)
            std::memcpy(storage_.data() + at_, from, size);
        at_ += size;
    }
    [[nodiscard]] std::size_t size() const { return at_; }

  private:
    std::span<std::byte> storage_;
    std::size_t at_ = 0;
};

} // namespace

std::unexpected<Error> refuse(const char *name, std::string_view why) {
    return failure("accept the message", name, std::string(why));
}

Expected<std::size_t> encode(const Layout &layout, const void *prefix, const void *fixed,
                             std::span<const View> buffers, std::span<std::byte> storage) {
    static constexpr std::array<std::byte, driver_api::kBufferAlignment> kZeros{};
    Appender out(storage);
    out.bytes(prefix, layout.prefix);
    out.bytes(fixed, layout.fixed);
    for (std::size_t index = 0; index < buffers.size(); ++index) {
        const auto &description = layout.buffers[index];
        if (!buffers[index].present && description.nullable == Nullable::no)
            return refuse(layout.name, fmt::format("{} must not be NULL", description.name));
        if (buffers[index].present && buffers[index].bytes.size() % description.element != 0)
            return refuse(layout.name, fmt::format("{} is no whole number of elements", description.name));
        const std::uint64_t size = buffers[index].present ? buffers[index].bytes.size() : kAbsent;
        out.bytes(&size, sizeof(size));
    }
    for (const auto &buffer : buffers)
        if (buffer.present) {
            out.bytes(buffer.bytes.data(), buffer.bytes.size());
            out.bytes(kZeros.data(), padded(buffer.bytes.size()) - buffer.bytes.size());
        }
    if (out.size() > storage.size())
        return refuse(layout.name,
                      fmt::format("it takes {} bytes and there is room for {}", out.size(), storage.size()));
    const std::uint64_t size = out.size();
    std::memcpy(storage.data() + offsetof(MessageHeader, size), &size, sizeof(size));
    return out.size();
}

Expected<void> decode(const Layout &layout, Id id, MessageKind kind, std::span<const std::byte> bytes,
                      void *fixed, std::span<View> buffers) {
    const std::size_t head = layout.prefix + layout.fixed + buffers.size() * sizeof(std::uint64_t);
    if (bytes.size() < head)
        return refuse(layout.name, fmt::format("{} bytes; its head alone has {}", bytes.size(), head));
    MessageHeader header{};
    std::memcpy(&header, bytes.data(), sizeof(header));
    if (header.api != std::to_underlying(id) || header.kind != std::to_underlying(kind))
        return refuse(layout.name, fmt::format("it is message {:#x} of kind {}", header.api, header.kind));
    if (header.size != bytes.size())
        return refuse(layout.name,
                      fmt::format("its header says {} bytes, there are {}", header.size, bytes.size()));
    if (layout.fixed != 0)
        std::memcpy(fixed, bytes.data() + layout.prefix, layout.fixed);
    std::size_t at = head;
    for (std::size_t index = 0; index < buffers.size(); ++index) {
        const auto &description = layout.buffers[index];
        std::uint64_t size = 0;
        std::memcpy(&size, bytes.data() + layout.prefix + layout.fixed + index * sizeof(size), sizeof(size));
        if (size == kAbsent) {
            if (description.nullable == Nullable::no)
                return refuse(layout.name, fmt::format("{} is NULL", description.name));
            buffers[index] = {};
            continue;
        }
        const std::size_t left = bytes.size() - at;
        if (size > left || padded(size) > left)
            return refuse(layout.name,
                          fmt::format("{}: {} bytes announced, {} are there", description.name, size, left));
        if (size % description.element != 0)
            return refuse(layout.name, fmt::format("{}: {} bytes are no whole number of elements of {}",
                                                   description.name, size, description.element));
        if (!all_zero(bytes.subspan(at + size, padded(size) - size)))
            return refuse(layout.name, fmt::format("{} is not padded with zeros", description.name));
        buffers[index] = {.bytes = bytes.subspan(at, size), .present = true};
        at += padded(size);
    }
    if (at != bytes.size())
        return refuse(layout.name, fmt::format("{} bytes follow its end", bytes.size() - at));
    return {};
}

} // namespace singularity::protocol::detail
