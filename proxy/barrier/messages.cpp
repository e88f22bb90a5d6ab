// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/barrier/messages.hpp"

#include <cerrno>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>

#include <fmt/format.h>

namespace singularity::barrier {

namespace {

constexpr std::uint32_t kVersion = 1;
constexpr std::size_t kLongestText = 256;
// More ranks than any job has, so that nothing here overflows.
constexpr std::uint32_t kMostRanks = 1U << 24U;

struct WireCount {
    Key communicator;
    std::uint32_t rank = 0;
    std::uint32_t peer = 0;
    std::uint32_t kind = 0;
    std::uint32_t reserved = 0;
    std::uint64_t number = 0;
};
static_assert(sizeof(WireCount) == 40 && std::has_unique_object_representations_v<WireCount>);
struct WireMember {
    Key communicator;
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
};
static_assert(sizeof(WireMember) == 24 && std::has_unique_object_representations_v<WireMember>);
struct WireRequest {
    std::uint32_t version = kVersion;
    std::uint32_t action = 0;
    std::uint64_t barrier = 0;
    std::uint64_t round = 0;
    std::uint64_t step = 0;
    std::uint64_t targets = 0;
};
static_assert(std::has_unique_object_representations_v<WireRequest>);
struct WireReport {
    std::uint32_t version = kVersion;
    std::int32_t pid = 0;
    Key process;
    std::uint64_t barrier = 0;
    std::uint64_t round = 0;
    std::uint32_t settled = 0;
    std::uint32_t held = 0;
    std::uint64_t members = 0;
    std::uint64_t issued = 0;
    std::uint64_t text = 0;
};
static_assert(std::has_unique_object_representations_v<WireReport>);

template <class T>
void append(std::vector<std::byte> &bytes, const T &value) {
    const auto more = std::as_bytes(std::span(&value, 1));
    bytes.insert(bytes.end(), more.begin(), more.end());
}

void append(std::vector<std::byte> &bytes, const Count &count) {
    append(bytes, WireCount{.communicator = count.line.communicator,
                            .rank = count.line.rank,
                            .peer = count.line.peer,
                            .kind = std::to_underlying(count.line.kind),
                            .number = count.number});
}

std::unexpected<Error> refuse(std::string why) {
    return failure("read", "a message of the barrier", std::move(why), EPROTO);
}

// Reads from front to back; what is not there is an error of the whole.
class Reader {
  public:
    explicit Reader(std::span<const std::byte> bytes) : left_(bytes) {}

    template <class T>
    bool take(T &value) {
        if (left_.size() < sizeof(T))
            return false;
        std::memcpy(&value, left_.data(), sizeof(T));
        left_ = left_.subspan(sizeof(T));
        return true;
    }
    // Whether so many of that size are there.
    [[nodiscard]] bool has(std::uint64_t count, std::size_t size) const {
        return count <= left_.size() / size;
    }
    [[nodiscard]] std::span<const std::byte> rest() const { return left_; }

