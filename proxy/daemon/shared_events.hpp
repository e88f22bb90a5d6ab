// SPDX-License-Identifier: GPL-2.0-or-later
// Events that several sessions have (CUDA IPC). Each session has an event of its own in the driver, in its
// own context, and records that one: whoever has recorded last is whom the others wait for. So no session
// uses what another may be destroying: an event leaves here before the driver ends it, and what is done with
// another's is done with the lock held.
#pragma once

#include "proxy/libcuda/cuda.hpp"

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

namespace singularity::proxyd {

class Session;

// Any thread.
class SharedEvents {
  public:
    using Key = std::array<std::uint64_t, 2>; // random
    struct Holder {
        const Session *session = nullptr;
        std::uint64_t handle = 0; // the session's
        CUevent real = nullptr;
        bool operator==(const Holder &other) const {
            return session == other.session && handle == other.handle;
        }
    };

    [[nodiscard]] static SharedEvents &all();

    // Whether there are any at all.
    [[nodiscard]] bool any() const { return count_.load(std::memory_order_relaxed) != 0; }
    // Others may open the event. device: of the node. false: the key is taken.
    [[nodiscard]] bool share(const Key &key, std::uint32_t device, const Holder &maker);
    // again: from an image, in which its maker may come later.
    [[nodiscard]] bool open(const Key &key, std::uint32_t device, const Holder &holder, bool again);
    // Whether its maker still has it, on that device.
    [[nodiscard]] bool can_open(const Key &key, std::uint32_t device);
    void recorded(const Holder &holder);
    // Before the driver ends the event; all of a session's.
    void leave(const Holder &holder);
    void leave_all(const Session &session);

    // Where another session has recorded last: what() with its event, which must not wait. Nothing: the
    // holder's own one is what counts.
    [[nodiscard]] std::optional<CUresult> with_last(const Holder &holder,
                                                    const std::function<CUresult(CUevent)> &what);

  private:
    struct Event {
        std::uint32_t device = 0;
        std::optional<Holder> maker;
        std::vector<Holder> holders;
        std::optional<Holder> last;
    };
    using Name = std::pair<const Session *, std::uint64_t>;
    // With lock_ held.
    [[nodiscard]] Event *find(const Holder &holder);
    void join(const Key &key, Event &event, const Holder &holder);
    void take_out(std::map<Name, Key>::iterator name);

    std::mutex lock_;
    std::map<Key, Event> events_;
    std::map<Name, Key> names_;
    std::atomic<std::size_t> count_ = 0; // of names
};

} // namespace singularity::proxyd
