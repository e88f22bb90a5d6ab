// SPDX-License-Identifier: GPL-2.0-or-later
// A sign of life in the directory "pending". While it is there, garbage collection removes nothing that was
// in the store when it was made, or came later.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "state.hpp"

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

namespace singularity::store {

// Invariant: the file exists unless someone has broken the lease or the owner has published it, and its time
// of modification, which the file server's clock sets, is renewed often enough.
class Lease {
  public:
    [[nodiscard]] static Expected<std::unique_ptr<Lease>>
    take(std::shared_ptr<UserSpace> space, std::string name, std::chrono::milliseconds timeout);
    Lease(const Lease &) = delete;
    Lease &operator=(const Lease &) = delete;
    Lease(Lease &&) = delete;
    Lease &operator=(Lease &&) = delete;
    ~Lease();

    [[nodiscard]] const std::string &name() const { return name_; }
    // To be filled with what is published; its size is 0.
    [[nodiscard]] const UniqueFd &file() const { return file_; }
    [[nodiscard]] std::string path() const { return space_->pending.path_of(name_); }

    // Ends the lease by making its file the manifest of the checkpoint, in one step. An error if the lease
    // has been broken: then nothing it protected may be named any more.
    [[nodiscard]] Expected<void> publish();

  private:
    Lease(std::shared_ptr<UserSpace> space, std::string name, UniqueFd file,
          std::chrono::milliseconds timeout);

    void renew();

    std::shared_ptr<UserSpace> space_;
    std::string name_;
    UniqueFd file_;
    std::chrono::milliseconds timeout_;
    std::mutex mutex_;
    std::condition_variable changed_;
    bool ending_ = false;
    bool published_ = false;
    std::thread renewing_;
};

} // namespace singularity::store
