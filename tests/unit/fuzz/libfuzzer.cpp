// SPDX-License-Identifier: GPL-2.0-or-later
// libFuzzer's side: it keeps what reaches something new, the changes are ours, so that most inputs get past
// the first check. At its end the program says on stderr what was reached.
#include "subject.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>

extern "C" int LLVMFuzzerInitialize(int *argc, char ***argv);
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);
extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t *data, std::size_t size, std::size_t max_size);
extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size, std::size_t max_size,
                                               unsigned int seed);

extern "C" int LLVMFuzzerInitialize(int * /*argc*/, char *** /*argv*/) {
    // What is counted is made first, and so ends after it has been printed.
    static_cast<void>(singularity::test::reached_text());
    return std::atexit([] { std::fprintf(stderr, "%s\n", singularity::test::reached_text().c_str()); });
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    singularity::test::run_input({data, size});
    return 0;
}

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t *data, std::size_t size, std::size_t max_size,
                                               unsigned int seed) {
    auto parts = singularity::test::parts_of({data, size});
    // One in four is libFuzzer's own, of one message: it knows what the code compares with.
    if (seed % 4 == 0 && !parts.empty()) {
        auto &message = parts[seed / 4 % parts.size()].message;
        const auto before = message.size();
        constexpr std::size_t kGrowth = 64;
        message.resize(before + kGrowth);
        message.resize(LLVMFuzzerMutate(message.data(), before, message.size()));
    } else {
        singularity::test::change(parts, seed, 1 + seed / 4 % 3);
    }
    const auto bytes = singularity::test::bytes_of(parts);
    if (bytes.size() > max_size)
        return LLVMFuzzerMutate(data, size, max_size);
    std::ranges::copy(bytes, data);
    return bytes.size();
}
