// SPDX-License-Identifier: GPL-2.0-or-later
// Whose memory is on the device, where that of all sessions does not fit.
//
// As long as it fits nothing of this happens: sessions count the calls that they begin, no more. From the
// moment when the driver has no memory left for one of them the device is crowded, and they take turns. Who
// needs memory, or needs its own back, asks for it and waits. One thread serves these requests, one after the
// other: it moves out memory of sessions that have nothing to do, until the request can be met. Nobody's
// memory leaves while its work may touch it: new calls wait at the session's gate, and what is on the device
// has ended. Addresses stay: what is exchanged is the memory behind them.
//
// A session has nothing to do when it waits for the other ranks of a collective, when it waits here itself,
// or when it has been idle for a while; and its turn is over when it has lasted for a quantum. Where all that
// could leave waits for a collective that needs who asks (work was put behind that collective before the
// device was crowded), who asks works in memory of the host until there is room.
#pragma once

#include "driver_api/backend.hpp"
#include "neighbours.hpp"
#include "proxy/libcuda/cuda.hpp"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace singularity::proxyd {

// A session, as its turns see it. Called by the thread that serves requests.
class Tenant {
  public:
    Tenant() = default;
    Tenant(const Tenant &) = delete;
    Tenant &operator=(const Tenant &) = delete;
    Tenant(Tenant &&) = delete;
    Tenant &operator=(Tenant &&) = delete;
    virtual ~Tenant() = default;

    [[nodiscard]] virtual std::string who() const = 0;
    [[nodiscard]] virtual bool ending() const = 0;
    // Whether all that it has put on the device has ended. No call of it is under way.
    [[nodiscard]] virtual bool quiet() = 0;
    // Whether what is on the device waits for a collective that is not complete.
    [[nodiscard]] virtual bool waits_on_device() = 0;
    // Bytes that it would free.
    [[nodiscard]] virtual std::uint64_t on_device() const = 0;
    // Some of these. What fails has lost memory, and so the session.
    [[nodiscard]] virtual CUresult send_out() = 0;
    // Gives memory of the device back that nobody has any more, whoever had it: whether there was any.
    [[nodiscard]] virtual bool release_left() = 0;
};

// Where a call goes through on its way to the device. Any thread of the session.
class Gate {
  public:
    // Whether the session has its turn. What has entered leaves.
    [[nodiscard]] bool enter() {
        for (;;) {
            entered_.fetch_add(1);
            const auto state = state_.load();
            if (state == State::open) [[likely]]
                return true;
            leave();
            if (state == State::shut)
                return false;
            std::this_thread::yield(); // no longer than it takes to ask for the state of some streams
        }
    }
    void leave() { left_.fetch_add(1); }
    // The one that asks is the only one inside.
    [[nodiscard]] bool alone() const {
        const auto left = left_.load();
        return entered_.load() == left + 1;
    }
    // The session has lost its turn and nobody is inside.
    [[nodiscard]] bool is_shut() const { return state_.load() == State::shut && empty(); }
    // Waits for other ranks, having left.
    void wait_for_others(bool begins) { waits_.store(begins); }
    // Whoever waits for the session's turn need not any more; whoever has lost it is counted all the same.
    void end() { ended_.store(true); }
    void enter_in_vain() { entered_.fetch_add(1); }

  private:
    friend class Residency;
    enum class State : std::uint8_t {
        open,
        looked_at, // nobody enters while it is asked what the session does
        shut,
    };
    // Who enters after this was asked has found it open.
    [[nodiscard]] bool empty() const {
        const auto left = left_.load();
        return entered_.load() == left;
    }

    std::atomic<std::uint64_t> entered_ = 0;
    std::atomic<std::uint64_t> left_ = 0;
    std::atomic<State> state_ = State::open;
    std::atomic<bool> waits_ = false;
    std::atomic<bool> ended_ = false;
};