  private:
    std::span<const std::byte> left_;
};

Expected<std::vector<Count>> take_counts(Reader &reader, std::uint64_t number) {
    if (!reader.has(number, sizeof(WireCount)))
        return refuse(fmt::format("it is too short for {} lines", number));
    std::vector<Count> counts;
    counts.reserve(number);
    WireCount wire;
    while (counts.size() < number && reader.take(wire)) {
        if (wire.kind >= std::to_underlying(Kind::end) || wire.rank >= kMostRanks || wire.peer >= kMostRanks)
            return refuse(fmt::format("there is no line of kind {} of rank {} with peer {}", wire.kind,
                                      wire.rank, wire.peer));
        counts.push_back({.line = {.communicator = wire.communicator,
                                   .rank = wire.rank,
                                   .peer = wire.peer,
                                   .kind = static_cast<Kind>(wire.kind)},
                          .number = wire.number});
    }
    return counts;
}

std::string printable(std::span<const std::byte> bytes) {
    std::string text;
    for (const auto byte : bytes) {
        const auto character = std::to_integer<unsigned char>(byte);
        text += character >= 0x20 && character < 0x7f ? static_cast<char>(character) : '?';
    }
    return text;
}

} // namespace

std::vector<std::byte> encode(const Request &request) {
    std::vector<std::byte> bytes;
    append(bytes, WireRequest{.action = std::to_underlying(request.action),
                              .barrier = request.barrier,
                              .round = request.round,
                              .step = request.step ? 1U : 0U,
                              .targets = request.targets.size()});
    for (const auto &target : request.targets)
        append(bytes, target);
    return bytes;
}

std::vector<std::byte> encode(const Report &report) {
    std::vector<std::byte> bytes;
    const auto text = std::string_view(report.doing).substr(0, kLongestText);
    append(bytes, WireReport{.pid = report.pid,
                             .process = report.process,
                             .barrier = report.barrier,
                             .round = report.round,
                             .settled = report.settled ? 1U : 0U,
                             .held = report.held ? 1U : 0U,
                             .members = report.members.size(),
                             .issued = report.issued.size(),
                             .text = text.size()});
    for (const auto &member : report.members)
        append(bytes,
               WireMember{.communicator = member.communicator, .rank = member.rank, .size = member.size});
    for (const auto &count : report.issued)
        append(bytes, count);
    const auto characters = std::as_bytes(std::span(text));
    bytes.insert(bytes.end(), characters.begin(), characters.end());
    return bytes;
}

Expected<Request> decode_request(std::span<const std::byte> bytes) {
    Reader reader(bytes);
    WireRequest wire;
    if (bytes.size() > kLargestMessage || !reader.take(wire) || wire.version != kVersion)
        return refuse("it is no request of this version");
    if (wire.action >= std::to_underlying(Request::Action::end) || wire.step > 1)
        return refuse(fmt::format("there is no action {} with step {}", wire.action, wire.step));
    auto targets = take_counts(reader, wire.targets);
    if (!targets)
        return propagate(targets);
    if (!reader.rest().empty())
        return refuse(fmt::format("{} bytes are left over", reader.rest().size()));
    return Request{.action = static_cast<Request::Action>(wire.action),
                   .barrier = wire.barrier,
                   .round = wire.round,
                   .step = wire.step == 1,
                   .targets = std::move(*targets)};
}

Expected<Report> decode_report(std::span<const std::byte> bytes) {
    Reader reader(bytes);
    WireReport wire;
    if (bytes.size() > kLargestMessage || !reader.take(wire) || wire.version != kVersion)
        return refuse("it is no report of this version");
    if (wire.settled > 1 || wire.held > 1 || wire.text > kLongestText)
        return refuse("it says neither yes nor no, or too much");
    if (!reader.has(wire.members, sizeof(WireMember)))
        return refuse(fmt::format("it is too short for {} members", wire.members));
    Report report{.process = wire.process,
                  .barrier = wire.barrier,
                  .round = wire.round,
                  .settled = wire.settled == 1,
                  .held = wire.held == 1,
                  .pid = wire.pid,
                  .members = {},
                  .issued = {},
                  .doing = {}};
    WireMember member;
    while (report.members.size() < wire.members && reader.take(member)) {
        if (member.size > kMostRanks || member.rank >= member.size)
            return refuse(fmt::format("there is no rank {} of {}", member.rank, member.size));
        report.members.push_back(
            {.communicator = member.communicator, .rank = member.rank, .size = member.size});
    }
    auto issued = take_counts(reader, wire.issued);
    if (!issued)
        return propagate(issued);
    report.issued = std::move(*issued);
    if (reader.rest().size() != wire.text)
        return refuse(fmt::format("{} bytes are left over", reader.rest().size()));
    report.doing = printable(reader.rest());
    return report;
}

} // namespace singularity::barrier
