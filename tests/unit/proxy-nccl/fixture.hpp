// SPDX-License-Identifier: GPL-2.0-or-later
// What the tests of libnccl.so.2 have in common.
#pragma once

#include "cmocka.hpp"
#include "fake_driver.hpp"
#include "group.hpp"
#include "lifecycle.hpp"

#include <bit>
#include <span>
#include <vector>

namespace singularity::test {

using namespace nccl;

class OpenGate : public Gate {
  public:
    void join(const barrier::Member & /*member*/) override {}
    void leave(const barrier::Member & /*member*/) override {}
    void enter(std::span<const barrier::Line> /*group*/) override {}
    void exit() override {}
};

// The library on a fake driver.
struct World {
    FakeDriver driver;
    OpenGate gate;
    Library library{driver, gate};

    // One communicator for each of the first devices, as ncclCommInitAll makes them.
    std::vector<CommunicatorHandle> all(int devices) {
        std::vector<CommunicatorHandle> out(static_cast<std::size_t>(devices));
        expect(init_all(library, out.data(), devices, nullptr), Result::success);
        return out;
    }
    CommunicatorHandle one() { return all(1).front(); }

    static void expect(Result found, Result expected, const char *file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
        if (found != expected)
            fail(fmt::format("{}, expected {}; last error: {}", static_cast<int>(found),
                             static_cast<int>(expected), last_error()),
                 file, line);
    }
    static void expect(Result found, Result expected, std::string_view words,
                       const char *file = __builtin_FILE(), int line = __builtin_LINE()) {
        expect(found, expected, file, line);
        expect_contains(last_error(), words, file, line);
    }
};

inline void *memory_of(int device, std::uint64_t offset = 0) {
    return std::bit_cast<void *>(FakeDriver::kMemory +
                                 static_cast<std::uint64_t>(device) * FakeDriver::kBytes + offset);
}
inline Stream stream_of(std::uintptr_t number) { return std::bit_cast<Stream>(number); }

} // namespace singularity::test