class Residency {
  public:
    using Clock = std::chrono::steady_clock;
    struct Rules {
        std::uint64_t device_bytes = 0;            // of the device
        std::chrono::milliseconds quantum{10'000}; // of a turn that has no end of its own
        std::chrono::milliseconds idle{2};         // who has done nothing for so long has nothing to do
        std::chrono::milliseconds patience{200}; // until memory of the host has to do, where others wait for
                                                 // who asks
        std::chrono::milliseconds longest{60'000}; // and until it has to do in any case
    };
    explicit Residency(Rules rules) : rules_(rules) {}
    Residency(const Residency &) = delete;
    Residency &operator=(const Residency &) = delete;
    Residency(Residency &&) = delete;
    Residency &operator=(Residency &&) = delete;
    // No session is left.
    ~Residency();
    // Before the first session joins.
    void use_neighbours(std::unique_ptr<Neighbours> neighbours);

    // The gate lives as long as the tenant does.
    void join(const std::shared_ptr<Tenant> &tenant, Gate &gate);
    void leave(const Gate &gate);
    // Whoever waits looks again: something has ended.
    void look();

    [[nodiscard]] bool crowded() const { return crowded_.load(std::memory_order_relaxed); }

    // Memory of the device is counted before it is made. false: there is none left, which the driver is not
    // asked about. Where there are several sessions some is left for what the driver itself needs. back: it
    // is memory that had been there before.
    [[nodiscard]] bool take(std::uint64_t bytes, bool back);
    void give_back(std::uint64_t bytes);
    // Bytes of memory that sessions have on the device, those of neighbours among them.
    [[nodiscard]] std::uint64_t taken() const {
        return taken_.load(std::memory_order_relaxed) + (neighbours_ != nullptr ? neighbours_->taken() : 0);
    }
    // Bytes that one session can have.
    [[nodiscard]] std::uint64_t room_for_one();
    [[nodiscard]] std::uint64_t device_bytes() const { return rules_.device_bytes; }

    // What is asked for is done by attempt(), on the thread that serves requests, as often as it takes:
    // CUDA_ERROR_OUT_OF_MEMORY says that memory has to be moved out first. on_host: this time memory of the
    // host has to do. The caller has not entered its gate; after CUDA_SUCCESS it has. CUDA_ERROR_NOT_READY:
    // the tenant ends. CUDA_ERROR_OUT_OF_MEMORY: nobody else has anything that could leave.
    using Attempt = std::function<CUresult(bool on_host)>;
    [[nodiscard]] CUresult ask(Gate &gate, Attempt attempt);

    // What has happened, for the log and tests.
    struct Counts {
        std::uint64_t turns = 0;   // requests that were met
        std::uint64_t moved = 0;   // bytes moved out
        std::uint64_t on_host = 0; // requests that memory of the host has met
    };
    [[nodiscard]] Counts counts();

  private:
    // What the thread that serves knows of a session; nobody else uses it.
    struct Look {
        Clock::time_point turn = Clock::now();     // its begin
        Clock::time_point seen = turn;             // idle since then, as far as it was looked at
        Clock::time_point over;                    // when its turn was over, its work was not
        std::uint64_t entered = ~std::uint64_t{0}; // when it was looked at
        bool leaves = false;                       // its turn is over
        bool away = false;                         // it has left, or some of it: it asks before it goes on
    };
    struct Seat {
        std::weak_ptr<Tenant> tenant;
        Gate *gate = nullptr;
        std::shared_ptr<Look> look;
        unsigned requests = 0;
    };
    struct Request {
        Gate *gate = nullptr;
        Attempt attempt;
        CUresult result = CUDA_ERROR_NOT_READY;
        bool done = false;
        bool dropped = false; // nobody waits for it any more
    };
    void run();
    void serve(Request &request, const Tenant &asks);
    void serve_first(Request &request, const Tenant &asks);
    void become_crowded();
    // A neighbour has changed something.
    void rung();
    // Sessions that this may be the last to keep, and of those this itself.
    using Kept = std::vector<std::shared_ptr<Tenant>>;
    // Does what neighbours want of our sessions.
    void attend(Kept &kept);
    [[nodiscard]] Neighbours::Answer give(Kept &kept);
    // Moves some of it out: bytes.
    [[nodiscard]] std::uint64_t send_out(Tenant &leaving);
    void wait_for_change(Clock::duration longest);
    [[nodiscard]] Clock::duration last() const;
    struct Candidate {
        std::shared_ptr<Tenant> tenant;
        Gate *gate;
        std::shared_ptr<Look> look;
        std::size_t place; // among those who have asked
        bool waits;        // for other ranks, or for a turn
    };
    // Who asks, as long as anybody waits for the answer.
    [[nodiscard]] std::shared_ptr<Tenant> tenant_of(const Request &request);
    // The others that have memory on the device; who needs it last comes first.
    [[nodiscard]] std::vector<Candidate> candidates(const Gate *but);
    // Whether it can leave now; then its gate is shut.
    [[nodiscard]] bool can_leave(Candidate &one);
    void complain(const Tenant &tenant, const Gate *gate, std::chrono::seconds waited);
    void met(Request &request, Clock::time_point begin, Clock::duration moving, bool on_host);
    [[nodiscard]] Clock::duration idle() const;
    [[nodiscard]] Clock::duration quantum() const;

    Rules rules_;
    std::atomic<bool> crowded_ = false;
    std::atomic<std::uint64_t> taken_ = 0;
    std::mutex lock_;
    std::condition_variable changed_; // for who serves
    std::condition_variable served_;  // for who has asked
    std::map<const Gate *, Seat> seats_;
    std::deque<std::shared_ptr<Request>> requests_;
    Counts counts_;
    Clock::duration last_{}; // how long the last request took to be met, moving; of the thread that serves
    std::shared_ptr<std::atomic<bool>> gone_ =
        std::make_shared<std::atomic<bool>>(false); // this, by that thread
    std::thread thread_;
    bool stopping_ = false;
    bool rung_ = false;
    bool told_no_memory_ = false;            // of the host; of the thread that serves
    std::unique_ptr<Neighbours> neighbours_; // nullptr: there can be none
};

} // namespace singularity::proxyd
