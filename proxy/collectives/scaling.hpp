// SPDX-License-Identifier: GPL-2.0-or-later
// What each operand of a reduction is multiplied by before the first step, if it is.
#pragma once

#include "proxy/collectives/mover.hpp"
#include "proxy/collectives/reduce.hpp"
#include "proxy/protocol/collective.hpp"

#include <cstdint>

namespace singularity::collectives {

class Scaling {
  public:
    Scaling(const protocol::CollectiveOperation &operation, std::uint32_t members);

    [[nodiscard]] bool needed() const { return needed_; }
    // The scalar may be in the program's memory, where it is when the operation begins.
    [[nodiscard]] Expected<void> get_ready(Mover &mover);
    [[nodiscard]] const Scalar &scalar() const { return scalar_; }

  private:
    Scalar scalar_{};
    std::uint64_t address_ = 0; // where it still is
    std::uint32_t type_;
    bool needed_ = false;
};

} // namespace singularity::collectives
