// SPDX-License-Identifier: GPL-2.0-or-later
// Host functions of the program: the driver calls here, here sends a message to the client and waits for its
// acknowledgement. A session that ends releases all that wait.
#pragma once

#include "common/error.hpp"
#include "proxy/channel/link.hpp"
#include "proxy/libcuda/cuda.hpp"

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_map>

namespace singularity::proxyd {

class Callbacks {
  public:
    // What the driver hands back to the functions below as its user data.
    struct Request {
        Callbacks *owner;
        channel::Callback what;
        bool once; // not in a graph: gone after its call
    };

    explicit Callbacks(channel::Link &link) : link_(link) {}

    // Kept until it was called (once) or the session's end.
    [[nodiscard]] Request *add(const channel::Callback &what, bool once);
    void drop(Request *request);

    static void CUDA_CB host_function(void *request);
    static void CUDA_CB stream_callback(CUstream stream, CUresult status, void *request);

    // The client's acknowledgement; an error if nobody waits for it.
    [[nodiscard]] Expected<void> done(std::uint64_t ticket);
    // All that wait go on, and none waits any more.
    void release_all();

  private:
    void call(const channel::Callback &what);

    channel::Link &link_;
    std::mutex lock_;
    std::condition_variable acknowledged_;
    std::uint64_t next_ticket_ = 1;
    std::set<std::uint64_t> waiting_;
    bool released_ = false;
    std::unordered_map<Request *, std::unique_ptr<Request>> requests_;
};

} // namespace singularity::proxyd
