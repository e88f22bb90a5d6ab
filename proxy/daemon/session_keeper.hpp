// SPDX-License-Identifier: GPL-2.0-or-later
// The daemon's sessions, for the threads of the control socket.
#pragma once

#include "common/error.hpp"
#include "restore.hpp"
#include "session.hpp"

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

namespace singularity::proxyd {

// Any thread may call it.
class SessionKeeper {
  public:
    SessionKeeper() = default;
    SessionKeeper(const SessionKeeper &) = delete;
    SessionKeeper &operator=(const SessionKeeper &) = delete;
    SessionKeeper(SessionKeeper &&) = delete;
    SessionKeeper &operator=(SessionKeeper &&) = delete;
    virtual ~SessionKeeper() = default;

    // All that live; no new ones begin until each hold() has its release().
    [[nodiscard]] virtual std::vector<std::shared_ptr<Session>> hold() = 0;
    virtual void release() = 0;
    // All that live, as they come and go.
    [[nodiscard]] virtual std::vector<std::shared_ptr<Session>> all() = 0;
    // Clients that have detached belong to another device proxy now, or may come back. While they are away no
    // new ones begin and none attaches.
    virtual void set_moved(bool moved) = 0;
    [[nodiscard]] virtual Expected<std::shared_ptr<Session>> make(const ClientPlace &client,
                                                                  const channel::Geometry &geometry) = 0;
    // From now on its client may attach.
    virtual void expect(const Restored &restored) = 0;
    // Of a session that was made and is not wanted.
    virtual void drop(const std::shared_ptr<Session> &session) = 0;
    // Clients that are expected and have not come. processes: a /proc, -1 for none; who has ended there is
    // expected no longer.
    [[nodiscard]] virtual std::size_t expected(int processes) = 0;
};

} // namespace singularity::proxyd
