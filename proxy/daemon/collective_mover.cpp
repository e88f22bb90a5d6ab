// SPDX-License-Identifier: GPL-2.0-or-later
#include "collective_mover.hpp"

#include "address_book.hpp"
#include "back_end.hpp"
#include "nccl_link.hpp"
#include "proxy/collectives/reduce.hpp"
#include "reduction_kernels.hpp"

#include <cerrno>
#include <cstring>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {
constexpr std::chrono::microseconds kLookAtStream{20};
} // namespace

CollectiveMover::CollectiveMover(CollectiveSession &session, std::shared_ptr<const ReductionKernels> kernels,
                                 std::shared_ptr<NcclLink> link)
    : session_(session), driver_(session.driver()), kernels_(std::move(kernels)), link_(std::move(link)) {}

CollectiveMover::~CollectiveMover() {
    for (const auto &mark : marks_)
        spare_.push_back(mark.event);
    for (auto *event : spare_)
        static_cast<void>(driver_.cuEventDestroy_v2(event));
    if (stream_ != nullptr)
        static_cast<void>(driver_.cuStreamDestroy_v2(stream_));
}

Expected<void> CollectiveMover::check(CUresult result, const char *doing, std::uint64_t address,
                                      std::size_t size) const {
    if (result == CUDA_SUCCESS)
        return {};
    return failure(doing, fmt::format("device memory {:#x}+{:#x} for a collective", address, size),
                   result_name(driver_, result), EIO);
}

Expected<void> CollectiveMover::get_ready() {
    if (stream_ != nullptr)
        return {};
    if (driver_.cuStreamCreate == nullptr || driver_.cuStreamQuery == nullptr ||
        driver_.cuEventCreate == nullptr || driver_.cuEventRecord == nullptr ||
        driver_.cuEventQuery == nullptr || driver_.cuEventSynchronize == nullptr ||
        driver_.cuEventDestroy_v2 == nullptr || driver_.cuStreamDestroy_v2 == nullptr)
        return failure("copy for", "a collective", "the driver has no streams and events", ENOSYS);
    if (const auto result = driver_.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING); result != CUDA_SUCCESS)
        return failure("make a stream for", "a collective", result_name(driver_, result), EIO);
    return {};
}

// The memory of a session that takes turns is wherever it is just now. It is used piece by piece, each at
// once, since it may leave afterwards.
Expected<void> CollectiveMover::use(std::uint64_t memory, std::size_t size, Slabs::Use how, const char *doing,
                                    const std::function<CUresult(const Slabs::Piece &)> &copy) {
    if (auto ready = get_ready(); !ready)
        return ready;
    // What was begun before. It may wait for other devices, so nothing is held meanwhile.
    CUresult result = CUDA_SUCCESS;
    while ((result = driver_.cuStreamQuery(stream_)) == CUDA_ERROR_NOT_READY) {
        if (session_.ending())
            return failure(doing, "memory for a collective", "the session ends", ECANCELED);
        std::this_thread::sleep_for(kLookAtStream);
    }
    if (result != CUDA_SUCCESS)
        return check(result, doing, memory, size);
    return session_.slabs().use(memory, size, how, [&](const Slabs::Piece &piece) {
        auto done = copy(piece);
        if (done == CUDA_SUCCESS && piece.host == nullptr)
            done = driver_.cuStreamSynchronize(stream_);
        return check(done, doing, piece.address, piece.size);
    });
}

Expected<void> CollectiveMover::fetch(std::uint64_t from, std::span<std::byte> to) {
    done_.through_host += to.size();
    if (const auto *host = session_.addresses().host(from, to.size()); host != nullptr) {
        std::memcpy(to.data(), host, to.size());
        return {};
    }
    if (session_.crowded())
        return use(from, to.size(), Slabs::Use::reads, "read", [&](const Slabs::Piece &piece) {
            const auto place = to.subspan(piece.offset, piece.size);
            if (piece.host == nullptr)
                return driver_.cuMemcpyDtoHAsync_v2(place.data(), piece.address, piece.size, stream_);
            std::memcpy(place.data(), piece.host, piece.size);
            return CUDA_SUCCESS;
        });
    if (auto ready = get_ready(); !ready)
        return ready;
    copied_ = true;
    return check(driver_.cuMemcpyDtoHAsync_v2(to.data(), from, to.size(), stream_), "read", from, to.size());
}

Expected<void> CollectiveMover::deliver(std::span<const std::byte> from, std::uint64_t to) {
    done_.through_host += from.size();
    if (auto *host = session_.addresses().host(to, from.size()); host != nullptr) {
        std::memcpy(host, from.data(), from.size());
        return {};
    }
    if (session_.crowded())
        return use(to, from.size(), Slabs::Use::writes, "write", [&](const Slabs::Piece &piece) {
            const auto data = from.subspan(piece.offset, piece.size);
            if (piece.host == nullptr)
                return driver_.cuMemcpyHtoDAsync_v2(piece.address, data.data(), piece.size, stream_);
            std::memcpy(piece.host, data.data(), piece.size);
            return CUDA_SUCCESS;
        });
    if (auto ready = get_ready(); !ready)
        return ready;
    copied_ = true;
    return check(driver_.cuMemcpyHtoDAsync_v2(to, from.data(), from.size(), stream_), "write", to,
                 from.size());
}

