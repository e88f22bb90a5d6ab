// SPDX-License-Identifier: GPL-2.0-or-later
#include "neighbours.hpp"

#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstring>
#include <memory>
#include <new>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::proxyd {

namespace {

constexpr std::size_t kSlots = 1024;
constexpr unsigned kSlotBits = 16; // of a question: the slot of whom it is for
// Moving a chunk takes some milliseconds; more than this means that its proxy is stopped.
constexpr std::chrono::seconds kUnanswered{1};
constexpr std::chrono::microseconds kLongestMoving{60'000'000};

long futex(std::atomic<std::uint32_t> &word, int operation, std::uint32_t value) {
    return syscall(SYS_futex, &word, operation, value, nullptr, nullptr, 0);
}

struct flock byte_of(std::size_t slot) {
    struct flock out{};
    out.l_type = F_WRLCK;
    out.l_whence = SEEK_SET;
    out.l_start = static_cast<off_t>(slot);
    out.l_len = 1;
    return out;
}

} // namespace

// All words are zero in a new file. They are changed in one order that all see (sequential consistency).
struct Neighbours::Slot {
    std::array<std::atomic<std::uint64_t>, 2> device; // zeros: the rest says nothing
    std::atomic<std::uint64_t> taken;                 // bytes
    std::atomic<std::uint64_t> crowded;
    std::atomic<std::uint64_t> moving;   // microseconds
    std::atomic<std::uint64_t> choosing; // a ticket: nobody is first meanwhile (Lamport's bakery)
    std::atomic<std::uint64_t> ticket;   // 0: it does not want to be served
    std::atomic<std::uint64_t> question; // to a neighbour, while it is served
    std::atomic<std::uint64_t> answered; // the last question to us that has its answer
    std::atomic<std::uint64_t> answer;
    std::array<std::uint64_t, 6> reserved;
};

struct Neighbours::Board {
    std::atomic<std::uint32_t> bell; // a futex, counts changes
    std::atomic<std::uint32_t> used; // slots that have ever been somebody's lie below
    std::atomic<std::uint64_t> tickets;
    std::atomic<std::uint64_t> questions;
    std::array<std::uint64_t, 13> reserved;
    std::array<Slot, kSlots> slots;
};

template <class What>
void Neighbours::each(const What &what) const {
    const auto used = std::min<std::size_t>(board_->used.load(), kSlots);
    for (std::size_t at = 0; at < used; ++at) {
        const auto &slot = board_->slots.at(at);
        if (at != own_ && slot.device[0].load() == device_[0] && slot.device[1].load() == device_[1])
            what(at, slot);
    }
}

Neighbours::Neighbours(UniqueFd file, Board *board, Hook hook)
    : file_(std::move(file)), board_(board), hook_(std::move(hook)) {}

Neighbours::~Neighbours() {
    stopping_ = true;
    ring();
    if (listener_.joinable())
        listener_.join();
    munmap(board_, kBytes);
    // With the descriptor the lock goes, and with that all that the slot says.
}

Expected<std::unique_ptr<Neighbours>> Neighbours::open(int file, const Device &device, Hook hook) {
    static_assert(sizeof(Slot) == 128 && sizeof(Board) <= kBytes);
    static_assert(std::atomic<std::uint64_t>::is_always_lock_free);
    constexpr const char *kWhat = "the file that this job's device proxies share";
    struct stat about{};
    const int seals = fcntl(file, F_GET_SEALS);
    if (seals < 0 || fstat(file, &about) != 0)
        return std::unexpected(errno_error("use", kWhat));
    // What is mapped from a file that shrinks is a SIGBUS.
    if ((seals & F_SEAL_SHRINK) == 0 || about.st_size < static_cast<off_t>(kBytes))
        return failure("use", kWhat,
                       fmt::format("it has {} bytes of {}, or may shrink", about.st_size, kBytes), EINVAL);
    if (device == Device{})
        return failure("use", kWhat, "the driver does not say which device this is (cuDeviceGetUuid)",
                       ENODEV);
    // Locks belong to the open file description, which other proxies must not have.
    auto own = open_file(fmt::format("/proc/self/fd/{}", file), O_RDWR);
    if (!own)
        return propagate(own);
    void *const memory = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, own->get(), 0);
    if (memory == MAP_FAILED)
        return std::unexpected(errno_error("map", kWhat));
    std::unique_ptr<Neighbours> out(
        new Neighbours(std::move(*own), static_cast<Board *>(memory), std::move(hook)));
    if (auto claimed = out->claim(device); !claimed)
        return propagate(claimed);
    return out;
}

