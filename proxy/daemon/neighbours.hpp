// SPDX-License-Identifier: GPL-2.0-or-later
// The other device proxies of a job that share this proxy's device: virtual nodes that have come to lie on
// one host with fewer GPUs have a proxy each. What their sessions have on the device is counted together, and
// one proxy at a time is served, in the order in which they asked: it may ask each of the others to move
// memory out.
//
// They share a file without a name (a memfd that cannot shrink) with a slot for each proxy. A slot is a
// proxy's as long as it has a lock on the slot's byte (an open file description lock, fcntl(2)). The kernel
// releases that lock when the process ends, however that happens, and from then on the slot counts for
// nothing. Each writes only to its own slot and to the numbers in the head.
//
// Whoever can write to the file is a process of the job's user. So no value in it is used as an index, a
// length or an address (how many slots are looked at is bounded), and the worst that one can do is to keep
// its own job from having memory of the device.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

namespace singularity::proxyd {

// Any thread, unless it says otherwise.
class Neighbours {
  public:
    using Clock = std::chrono::steady_clock;
    using Device = std::array<std::uint8_t, 16>; // its UUID
    // Of the file; spank/agent/node/neighbour_file.hpp makes it.
    static constexpr std::size_t kBytes = std::size_t{256} << 10;
    // For tests: called before each change of our slot.
    using Hook = std::function<void()>;

    // file: any descriptor of it; this gets an open file description of its own.
    [[nodiscard]] static Expected<std::unique_ptr<Neighbours>> open(int file, const Device &device,
                                                                    Hook hook = {});
    ~Neighbours();
    Neighbours(const Neighbours &) = delete;
    Neighbours &operator=(const Neighbours &) = delete;
    Neighbours(Neighbours &&) = delete;
    Neighbours &operator=(Neighbours &&) = delete;

    // Calls what() on a thread of its own whenever a neighbour has changed something; once.
    void watch(std::function<void()> what);

    // Whether there are any.
    [[nodiscard]] bool any() const;
    // Bytes that they have on the device.
    [[nodiscard]] std::uint64_t taken() const;
    // Counts memory of ours. false: with it all have more than `room`, and it is not counted. Of two that try
    // at once both may fail; never have all more than there is.
    [[nodiscard]] bool take(std::uint64_t bytes, std::uint64_t room);
    void give_back(std::uint64_t bytes);
    // Whether a neighbour's sessions take turns; whether ours do.
    [[nodiscard]] bool crowded() const;
    void set_crowded(bool crowded);
    // How long it takes to change turns, the longest that any of them tells.
    [[nodiscard]] Clock::duration moving() const;
    void set_moving(Clock::duration moving);

    // --- being served: the thread that serves requests, alone
    // Asks for it, behind all who have.
    void queue();
    // Whether nobody who has asked before is left.
    [[nodiscard]] bool is_first() const;
    // The ticket of who is: another one as soon as somebody has been served.
    [[nodiscard]] std::uint64_t first_ticket() const;
    // It is served, or does not want to be any more.
    void leave_queue();

    enum class Answer : std::uint8_t {
        nothing, // it has nothing on the device that can ever leave
        later,   // what it has there cannot leave now
        stuck,   // and some of it waits for a collective
        gave,    // it has moved something out
    };
    // What the first in the queue wants of us; nothing: it wants nothing, or has its answer.
    [[nodiscard]] std::optional<std::uint64_t> question() const;
    void answer(std::uint64_t question, Answer what);

    // Asks neighbours for memory, one after the other, as long as this proxy is the first in the queue.
    class Sweep {
      public:
        explicit Sweep(Neighbours &neighbours) : neighbours_(neighbours) {}
        enum class Step : std::uint8_t {
            gave,  // somebody has moved something out
            waits, // there is no answer yet
            over,  // nobody can give anything now
        };
        [[nodiscard]] Step step();
        // As all of them have said: nobody has anything that can ever leave.
        [[nodiscard]] bool nobody() const { return nothing_ >= kNothing; }
        // Somebody's memory waits for a collective, or a neighbour does not answer.
        [[nodiscard]] bool stuck() const { return stuck_ || some_stuck_; }
        // How long it took to move what has been given since the last call.
        [[nodiscard]] Clock::duration took() { return std::exchange(took_, {}); }

      private:
        // A count may be too high for a moment, while somebody tries to take what is not there.
        static constexpr unsigned kNothing = 3;
        struct Open {
            std::size_t slot;
            std::uint64_t question;
            Clock::time_point since;
        };
        [[nodiscard]] bool ask_next();

        Neighbours &neighbours_;
        std::optional<Open> open_;
        std::vector<std::size_t> left_; // still to be asked, the last one first
        bool begun_ = false;
        bool some_ = false;       // has said that it has something
        bool some_stuck_ = false; // in this sweep
        bool stuck_ = false;      // in the last one
        unsigned nothing_ = 0;    // sweeps one after the other
        Clock::duration took_{};
    };

  private:
    struct Slot;
    struct Board;
    Neighbours(UniqueFd file, Board *board, Hook hook);
    [[nodiscard]] Expected<void> claim(const Device &device);
    [[nodiscard]] bool lives(std::size_t slot) const;
    // Those of the same device, but for our own.
    template <class What>
    void each(const What &what) const;
    [[nodiscard]] std::optional<std::size_t> first() const; // of those who have asked, ourselves among them
    void ring();
    void change(std::atomic<std::uint64_t> &word, std::uint64_t value);
    void listen();

    UniqueFd file_;
    Board *board_;
    Hook hook_;
    std::size_t own_ = 0;
    std::array<std::uint64_t, 2> device_{};
    // What our slot says, where nobody else can change it. But for the first, of the thread that serves.
    std::atomic<std::uint64_t> taken_ = 0;
    std::uint64_t ticket_ = 0;
    std::uint64_t answered_ = 0;
    std::function<void()> rung_;
    std::atomic<bool> stopping_ = false;
    std::thread listener_;
};

} // namespace singularity::proxyd
