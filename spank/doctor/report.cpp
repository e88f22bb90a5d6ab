// SPDX-License-Identifier: GPL-2.0-or-later
#include "report.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <google/protobuf/struct.pb.h>
#include <google/protobuf/util/json_util.h>

namespace singularity::doctor {

namespace {

std::string_view name_of(Severity severity) { return severity == Severity::kError ? "error" : "warning"; }

// In the order of Unseen.
constexpr std::array<std::string_view, 3> kReasons{"needs root", "does not apply", "cannot look"};

std::string_view name_of(Unseen why) { return kReasons.at(static_cast<std::size_t>(why)); }

google::protobuf::Value
value_of(std::initializer_list<std::pair<std::string_view, std::string_view>> members) {
    google::protobuf::Value out;
    auto &fields = *out.mutable_struct_value()->mutable_fields();
    for (const auto &[name, text] : members)
        fields[std::string(name)].set_string_value(escaped(text)); // escaped: UTF-8, as JSON must be
    return out;
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

Expected<std::string> in_json(const Diagnosis &diagnosis) {
    google::protobuf::Struct all;
    auto &fields = *all.mutable_fields();
    fields["status"].set_number_value(exit_status(diagnosis));
    auto &findings = *fields["findings"].mutable_list_value();
    for (const auto &[check, severity, problem] : diagnosis.findings)
        *findings.add_values() = value_of({{"check", check},
                                           {"severity", name_of(severity)},
                                           {"what", problem.what},
                                           {"why", problem.why},
                                           {"fix", problem.fix}});
    auto &unlooked = *fields["not_looked_at"].mutable_list_value();
    for (const auto &[part, reason] : diagnosis.unlooked)
        *unlooked.add_values() =
            value_of({{"part", part}, {"reason", name_of(reason.why)}, {"words", reason.words}});
    std::string out;
    if (const auto written = google::protobuf::util::MessageToJsonString(all, &out); !written.ok())
        return failure("write", "the diagnosis as JSON", std::string(written.message()));
    return out + "\n";
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
