// SPDX-License-Identifier: GPL-2.0-or-later
// Parts of the input (fuzz_inputs.hpp) become records in the ring, and packets on the socket, of a session
// whose driver does nothing and always succeeds. Nothing may crash, hang, or be touched outside of what is
// the session's.
#include "common/log.hpp"
#include "fuzz/subject.hpp"
#include "fuzz_inputs.hpp"
#include "fuzz_session.hpp"
#include "proxy/driver-api/api.hpp"
#include "proxy/driver-api/dispatch.hpp"
#include "proxy/protocol/all.hpp"

#include <set>
#include <utility>

#include <fmt/format.h>

namespace singularity::test {

namespace {

// Records that sessions have taken without breaking a rule, packets that were whole.
struct Reached {
    std::set<std::uint32_t> records;
    std::set<channel::PacketType> packets;
};
Reached &reached() {
    static Reached instance;
    return instance;
}

} // namespace

void run_input(std::span<const std::uint8_t> input) {
    log::set_level(log::Level::kError);
    static const auto back_end = proxyd::BackEnd::with(fuzz_driver());
    const auto fuzzed = FuzzSession::begin(*back_end);
    if (fuzzed == nullptr)
        return;
    for (const auto &part : parts_of(input)) {
        const auto taken = fuzzed->take(part);
        if (taken.record)
            reached().records.insert(*taken.record);
        if (taken.packet)
            reached().packets.insert(*taken.packet);
        if (taken.over)
            break;
    }
    fuzzed->session().give_back();
}

const std::vector<std::vector<Part>> &good_inputs() { return seed_inputs(); }

std::vector<Part> made_input(std::uint64_t seed) { return Changer(seed).input(); }

void change(std::vector<Part> &parts, std::uint64_t seed, unsigned changes) {
    Changer changer(seed);
    for (; changes > 0; --changes)
        changer.change(parts);
}

std::string reached_text() {
    const auto &known = reached();
    std::size_t messages = 0;
    std::string missing;
    protocol::for_each_message([&]<class M>() {
        if (known.records.contains(std::to_underlying(M::kId)))
            ++messages;
        else
            missing += fmt::format(" {}", M::kName);
    });
    std::size_t calls = 0;
    std::size_t all_calls = 0;
    for (std::uint32_t id = 0; id < driver_api::kApiCount; ++id) {
        if (driver_api::dispatch_row(static_cast<driver_api::ApiId>(id)).call == nullptr)
            continue;
        ++all_calls;
        if (known.records.contains(id))
            ++calls;
        else
            missing += fmt::format(" {}", driver_api::api_info(static_cast<driver_api::ApiId>(id)).symbol);
    }
    std::size_t packets = 0;
    for (const auto type : {channel::PacketType::descriptor, channel::PacketType::callback_done})
        packets += known.packets.contains(type) ? 1 : 0;
    return fmt::format("reached: {} of {} messages, {} of {} calls, {} of 2 packets; not:{}", messages,
                       protocol::kMessageCount, calls, all_calls, packets,
                       missing.empty() ? " nothing" : missing);
}

} // namespace singularity::test
