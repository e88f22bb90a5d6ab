// SPDX-License-Identifier: GPL-2.0-or-later
// A virtual node as small as one can be, and the host image library behind a command line:
//
//     start ROOT SHARED COMMAND...         makes a node whose root is ours, bound at ROOT, and waits for its
//     end init COMMAND...                      is its init check PID | dump PID IMAGES | resume PID restore
//     IMAGES ROOT                  waits for the end of the node as well save IMAGES STORE | load STORE
//     CHECKPOINT IMAGES staging DIRECTORY make|clean
//
// Options stand before the operands and are written --NAME=VALUE. --pause=STAGE: says criu's stage when it is
// reached and waits for a line.
#include "common/unique_fd.hpp"
#include "criu-hooks/host/as_user.hpp"
#include "criu-hooks/host/node.hpp"
#include "criu-hooks/host/staging.hpp"
#include "criu-hooks/host/transfer.hpp"
#include "criu-hooks/store/store.hpp"
#include "node_maker.hpp"

#include <array>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <fcntl.h>
#include <fmt/core.h>
#include <getopt.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

namespace host = singularity::host;
namespace store = singularity::store;
using singularity::Deadline;
using singularity::Expected;

constexpr int kFailed = 3; // the library said no; its message is on standard error

struct Options {
    host::Context context;
    Options() {
        context.uid = context.gid = 1001;
        // Where it is built: above this program's directory.
        context.as_user = std::filesystem::read_symlink("/proc/self/exe").parent_path().parent_path() /
                          singularity::as_user::kLibrary;
    }
    pid_t pid = 0;
    std::string images;
    std::string root;
    std::string after = "end";
    std::vector<std::string> descriptors; // KEY=NUMBER
    int timeout_ms = 60000;
    bool goes_on = false;
    bool others_are_reset = false;
    std::string owner = "one";
    bool keep_aside = false;
    std::uint64_t largest_copy = std::uint64_t{16} << 20U;
    bool keep_input = false;
    std::string local_directory = "/nothing";
    std::uint32_t largest_deleted = std::uint32_t{1} << 31U;
    std::uint64_t largest_images = std::uint64_t{1} << 40U;
};

int report(const singularity::Error &error) {
    fmt::print(stderr, "{}\n", error.message());
    return kFailed;
}

Expected<void> pause_at(const std::string &wanted, std::string_view stage) {
    if (stage != wanted)
        return {};
    fmt::print("{}\n", stage);
    std::fflush(stdout);
    while (true)
        if (const int read = std::getchar(); read == '\n' || read == EOF)
            return {};
}

std::vector<host::OutsideDescriptor> descriptors_of(const Options &options) {
    std::vector<host::OutsideDescriptor> all;
    for (const std::string &each : options.descriptors) {
        const std::size_t equals = each.find('=');
        all.push_back({each.substr(0, equals), std::stoi(each.substr(equals + 1))});
    }
    return all;
}

Expected<singularity::UniqueFd> image_directory(const Options &options) {
    return singularity::open_file(options.images, O_RDONLY | O_DIRECTORY);
}

