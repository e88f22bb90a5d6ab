// SPDX-License-Identifier: GPL-2.0-or-later
#include "speeds.hpp"

#include <algorithm>
#include <charconv>
#include <string_view>

namespace singularity::planner {

namespace {

constexpr std::uint64_t kPer = 1000;                   // seconds
constexpr std::uint64_t kMostOperations = 1ULL << 50U; // between two checkpoints

template <class Number>
bool take_number(std::string_view &text, Number &number, int base = 10) {
    const auto word = text.substr(0, text.find(':'));
    const auto [end, error] = std::from_chars(word.data(), word.data() + word.size(), number, base);
    text.remove_prefix(std::min(text.size(), word.size() + 1));
    return error == std::errc() && end == word.data() + word.size();
}

} // namespace

std::optional<Speeds::Work> Speeds::work_in(const slurm::Note &note) {
    const auto value = note.get("work");
    std::string_view text = value;
    Work work;
    constexpr int kHexadecimal = 16;
    if (take_number(text, work.step) && take_number(text, work.operations) &&
        take_number(text, work.lines, kHexadecimal) && take_number(text, work.when) && text.empty() &&
        work.when >= 0)
        return work;
    return std::nullopt;
}

void Speeds::look(const slurm::Job &job, std::uint32_t has) {
    const auto note = slurm::Note::parse(job.admin_comment).value_or(slurm::Note());
    const auto resumed =
        job.running ? static_cast<std::int64_t>(note.number("resumed").value_or(0)) : resumed_;
    const auto gpus = job.running ? has : gpus_;
    if (const auto now = work_in(note); now && *now != last_) {
        // A rate of others is none of these.
        if (now->step != last_.step || now->lines != last_.lines) {
            rates_ = {};
            base_ = {};
        }
        const bool goes_on = now->operations >= last_.operations && now->when >= last_.when &&
                             now->operations - base_.operations <= kMostOperations;
        // Of a run that no look has seen begin it is not known what was done in it.
        const bool unseen = resumed != resumed_ && now->when > resumed;
        if (base_.when == 0 || !goes_on || unseen || measure(*now))
            base_ = *now;
        last_ = *now;
    }
    if (resumed != resumed_ || gpus != gpus_) // from here on
        base_ = last_;
    resumed_ = resumed;
    gpus_ = gpus;
}

// What it has done since base_, if that is enough to go by. While it stood still or waited it did not work;
// what it was on since is what the last look has seen.
bool Speeds::measure(const Work &now) {
    const auto seconds = now.when - std::max(base_.when, resumed_);
    const auto done = now.operations - base_.operations;
    if (seconds < kLeastMeasured || done < kLeastOperations || gpus_ == 0)
        return false;
    remember(gpus_, done * kPer / static_cast<std::uint64_t>(seconds));
    return true;
}

void Speeds::remember(std::uint32_t gpus, std::uint64_t rate) {
    auto *at = std::ranges::find(rates_, gpus, &Rate::gpus);
    if (at == rates_.end())
        at = std::ranges::find(rates_, 0U, &Rate::gpus);
    if (at == rates_.end())
        at = rates_.begin() + (next_++ % rates_.size());
    *at = {.gpus = gpus, .rate = std::max<std::uint64_t>(rate, 1)};
}

std::uint64_t Speeds::rate(std::uint32_t gpus) const {
    const auto *const found = std::ranges::find(rates_, gpus, &Rate::gpus);
    return found == rates_.end() || gpus == 0 ? 0 : found->rate;
}

void Speeds::correct(std::span<policy::Size> sizes) const {
    const policy::Size *largest = nullptr;
    for (const auto &size : sizes)
        if (rate(size.gpus) != 0)
            largest = &size;
    if (largest == nullptr)
        return;
    const auto at_largest = largest->speed;
    const auto best = rate(largest->gpus);
    policy::Fraction least = 1; // a larger size is not slower than a smaller one
    for (auto &size : sizes) {
        if (const auto own = rate(size.gpus); own != 0 && &size != largest) {
            // Few bits each: no product is too large. More than twice the correction changes nothing.
            const auto scale = 1 + (best >> 32U);
            const auto whole = std::max<std::uint64_t>(1, best / scale);
            const auto part = std::min(own / scale, whole * 2 * kMostCorrection);
            const auto measured =
                at_largest * static_cast<policy::Fraction>(part) / static_cast<policy::Fraction>(whole);
            size.speed = std::clamp(measured, size.speed / kMostCorrection, size.speed * kMostCorrection);
        }
        size.speed = least = std::clamp(size.speed, least, policy::kOne);
    }
    sizes.back().speed = policy::kOne;
}

} // namespace singularity::planner
