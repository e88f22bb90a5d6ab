// SPDX-License-Identifier: GPL-2.0-or-later
// What a new agent does with the records of the one before it. Programs run on meanwhile: a record that
// cannot be read for the moment is kept, and read again later.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace singularity::agent {

// What an error of an adoption says of the record.
enum class Verdict : std::uint8_t {
    gone,   // its process has ended, or it never got as far as a record
    broken, // it is none, or one of another release: no second look makes it better
    waits   // descriptors or memory have run out, or anything else that passes
};
[[nodiscard]] Verdict verdict_of(const Error &error);

// Descriptors or memory have run out.
[[nodiscard]] bool is_shortage(int code);

// The names in a directory; an error is of the whole.
[[nodiscard]] Expected<std::set<std::string>> names_in(const std::filesystem::path &directory);

// Descriptors that are kept free for what an agent does besides, while it adopts. Without them it would have
// every record, and could serve none.
class Reserve {
  public:
    [[nodiscard]] static Expected<Reserve> take();

  private:
    std::vector<UniqueFd> held_;
};

// When records are read again: soon, then less and less often.
class AdoptAgain {
  public:
    void later();
    void over() { at_.reset(); }
    [[nodiscard]] const std::optional<Deadline> &at() const { return at_; }

  private:
    std::optional<Deadline> at_;
    std::chrono::milliseconds pause_{};
};

} // namespace singularity::agent
