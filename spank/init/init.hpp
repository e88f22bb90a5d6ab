// SPDX-License-Identifier: GPL-2.0-or-later
// The life of a virtual node's first process.
#pragma once

#include "node/init_messages.hpp"
#include "node/seqpacket.hpp"
#include "processors.hpp"
#include "spawn.hpp"

#include <map>

namespace singularity::init {

class Init {
  public:
    Init(int listener, bool in_image) : listener_(listener), in_image_(in_image) {}

    // Never returns but when the kernel denies what init cannot do without; errno says why.
    void serve();

  private:
    struct Task {
        pid_t pid = -1;
        node::Phase phase = node::Phase::starting;
        node::Stdio stdio = node::Stdio::given;
        int status = 0;
        std::uint32_t token = 0; // of the request to start it, until it is answered
        Fd progress;             // while it is starting
        Fd outer;                // what init holds of its streams
        Binding binding;
    };
    using Tasks = std::map<std::uint32_t, Task>;

    void accept_agent();
    void read_requests();
    void reap();
    // Whether it runs now, or was forgotten because it could not.
    void look_at_progress(Tasks::iterator at);

    void start(node::Packet &packet, std::uint32_t token);
    void signal(const node::InitSignal &request, std::uint32_t token);
    void attach(const node::InitAttach &request, std::uint32_t token);
    void bind(const node::InitBind &request, std::uint32_t token);
    void acknowledge(const node::InitAcknowledge &request, std::uint32_t token);

    template <class Body>
    void send(const Body &body, std::uint32_t token = 0, std::span<const int> descriptors = {});
    void send_started(const Task &task, std::uint32_t token);
    void refuse(const Failure &failure, std::uint32_t token);

    Fd listener_;
    bool in_image_; // the node's root is one
    Fd agent_;
    Tasks tasks_;
};

} // namespace singularity::init
