// SPDX-License-Identifier: GPL-2.0-or-later
// proxy/control from the command line, for tests:
//     singularity-images save|restore|resume|await CONTROL_SOCKET [FILE] [--detach] [--quiesce MS] [--within
//     MS]
// FILE: of an image; with await the /proc in which clients that have ended are looked for.
// On success one line of "name value" pairs and status 0; else the error on stderr and status 1.
#include "common/unique_fd.hpp"
#include "proxy/control/control.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

using namespace singularity;
using namespace singularity::proxy_control;

namespace {

int report(const Expected<Answer> &answer) {
    if (!answer) {
        std::fprintf(stderr, "%s\n", answer.error().message().c_str());
        return EXIT_FAILURE;
    }
    const auto number = [](std::uint64_t value) { return static_cast<unsigned long long>(value); };
    std::printf("clients %llu bytes %llu calls %llu memory_bytes %llu content_bytes %llu code_bytes %llu "
                "pause_us %llu "
                "total_us %llu\n",
                number(answer->clients), number(answer->bytes), number(answer->calls),
                number(answer->memory_bytes), number(answer->content_bytes), number(answer->code_bytes),
                number(answer->pause_us), number(answer->total_us));
    return EXIT_SUCCESS;
}

int usage() {
    std::fputs("usage: singularity-images save|restore|resume|await CONTROL_SOCKET [FILE] [--detach] "
               "[--quiesce MS] [--within MS]\n",
               stderr);
    return 2;
}

} // namespace

int main(int argc, char **argv) {
    std::vector<std::string> words;
    SaveOptions options;
    auto within = std::chrono::milliseconds(30'000);
    for (int at = 1; at < argc; ++at) {
        const std::string_view word = argv[at];
        if (word == "--detach")
            options.afterwards = Afterwards::detach;
        else if (word == "--quiesce" && at + 1 < argc)
            options.quiesce = std::chrono::milliseconds(std::atol(argv[++at]));
        else if (word == "--within" && at + 1 < argc)
            within = std::chrono::milliseconds(std::atol(argv[++at]));
        else
            words.emplace_back(word);
    }
    const auto deadline = Deadline::after(within);
    if (words.size() == 2 && words[0] == "resume")
        return report(resume(words[1], deadline));
    if ((words.size() == 2 || words.size() == 3) && words[0] == "await") {
        const UniqueFd processes(words.size() == 3 ? open(words[2].c_str(), O_RDONLY | O_DIRECTORY) : -1);
        return report(await_attached(words[1], processes.get(), deadline));
    }
    if (words.size() != 3 || (words[0] != "save" && words[0] != "restore"))
        return usage();
    const bool saves = words[0] == "save";
    const UniqueFd file(words[2] == "-"
                            ? dup(saves ? STDOUT_FILENO : STDIN_FILENO)
                            : open(words[2].c_str(), saves ? O_RDWR | O_CREAT | O_TRUNC : O_RDONLY, 0600));
    if (!file) {
        std::fprintf(stderr, "%s\n", errno_error("open", words[2]).message().c_str());
        return EXIT_FAILURE;
    }
    return report(saves ? save(words[1], file.get(), options, deadline)
                        : restore(words[1], file.get(), {}, deadline));
}
