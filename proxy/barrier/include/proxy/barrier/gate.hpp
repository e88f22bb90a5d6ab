// SPDX-License-Identifier: GPL-2.0-or-later
// The gate that every group of collectives passes before it is issued.
//
// Threads of the program enter; one thread of the client at a time serves the coordinator's requests. A gate
// that is closed stays so until the coordinator's next word or open(): who carries the requests calls that
// when the coordinator is gone.
#pragma once

#include "common/deadline.hpp"
#include "common/error.hpp"
#include "proxy/barrier/gate_state.hpp"
#include "proxy/barrier/lines.hpp"

#include <condition_variable>
#include <cstddef>
#include <mutex>
#include <span>
#include <string>

namespace singularity::barrier {

class Gate {
  public:
    explicit Gate(const Key &process) : process_(process) {}

    void join(const Member &member);
    void leave(const Member &member);

    // Waits as long as the gate is closed; counts the group, one line for each of its operations. exit(): it
    // has been issued; answers wait for that.
    void enter(std::span<const Line> group);
    void exit();

    // Carries a request out. A round is answered when it is settled, or at the deadline as it is then. A
    // release is answered at once.
    [[nodiscard]] Report serve(const Request &request, const Deadline &deadline);
    void open();

  private:
    [[nodiscard]] bool held() const { return waiting_ > 0; }
    [[nodiscard]] std::string doing() const; // for people

    Key process_;
    std::mutex lock_;
    std::condition_variable changed_;
    GateState state_;
    std::size_t waiting_ = 0; // threads at the gate
    std::size_t passing_ = 0; // threads between enter() and exit()
};

} // namespace singularity::barrier
