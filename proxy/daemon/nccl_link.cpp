// SPDX-License-Identifier: GPL-2.0-or-later
#include "nccl_link.hpp"

#include "address_book.hpp"
#include "back_end.hpp"
#include "common/deadline.hpp"
#include "log.hpp"

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <set>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

using namespace std::chrono_literals;
using collectives::LinkOffer;
using nccl::Result;

constexpr auto kLinkLook = 50us;
constexpr auto kLeavingLook = 1ms;
constexpr auto kToLeave = 5s; // the others may be busy with each other

struct Offer {
    std::uint32_t there = 1;
    std::int32_t version = 0;
    std::array<std::uint8_t, 16> device{};
    nccl::UniqueId id{}; // the first member's counts
};
static_assert(sizeof(Offer) <= sizeof(LinkOffer));

Offer of(const LinkOffer &bytes) {
    Offer offer;
    std::memcpy(&offer, bytes.data(), sizeof(offer));
    return offer;
}

} // namespace

class NcclLink::InPrimary {
  public:
    explicit InPrimary(const NcclLink &link) : driver_(link.session_.driver()) {
        pushed_ = driver_.cuCtxPushCurrent_v2(link.primary_) == CUDA_SUCCESS;
    }
    InPrimary(const InPrimary &) = delete;
    InPrimary &operator=(const InPrimary &) = delete;
    InPrimary(InPrimary &&) = delete;
    InPrimary &operator=(InPrimary &&) = delete;
    ~InPrimary() {
        CUcontext popped = nullptr;
        if (pushed_)
            static_cast<void>(driver_.cuCtxPopCurrent_v2(&popped));
    }

  private:
    const driver_api::Backend &driver_;
    bool pushed_ = false;
};

NcclLink::~NcclLink() {
    NcclLink::abort();
    const auto &driver = session_.driver();
    if (before_ != nullptr)
        static_cast<void>(driver.cuEventDestroy_v2(before_));
    if (after_ != nullptr)
        static_cast<void>(driver.cuEventDestroy_v2(after_));
    if (own_ != nullptr)
        static_cast<void>(driver.cuStreamDestroy_v2(own_));
    if (primary_ != nullptr)
        static_cast<void>(driver.cuDevicePrimaryCtxRelease_v2(session_.back_end().device()));
}

// In the session's context.
Expected<void> NcclLink::get_ready() {
    if (after_ != nullptr)
        return {};
    const auto &driver = session_.driver();
    if (driver.cuDevicePrimaryCtxRetain == nullptr || driver.cuDevicePrimaryCtxRelease_v2 == nullptr ||
        driver.cuCtxPushCurrent_v2 == nullptr || driver.cuCtxPopCurrent_v2 == nullptr ||
        driver.cuStreamWaitEvent == nullptr)
        return failure("make", "a link to other devices", "the driver has no primary contexts", ENOSYS);
    auto made = check(driver.cuEventCreate(&before_, CU_EVENT_DISABLE_TIMING), "make");
    if (made)
        made = check(driver.cuDevicePrimaryCtxRetain(&primary_, session_.back_end().device()), "make");
    if (!made)
        return made;
    const InPrimary in(*this);
    made = check(driver.cuStreamCreate(&own_, CU_STREAM_NON_BLOCKING), "make");
    return made ? check(driver.cuEventCreate(&after_, CU_EVENT_DISABLE_TIMING), "make") : made;
}

Expected<void> NcclLink::check(CUresult result, const char *doing) const {
    if (result == CUDA_SUCCESS)
        return {};
    return failure(doing, "a link to other devices", result_name(session_.driver(), result), EIO);
}

Expected<void> NcclLink::check(Result result, const char *doing) const {
    if (result == Result::success || result == Result::in_progress)
        return {};
    const char *const why = library_->ncclGetLastError(communicator_);
    return failure(doing, "other devices",
                   fmt::format("NCCL: {}{}{}", library_->ncclGetErrorString(result),
                               why != nullptr && *why != 0 ? ": " : "", why != nullptr ? why : ""),
                   result == Result::remote_error ? ECONNRESET : EIO);
}

Expected<bool> NcclLink::settled(const char *doing) {
    if (communicator_ == nullptr)
        return failure(doing, "other devices", "the link was given up", ECANCELED);
    auto state = Result::success;
    auto good = check(library_->ncclCommGetAsyncError(communicator_, &state), doing);
    if (good)
        good = check(state, doing);
    return good ? Expected<bool>(state != Result::in_progress) : propagate(good);
}

