// SPDX-License-Identifier: GPL-2.0-or-later
// Small changes of inputs of which nothing is known but that they are bytes: what a disk, a cut connection or
// an attacker does to a file or a packet. The other half of subject.hpp for subjects that have no better way.
#pragma once

#include "subject.hpp"

#include <cstdint>
#include <random>
#include <vector>

namespace singularity::test {

class Changes {
  public:
    explicit Changes(std::uint64_t seed) : random_(seed) {}

    // A good input, changed.
    [[nodiscard]] std::vector<Part> input();
    // One small change, of a part or of the row.
    void change(std::vector<Part> &parts);

  private:
    [[nodiscard]] std::uint64_t below(std::uint64_t end) { return end == 0 ? 0 : random_() % end; }
    [[nodiscard]] const std::vector<Part> &any_good();
    void change_row(std::vector<Part> &parts);
    void change_bytes(Bytes &bytes);
    void change_number(Bytes &bytes);

    std::mt19937_64 random_;
};

} // namespace singularity::test
