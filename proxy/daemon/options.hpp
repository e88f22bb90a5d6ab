// SPDX-License-Identifier: GPL-2.0-or-later
// The command line of singularity-proxyd.
#pragma once

#include "common/error.hpp"
#include "common/log.hpp"
#include "contents.hpp"
#include "proxy/channel/layout.hpp"
#include "proxy/channel/packet.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>

#include <sys/types.h>

namespace singularity::proxyd {

// Where ranks of this device reduce what they stage for each other.
enum class Reductions : std::uint8_t {
    automatic, // on the device, unless that is the software GPU
    host,
    device,
};

struct Options {
    std::filesystem::path driver = "libcuda.so.1"; // a name without a slash is looked for as dlopen(3) does
    int device = 0;
    std::filesystem::path socket;
    std::optional<int> socket_fd;  // listens there already, and its maker removes it
    std::filesystem::path control; // empty: none
    std::optional<int> control_fd; // a listening socket in its place
    unsigned node_devices = 7;     // virtual devices of the node whose programs are served
    // window_size 0 until it is known: as large as the devices need, see window_size_for().
    channel::WindowArea area{.begin = 0x2000'0000'0000, .end = 0x5400'0000'0000, .window_size = 0};
    unsigned max_clients = 128;
    channel::Geometry geometry;
    uid_t user = 0; // served besides root
    std::optional<int> ready_fd;
    bool with_first_client = false; // the device is opened when somebody connects
    // Communicators with ranks elsewhere; see collectives/engine.hpp.
    std::string rendezvous;
    std::string host_name;
    std::string address;
    std::optional<int> job_key_fd;
    Reductions reductions = Reductions::automatic;
    std::filesystem::path nccl;             // links this device to others'; empty: nothing does
    std::optional<int> rendezvous_fd;       // this proxy serves it
    std::optional<int> neighbours_fd;       // the file of neighbours.hpp
    std::chrono::milliseconds turn{10'000}; // of a rank that never waits, where ranks take turns
    Contents::Look share_content = Contents::Look::when_it_pays; // of ranks that take turns
    std::chrono::seconds idle_exit{0};                           // 0: never
    bool die_with_parent = false;
    log::Level log_level = log::Level::kInfo;
    std::filesystem::path log_file; // empty: stderr
};

// What is to be done instead of serving: --help and --version, or an error that was printed.
struct EarlyExit {
    int status;
};

[[nodiscard]] std::expected<Options, EarlyExit> parse_options(int argc, char **argv);
// Bytes of a window with a slice for each of so many devices, each of which may have 200 GiB, and for shared
// host memory; smaller where there would not be two windows in the area for each device.
[[nodiscard]] std::uint64_t window_size_for(const channel::WindowArea &area, std::uint64_t devices);
// "A-B" in hexadecimal or decimal.
[[nodiscard]] Expected<channel::WindowArea> parse_area(const std::string &text, std::uint64_t window_size);

} // namespace singularity::proxyd
