// SPDX-License-Identifier: GPL-2.0-or-later
// The fuzzer without libFuzzer: replays files, or makes inputs of its own for a number of seconds:
// well-formed messages of all kinds, a few in a row, with some of their bytes changed. The same seed makes
// the same inputs.
//     proxy_fuzz_replay [--seed N] [--seconds N] [FILE...]
// An input that kills the program is left in the file fuzz-crash.
#include "driver_api/api_id.hpp"
#include "driver_api/handles.hpp"
#include "fuzz_records.hpp"
#include "proxy/protocol/all.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

namespace {

using Bytes = std::vector<std::uint8_t>;
using singularity::test::fuzz_handle;
namespace driver_api = singularity::driver_api;
namespace protocol = singularity::protocol;

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

// The messages that everything begins with: fixed parts of zeros, buffers that are short or absent.
std::vector<Bytes> seeds() {
    std::vector<Bytes> found;
    protocol::for_each_message([&found]<class M>() {
        protocol::Message<M> message{};
        static constexpr std::array<std::byte, 64> kData{};
        for (std::size_t index = 0; index < message.buffers.size(); ++index)
            if (M::kBuffers[index].nullable == protocol::Nullable::no)
                message.buffers[index] = {.bytes = std::span(kData).first(M::kBuffers[index].element),
                                          .present = true};
        Bytes bytes(512);
        const auto size = protocol::encoded_size(message);
        // What the message's own check would refuse is encoded by hand: the head with the sizes of its
        // buffers.
        const auto encoded = protocol::encode(message, std::as_writable_bytes(std::span(bytes)));
        if (!encoded) {
            const driver_api::MessageHeader header{
                .api = std::to_underlying(M::kId), .kind = 1, .size = size};
            std::memcpy(bytes.data(), &header, sizeof(header));
        }
        bytes.resize(size);
        found.push_back(std::move(bytes));
    });
    for (std::uint32_t id = 0; id < driver_api::kApiCount; ++id)
        for (std::uint64_t size = 16; size <= 96; size += 8) {
            Bytes bytes(size);
            const driver_api::MessageHeader header{.api = id, .kind = 1, .size = size};
            std::memcpy(bytes.data(), &header, sizeof(header));
            found.push_back(std::move(bytes));
        }
    return found;
}

class Maker {
  public:
    explicit Maker(std::uint64_t seed) : random_(seed), seeds_(seeds()) {}

    Bytes input() {
        Bytes out;
        for (auto records = 1 + below(12); records > 0; --records) {
            // Half of them are the hand-written ones, which are fewer.
            Bytes message = seeds_[below(2) == 0 ? below(protocol::kMessageCount) : below(seeds_.size())];
            for (auto changes = below(6); changes > 0; --changes)
                change(message);
            if (below(8) == 0)
                message.resize(below(message.size() + 64));
            const bool reply = below(2) == 0;
            const std::array<std::uint8_t, 6> head{
                static_cast<std::uint8_t>(message.size()),
                static_cast<std::uint8_t>(message.size() >> 8),
                static_cast<std::uint8_t>(reply ? below(5) : 0xff),
                static_cast<std::uint8_t>(reply && below(3) == 0 ? below(3) : 0xff),
                static_cast<std::uint8_t>(below(3)),
                static_cast<std::uint8_t>(below(64) == 0)};
            out.insert(out.end(), head.begin(), head.end());
            out.insert(out.end(), message.begin(), message.end());
        }
        return out;
    }

  private:
    std::uint64_t below(std::uint64_t end) { return end == 0 ? 0 : random_() % end; }

    // A number that means something, at a place where one could be; or any byte.
    void change(Bytes &message) {
        constexpr std::size_t kHeader = sizeof(driver_api::MessageHeader);
        if (message.size() < kHeader + sizeof(std::uint64_t) || below(10) == 0) {
            if (!message.empty())
                message[below(message.size())] = static_cast<std::uint8_t>(random_());
            return;
        }
        constexpr std::uint64_t kWindow = singularity::test::kFuzzWindow;
        const std::array<std::uint64_t, 12> numbers{
            0,
            1,
            2,
            ~std::uint64_t{0},
            std::uint64_t{1} << 63,
            below(300),
            protocol::kSlabUnit,
            kWindow,
            kWindow + protocol::kSlabUnit,
            fuzz_handle(static_cast<unsigned>(1 + below(driver_api::kHandleKinds)), 1 + below(3)),
            fuzz_handle(static_cast<unsigned>(1 + below(driver_api::kHandleKinds)), 2 + below(1000)),
            random_()};
        const auto value = numbers[below(numbers.size())];
        const bool narrow = below(3) == 0;
        const std::size_t unit = narrow ? sizeof(std::uint32_t) : sizeof(std::uint64_t);
        const auto at = kHeader + below((message.size() - kHeader) / unit) * unit;
        std::memcpy(message.data() + at, &value, unit);
    }

    std::mt19937_64 random_;
    std::vector<Bytes> seeds_;
};

void run(const Bytes &input) {
    current_input = &input;
    singularity::test::fuzz_records(input);
}

} // namespace

int main(int argc, char **argv) {
    std::uint64_t seed = 1;
    std::uint64_t seconds = 5;
    std::vector<std::string> files;
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
    Maker maker(seed);
    std::uint64_t inputs = 0;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(seconds);
    while (std::chrono::steady_clock::now() < end) {
        run(maker.input());
        ++inputs;
    }
    std::printf("%ju inputs in %ju seconds, seed %ju\n", std::uintmax_t{inputs}, std::uintmax_t{seconds},
                std::uintmax_t{seed});
    return EXIT_SUCCESS;
}
