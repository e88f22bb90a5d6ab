// SPDX-License-Identifier: GPL-2.0-or-later
#include "select-plugin/protection.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <functional>
#include <iterator>
#include <optional>
#include <utility>

#include <fmt/format.h>

namespace singularity {

namespace {

constexpr std::string_view kTitle = "singularity-planner protection 1";

using Ids = std::vector<std::uint32_t>;

// The lines, in this order; a name, and behind it numbers between spaces.
constexpr std::array<std::pair<std::string_view, Ids Protection::*>, 3> kLists{{
    {"served", &Protection::served},
    {"waiting", &Protection::waiting},
    {"covered", &Protection::covered},
}};

class Lines {
  public:
    Lines(std::string_view text, std::string_view file_name) : rest_(text), file_name_(file_name) {}

    [[nodiscard]] std::unexpected<Error> refuse(std::string_view expected) const {
        return failure("read", std::string(file_name_),
                       fmt::format("line {}: expected {}, found {}", number_, expected, quote(line_)),
                       EINVAL);
    }

    Expected<void> title() {
        next();
        return line_ == kTitle ? Expected<void>() : refuse(quote(kTitle));
    }

    template <class Number>
    Expected<void> number(std::string_view name, Number &value) {
        next();
        auto words = after(name);
        if (!words || !take(*words, value) || !words->empty())
            return refuse(fmt::format("'{}' and a number", name));
        return {};
    }

    Expected<void> numbers(std::string_view name, Ids &values) {
        next();
        auto words = after(name);
        bool good = words.has_value();
        while (good && !words->empty()) {
            good = take(*words, values.emplace_back());
        }
        if (!good || std::ranges::adjacent_find(values, std::greater_equal<>()) != values.end())
            return refuse(fmt::format("'{}' and ascending numbers", name));
        return {};
    }

  private:
    void next() {
        const auto end = rest_.find('\n');
        line_ = rest_.substr(0, end);
        rest_ = end == std::string_view::npos ? std::string_view() : rest_.substr(end + 1);
        ++number_;
    }

    [[nodiscard]] std::optional<std::string_view> after(std::string_view name) const {
        return line_.starts_with(name) ? std::optional(line_.substr(name.size())) : std::nullopt;
    }

    // A space, and a number.
    template <class Number>
    static bool take(std::string_view &words, Number &value) {
        if (!words.starts_with(' '))
            return false;
        const auto [end, error] = std::from_chars(words.begin() + 1, words.end(), value);
        words.remove_prefix(static_cast<std::size_t>(end - words.begin()));
        return error == std::errc();
    }

    std::string_view rest_;
    std::string_view file_name_;
    std::string_view line_;
    int number_ = 0;
};

} // namespace

Spared Protection::spared_for(std::uint32_t job, std::time_t now) const {
    if (now >= until)
        return Spared::kNobody;
    if (job > newest || std::ranges::binary_search(served, job))
        return Spared::kAll;
    return std::ranges::binary_search(waiting, job) ? Spared::kCovered : Spared::kNobody;
}

bool Protection::covers(std::uint32_t job) const { return std::ranges::binary_search(covered, job); }

std::string Protection::write() const {
    auto out = fmt::format("{}\nuntil {}\nnewest {}\n", kTitle, until, newest);
    for (const auto &[name, list] : kLists) {
        out += name;
        for (const auto id : this->*list)
            fmt::format_to(std::back_inserter(out), " {}", id);
        out += '\n';
    }
    return out;
}

Expected<Protection> Protection::parse(std::string_view text, std::string_view file_name) {
    Protection out;
    Lines lines(text, file_name);
    auto done = lines.title();
    if (done)
        done = lines.number("until", out.until);
    if (done)
        done = lines.number("newest", out.newest);
    for (const auto &[name, list] : kLists)
        if (done)
            done = lines.numbers(name, out.*list);
    if (!done)
        return propagate(done);
    return out;
}

} // namespace singularity
