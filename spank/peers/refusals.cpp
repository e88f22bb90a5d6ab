// SPDX-License-Identifier: GPL-2.0-or-later
#include "refusals.hpp"

#include "log.hpp"

#include <chrono>

namespace singularity::peers {

namespace {

using namespace std::chrono_literals;

constexpr auto kSpan = 10s;
constexpr std::size_t kLinesInSpan = 20;

} // namespace

void RefusalLog::add(const std::string &who, const std::string &why) {
    if (!until_ || until_->expired()) {
        if (silent_ != 0)
            kLog.warning("{} more connections were refused", silent_);
        until_ = Deadline::after(kSpan);
        said_ = 0;
        silent_ = 0;
    }
    if (++said_ > kLinesInSpan)
        ++silent_;
    else
        kLog.warning("{} is refused: {}", who, why);
}

} // namespace singularity::peers