Expected<void> Neighbours::claim(const Device &device) {
    for (own_ = 0; own_ < kSlots; ++own_) {
        auto lock = byte_of(own_);
        if (fcntl(file_.get(), F_OFD_SETLK, &lock) == 0)
            break;
        if (errno != EAGAIN && errno != EACCES)
            return std::unexpected(errno_error("lock", "a slot among this job's device proxies"));
    }
    if (own_ == kSlots)
        return failure("lock", "a slot among this job's device proxies",
                       fmt::format("all {} are taken", kSlots), EUSERS);
    // What its last owner has left counts until here as if that lived, which harms nobody.
    auto &slot = board_->slots.at(own_);
    for (auto &half : slot.device)
        change(half, 0);
    for (auto *const word : {&slot.taken, &slot.crowded, &slot.moving, &slot.choosing, &slot.ticket,
                             &slot.question, &slot.answered, &slot.answer})
        change(*word, 0);
    for (auto used = board_->used.load(); used <= own_;)
        if (board_->used.compare_exchange_weak(used, static_cast<std::uint32_t>(own_ + 1)))
            break;
    std::memcpy(device_.data(), device.data(), device.size());
    change(slot.device[0], device_[0]);
    change(slot.device[1], device_[1]);
    return {};
}

bool Neighbours::lives(std::size_t slot) const {
    auto lock = byte_of(slot);
    return fcntl(file_.get(), F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
}

void Neighbours::change(std::atomic<std::uint64_t> &word, std::uint64_t value) {
    if (hook_)
        hook_();
    word.store(value);
}

void Neighbours::ring() {
    board_->bell.fetch_add(1);
    static_cast<void>(futex(board_->bell, FUTEX_WAKE, INT_MAX));
}

void Neighbours::watch(std::function<void()> what) {
    rung_ = std::move(what);
    listener_ = std::thread([this] { listen(); });
}

void Neighbours::listen() {
    while (!stopping_) {
        const auto seen = board_->bell.load();
        rung_();
        if (!stopping_)
            static_cast<void>(futex(board_->bell, FUTEX_WAIT, seen)); // also returns when it has changed
    }
}

bool Neighbours::any() const {
    bool found = false;
    each([&](std::size_t at, const Slot & /*slot*/) { found = found || lives(at); });
    return found;
}

std::uint64_t Neighbours::taken() const {
    std::uint64_t sum = 0;
    each([&](std::size_t at, const Slot &slot) {
        const auto taken = slot.taken.load();
        if (taken != 0 && lives(at))
            sum += std::min(taken, UINT64_MAX / kSlots);
    });
    return sum;
}

// Each counts its own before it looks at the others' (and so one of two sees the other).
bool Neighbours::take(std::uint64_t bytes, std::uint64_t room) {
    if (bytes > room)
        return false;
    if (hook_)
        hook_();
    board_->slots.at(own_).taken.fetch_add(bytes);
    const auto mine = taken_.fetch_add(bytes) + bytes;
    const auto others = this->taken();
    if (mine <= room && others <= room - mine)
        return true;
    give_back(bytes);
    return false;
}

void Neighbours::give_back(std::uint64_t bytes) {
    if (hook_)
        hook_();
    taken_.fetch_sub(bytes);
    board_->slots.at(own_).taken.fetch_sub(bytes);
}

bool Neighbours::crowded() const {
    bool found = false;
    each([&](std::size_t at, const Slot &slot) { found = found || (slot.crowded.load() != 0 && lives(at)); });
    return found;
}

void Neighbours::set_crowded(bool crowded) {
    auto &word = board_->slots.at(own_).crowded;
    if (word.load() == (crowded ? 1U : 0U))
        return;
    change(word, crowded ? 1 : 0);
    ring();
}

Neighbours::Clock::duration Neighbours::moving() const {
    std::uint64_t longest = 0;
    each([&](std::size_t at, const Slot &slot) {
        const auto moving = slot.moving.load();
        if (moving > longest && lives(at))
            longest = moving;
    });
    return std::chrono::microseconds(std::min(longest, static_cast<std::uint64_t>(kLongestMoving.count())));
}

void Neighbours::set_moving(Clock::duration moving) {
    change(board_->slots.at(own_).moving,
           static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::microseconds>(moving).count()));
}

