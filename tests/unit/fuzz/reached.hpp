// SPDX-License-Identifier: GPL-2.0-or-later
// Which of a subject's parsers have believed an input: a fuzzer whose inputs are all refused at the first
// byte finds nothing.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace singularity::test {

class Reached {
  public:
    explicit Reached(std::vector<std::string_view> all) : all_(std::move(all)) {}

    void add(std::string_view one) { reached_.insert(one); }
    // As subject.hpp's reached_text().
    [[nodiscard]] std::string text() const {
        std::string missing;
        for (const auto one : all_)
            if (!reached_.contains(one))
                missing += fmt::format(" {}", one);
        return fmt::format("reached: {} of {} parsers; not:{}", reached_.size(), all_.size(),
                           missing.empty() ? " nothing" : missing);
    }

  private:
    std::vector<std::string_view> all_;
    std::set<std::string_view> reached_;
};

} // namespace singularity::test
