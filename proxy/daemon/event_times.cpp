// SPDX-License-Identifier: GPL-2.0-or-later
#include "event_times.hpp"

#include <algorithm>
#include <bit>
#include <cmath>
#include <utility>

namespace singularity::proxyd {

namespace {

// An event of its own in the current context, recorded behind everything.
CUresult record_fresh(const driver_api::Backend &driver, CUevent &event) {
    if (event == nullptr)
        if (const auto result = driver.cuEventCreate(&event, CU_EVENT_DEFAULT); result != CUDA_SUCCESS)
            return result;
    if (const auto result = driver.cuEventRecord(event, nullptr); result != CUDA_SUCCESS)
        return result;
    return driver.cuEventSynchronize(event);
}

bool can_measure(const driver_api::Backend &driver) {
    return (driver.cuEventElapsedTime != nullptr || driver.cuEventElapsedTime_v2 != nullptr) &&
           driver.cuEventCreate != nullptr && driver.cuEventRecord != nullptr &&
           driver.cuEventSynchronize != nullptr && driver.cuEventDestroy_v2 != nullptr;
}

} // namespace

CUresult EventTimes::elapsed(const driver_api::Backend &driver, float &out, CUevent start, CUevent end) {
    auto *const call =
        driver.cuEventElapsedTime_v2 != nullptr ? driver.cuEventElapsedTime_v2 : driver.cuEventElapsedTime;
    return call(&out, start, end);
}

CUresult EventTimes::stop(const driver_api::Backend &driver, std::span<const Event> events,
                          const MakeCurrent &make_current) {
    if (!can_measure(driver))
        return CUDA_SUCCESS;
    std::map<std::uint64_t, bool> contexts;
    for (const auto &event : events)
        contexts.emplace(event.context, true);
    const std::scoped_lock lock(lock_);
    for (const auto &[context, has] : contexts) {
        make_current(context);
        if (const auto result = record_fresh(driver, stops_[context]); result != CUDA_SUCCESS)
            return result;
    }
    return CUDA_SUCCESS;
}

std::vector<EventTimes::SavedTime> EventTimes::saved(const driver_api::Backend &driver,
                                                     std::span<const Event> events,
                                                     const MakeCurrent &make_current) {
    std::map<std::uint64_t, std::vector<Event>> by_context;
    for (const auto &event : events)
        by_context[event.context].push_back(event);
    std::vector<SavedTime> out;
    const std::scoped_lock lock(lock_);
    for (const auto &[context, stop] : std::exchange(stops_, {})) {
        make_current(context);
        if (const auto found = by_context.find(context); found != by_context.end())
            save_context(driver, context, stop, found->second, out);
        static_cast<void>(driver.cuEventDestroy_v2(stop));
    }
    return out;
}

// A float holds a time of hours to a fraction of a millisecond only, so the times are sums of what lies
// between neighbours: the error is one of the distance between two events, not of their age.
void EventTimes::save_context(const driver_api::Backend &driver, std::uint64_t context, CUevent stop,
                              const std::vector<Event> &events, std::vector<SavedTime> &out) {
    const Event end{.handle = 0, .real = std::bit_cast<std::uint64_t>(stop), .context = context};
    struct Known {
        Event event;
        double before = 0;
    };
    std::vector<Known> known;
    for (const auto &event : events)
        if (const auto before = between(driver, event, end))
            known.push_back({.event = event, .before = std::max(0.0, *before)});
    std::ranges::sort(known, [](const Known &one, const Known &other) {
        return one.before != other.before ? one.before > other.before : one.event.handle < other.event.handle;
    });
    const auto first = out.size();
    for (std::size_t at = 0; at < known.size(); ++at) {
        SavedTime time{
            .event = known[at].event.handle, .context = context, .before = known[at].before, .later = {}};
        const auto stop_at = std::min(known.size(), at + 1 + kNeighbours);
        for (auto next = at + 1; next < stop_at; ++next) {
            const auto distance = between(driver, known[at].event, known[next].event);
            if (!distance)
                break;
            time.later.push_back(static_cast<float>(*distance));
        }
        out.push_back(std::move(time));
    }
    for (std::size_t at = out.size(); at-- > first;)
        if (at + 1 < out.size() && !out[at].later.empty())
            out[at].before = std::max(0.0, out[at + 1].before + double{out[at].later.front()});
}

bool EventTimes::expect(SavedTime time) {
    const std::scoped_lock lock(lock_);
    // Until begin() the handle alone says that it is there.
    if (!old_.try_emplace(time.event).second)
        return false;
    expected_[time.context].push_back(std::move(time));
    return true;
}

CUresult EventTimes::begin(const driver_api::Backend &driver,
                           const std::function<std::optional<std::uint64_t>(std::uint64_t)> &real_of,
                           const MakeCurrent &make_current) {
    const std::scoped_lock lock(lock_);
    const auto expected = std::exchange(expected_, {});
    for (const auto &[context, times] : expected) {
        if (std::ranges::none_of(times, [&](const auto &time) { return real_of(time.event).has_value(); }))
            continue; // what has gone with its context
        make_current(context);
        auto &base = bases_[context];
        const bool measures = can_measure(driver);
        if (measures)
            if (const auto result = record_fresh(driver, base); result != CUDA_SUCCESS)
                return result;
        for (std::size_t index = 0; index < times.size(); ++index) {
            const auto &time = times[index];
            const auto real = real_of(time.event);
            if (!real || driver.cuEventRecord == nullptr)
                continue;
            auto *const event = std::bit_cast<CUevent>(*real);
            if (const auto result = driver.cuEventRecord(event, nullptr); result != CUDA_SUCCESS)
                return result;
            float since = 0;
            // One that the image takes for what it is not: the driver has no times of it.
            if (!measures || driver.cuEventSynchronize(event) != CUDA_SUCCESS ||
                elapsed(driver, since, base, event) != CUDA_SUCCESS)
                continue;
            old_[time.event] = {.context = context,
                                .index = index,
                                .before = time.before,
                                .since_base = since,
                                .base = base,
                                .later = time.later};
        }
    }
    std::erase_if(old_, [](const auto &entry) { return entry.second.base == nullptr; });
    any_.store(!old_.empty(), std::memory_order_relaxed);
    return CUDA_SUCCESS;
}

const EventTimes::Old *EventTimes::old(const driver_api::Backend &driver, const Event &event) {
    const auto found = old_.find(event.handle);
    if (found == old_.end() || found->second.base == nullptr)
        return nullptr;
    float since = 0;
    const auto result = elapsed(driver, since, found->second.base, std::bit_cast<CUevent>(event.real));
    if (result == CUDA_SUCCESS && since == found->second.since_base)
        return &found->second;
    if (result == CUDA_SUCCESS) {
        old_.erase(found); // recorded again, or another one of the same name
        any_.store(!old_.empty(), std::memory_order_relaxed);
    }
    return nullptr;
}

double EventTimes::exact(const driver_api::Backend &driver, const Event &start, const Event &end,
                         float driver_says) {
    if (start.handle == end.handle && start.handle != 0)
        return double{driver_says};
    // What old() erases does not move the others.
    const auto *const first = old(driver, start);
    const auto *const last = old(driver, end);
    if (first == nullptr && last == nullptr)
        return double{driver_says};
    if (first != nullptr && last != nullptr) {
        if (first->context == last->context) {
            const bool forward = first->index <= last->index;
            const auto &early = forward ? *first : *last;
            const auto distance = forward ? last->index - first->index : first->index - last->index;
            if (distance == 0)
                return 0;
            if (distance <= early.later.size())
                return double{early.later[distance - 1]} * (forward ? 1 : -1);
        }
        return first->before - last->before;
    }
    const auto &older = first != nullptr ? *first : *last;
    float since = 0;
    if (elapsed(driver, since, older.base,
                std::bit_cast<CUevent>(first != nullptr ? end.real : start.real)) != CUDA_SUCCESS)
        return double{driver_says};
    const auto distance = older.before + std::max(0.0, double{since});
    return first != nullptr ? distance : -distance;
}

std::optional<double> EventTimes::between(const driver_api::Backend &driver, const Event &start,
                                          const Event &end) {
    float said = 0;
    if (elapsed(driver, said, std::bit_cast<CUevent>(start.real), std::bit_cast<CUevent>(end.real)) !=
            CUDA_SUCCESS ||
        !std::isfinite(said))
        return std::nullopt;
    return exact(driver, start, end, said);
}

float EventTimes::answer(const driver_api::Backend &driver, const Event &start, const Event &end,
                         float driver_says) {
    const std::scoped_lock lock(lock_);
    return static_cast<float>(exact(driver, start, end, driver_says));
}

void EventTimes::forget(const driver_api::Backend &driver, std::optional<std::uint64_t> context) {
    const std::scoped_lock lock(lock_);
    for (auto *events : {&stops_, &bases_})
        std::erase_if(*events, [&](const auto &entry) {
            if (context && entry.first != *context)
                return false;
            if (entry.second != nullptr && driver.cuEventDestroy_v2 != nullptr)
                static_cast<void>(driver.cuEventDestroy_v2(entry.second));
            return true;
        });
    std::erase_if(old_, [&](const auto &entry) { return !context || entry.second.context == *context; });
    any_.store(!old_.empty(), std::memory_order_relaxed);
}

} // namespace singularity::proxyd
