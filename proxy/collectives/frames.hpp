// SPDX-License-Identifier: GPL-2.0-or-later
// What goes over connections once both ends have proved who they are. All numbers are the machine's own: a
// job runs on machines of one kind.
#pragma once

#include "proxy/collectives/member.hpp"

#include <array>
#include <cstdint>
#include <string_view>

namespace singularity::collectives {

using ProcessId = std::array<std::uint64_t, 2>;

// Where a process can be reached; texts end with a NUL.
struct ProcessInfo {
    ProcessId id{};
    std::array<char, 64> host{};     // the host's name: with the same name, memory is shared
    std::array<char, 128> beside{};  // address for processes of that host
    std::array<char, 296> distant{}; // for others; empty: it has none
    std::uint64_t links = 0;         // 1: its device can be linked to others'
};
static_assert(sizeof(ProcessInfo) == 512);

template <std::size_t N>
[[nodiscard]] bool put_text(std::array<char, N> &to, std::string_view text) {
    if (text.size() >= N || text.contains('\0'))
        return false;
    to.fill('\0');
    text.copy(to.data(), text.size());
    return true;
}
template <std::size_t N>
[[nodiscard]] std::string_view text_in(const std::array<char, N> &from) {
    const std::string_view whole(from.data(), N);
    return whole.substr(0, whole.find('\0'));
}

// --- with the rendezvous: a head, then `size` bytes
enum class Word : std::uint32_t {
    announce = 1, // ProcessInfo
    join,         // JoinRequest
    forget,       // JoinRequest, of which only the ticket counts
    complete,     // CompleteReply, then a u32 for each rank: which process, then their ProcessInfo
    refused,      // RefusedReply
    end
};
struct WordHead {
    std::uint32_t word = 0;
    std::uint32_t size = 0;
};
struct JoinRequest {
    std::uint64_t ticket = 0; // the process's own
    Key key{};
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
};
struct CompleteReply {
    std::uint64_t instance = 0;
    Key key{};
    std::uint32_t ranks = 0;
    std::uint32_t processes = 0;
};
struct RefusedReply {
    std::uint64_t ticket = 0;
    std::array<char, 248> text{};
};
inline constexpr std::uint32_t kMostWord = std::uint32_t{1} << 20;

// --- between peers: a head, then what the kind says
enum class Kind : std::uint32_t {
    here = 1, // the instance is known here: what follows for it is understood
    area,     // of a rank here, with a descriptor
    data,     // a: offset in the rank's area, b: bytes, which follow
    count,    // a: the rank's counter, b: its value
    failed,   // a: bytes of text, which follow
    alive,    // nothing: a sign of life
    end
};
struct FrameHead {
    std::uint32_t kind = 0;
    std::uint32_t rank = 0;
    std::uint64_t instance = 0;
    std::uint64_t a = 0;
    std::uint64_t b = 0;
};
inline constexpr std::size_t kMostReason = 512;

} // namespace singularity::collectives
