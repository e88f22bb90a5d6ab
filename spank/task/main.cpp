// SPDX-License-Identifier: GPL-2.0-or-later
// singularity-task PROGRAM [ARGUMENT...]: Slurm starts it in place of each task of an elastic step, and of
// the batch script, as the SPANK plugin has told it to.
#include "agent/protocol/agent_messages.hpp"
#include "command_environment.hpp"
#include "command_side.hpp"
#include "common/guarded_main.hpp"
#include "gpu_view.hpp"
#include "node/account.hpp"
#include "saved_script.hpp"
#include "script.hpp"
#include "script_environment.hpp"
#include "step_request.hpp"
#include "wrapper.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>
#include <string_view>
#include <vector>

#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace task = singularity::task;

constexpr int kSignalBase = 128;
// A program that cannot be executed: slurmstepd ends with the errno.
constexpr std::array kOfExec{ENOENT, EACCES, ENOEXEC, ENOTDIR, EISDIR, ELOOP, E2BIG};

int give_up(const singularity::Error &error) {
    std::cerr << "singularity-task: " << error.message() << '\n';
    return EXIT_FAILURE;
}

// Slurm sees of us what it would have seen of the program.
int end_as(int status) {
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    const int number = WTERMSIG(status);
    const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_CORE, &no_core);
    static_cast<void>(std::signal(number, SIG_DFL));
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    sigprocmask(SIG_UNBLOCK, &only, nullptr);
    std::cout.flush();
    kill(getpid(), number);
    return kSignalBase + number; // one that does not end a process
}

int run(int argc, char **argv) {
    std::vector<std::string> command(argv + 1, argv + argc);
    if (const char *const program = std::getenv(task::kProgramVariable); program != nullptr) {
        command.insert(command.begin(), program);
        unsetenv(task::kProgramVariable);
    }
    if (command.empty())
        return give_up(
            {"run", "a task", "usage: singularity-task PROGRAM [ARGUMENT...]; srun starts it", EINVAL});
    if (const char *const how = std::getenv(task::kScriptVariable); how != nullptr) {
        const bool until_srun = std::string_view(how) == task::kUntilSrun;
        const bool saved = until_srun || std::string_view(how) == task::kSavedScript;
        unsetenv(task::kScriptVariable);
        const auto fitted = task::fit_environment();
        if (!fitted)
            std::cerr << "singularity-task: the batch script's environment stays as at submission, whatever "
                         "GPUs the job has now: "
                      << fitted.error().message() << '\n';
        const auto status = saved ? task::run_saved_script(singularity::agent::kDefaultSocket,
                                                           fitted.value_or(0), command, until_srun)
                                  : task::run_script(singularity::agent::kDefaultSocket, command);
        return status ? end_as(*status) : give_up(status.error());
    }
    std::vector<std::string> environment;
    for (char **entry = environ; *entry != nullptr; ++entry)
        environment.emplace_back(*entry);
    auto request = task::step_request(environment);
    if (!request)
        return give_up(request.error());
    unsetenv(task::kHostsVariable);
    unsetenv(task::kPlacesVariable);
    unsetenv(task::kJobHostsVariable);
    unsetenv(task::kEveryVariable);
    unsetenv(task::kStoreVariable);
    unsetenv(task::kPublishVariable);
    for (const char *name :
         {task::kImageVariable, task::kMountsVariable, task::kWorkdirVariable, task::kRootVariable})
        unsetenv(name);
    unsetenv(task::kOfScriptVariable);
    unsetenv(task::kGoesOnVariable);
    if (!request->visible_devices.empty()) {
        setenv("CUDA_VISIBLE_DEVICES", request->visible_devices.c_str(), 1);
        // The step has said itself what each of its tasks is to have of the job's GPUs.
        unsetenv(singularity::spank::kGpuViewVariable);
    }
    if (request->join.image.any())
        singularity::node::add_account(request->join.image);
    const bool again = request->join.restarts > 0;
    task::CommandSide commands([again, own = std::move(environment)](std::vector<std::string> &of_command) {
        task::adapt_environment(of_command, own, again, 0);
    });
    const auto status = task::run_rank(singularity::agent::kDefaultSocket, std::move(request->join), command,
                                       commands, request->had);
    commands.end();
    if (status)
        return end_as(*status);
    const int code = status.error().code;
    static_cast<void>(give_up(status.error()));
    return std::ranges::find(kOfExec, code) != kOfExec.end() ? code : EXIT_FAILURE;
}

} // namespace

int main(int argc, char **argv) { return singularity::guarded_main(run, argc, argv); }
