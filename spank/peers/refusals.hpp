// SPDX-License-Identifier: GPL-2.0-or-later
// Who knocks without end must not fill the log.
#pragma once

#include "common/deadline.hpp"

#include <cstddef>
#include <optional>
#include <string>

namespace singularity::peers {

class RefusalLog {
  public:
    // Logs it, or counts it if there were too many just now; the next line tells how many those were.
    void add(const std::string &who, const std::string &why);

  private:
    std::size_t said_ = 0;
    std::size_t silent_ = 0;
    std::optional<Deadline> until_;
};

} // namespace singularity::peers