CUresult CollectiveMover::copy_at_once(const Slabs::Piece &piece, std::uint64_t stage, bool from_piece) {
    if (piece.host == nullptr)
        return from_piece ? driver_.cuMemcpyDtoDAsync_v2(stage, piece.address, piece.size, stream_)
                          : driver_.cuMemcpyDtoDAsync_v2(piece.address, stage, piece.size, stream_);
    const auto result = from_piece ? driver_.cuMemcpyHtoDAsync_v2(stage, piece.host, piece.size, stream_)
                                   : driver_.cuMemcpyDtoHAsync_v2(piece.host, stage, piece.size, stream_);
    return result == CUDA_SUCCESS ? driver_.cuStreamSynchronize(stream_) : result;
}

// Shared host memory is the driver's as well, at the address that it has in this process.
Expected<void> CollectiveMover::fetch(std::uint64_t from, std::uint64_t to, std::size_t size) {
    if (auto ready = get_ready(); !ready)
        return ready;
    copied_ = true;
    done_.on_device += size;
    const auto *host = session_.addresses().host(from, size);
    if (host == nullptr && session_.crowded())
        return use(from, size, Slabs::Use::reads, "stage",
                   [&](const Slabs::Piece &piece) { return copy_at_once(piece, to + piece.offset, true); });
    return check(host != nullptr ? driver_.cuMemcpyHtoDAsync_v2(to, host, size, stream_)
                                 : driver_.cuMemcpyDtoDAsync_v2(to, from, size, stream_),
                 "stage", from, size);
}

Expected<void> CollectiveMover::deliver(std::uint64_t from, std::uint64_t to, std::size_t size) {
    if (auto ready = get_ready(); !ready)
        return ready;
    copied_ = true;
    done_.on_device += size;
    auto *host = session_.addresses().host(to, size);
    if (host == nullptr && session_.crowded())
        return use(to, size, Slabs::Use::writes, "write", [&](const Slabs::Piece &piece) {
            return copy_at_once(piece, from + piece.offset, false);
        });
    return check(host != nullptr ? driver_.cuMemcpyDtoHAsync_v2(host, from, size, stream_)
                                 : driver_.cuMemcpyDtoDAsync_v2(to, from, size, stream_),
                 "write", to, size);
}

Expected<void> CollectiveMover::scale(std::uint32_t type, std::uint64_t values,
                                      const collectives::Scalar &scalar, std::uint64_t count) {
    if (auto ready = get_ready(); !ready)
        return ready;
    copied_ = true;
    return check(kernels_->scale(stream_, type, values, scalar, count), "scale", values,
                 count * collectives::element_size(type));
}

Expected<void> CollectiveMover::reduce(const collectives::DeviceReduction &reduction) {
    if (auto ready = get_ready(); !ready)
        return ready;
    copied_ = true;
    ++done_.reductions;
    return check(kernels_->reduce(stream_, reduction), "reduce", reduction.operands,
                 reduction.count * collectives::element_size(reduction.type));
}

collectives::Link *CollectiveMover::link() {
    if (link_ == nullptr || !get_ready())
        return nullptr;
    link_->use(stream_);
    return link_.get();
}

Expected<std::uint64_t> CollectiveMover::mark() {
    const bool may_have_sent = link_ != nullptr && stream_ != nullptr;
    if (!std::exchange(copied_, false) && !may_have_sent)
        return last_;
    if (spare_.empty()) {
        CUevent made = nullptr;
        if (const auto result = driver_.cuEventCreate(&made, CU_EVENT_DISABLE_TIMING); result != CUDA_SUCCESS)
            return failure("make an event for", "a collective", result_name(driver_, result), EIO);
        spare_.push_back(made);
    }
    auto *const event = spare_.back();
    if (const auto result = driver_.cuEventRecord(event, stream_); result != CUDA_SUCCESS)
        return failure("record an event for", "a collective", result_name(driver_, result), EIO);
    spare_.pop_back();
    marks_.push_back({.number = ++last_, .event = event});
    return last_;
}

Expected<bool> CollectiveMover::passed(std::uint64_t mark) {
    while (!marks_.empty() && marks_.front().number <= mark) {
        const auto result = driver_.cuEventQuery(marks_.front().event);
        if (result == CUDA_ERROR_NOT_READY)
            return false;
        if (result != CUDA_SUCCESS)
            return failure("copy for", "a collective", result_name(driver_, result), EIO);
        spare_.push_back(marks_.front().event);
        marks_.pop_front();
    }
    return true;
}

Expected<void> CollectiveMover::wait(std::uint64_t mark) {
    while (!marks_.empty() && marks_.front().number <= mark) {
        if (const auto result = driver_.cuEventSynchronize(marks_.front().event); result != CUDA_SUCCESS)
            return failure("copy for", "a collective", result_name(driver_, result), EIO);
        spare_.push_back(marks_.front().event);
        marks_.pop_front();
    }
    return {};
}

} // namespace singularity::proxyd
