// SPDX-License-Identifier: GPL-2.0-or-later
// A member's link to other devices, through NCCL: one communicator of that library for one of ours. Only data
// is moved by it; what it would reduce, it would not reduce in the order of ranks.
//
// NCCL works in a device's primary context, and sessions have contexts of their own: it has a stream there,
// which waits for the mover's and is waited for. Memory of the device is reached from all of its contexts.
#pragma once

#include "collective_session.hpp"
#include "driver_api/backend.hpp"
#include "nccl_library.hpp"
#include "proxy/collectives/link.hpp"

#include <cstdint>
#include <functional>
#include <memory>
#include <span>

namespace singularity::proxyd {

// It outlives movers; its context is current where it is used.
class NcclLink final : public collectives::Link {
  public:
    NcclLink(CollectiveSession &session, std::shared_ptr<const NcclLibrary> library)
        : session_(session), library_(std::move(library)) {}
    NcclLink(const NcclLink &) = delete;
    NcclLink &operator=(const NcclLink &) = delete;
    NcclLink(NcclLink &&) = delete;
    NcclLink &operator=(NcclLink &&) = delete;
    ~NcclLink() override;

    // What it does from now on is in order with that stream.
    void use(CUstream stream) { stream_ = stream; }
    [[nodiscard]] std::uint64_t sent() const { return sent_; } // bytes, for the log

    [[nodiscard]] collectives::LinkOffer offer(std::uint32_t rank) override;
    [[nodiscard]] bool fits(std::span<const collectives::LinkOffer> offers) const override;
    [[nodiscard]] Expected<void> meet(std::span<const collectives::LinkOffer> offers,
                                      std::uint32_t rank) override;
    [[nodiscard]] Expected<bool> met() override;
    [[nodiscard]] Expected<void> begin() override;
    [[nodiscard]] Expected<void> send(std::uint32_t to, std::uint64_t from, std::size_t size) override;
    [[nodiscard]] Expected<void> receive(std::uint32_t from, std::uint64_t to, std::size_t size) override;
    [[nodiscard]] Expected<void> end(const std::function<bool()> &given_up) override;
    [[nodiscard]] Expected<void> look() override;
    void abort() override;
    void leave() override;

  private:
    // While there is one, the current context is the primary one.
    class InPrimary;
    [[nodiscard]] Expected<void> get_ready();
    // in_progress is none.
    [[nodiscard]] Expected<void> check(nccl::Result result, const char *doing) const;
    [[nodiscard]] Expected<void> check(CUresult result, const char *doing) const;
    // Whether what was begun in the background has ended; an error: it has failed.
    [[nodiscard]] Expected<bool> settled(const char *doing);
    [[nodiscard]] Expected<void> end_group(const std::function<bool()> &given_up);
    [[nodiscard]] void *reached(std::uint64_t address, std::size_t size);

    CollectiveSession &session_;
    std::shared_ptr<const NcclLibrary> library_;
    CUstream stream_ = nullptr; // the mover's
    CUcontext primary_ = nullptr;
    CUstream own_ = nullptr;
    CUevent before_ = nullptr; // in the mover's stream: what NCCL waits for
    CUevent after_ = nullptr;  // in our own
    std::uint64_t sent_ = 0;
    nccl::CommunicatorHandle communicator_ = nullptr;
};

} // namespace singularity::proxyd