int exit_code_of(pid_t pid) {
    int status = 0;
    if (waitpid(pid, &status, 0) != pid)
        return kFailed;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

void say(pid_t pid) {
    fmt::print("{}\n", pid);
    std::fflush(stdout);
}

int dump(Options &options, const std::vector<std::string> &operands) {
    options.pid = std::stoi(operands[0]);
    options.images = operands[1];
    auto images = image_directory(options);
    if (!images)
        return report(images.error());
    const std::map<std::string, host::Afterwards> after{
        {"run", host::Afterwards::kRun}, {"stop", host::Afterwards::kStop}, {"end", host::Afterwards::kEnd}};
    const host::DumpRequest request{.init = options.pid,
                                    .images = images->get(),
                                    .descriptors = descriptors_of(options),
                                    .mounts = {},
                                    .afterwards = after.at(options.after),
                                    .local_directories = {},
                                    .neighbours = {},
                                    .others_are_reset = options.others_are_reset,
                                    .goes_on = options.goes_on,
                                    .owner = options.owner,
                                    .largest_copy = options.largest_copy};
    auto done =
        host::dump(options.context, request, Deadline::after(std::chrono::milliseconds(options.timeout_ms)));
    if (!done)
        return report(done.error());
    fmt::print("{{\"bytes\": {}, \"files\": {}, \"processes\": {}, \"frozen_us\": {}}}\n", done->bytes,
               done->files, done->processes, done->frozen.count());
    return 0;
}

int restore(Options &options, const std::vector<std::string> &operands) {
    options.images = operands[0];
    options.root = operands[1];
    auto images = image_directory(options);
    if (!images)
        return report(images.error());
    auto network = checkpoint::make_network();
    if (!network)
        return report(network.error());
    const host::RestoreRequest request{
        .images = images->get(),
        .network = network->get(),
        .root = options.root,
        .descriptors = descriptors_of(options),
        .mounts = {},
        .owner = options.owner,
        .keep_aside = options.keep_aside,
        .notice = [](const std::string &text) { fmt::print(stderr, "{}\n", text); }};
    auto init = host::restore(options.context, request,
                              Deadline::after(std::chrono::milliseconds(options.timeout_ms)));
    if (!init)
        return report(init.error());
    say(*init);
    return exit_code_of(*init);
}

int start(Options &options, const std::vector<std::string> &operands) {
    auto init = checkpoint::start_node({.root = operands[0],
                                        .shared = operands[1],
                                        .uid = options.context.uid,
                                        .gid = options.context.gid,
                                        .keep_input = options.keep_input,
                                        .command = {operands.begin() + 2, operands.end()}});
    if (!init)
        return report(init.error());
    say(*init);
    return exit_code_of(*init);
}

int check(Options &options, const std::vector<std::string> &operands) {
    const host::DumpRequest request{.init = std::stoi(operands[0]),
                                    .images = -1,
                                    .descriptors = descriptors_of(options),
                                    .mounts = {},
                                    .largest_deleted_file = options.largest_deleted,
                                    .local_directories = {options.local_directory},
                                    .neighbours = {},
                                    .owner = {}};
    if (auto good = host::check(options.context, request); !good)
        return report(good.error());
    return 0;
}

int save(Options &options, const std::vector<std::string> &operands) {
    options.images = operands[0];
    auto images = image_directory(options);
    auto store = store::Store::open(operands[1], {.create = true, .threads = 2});
    if (!images || !store)
        return report(!images ? images.error() : store.error());
    auto writer = store->begin({.job = "1",
                                .uid = options.context.uid,
                                .gid = options.context.gid,
                                .user = "alice",
                                .tier = "basic",
                                .parent = {},
                                .attributes = {}});
    if (!writer)
        return report(writer.error());
    if (auto saved = host::save(images->get(), *writer, "node"); !saved)
        return report(saved.error());
    auto manifest = writer->commit();
    if (!manifest)
        return report(manifest.error());
    fmt::print("{{\"id\": \"{}\", \"content\": {}, \"added\": {}}}\n", manifest->id, manifest->sizes.content,
               manifest->sizes.added);
    return 0;
}

int load(Options &options, const std::vector<std::string> &operands) {
    options.images = operands[2];
    auto images = image_directory(options);
    auto store = store::Store::open(operands[0]);
    if (!images || !store)
        return report(!images ? images.error() : store.error());
    auto checkpoint = store->read(options.context.uid, operands[1]);
    if (!checkpoint)
        return report(checkpoint.error());
    if (auto loaded = host::load(*checkpoint, "node", images->get(), options.largest_images); !loaded)
        return report(loaded.error());
    return 0;
}

// Makes a staging directory in the first operand, says where it is and waits to be killed; or removes those
// of the dead.
int staging(Options &, const std::vector<std::string> &operands) {
    if (operands[1] == "clean") {
        auto count = host::Staging::remove_abandoned(operands[0]);
        if (!count)
            return report(count.error());
        fmt::print("{}\n", *count);
        return 0;
    }
    auto one = host::Staging::make(operands[0]);
    if (!one)
        return report(one.error());
    fmt::print("{}\n", one->path().string());
    std::fflush(stdout);
    pause();
    return 0;
}

int resume(Options &options, const std::vector<std::string> &operands) {
    options.pid = std::stoi(operands[0]);
    if (auto resumed = host::resume(options.pid); !resumed)
        return report(resumed.error());
    return 0;
}

} // namespace

