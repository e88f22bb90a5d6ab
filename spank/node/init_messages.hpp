// SPDX-License-Identifier: GPL-2.0-or-later
// What the agent and singularity-init say to each other. Requests go to init, each gets exactly one reply
// with its token: the type named beside it, or Failed. Ended and Hello come unasked.
#pragma once

#include "packet.hpp"

namespace singularity::node {

enum class InitMessage : std::uint16_t { // NOLINT(performance-enum-size): as on the wire
    start = 1,                           // -> started; with three descriptors where stdio is `given`
    signal,                              // -> done
    attach,                              // -> lent: with the descriptor that init holds
    acknowledge,                         // -> done: init may forget the task's exit status
    started,                             // with a descriptor where stdio is `terminal` or `kept`
    done,
    lent,
    failed,
    ended, // a task
    hello, // the first message of a connection: all tasks
    bind,  // -> done
};

// The argument of an init whose root is an image.
inline constexpr const char *kInitInImage = "--in-image";

// A node remembers so many tasks, ended ones included.
inline constexpr std::size_t kTaskLimit = 1024;

// Where a task's standard streams lead.
enum class Stdio : std::uint8_t {
    given,    // to three descriptors that come with the message
    terminal, // to a terminal of the node's own, of which init holds the other end
    kept,     // output and errors into one pipe, of which init holds the other end; input is empty
};
[[nodiscard]] constexpr bool known(Stdio stdio) { return stdio <= Stdio::kept; }

enum class Phase : std::uint8_t { starting, running, ended };

// What a task could not do; kSteps in task_error.cpp has the words.
enum class Step : std::uint8_t {
    remember,
    streams,
    fork,
    session,
    terminal,
    limits,
    processors,
    directory,
    execute,
    find,
    signal
};

struct Limit {
    std::uint32_t resource = 0; // RLIMIT_*
    std::uint64_t soft = 0;
    std::uint64_t hard = 0;
    static void fields(auto &self, auto &visit) { visit(self.resource, self.soft, self.hard); }
};

struct WindowSize {
    std::uint16_t rows = 0;
    std::uint16_t columns = 0;
    static void fields(auto &self, auto &visit) { visit(self.rows, self.columns); }
};

struct Program {
    std::vector<std::string> arguments; // [0]: the program, looked up in PATH of its own environment
    std::vector<std::string> environment;
    std::string directory;
    std::vector<Limit> limits;
    std::uint32_t mask = 022; // umask
    Stdio stdio = Stdio::given;
    WindowSize window; // of a terminal
    std::vector<char>
        cpus; // on which it runs, as sched_setaffinity(2) has them; empty: wherever the node may
    static void fields(auto &self, auto &visit) {
        visit(self.arguments, self.environment, self.directory, self.limits, self.mask, self.stdio,
              self.window, self.cpus);
    }
};

struct InitStart {
    static constexpr auto kType = InitMessage::start;
    std::uint32_t task = 0; // never 0; the agent's to choose
    Program program;
    static void fields(auto &self, auto &visit) { visit(self.task, self.program); }
};

struct InitSignal {
    static constexpr auto kType = InitMessage::signal;
    std::uint32_t task = 0; // its process group; 0: every process of the node
    std::int32_t number = 0;
    bool alone = false; // of the group only the process that was started
    static void fields(auto &self, auto &visit) { visit(self.task, self.number, self.alone); }
};

struct InitAttach {
    static constexpr auto kType = InitMessage::attach;
    std::uint32_t task = 0;
    static void fields(auto &self, auto &visit) { visit(self.task); }
};

struct InitAcknowledge {
    static constexpr auto kType = InitMessage::acknowledge;
    std::uint32_t task = 0;
    static void fields(auto &self, auto &visit) { visit(self.task); }
};

// On which processors a task's processes run from now on: a restored one is where its checkpoint was not
// made.
struct InitBind {
    static constexpr auto kType = InitMessage::bind;
    std::uint32_t task = 0;
    std::vector<char> cpus; // as of Program
    static void fields(auto &self, auto &visit) { visit(self.task, self.cpus); }
};

struct InitStarted {
    static constexpr auto kType = InitMessage::started;
    std::int32_t pid = 0; // in the node
    static void fields(auto &self, auto &visit) { visit(self.pid); }
};

struct InitDone {
    static constexpr auto kType = InitMessage::done;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};

struct InitLent {
    static constexpr auto kType = InitMessage::lent;
    static void fields(auto & /*self*/, auto & /*visit*/) {}
};

struct InitFailed {
    static constexpr auto kType = InitMessage::failed;
    Step step = Step::remember;
    std::int32_t code = 0; // errno
    static void fields(auto &self, auto &visit) { visit(self.step, self.code); }
};

struct InitEnded {
    static constexpr auto kType = InitMessage::ended;
    std::uint32_t task = 0;
    std::int32_t status = 0; // as waitpid(2) gives it
    static void fields(auto &self, auto &visit) { visit(self.task, self.status); }
};

struct InitTask {
    std::uint32_t task = 0;
    std::int32_t pid = 0;
    Phase phase = Phase::starting;
    Stdio stdio = Stdio::given;
    std::int32_t status = 0;
    static void fields(auto &self, auto &visit) {
        visit(self.task, self.pid, self.phase, self.stdio, self.status);
    }
};

struct InitHello {
    static constexpr auto kType = InitMessage::hello;
    std::vector<InitTask> tasks;
    static void fields(auto &self, auto &visit) { visit(self.tasks); }
};

} // namespace singularity::node
