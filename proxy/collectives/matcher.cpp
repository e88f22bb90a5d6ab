// SPDX-License-Identifier: GPL-2.0-or-later
#include "matcher.hpp"

#include <fmt/format.h>

namespace singularity::collectives {

Expected<std::optional<Matcher::Whole>> Matcher::join(const Key &key, std::uint32_t rank, std::uint32_t size,
                                                      const Seat &seat) {
    const auto refuse = [&](std::string why) {
        return failure("join", fmt::format("a communicator as rank {} of {}", rank, size), std::move(why),
                       EINVAL);
    };
    if (size == 0 || size > kMostMembers || rank >= size)
        return refuse(fmt::format("it has from 1 to {} ranks", kMostMembers));
    if (forming_.size() >= kMostForming && !forming_.contains(key))
        return refuse("too many communicators wait for their ranks");
    const auto found = forming_.try_emplace(key).first;
    auto &forming = found->second;
    if (forming.seats.empty())
        forming.seats.resize(size);
    if (forming.seats.size() != size)
        return refuse(fmt::format("other ranks have joined it with {} ranks", forming.seats.size()));
    if (forming.seats[rank])
        return refuse("somebody has joined it with that rank");
    forming.seats[rank] = seat;
    if (++forming.taken != size)
        return std::nullopt;
    Whole whole{.key = key, .instance = next_++, .seats = {}};
    for (const auto &each : forming.seats)
        whole.seats.push_back(*each);
    forming_.erase(found);
    return whole;
}

template <class Condition>
void Matcher::forget_if(Condition condition) {
    std::erase_if(forming_, [&](auto &entry) {
        auto &forming = entry.second;
        for (auto &seat : forming.seats)
            if (seat && condition(*seat)) {
                seat.reset();
                --forming.taken;
            }
        return forming.taken == 0;
    });
}

void Matcher::forget(std::uint64_t process, std::uint64_t ticket) {
    forget_if([&](const Seat &seat) { return seat.process == process && seat.ticket == ticket; });
}

void Matcher::forget_process(std::uint64_t process) {
    forget_if([&](const Seat &seat) { return seat.process == process; });
}

} // namespace singularity::collectives