int main(int argc, char **argv) {
    if (argc > 2 && std::string_view(argv[1]) == "init")
        return checkpoint::run_as_init(argv + 2);
    using Operands = std::vector<std::string>;
    struct Command {
        std::size_t operands;
        int (*function)(Options &, const Operands &);
    };
    const std::map<std::string, Command> commands{
        {"start", {3, start}}, {"check", {1, check}},     {"dump", {2, dump}},     {"save", {2, save}},
        {"load", {3, load}},   {"staging", {2, staging}}, {"resume", {1, resume}}, {"restore", {2, restore}}};
    Options options;
    const std::map<std::string, std::function<void(const std::string &)>> settings{
        {"uid", [&](const std::string &text) { options.context.uid = static_cast<uid_t>(std::stoul(text)); }},
        {"gid", [&](const std::string &text) { options.context.gid = static_cast<gid_t>(std::stoul(text)); }},
        {"log", [&](const std::string &text) { options.context.log = text; }},
        {"criu", [&](const std::string &text) { options.context.criu = text; }},
        {"timeout-ms", [&](const std::string &text) { options.timeout_ms = std::stoi(text); }},
        {"after", [&](const std::string &text) { options.after = text; }},
        {"largest-deleted",
         [&](const std::string &text) {
             options.largest_deleted = static_cast<std::uint32_t>(std::stoul(text));
         }},
        {"largest-images", [&](const std::string &text) { options.largest_images = std::stoull(text); }},
        {"input", [&](const std::string &text) { options.keep_input = text == "keep"; }},
        {"local", [&](const std::string &text) { options.local_directory = text; }},
        {"fd", [&](const std::string &text) { options.descriptors.push_back(text); }},
        {"pause",
         [&](const std::string &text) {
             options.context.progress = [text](std::string_view stage) { return pause_at(text, stage); };
         }},
        {"goes-on", [&](const std::string &text) { options.goes_on = text == "yes"; }},
        {"others", [&](const std::string &text) { options.others_are_reset = text == "reset"; }},
        {"owner", [&](const std::string &text) { options.owner = text; }},
        {"keep-aside", [&](const std::string &text) { options.keep_aside = text == "yes"; }},
        {"largest-copy", [&](const std::string &text) { options.largest_copy = std::stoull(text); }},
    };
    const auto command = commands.find(argc > 1 ? argv[1] : "");
    Operands operands;
    for (int i = 2; i < argc; ++i) { // --NAME=VALUE before the operands
        const std::string_view word = argv[i];
        const std::size_t equals = word.find('=');
        const auto setting = !operands.empty() || !word.starts_with("--") || equals == std::string_view::npos
                                 ? settings.end()
                                 : settings.find(std::string(word.substr(2, equals - 2)));
        if (setting == settings.end())
            operands.emplace_back(word);
        else
            setting->second(std::string(word.substr(equals + 1)));
    }
    if (command == commands.end() || operands.size() < command->second.operands) {
        fmt::print(stderr, "usage: see the head of driver.cpp\n");
        return 2;
    }
    return command->second.function(options, operands);
}
