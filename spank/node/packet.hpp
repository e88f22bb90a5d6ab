// SPDX-License-Identifier: GPL-2.0-or-later
// Packets: how structs become bytes and, checked, structs again. A struct says its members once:
//
//     struct Limit {
//         std::uint32_t resource = 0;
//         std::uint64_t soft = 0;
//         static void fields(auto &self, auto &visit) { visit(self.resource, self.soft); }
//     };
//
// Numbers lie in the machine's order: packets never leave it. Strings and lists have a u32 count before them.
// Nothing but the standard library: singularity-init is made of this as well.
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace singularity::node {

inline constexpr std::uint16_t kProtocolVersion = 1;
// What one datagram may hold; both sides make their socket buffers hold it (unix(7): a datagram is sent whole
// or not). A larger packet lies in a memfd (seqpacket.hpp).
inline constexpr std::size_t kDatagramLimit = std::size_t{384} << 10;
// The most bytes that Linux takes as arguments and environment together, whatever RLIMIT_STACK says: three
// quarters of _STK_LIM (bprm_stack_limits in fs/exec.c). A string in a packet takes no more than it counts.
inline constexpr std::size_t kProgramLimit = std::size_t{6} << 20;
// In bytes, as that counts them: each string with its zero and its pointer.
[[nodiscard]] inline std::size_t size_for_exec(const std::vector<std::string> &strings) {
    std::size_t size = 0;
    for (const auto &one : strings)
        size += one.size() + 1 + sizeof(char *);
    return size;
}

// What a packet may hold: the largest program, and all else that is ever said with one (65536 groups, lists
// of hosts, a directory).
inline constexpr std::size_t kPacketLimit = kProgramLimit + (std::size_t{2} << 20);

struct Header {
    std::uint16_t version = kProtocolVersion;
    std::uint16_t type = 0;
    std::uint32_t token = 0; // of a request, repeated in its reply; 0: nobody asked
    static void fields(auto &self, auto &visit) { visit(self.version, self.type, self.token); }
};

// Instead of a packet that is too large for a datagram: it lies in the memfd that came last.
struct Elsewhere {
    static constexpr std::uint16_t kType = 0xffff;
    std::uint64_t size = 0;
    static void fields(auto &self, auto &visit) { visit(self.size); }
};

class Writer {
  public:
    template <class... Values>
    void operator()(const Values &...values) {
        (put(values), ...);
    }
    [[nodiscard]] std::string take() { return std::move(bytes_); }

  private:
    template <class Value>
    void put(const Value &value) {
        if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>) {
            char raw[sizeof(Value)];
            std::memcpy(raw, &value, sizeof(value));
            bytes_.append(raw, sizeof(raw));
        } else {
            Value::fields(value, *this);
        }
    }
    void put(const std::string &text) {
        put(static_cast<std::uint32_t>(text.size()));
        bytes_ += text;
    }
    template <class Element>
    void put(const std::vector<Element> &list) {
        put(static_cast<std::uint32_t>(list.size()));
        for (const Element &element : list)
            put(element);
    }

    std::string bytes_;
};

// Trusts nothing: a value that is not there whole makes everything fail. What is read before may be used no
// more.
class Reader {
  public:
    explicit Reader(std::string_view bytes) : left_(bytes) {}

    template <class... Values>
    void operator()(Values &...values) {
        (get(values), ...);
    }
    // Everything was there, and nothing is left over.
    [[nodiscard]] bool complete() const { return good_ && left_.empty(); }
    [[nodiscard]] bool good() const { return good_; }

  private:
    template <class Value>
    void get(Value &value) {
        if constexpr (std::is_same_v<Value, bool>) {
            std::uint8_t byte = 0;
            get(byte);
            good_ = good_ && byte <= 1;
            value = byte == 1;
        } else if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>) {
            if (!has(sizeof(value)))
                return;
            left_.copy(reinterpret_cast<char *>(&value), sizeof(value));
            left_.remove_prefix(sizeof(value));
        } else {
            Value::fields(value, *this);
        }
    }
    void get(std::string &text) {
        std::uint32_t size = 0;
        get(size);
        if (!has(size))
            return;
        text.assign(left_.substr(0, size));
        left_.remove_prefix(size);
        // All of them become arguments of system calls.
        good_ = good_ && text.find('\0') == std::string::npos;
    }
    template <class Element>
    void get(std::vector<Element> &list) {
        std::uint32_t count = 0;
        get(count);
        // An element takes at least one byte, so a count cannot make more of them than the packet is long.
        if (!has(count))
            return;
        list.clear();
        for (std::uint32_t i = 0; i < count && good_; ++i)
            get(list.emplace_back());
    }
    [[nodiscard]] bool has(std::size_t size) {
        good_ = good_ && size <= left_.size();
        return good_;
    }

    std::string_view left_;
    bool good_ = true;
};

// A whole packet.
template <class Body>
[[nodiscard]] std::string encode(const Body &body, std::uint32_t token = 0) {
    Writer out;
    out(Header{.type = static_cast<std::uint16_t>(Body::kType), .token = token}, body);
    return out.take();
}

// The head of a packet, if it has one of this version.
[[nodiscard]] inline std::optional<Header> header_of(std::string_view packet) {
    Header header;
    Reader in(packet);
    in(header);
    if (!in.good() || header.version != kProtocolVersion)
        return std::nullopt;
    return header;
}

// Nothing if the packet is not exactly one of this type.
template <class Body>
[[nodiscard]] std::optional<Body> decode(std::string_view packet) {
    Header header;
    Body body;
    Reader in(packet);
    in(header, body);
    if (!in.complete() || header.version != kProtocolVersion ||
        header.type != static_cast<std::uint16_t>(Body::kType))
        return std::nullopt;
    return body;
}

} // namespace singularity::node
