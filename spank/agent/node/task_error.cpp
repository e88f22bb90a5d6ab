// SPDX-License-Identifier: GPL-2.0-or-later
#include "task_error.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

struct Words {
    node::Step step;
    const char *doing;
};
constexpr std::array<Words, 11> kSteps{{
    {node::Step::remember, "remember one more task for"},
    {node::Step::streams, "make the streams of"},
    {node::Step::fork, "make a process for"},
    {node::Step::session, "make a session for"},
    {node::Step::terminal, "make a terminal for"},
    {node::Step::limits, "set the resource limits of"},
    {node::Step::processors, "choose the processors of"},
    {node::Step::directory, "work in the directory"},
    {node::Step::execute, "run"},
    {node::Step::find, "find"},
    {node::Step::signal, "send the signal to"},
}};

} // namespace

Error task_error(const node::InitFailed &failed, const std::string &on) {
    const auto *const words = std::ranges::find(kSteps, failed.step, &Words::step);
    return errno_error(words != kSteps.end() ? words->doing : "do what was asked with", on, failed.code);
}

Error task_error(const node::InitFailed &failed, const std::string &name, const std::string &image) {
    auto out = task_error(failed, quote(name));
    if (image.empty() || (failed.code != ENOENT && failed.code != ENOTCONN))
        return out;
    if (failed.code == ENOTCONN)
        out.why = "the process that serves it has ended (squashfuse_ll for a file)";
    else if (failed.step == node::Step::execute)
        out.why =
            "it has no such program, or not what that needs to run (its interpreter, its dynamic loader)";
    else if (failed.step == node::Step::directory)
        out.why = "it has no such directory: name another with --singularity-workdir, or mount this one with "
                  "--singularity-mount";
    else
        return out;
    out.on += " in the image " + quote(image);
    return out;
}

std::string task_name(const std::string &node, std::uint32_t task) {
    return fmt::format("task {} of {}", task, node);
}

Error unexpected_reply(const std::string &name) {
    return {"understand", fmt::format("the init of {}", name), "its reply has not the form it must have",
            EPROTO};
}

} // namespace singularity::agent
