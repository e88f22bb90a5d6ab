// SPDX-License-Identifier: GPL-2.0-or-later
// A directory in memory, where the machine has such, that ends with the object.
#pragma once

#include "common/unique_fd.hpp"

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include <fcntl.h>

namespace singularity::test {

class MemoryDirectory {
  public:
    MemoryDirectory() {
        const std::filesystem::path memory = "/dev/shm";
        std::error_code error;
        const auto below =
            std::filesystem::is_directory(memory, error) ? memory : std::filesystem::temp_directory_path();
        std::string name = below / "singularity-fuzz-XXXXXX";
        if (mkdtemp(name.data()) == nullptr)
            std::abort();
        path_ = name;
        fd_ = UniqueFd(open(path_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    }
    MemoryDirectory(const MemoryDirectory &) = delete;
    MemoryDirectory &operator=(const MemoryDirectory &) = delete;
    MemoryDirectory(MemoryDirectory &&) = delete;
    MemoryDirectory &operator=(MemoryDirectory &&) = delete;
    ~MemoryDirectory() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }

    [[nodiscard]] int fd() const { return fd_.get(); }
    [[nodiscard]] const std::filesystem::path &path() const { return path_; }

  private:
    std::filesystem::path path_;
    UniqueFd fd_;
};

} // namespace singularity::test