void Neighbours::queue() {
    auto &slot = board_->slots.at(own_);
    change(slot.choosing, 1);
    if (hook_)
        hook_();
    ticket_ = 0;
    while (ticket_ == 0) // that says that there is none
        ticket_ = board_->tickets.fetch_add(1) + 1;
    change(slot.ticket, ticket_);
    change(slot.choosing, 0);
}

bool Neighbours::is_first() const {
    bool first = ticket_ != 0;
    each([&](std::size_t at, const Slot &slot) {
        const bool chooses = slot.choosing.load() != 0;
        const auto ticket = slot.ticket.load();
        const bool before = ticket != 0 && (ticket < ticket_ || (ticket == ticket_ && at < own_));
        if (first && (chooses || before) && lives(at))
            first = false;
    });
    return first;
}

void Neighbours::leave_queue() {
    auto &slot = board_->slots.at(own_);
    ticket_ = 0;
    change(slot.question, 0);
    change(slot.ticket, 0);
    ring();
}

std::optional<std::size_t> Neighbours::first() const {
    std::optional<std::size_t> out;
    auto lowest = ticket_;
    each([&](std::size_t at, const Slot &slot) {
        const auto ticket = slot.ticket.load();
        if (ticket != 0 && (lowest == 0 || ticket < lowest) && lives(at)) {
            lowest = ticket;
            out = at;
        }
    });
    return out;
}

std::uint64_t Neighbours::first_ticket() const {
    const auto slot = first();
    return slot ? board_->slots.at(*slot).ticket.load() : ticket_;
}

std::optional<std::uint64_t> Neighbours::question() const {
    const auto asks = first();
    if (!asks)
        return std::nullopt;
    const auto question = board_->slots.at(*asks).question.load();
    const bool ours = question != 0 && (question & ((1U << kSlotBits) - 1)) == own_;
    return ours && answered_ != question ? std::optional(question) : std::nullopt;
}

void Neighbours::answer(std::uint64_t question, Answer what) {
    auto &slot = board_->slots.at(own_);
    answered_ = question;
    change(slot.answer, std::to_underlying(what));
    change(slot.answered, question);
    ring();
}

// Who does not want to be served gives first, then who has asked last.
bool Neighbours::Sweep::ask_next() {
    auto &all = *neighbours_.board_;
    if (!std::exchange(begun_, true)) {
        left_.clear();
        neighbours_.each([&](std::size_t at, const Slot &slot) {
            if (slot.taken.load() != 0)
                left_.push_back(at);
        });
        std::vector<std::pair<std::uint64_t, std::size_t>> order; // tickets may change meanwhile
        for (const auto at : left_)
            order.emplace_back(all.slots.at(at).ticket.load() - 1, at); // none: the highest of all
        std::ranges::sort(order);
        std::ranges::transform(order, left_.begin(), [](const auto &one) { return one.second; });
    }
    while (!left_.empty()) {
        const auto at = left_.back();
        left_.pop_back();
        if (!neighbours_.lives(at))
            continue;
        std::uint64_t question = 0;
        while (question >> kSlotBits == 0)
            question = (all.questions.fetch_add(1) + 1) << kSlotBits | at;
        neighbours_.change(all.slots.at(neighbours_.own_).question, question);
        open_ = Open{.slot = at, .question = question, .since = Clock::now()};
        neighbours_.ring();
        return true;
    }
    return false;
}

Neighbours::Sweep::Step Neighbours::Sweep::step() {
    if (open_) {
        const auto &slot = neighbours_.board_->slots.at(open_->slot);
        if (slot.answered.load() == open_->question) {
            const auto said = slot.answer.load();
            const auto done = *std::exchange(open_, std::nullopt);
            if (said == std::to_underlying(Answer::gave)) {
                took_ += Clock::now() - done.since;
                left_.push_back(done.slot); // it may have more
                nothing_ = 0;
                some_ = true;
                return Step::gave;
            }
            some_ = some_ || said != std::to_underlying(Answer::nothing);
            some_stuck_ = some_stuck_ || said == std::to_underlying(Answer::stuck);
        } else if (!neighbours_.lives(open_->slot)) {
            open_.reset();
            some_ = true; // what it had is free now
        } else if (Clock::now() - open_->since < kUnanswered) {
            return Step::waits;
        } else {
            open_.reset();
            some_ = true;
            some_stuck_ = true;
        }
    }
    if (ask_next())
        return Step::waits;
    begun_ = false;
    nothing_ = some_ ? 0 : nothing_ + 1;
    stuck_ = some_stuck_;
    some_ = false;
    some_stuck_ = false;
    return Step::over;
}

} // namespace singularity::proxyd
