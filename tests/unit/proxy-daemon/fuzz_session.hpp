// SPDX-License-Identifier: GPL-2.0-or-later
// A session without a client and without a device, for fuzzers: the driver behind it does nothing and always
// succeeds.
#pragma once

#include "back_end.hpp"
#include "common/unique_fd.hpp"
#include "fuzz_inputs.hpp"
#include "proxy/channel/segment.hpp"
#include "session.hpp"

#include <cstdint>
#include <memory>
#include <optional>

namespace singularity::test {

[[nodiscard]] driver_api::Backend fuzz_driver();
[[nodiscard]] std::shared_ptr<collectives::Engine> fuzz_engine();
[[nodiscard]] channel::Geometry fuzz_geometry();
// One of each kind, under a handle that an input can have: fuzz_handle(kind, 1).
void add_objects(proxyd::Session &session);

class FuzzSession {
  public:
    [[nodiscard]] static std::unique_ptr<FuzzSession> begin(const proxyd::BackEnd &back_end);

    // What has come of a part.
    struct Taken {
        bool over = false; // the session is
        std::optional<std::uint32_t> record;
        std::optional<channel::PacketType> packet;
    };
    [[nodiscard]] Taken take(const Part &part);
    [[nodiscard]] proxyd::Session &session() { return *session_; }

  private:
    FuzzSession(UniqueFd other, channel::Segment segment, std::unique_ptr<proxyd::Session> session)
        : other_(std::move(other)), segment_(std::move(segment)), session_(std::move(session)) {}
    [[nodiscard]] Taken hear();
    void write(const Part &part);
    [[nodiscard]] Taken serve();

    UniqueFd other_;
    channel::Segment segment_;
    std::unique_ptr<proxyd::Session> session_;
    std::uint64_t head_ = 0;
};

} // namespace singularity::test
