// SPDX-License-Identifier: GPL-2.0-or-later
#include "report.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace singularity::doctor {

namespace {

std::string_view name_of(Severity severity) { return severity == Severity::kError ? "error" : "warning"; }

// In the order of Unseen.
constexpr std::array<std::string_view, 4> kReasons{"needs root", "does not apply", "cannot look", "is off"};

std::string_view name_of(Unseen why) { return kReasons.at(static_cast<std::size_t>(why)); }

// A JSON string. What escaped() leaves is UTF-8 without control characters: two more have a meaning (RFC
// 8259, 7).
std::string quoted(std::string_view text) {
    std::string out = "\"";
    for (const char c : escaped(text)) {
        if (c == '"' || c == '\\')
            out += '\\';
        out += c;
    }
    return out + '"';
}

std::string object(std::initializer_list<std::pair<std::string_view, std::string_view>> members) {
    std::string out;
    for (const auto &[name, text] : members)
        out += fmt::format("{}{}: {}", out.empty() ? "" : ", ", quoted(name), quoted(text));
    return "{" + out + "}";
}

} // namespace

std::string in_words(const Diagnosis &diagnosis) {
    std::string out;
    for (const auto &[check, severity, problem] : diagnosis.findings)
        out += fmt::format("{}: {}\n  why: {}\n  fix: {}\n\n", name_of(severity), escaped(problem.what),
                           escaped(problem.why), escaped(problem.fix));
    if (diagnosis.findings.empty() && exit_status(diagnosis) == 0)
        out = "no problem found\n";
    // Many parts share a reason, such as that this host is no node.
    std::vector<std::pair<std::string, std::string>> reasons;
    for (const auto &[part, reason] : diagnosis.unlooked) {
        auto words = fmt::format("{}: {}", name_of(reason.why), escaped(reason.words));
        const auto known = std::ranges::find(reasons, words, &std::pair<std::string, std::string>::first);
        if (known == reasons.end())
            reasons.emplace_back(std::move(words), part);
        else
            known->second += fmt::format("; {}", part);
    }
    for (const auto &[words, parts] : reasons)
        out += fmt::format("not looked at ({}): {}\n", words, parts);
    return out;
}

std::string in_json(const Diagnosis &diagnosis) {
    std::vector<std::string> findings;
    findings.reserve(diagnosis.findings.size());
    for (const auto &[check, severity, problem] : diagnosis.findings)
        findings.push_back(object({{"check", check},
                                   {"severity", name_of(severity)},
                                   {"what", problem.what},
                                   {"why", problem.why},
                                   {"fix", problem.fix}}));
    std::vector<std::string> unlooked;
    unlooked.reserve(diagnosis.unlooked.size());
    for (const auto &[part, reason] : diagnosis.unlooked)
        unlooked.push_back(
            object({{"part", part}, {"reason", name_of(reason.why)}, {"words", reason.words}}));
    return fmt::format(R"({{"status": {}, "findings": [{}], "not_looked_at": [{}]}})"
                       "\n",
                       exit_status(diagnosis), fmt::join(findings, ", "), fmt::join(unlooked, ", "));
}

int exit_status(const Diagnosis &diagnosis) {
    constexpr int kFound = 1;
    constexpr int kBlind = 2;
    if (std::ranges::any_of(diagnosis.unlooked,
                            [](const Unlooked &each) { return each.reason.why == Unseen::kFailed; }))
        return kBlind;
    return diagnosis.findings.empty() ? 0 : kFound;
}

} // namespace singularity::doctor
