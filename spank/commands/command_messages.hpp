// SPDX-License-Identifier: GPL-2.0-or-later
// What a stand-in for one of Slurm's commands and the runner outside of the node say to each other. One
// connection for each command: `Run`, then signals and `Kept`; the runner answers with `Again` or `Refused`,
// or with `Begun`, perhaps `StepBegun`, and, when the command has ended, `Ended`. In place of `Ended` there
// may be `GoesOn`: the node is about to be saved, and the same stand-in asks once more wherever the node is
// then. The stand-in hangs up after the last answer; if it hangs up before, the command is killed. Nothing
// but the C and C++ libraries: the stand-in is made of this.
#pragma once

#include "node/init_messages.hpp"
#include "node/packet.hpp"

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::commands {

// Where runners' sockets are in the node (../node/door.hpp).
inline constexpr const char *kDoors = "/run/singularity";

// The command that goes on where its step was saved: it is run once more.
inline constexpr std::string_view kGoesOn = "srun";

// With `Run`: standard input, output and errors, and the working directory.
inline constexpr std::size_t kRunDescriptors = 4;

enum class CommandMessage : std::uint16_t { // NOLINT(performance-enum-size): as on the wire
    run = 1,                                // with kRunDescriptors descriptors
    signal,
    begun,
    ended,
    again,
    refused,
    goes_on,
    kept,
    step_begun,
};

// Of the step that goes on, the ranks' input.
enum class Input : std::uint8_t {
    nothing, // there is nothing to be read
    file,    // the stand-in's own, at the place where the stream begins
    pipe,    // through which the stand-in sends it
};

// In place of what a rank has read: it has none of this input (srun(1), --input=RANK).
inline constexpr std::uint64_t kReadsNone = UINT64_MAX;

struct Run {
    static constexpr auto kType = CommandMessage::run;
    std::string path; // of the stand-in's executable, which is mounted over the command: the command's
    // The directory may be empty: it is looked at only to find the name outside of the node of what came as
    // a descriptor. Streams come as descriptors as well.
    node::Program program;
    std::vector<std::int32_t> ignored; // signals
    std::uint32_t number = 0;          // of the stand-in, by chance; it keeps it
    std::string checkpoint;            // as of GoesOn; empty: the command is to begin
    Input input = Input::nothing;      // of one with a number
    std::vector<std::uint64_t> had;    // of each rank: so many bytes of its input it has had already
    static void fields(auto &self, auto &visit) {
        visit(self.path, self.program, self.ignored, self.number, self.checkpoint, self.input, self.had);
    }
};

// Of its input, the stand-in has only what begins here (in bytes since `Run`). Said before what lies behind
// it is sent to the command.
struct Kept {
    static constexpr auto kType = CommandMessage::kept;
    std::uint64_t from = 0;
    static void fields(auto &self, auto &visit) { visit(self.from); }
};

// For the command, after `Run`.
struct Signal {
    static constexpr auto kType = CommandMessage::signal;
    std::int32_t number = 0;
    static void fields(auto &self, auto &visit) { visit(self.number); }
};

// From now on there is a process that signals can reach.
struct Begun {
    static constexpr auto kType = CommandMessage::begun;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};

// For a command whose input comes from the stand-in: it is wanted from now on. One that begins no step leaves
// it to others.
struct StepBegun {
    static constexpr auto kType = CommandMessage::step_begun;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};

struct Ended {
    static constexpr auto kType = CommandMessage::ended;
    std::int32_t status = 0; // as waitpid(2) gives it
    static void fields(auto &self, auto &visit) { visit(self.status); }
};

// Nothing was run. The stand-in hangs up and connects again later.
struct Again {
    static constexpr auto kType = CommandMessage::again;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};

// The command has ended because its step was saved, or before it had one. The stand-in hangs up and connects
// again later, with this.
struct GoesOn {
    static constexpr auto kType = CommandMessage::goes_on;
    std::string checkpoint;            // of the step; empty: as it came
    std::vector<std::int32_t> signals; // that no step has had: they are sent again
    std::vector<std::uint64_t> read;   // by each rank of its input (in bytes since `Run`); empty: none of it
    static void fields(auto &self, auto &visit) { visit(self.checkpoint, self.signals, self.read); }
};

// Nothing was run, or what ran was killed.
struct Refused {
    static constexpr auto kType = CommandMessage::refused;
    std::string doing; // the parts of an Error
    std::string on;
    std::string why;
    std::int32_t code = 0;
    std::int32_t exit_status = 1; // the stand-in's
    static void fields(auto &self, auto &visit) {
        visit(self.doing, self.on, self.why, self.code, self.exit_status);
    }
};

} // namespace singularity::commands
