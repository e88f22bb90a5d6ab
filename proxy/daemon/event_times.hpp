// SPDX-License-Identifier: GPL-2.0-or-later
// The times of events that were recorded before a restore.
//
// A driver tells the time between two of its events and nothing else, and cannot be told one. So an image
// has, for each recorded event, how long before the save it was recorded, and the very answers of the driver
// for the events recorded next to it. Behind a restore such an event is recorded anew, behind a base, an
// event of this class's own: as long as the driver tells the time between the base and it that it told at
// first, the program has not recorded it again, and what the image says of it holds. Nobody has to watch for
// recordings.
//
//     both from before            the image's answer; of events far apart, the difference of their times
//     one from before             its time before the save, and the driver's time since the base
//     none                        the driver's answer
//
// So the time between save and restore is in no answer. Any thread of the session may use it.
#pragma once

#include "proxy/driver-api/dispatch.hpp"

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <span>
#include <unordered_map>
#include <vector>

namespace singularity::proxyd {

class EventTimes {
  public:
    // More of them in a row are recorded within one measurement by no program that is known.
    static constexpr std::size_t kNeighbours = 64;

    struct Event {
        std::uint64_t handle = 0; // the client's
        std::uint64_t real = 0;   // the driver's
        std::uint64_t context = 0;
    };
    struct SavedTime {
        std::uint64_t event = 0; // handle
        std::uint64_t context = 0;
        double before = 0;        // the save, in milliseconds
        std::vector<float> later; // from this one to each of those behind it, up to kNeighbours
    };
    using MakeCurrent = std::function<void(std::uint64_t context)>;

    // A save counts up to now; nothing runs on the device.
    [[nodiscard]] CUresult stop(const driver_api::Backend &driver, std::span<const Event> events,
                                const MakeCurrent &make_current);
    // After stop(): those of them that were recorded with a time, context by context, in the order of time.
    [[nodiscard]] std::vector<SavedTime>
    saved(const driver_api::Backend &driver, std::span<const Event> events, const MakeCurrent &make_current);

    // From an image, in its order; false: this event was there already.
    [[nodiscard]] bool expect(SavedTime time);
    // The program goes on: records what was expected. real_of: the driver's handle of an event, if it is
    // there.
    [[nodiscard]] CUresult begin(const driver_api::Backend &driver,
                                 const std::function<std::optional<std::uint64_t>(std::uint64_t)> &real_of,
                                 const MakeCurrent &make_current);

    // Whether answer() may differ from the driver's.
    [[nodiscard]] bool any() const { return any_.load(std::memory_order_relaxed); }
    // What the program is told, where the driver has said this of the two.
    [[nodiscard]] float answer(const driver_api::Backend &driver, const Event &start, const Event &end,
                               float driver_says);

    // Before a context is destroyed; {}: before all are.
    void forget(const driver_api::Backend &driver, std::optional<std::uint64_t> context);

  private:
    struct Old {
        std::uint64_t context = 0;
        std::size_t index = 0; // among those of its context
        double before = 0;
        float since_base = 0; // that the driver tells as long as it is not recorded again
        CUevent base = nullptr;
        std::vector<float> later;
    };

    // With lock_ held.
    [[nodiscard]] const Old *old(const driver_api::Backend &driver, const Event &event);
    [[nodiscard]] double exact(const driver_api::Backend &driver, const Event &start, const Event &end,
                               float driver_says);
    [[nodiscard]] std::optional<double> between(const driver_api::Backend &driver, const Event &start,
                                                const Event &end);
    void save_context(const driver_api::Backend &driver, std::uint64_t context, CUevent stop,
                      const std::vector<Event> &events, std::vector<SavedTime> &out);
    [[nodiscard]] static CUresult elapsed(const driver_api::Backend &driver, float &out, CUevent start,
                                          CUevent end);

    std::mutex lock_;
    std::map<std::uint64_t, CUevent> stops_;                   // by context, while a save is being made
    std::map<std::uint64_t, CUevent> bases_;                   // by context
    std::map<std::uint64_t, std::vector<SavedTime>> expected_; // by context
    std::unordered_map<std::uint64_t, Old> old_;               // by the client's handle
    std::atomic<bool> any_ = false;
};

} // namespace singularity::proxyd
