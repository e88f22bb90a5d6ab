// SPDX-License-Identifier: GPL-2.0-or-later
#include "slurm_job.hpp"

#include "common/program_output.hpp"
#include "common/text.hpp"

#include <array>
#include <charconv>
#include <chrono>
#include <sstream>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h> // join, since fmt 11

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

// slurmctld answers in milliseconds, or is busy; Slurm itself waits for 10 s (MessageTimeout).
constexpr auto kSlurmPatience = 12s;

// In front of what the other process brings back.
constexpr char kGood = '+';
constexpr char kBad = '-';

constexpr std::array kFates{
    std::pair("stays", SlurmJob::Fate::stays),           std::pair("requeued", SlurmJob::Fate::requeued),
    std::pair("preempted", SlurmJob::Fate::preempted),   std::pair("timeout", SlurmJob::Fate::timeout),
    std::pair("terminated", SlurmJob::Fate::terminated), std::pair("ended", SlurmJob::Fate::ended),
};

} // namespace

std::vector<std::string> OwnedJob::command(std::string name) const {
    return {std::move(name), "--owner", std::to_string(uid), std::to_string(id)};
}

Expected<SlurmJob> parse_slurm_job(std::string_view text) {
    SlurmJob out;
    bool told = false;
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        const auto equals = std::min(line.find('='), line.size());
        const auto key = line.substr(0, equals);
        const auto value = line.substr(std::min(equals + 1, line.size()));
        if (key == "uid")
            out.known = true;
        else if (key == "completing")
            out.completing = value == "yes";
        else if (key == "batch")
            out.batch = value == "yes";
        else if (key == "may_requeue")
            out.may_requeue = value == "yes";
        else if (key == "restarts")
            std::from_chars(value.data(), value.data() + value.size(), out.restarts);
        else if (key == "batch_host")
            out.batch_host = value;
        else if (key == "fate")
            for (const auto &[word, fate] : kFates)
                if (value == word) {
                    out.fate = fate;
                    told = true;
                }
    }
    if (!told)
        return failure("understand", "singularity-slurm", "it does not say what becomes of the job", EPROTO);
    return out;
}

bool goes_on_later(const SlurmJob &job) {
    switch (job.fate) {
    case SlurmJob::Fate::requeued:
        return true;
    case SlurmJob::Fate::preempted:
    case SlurmJob::Fate::timeout:
        return job.batch && job.may_requeue;
    default:
        return false;
    }
}

Expected<SlurmRequest> SlurmRequest::send(const Libraries &libraries, std::vector<std::string> words) {
    auto name = fmt::format("ask slurmctld: {}", fmt::join(words, " "));
    words.insert(words.begin(), libraries.slurm().native());
    auto subprocess = peers::Subprocess::start(
        std::move(name),
        [words = std::move(words)] {
            auto answer = answer_of(words, Deadline::after(kSlurmPatience));
            return answer ? kGood + *answer : kBad + answer.error().message();
        },
        Deadline::after(kSlurmPatience + 1s));
    if (!subprocess)
        return propagate(subprocess);
    return SlurmRequest(std::move(*subprocess));
}

Expected<SlurmRequest> SlurmRequest::send_for(const Libraries &libraries, const OwnedJob &job,
                                              std::vector<std::string> words) {
    auto subprocess = send(libraries, std::move(words));
    if (subprocess)
        subprocess->share_ = Share(Budget::questions, job.uid);
    return subprocess;
}

Expected<SlurmRequest> SlurmRequest::about(const Libraries &libraries, const OwnedJob &job) {
    return send_for(libraries, job, job.command("job"));
}

Expected<SlurmRequest> SlurmRequest::requeue(const Libraries &libraries, const OwnedJob &job) {
    return send_for(libraries, job, job.command("requeue"));
}

Expected<SlurmRequest> SlurmRequest::hold(const Libraries &libraries, const OwnedJob &job,
                                          const std::string &why) {
    auto words = job.command("hold");
    words.push_back(why);
    return send_for(libraries, job, std::move(words));
}

Expected<SlurmRequest> SlurmRequest::begin(const Libraries &libraries, const OwnedJob &job) {
    return send_for(libraries, job, job.command("begin"));
}

Expected<std::optional<std::string>> SlurmRequest::take() {
    auto found = subprocess_.take();
    if (!found || !*found)
        return found;
    const auto &text = **found;
    if (text[0] != kGood)
        return failure("ask", "slurmctld", text.substr(1), EIO);
    return std::optional(text.substr(1));
}

Expected<std::uint32_t> job_of_step(std::string_view step) {
    std::uint32_t out = 0;
    const auto number = step.substr(0, step.find('.'));
    const auto [end, error] = std::from_chars(number.begin(), number.end(), out);
    if (error != std::errc() || end != number.end() || out == 0)
        return failure("find the job of", quote(step), "it is no step of Slurm's", EINVAL);
    return out;
}

} // namespace singularity::agent
