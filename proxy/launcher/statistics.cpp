// SPDX-License-Identifier: GPL-2.0-or-later
// The file's lines, each written whole by a process at its end: "calls N", "bytes N", "unsupported NAME N".
#include "statistics.hpp"

#include <cstdint>
#include <fstream>
#include <map>
#include <sstream>

#include <fmt/format.h>

namespace singularity::launcher {

std::string summary(const std::filesystem::path &file, unsigned devices, const std::string &driver) {
    std::uint64_t processes = 0;
    std::uint64_t calls = 0;
    std::uint64_t bytes = 0;
    std::map<std::string, std::uint64_t> unsupported;
    std::ifstream in(file);
    for (std::string line; std::getline(in, line);) {
        std::istringstream words(line);
        std::string key;
        std::string name;
        std::uint64_t count = 0;
        words >> key;
        if (key == "calls" && words >> count) {
            ++processes;
            calls += count;
        } else if (key == "bytes" && words >> count) {
            bytes += count;
        } else if (key == "unsupported" && words >> name >> count) {
            unsupported[name] += count;
        }
    }
    std::string names;
    for (const auto &[name, count] : unsupported)
        names += fmt::format("{}{} ({})", names.empty() ? "" : ", ", name, count);
    return fmt::format("{} device{} of {}, {} CUDA process{}, {} calls, {} bytes, unsupported: {}", devices,
                       devices == 1 ? "" : "s", driver, processes, processes == 1 ? "" : "es", calls, bytes,
                       names.empty() ? "none" : names);
}

} // namespace singularity::launcher