// Only one of them is used: it makes a thread that listens.
LinkOffer NcclLink::offer(std::uint32_t rank) {
    if (auto ready = get_ready(); !ready) {
        kLog.warning("{}", ready.error().message());
        return {};
    }
    const InPrimary in(*this);
    Offer offer{
        .there = 1, .version = library_->version, .device = session_.back_end().identity().uuid, .id = {}};
    LinkOffer bytes{};
    if (rank == 0)
        if (auto made = check(library_->ncclGetUniqueId(&offer.id), "be met by"); !made) {
            kLog.warning("{}", made.error().message());
            return bytes;
        }
    std::memcpy(bytes.data(), &offer, sizeof(offer));
    return bytes;
}

bool NcclLink::fits(std::span<const LinkOffer> offers) const {
    std::set<std::array<std::uint8_t, 16>> devices;
    for (const auto &bytes : offers) {
        const auto offer = of(bytes);
        if (offer.version != library_->version || !devices.insert(offer.device).second)
            return false;
    }
    return true;
}

Expected<void> NcclLink::meet(std::span<const LinkOffer> offers, std::uint32_t rank) {
    const InPrimary in(*this);
    nccl::Config config;
    config.blocking = 0;
    return check(library_->ncclCommInitRankConfig(&communicator_, static_cast<int>(offers.size()),
                                                  of(offers.front()).id, static_cast<int>(rank), &config),
                 "meet");
}

Expected<bool> NcclLink::met() { return settled("meet"); }

Expected<void> NcclLink::begin() {
    if (communicator_ == nullptr)
        return failure("exchange data with", "other devices", "the link was given up", ECANCELED);
    const auto &driver = session_.driver();
    auto begun = check(driver.cuEventRecord(before_, stream_), "use");
    if (begun)
        begun = check(driver.cuStreamWaitEvent(own_, before_, 0), "use");
    if (!begun)
        return begun;
    const InPrimary in(*this);
    return check(library_->ncclGroupStart(), "exchange data with");
}

// Shared host memory is the driver's as well, at the address that it has in this process.
void *NcclLink::reached(std::uint64_t address, std::size_t size) {
    auto *const host = session_.addresses().host(address, size);
    return host != nullptr ? host : std::bit_cast<void *>(address);
}

Expected<void> NcclLink::send(std::uint32_t to, std::uint64_t from, std::size_t size) {
    sent_ += size;
    const InPrimary in(*this);
    return check(library_->ncclSend(reached(from, size), size, nccl::DataType::uint8, static_cast<int>(to),
                                    communicator_, own_),
                 "send to");
}

Expected<void> NcclLink::receive(std::uint32_t from, std::uint64_t to, std::size_t size) {
    const InPrimary in(*this);
    return check(library_->ncclRecv(reached(to, size), size, nccl::DataType::uint8, static_cast<int>(from),
                                    communicator_, own_),
                 "receive from");
}

Expected<void> NcclLink::end_group(const std::function<bool()> &given_up) {
    if (auto ended = check(library_->ncclGroupEnd(), "exchange data with"); !ended)
        return ended;
    for (;;) {
        auto done = settled("exchange data with");
        if (!done)
            return propagate(done);
        if (*done)
            return {};
        if (given_up())
            return failure("exchange data with", "other devices", "the communicator has failed or was left",
                           ECANCELED);
        std::this_thread::sleep_for(kLinkLook);
    }
}

Expected<void> NcclLink::end(const std::function<bool()> &given_up) {
    const auto &driver = session_.driver();
    {
        const InPrimary in(*this);
        auto ended = end_group(given_up);
        if (ended)
            ended = check(driver.cuEventRecord(after_, own_), "use");
        if (!ended)
            return ended;
    }
    return check(driver.cuStreamWaitEvent(stream_, after_, 0), "use");
}

Expected<void> NcclLink::look() {
    auto good = settled("exchange data with");
    return good ? Expected<void>() : propagate(good);
}

void NcclLink::abort() {
    auto *const communicator = std::exchange(communicator_, nullptr);
    if (communicator == nullptr)
        return;
    const InPrimary in(*this);
    static_cast<void>(library_->ncclCommAbort(communicator));
}

void NcclLink::leave() {
    if (communicator_ == nullptr)
        return;
    const InPrimary in(*this);
    Expected<bool> done = false;
    const auto is_settled = [&] {
        done = settled("leave");
        return !done || *done;
    };
    auto left = check(library_->ncclCommFinalize(communicator_), "leave");
    if (left)
        left = wait_until(is_settled, Deadline::after(kToLeave), "the other ranks to leave", kLeavingLook);
    if (!left)
        done = propagate(left);
    if (done) {
        static_cast<void>(library_->ncclCommDestroy(std::exchange(communicator_, nullptr)));
        return;
    }
    kLog.warning("{}", done.error().message());
    abort();
}

} // namespace singularity::proxyd
