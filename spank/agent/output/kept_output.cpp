// SPDX-License-Identifier: GPL-2.0-or-later
#include "kept_output.hpp"

#include "agent/limits/budget.hpp"
#include "agent/log.hpp"

#include <algorithm>
#include <map>

namespace singularity::agent {

namespace {

struct OfUser {
    std::uint64_t bytes = 0;
    bool told = false;
};

std::map<std::uint32_t, OfUser> &kept_by() {
    static std::map<std::uint32_t, OfUser> kept;
    return kept;
}

std::uint64_t kept_of(std::uint32_t uid) {
    const auto found = kept_by().find(uid);
    return found == kept_by().end() ? 0 : found->second.bytes;
}

std::uint64_t limit_of(std::uint32_t uid) { return budgets().limit(Budget::output_bytes, uid); }

std::uint64_t without(std::uint64_t all, std::uint64_t part) { return all - std::min(all, part); }

} // namespace

void KeptOutput::set(std::uint64_t bytes) {
    if (bytes == bytes_)
        return;
    auto &of_user = kept_by()[uid_];
    of_user.bytes = of_user.bytes - bytes_ + bytes;
    bytes_ = bytes;
    if (of_user.bytes < limit_of(uid_) / 2)
        of_user.told = false;
    if (of_user.bytes == 0)
        kept_by().erase(uid_);
}

std::uint64_t KeptOutput::left() const { return without(limit_of(uid_), kept_of(uid_)); }

std::uint64_t KeptOutput::room() const {
    const auto limit = limit_of(uid_);
    const auto beyond = without(kept_of(uid_), limit); // of the budget
    return std::max(left(), std::min(without(kLeast, bytes_), without(limit, beyond)));
}

bool KeptOutput::over() const { return kept_of(uid_) > limit_of(uid_); }

void KeptOutput::tell(std::uint64_t more) const {
    const auto found = kept_by().find(uid_);
    if (found == kept_by().end() || found->second.told)
        return;
    if (const auto why = budgets().refusal(Budget::output_bytes, uid_, found->second.bytes, more)) {
        found->second.told = true;
        kLog.warning("output of programs waits to be read, or only its end is kept: {}", *why);
    }
}

} // namespace singularity::agent
