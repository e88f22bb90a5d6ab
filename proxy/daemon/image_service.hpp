// SPDX-License-Identifier: GPL-2.0-or-later
// The control socket: one thread that saves and restores device images, one request at a time.
#pragma once

#include "barrier_service.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "late_device.hpp"
#include "listener.hpp"
#include "pinned_file.hpp"
#include "proxy/control/messages.hpp"
#include "restore.hpp"
#include "save.hpp"
#include "session_keeper.hpp"

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

namespace singularity::proxyd {

class ImageService {
  public:
    ImageService(Listener listener, SessionKeeper &keeper, LateDevice &device, std::uint64_t window_size);
    ImageService(const ImageService &) = delete;
    ImageService &operator=(const ImageService &) = delete;
    ImageService(ImageService &&) = delete;
    ImageService &operator=(ImageService &&) = delete;
    // What is under way is given up.
    ~ImageService();

  private:
    struct Job {
        int socket = -1;
        UniqueFd descriptor;
        std::unique_ptr<PinnedFile> file; // of the descriptor, for a save
        proxy_control::Request request;
        Deadline deadline;
        Deadline::Clock::time_point begin;
        Deadline::Clock::time_point told;
    };

    void run();
    void serve(Listener::Connection &connection);
    [[nodiscard]] Expected<proxy_control::Answer> carry_out(Job &job);
    [[nodiscard]] Expected<proxy_control::Answer> prepare(Job &job);
    [[nodiscard]] Expected<void> open_file_of(Job &job);
    [[nodiscard]] Expected<proxy_control::Answer> save(Job &job);
    [[nodiscard]] Expected<proxy_control::Answer> restore(Job &job);
    [[nodiscard]] proxy_control::Answer bring_back();
    [[nodiscard]] Expected<proxy_control::Answer> await_attached(Job &job);
    // Whether the caller still wants it; tells how far it is.
    [[nodiscard]] Expected<void> go_on(Job &job, std::uint64_t bytes) const;

    struct Held {
        std::shared_ptr<Session> session;
        PausedClient client;
    };
    // Clients stopped, device quiet, nothing in the way. On an error they run again.
    [[nodiscard]] Expected<std::vector<Held>> quiesce(Job &job,
                                                      const std::vector<std::shared_ptr<Session>> &sessions);
    [[nodiscard]] Expected<void> write(Job &job, std::vector<Held> &held,
                                       proxy_control::Answer &answer) const;
    [[nodiscard]] Expected<void> detach(const std::vector<Held> &held, const Deadline &deadline);

    Listener listener_;
    SessionKeeper &keeper_;
    LateDevice &device_; // that is not open has no clients
    std::uint64_t window_size_;
    std::unique_ptr<PinnedFile> prepared_; // for the next save
    BarrierService barriers_;
    UniqueFd stop_;
    std::atomic<bool> stopping_ = false;
    std::thread thread_;
};

} // namespace singularity::proxyd
