// SPDX-License-Identifier: GPL-2.0-or-later
// The fuzzer without libFuzzer: replays files, or makes inputs of its own for a number of seconds. The same
// seed makes the same inputs.
//     proxy_fuzz_replay [--seed N] [--seconds N] [FILE...]      or proxy_fuzz_images_replay
//     proxy_fuzz_replay --corpus DIRECTORY      writes well-formed inputs, for libFuzzer to begin with
// An input that kills the program is left in the file fuzz-crash.
#include "subject.hpp"

#include <chrono>
#include <csignal>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

namespace {

using singularity::test::Bytes;

const Bytes *current_input = nullptr;

// Only what is allowed in a handler of signals.
void keep_input(int signal_number) {
    const int file = open("fuzz-crash", O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
    if (file >= 0 && current_input != nullptr &&
        write(file, current_input->data(), current_input->size()) >= 0)
        close(file);
    signal(signal_number, SIG_DFL);
    raise(signal_number);
}

void run(const Bytes &input) {
    current_input = &input;
    singularity::test::run_input(input);
}

int write_corpus(const std::filesystem::path &directory) {
    std::filesystem::create_directories(directory);
    std::size_t number = 0;
    for (const auto &parts : singularity::test::good_inputs()) {
        const auto bytes = singularity::test::bytes_of(parts);
        std::ofstream file(directory / ("seed-" + std::to_string(number++)), std::ios::binary);
        file.write(reinterpret_cast<const char *>(bytes.data()), static_cast<std::streamsize>(bytes.size()));
        if (!file.flush()) {
            std::fprintf(stderr, "cannot write to %s\n", directory.c_str());
            return EXIT_FAILURE;
        }
    }
    return EXIT_SUCCESS;
}

} // namespace

int main(int argc, char **argv) {
    std::uint64_t seed = 1;
    std::uint64_t seconds = 5;
    std::vector<std::string> files;
    if (argc == 3 && std::string_view(argv[1]) == "--corpus")
        return write_corpus(argv[2]);
    for (int index = 1; index < argc; ++index) {
        const std::string_view argument = argv[index];
        if ((argument == "--seed" || argument == "--seconds") && index + 1 < argc)
            (argument == "--seed" ? seed : seconds) = std::strtoul(argv[++index], nullptr, 10);
        else
            files.emplace_back(argument);
    }
    for (const int number : {SIGSEGV, SIGABRT, SIGBUS, SIGFPE})
        signal(number, &keep_input);
    for (const auto &file : files) {
        std::ifstream stream(file, std::ios::binary);
        if (!stream) {
            std::fprintf(stderr, "cannot read %s\n", file.c_str());
            return EXIT_FAILURE;
        }
        run(Bytes(std::istreambuf_iterator<char>(stream), {}));
    }
    if (!files.empty())
        return EXIT_SUCCESS;
    for (const auto &parts : singularity::test::good_inputs())
        run(singularity::test::bytes_of(parts));
    std::uint64_t inputs = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (std::chrono::steady_clock::now() < end) {
        run(singularity::test::bytes_of(singularity::test::made_input(seed + inputs)));
        ++inputs;
    }
    std::printf("%ju inputs in %ju seconds, seed %ju\n%s\n", std::uintmax_t{inputs}, std::uintmax_t{seconds},
                std::uintmax_t{seed}, singularity::test::reached_text().c_str());
    return EXIT_SUCCESS;
}
