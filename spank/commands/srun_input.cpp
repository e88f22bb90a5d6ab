// SPDX-License-Identifier: GPL-2.0-or-later
#include "srun_input.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <string_view>

namespace singularity::commands {

namespace {

// Of srun 22.05 to 26.05 and of the SPANK plugin: the options of which the next word is no argument. Any
// other takes it, one that is not known as well: then the program's words are looked at, too, and at worst
// one of them is taken for srun's.
constexpr auto kAlone = std::to_array<std::string_view>({"async",
                                                         "autocomplete",
                                                         "bcast",
                                                         "compress",
                                                         "consolidate-segments",
                                                         "contiguous",
                                                         "disable-status",
                                                         "exact",
                                                         "exclusive",
                                                         "external-launcher",
                                                         "help",
                                                         "hold",
                                                         "immediate",
                                                         "interactive",
                                                         "kill-on-bad-exit",
                                                         "label",
                                                         "multi-prog",
                                                         "nice",
                                                         "no-allocate",
                                                         "no-kill",
                                                         "no-requeue",
                                                         "oom-kill-step",
                                                         "overcommit",
                                                         "overlap",
                                                         "oversubscribe",
                                                         "parsable",
                                                         "preserve-env",
                                                         "propagate",
                                                         "pty",
                                                         "quiet",
                                                         "quit-on-interrupt",
                                                         "reboot",
                                                         "requeue",
                                                         "resv-ports",
                                                         "send-libs",
                                                         "share",
                                                         "singularity-elastic",
                                                         "singularity-no-save-script",
                                                         "singularity-off",
                                                         "singularity-save-script",
                                                         "spread-job",
                                                         "spread-segments",
                                                         "stepmgr",
                                                         "test-only",
                                                         "unbuffered",
                                                         "usage",
                                                         "use-min-nodes",
                                                         "verbose",
                                                         "version",
                                                         "wait-for-children",
                                                         "whole",
                                                         "x11"});
constexpr std::string_view kAloneLetters = "EHhlOQsuvVXZ";
constexpr std::string_view kMaybeLetters = "IKk"; // the rest of the word is the argument, if there is one

struct Option {
    bool is_input = false;
    bool takes_next = false;
    std::string_view value; // in the same word
};

// As getopt_long(3) does, a beginning of the name will do.
Option long_option(std::string_view word) {
    const auto equals = word.find('=');
    const auto name = word.substr(0, equals);
    Option out{.is_input = std::string_view("input").starts_with(name), .takes_next = false, .value = {}};
    if (equals != std::string_view::npos)
        out.value = word.substr(equals + 1);
    else
        out.takes_next = name == "wait" || std::ranges::none_of(kAlone, [&](std::string_view one) {
                             return one.starts_with(name);
                         });
    return out;
}

Option short_options(std::string_view word) {
    for (std::size_t at = 0; at < word.size(); ++at) {
        if (kAloneLetters.contains(word[at]))
            continue;
        if (kMaybeLetters.contains(word[at]))
            return {};
        const auto value = word.substr(at + 1);
        return {.is_input = word[at] == 'i', .takes_next = value.empty(), .value = value};
    }
    return {};
}

InputSource source_of(std::string_view value) {
    if (value == "none" || value == "/dev/null")
        return InputSource::nothing;
    const bool is_rank = !value.empty() && value.find_first_not_of("0123456789") == std::string_view::npos;
    return is_rank || value == "all" ? InputSource::standard : InputSource::named;
}

} // namespace

InputSource input_source(const Command &command) {
    auto out = InputSource::standard;
    const auto hear = [&](std::string_view value) {
        if (out != InputSource::named)
            out = source_of(value);
    };
    constexpr std::string_view kVariable = "SLURM_STDINMODE=";
    for (const std::string_view entry : command.environment)
        if (entry.starts_with(kVariable))
            hear(entry.substr(kVariable.size()));
    const auto &words = command.arguments;
    bool are_options = true;
    for (std::size_t at = 1; at < words.size(); ++at) {
        const std::string_view word = words[at];
        if (!are_options) {
            are_options = word == ":"; // between the parts of a heterogeneous job
            continue;
        }
        are_options = word.size() > 1 && word.front() == '-' && word != "--";
        if (!are_options)
            continue;
        auto option = word.starts_with("--") ? long_option(word.substr(2)) : short_options(word.substr(1));
        if (option.takes_next && ++at < words.size())
            option.value = words[at];
        if (option.is_input)
            hear(option.value);
    }
    return out;
}

} // namespace singularity::commands
