// SPDX-License-Identifier: GPL-2.0-or-later
// Copies. Data lies in the ring or goes to the reply's place: memory that the driver knows nothing of, so it
// copies before it returns. That waits for the stream, with a lock of the context: what the stream waits for,
// a collective, may need a call of another thread. Where the stream is busy, data takes a detour through
// pinned memory, and data from the device is left to a worker.
#include "handlers.hpp"
#include "places.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

namespace singularity::proxyd::handlers {

namespace {

using protocol::CopyDirection;

// A captured stream is never busy, and must not be asked.
bool busy(Call &call, CUstream stream) {
    return call.driver().cuStreamQuery != nullptr && !call.session().capturing(stream) &&
           call.driver().cuStreamQuery(stream) == CUDA_ERROR_NOT_READY;
}

// Where there are communicators a stream can begin to wait at any moment.
bool may_begin_to_wait(Call &call, CUstream stream) {
    return call.session().communicators().any() && !call.session().capturing(stream);
}

// Calls enqueue(data) with data that it may use as long as the stream needs. Where the stream is not busy the
// data is on the device when this returns: others may be told so.
template <class Enqueue>
CUresult with_data(Call &call, std::span<const std::byte> data, CUstream stream, Enqueue enqueue) {
    const bool is_busy = busy(call, stream);
    if (!is_busy && !may_begin_to_wait(call, stream))
        return enqueue(data.data());
    const auto &driver = call.driver();
    auto &staging = call.session().staging();
    const auto *held = staging.hold(driver, data);
    if (held == nullptr) {
        const auto result = driver.cuStreamSynchronize(stream);
        return result == CUDA_SUCCESS ? enqueue(data.data()) : result;
    }
    auto result = enqueue(held);
    if (result != CUDA_SUCCESS) {
        staging.release(held);
        return result;
    }
    if (is_busy)
        return staging.release_after(driver, held, stream);
    result = driver.cuStreamSynchronize(stream);
    if (result == CUDA_SUCCESS)
        staging.release(held);
    return result;
}

// Calls enqueue(to) with memory for `size` bytes and waits until the stream has filled it.
template <class Enqueue>
CUresult fetch_data(Call &call, std::span<std::byte> to, CUstream stream, bool is_busy, Enqueue enqueue) {
    const auto &driver = call.driver();
    const auto run = [&](std::byte *into) {
        const CUresult enqueued = enqueue(into);
        return enqueued == CUDA_SUCCESS ? driver.cuStreamSynchronize(stream) : enqueued;
    };
    if (!is_busy && !may_begin_to_wait(call, stream))
        return run(to.data());
    auto &staging = call.session().staging();
    auto *const pinned = staging.take(driver, to.size());
    if (pinned == nullptr) {
        const auto result = driver.cuStreamSynchronize(stream);
        return result == CUDA_SUCCESS ? run(to.data()) : result;
    }
    if (const CUresult refused = enqueue(pinned); refused != CUDA_SUCCESS) {
        staging.release(pinned);
        return refused;
    }
    if (const auto failed = driver.cuStreamSynchronize(stream); failed != CUDA_SUCCESS)
        return failed; // the copy may still come: nobody else gets this memory
    std::ranges::copy(std::span(pinned, to.size()), to.begin());
    staging.release(pinned);
    return CUDA_SUCCESS;
}

// Calls enqueue(place) with the place of `size` bytes in the reply, waits, and answers.
template <class M, class Enqueue>
CUresult answer_with_data(Call &call, std::uint64_t size, CUstream stream, Enqueue enqueue) {
    const bool is_busy = busy(call, stream);
    if (is_busy && !call.may_block())
        return call.later();
    auto &channel = call.session().channel();
    const auto whole = protocol::reply_size<M>(protocol::padded(size));
    auto place = channel.reply_space(call.header(), whole);
    if (!place)
        return call.broken(place.error().message());
    constexpr auto kHead = protocol::kReplyHead<protocol::DataReply>;
    auto result = fetch_data(call, place->subspan(kHead, size), stream, is_busy, enqueue);
    if (result == CUDA_SUCCESS)
        result = call.session().take_noted();
    if (result != CUDA_SUCCESS)
        return result;
    const protocol::ReplyPrefix prefix{.header = {.api = std::to_underlying(M::kId),
                                                  .kind = std::to_underlying(driver_api::MessageKind::reply),
                                                  .size = whole},
                                       .result = CUDA_SUCCESS,
                                       .reserved = 0};
    std::memcpy(place->data(), &prefix, sizeof(prefix));
    std::memcpy(place->data() + sizeof(prefix), &size, sizeof(size));
    std::ranges::fill(place->subspan(kHead + size), std::byte{0});
    call.session().relay_output();
    channel.finish_reply(call.header(), whole, call.session().packets_sent());
    call.answered();
    return CUDA_SUCCESS;
}

} // namespace

CUresult handle(Call &call, const Request<protocol::WriteMemory> &request) {
    const auto data = request.buffers[0].bytes;
    const auto to = request.fixed.destination;
    const auto stream = call.stream(request.fixed.stream);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (data.empty())
        return CUDA_SUCCESS;
    if (!call.session().reaches(to, data.size()))
        return CUDA_ERROR_INVALID_VALUE;
    return with_data(call, data, *stream, [&](const std::byte *from) {
        return call.driver().cuMemcpyHtoDAsync_v2(to, from, data.size(), *stream);
    });
}

CUresult handle(Call &call, const Request<protocol::ReadMemory> &request,
                Reply<protocol::ReadMemory> & /*reply*/) {
    const auto &fixed = request.fixed;
    const auto stream = call.stream(fixed.stream);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (fixed.size != 0 && !call.session().reaches(fixed.source, fixed.size))
        return CUDA_ERROR_INVALID_VALUE;
    return answer_with_data<protocol::ReadMemory>(call, fixed.size, *stream, [&](std::byte *to) {
        return fixed.size == 0 ? CUDA_SUCCESS
                               : call.driver().cuMemcpyDtoHAsync_v2(to, fixed.source, fixed.size, *stream);
    });
}

CUresult handle(Call &call, const Request<protocol::CopyMemory> &request) {
    const auto &fixed = request.fixed;
    const auto &driver = call.driver();
    const auto stream = call.stream(fixed.stream);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    if (fixed.size == 0)
        return CUDA_SUCCESS;
    auto &session = call.session();
    const auto device = [&](std::uint64_t address) { return session.reaches(address, fixed.size); };
    void *host_from = session.addresses().host(fixed.source, fixed.size);
    void *host_to = session.addresses().host(fixed.destination, fixed.size);
    switch (static_cast<CopyDirection>(fixed.direction)) {
    case CopyDirection::device_to_device:
        if (!device(fixed.source) || !device(fixed.destination))
            return CUDA_ERROR_INVALID_VALUE;
        if (driver.cuMemcpyDtoDAsync_v2 == nullptr)
            return CUDA_ERROR_NOT_SUPPORTED;
        return driver.cuMemcpyDtoDAsync_v2(fixed.destination, fixed.source, fixed.size, *stream);
    case CopyDirection::host_to_device:
        if (host_from == nullptr || !device(fixed.destination))
            return CUDA_ERROR_INVALID_VALUE;
        return driver.cuMemcpyHtoDAsync_v2(fixed.destination, host_from, fixed.size, *stream);
    case CopyDirection::device_to_host:
        if (host_to == nullptr || !device(fixed.source))
            return CUDA_ERROR_INVALID_VALUE;
        return driver.cuMemcpyDtoHAsync_v2(host_to, fixed.source, fixed.size, *stream);
    case CopyDirection::host_to_host:
        if (host_from == nullptr || host_to == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        if (driver.cuMemcpyAsync == nullptr)
            return CUDA_ERROR_NOT_SUPPORTED;
        return driver.cuMemcpyAsync(fixed.destination, fixed.source, fixed.size, *stream);
    case CopyDirection::end:
        break;
    }
    return CUDA_ERROR_INVALID_VALUE;
}

CUresult handle(Call &call, const Request<protocol::WriteBox> &request) {
    const auto &fixed = request.fixed;
    const auto stream = call.stream(fixed.stream);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    return with_data(call, request.buffers[0].bytes, *stream, [&](const std::byte *from) {
        // The source is only read.
        const auto copy = box_copy(call, fixed.destination, {}, fixed.box, const_cast<std::byte *>(from));
        return copy ? copy_box(call.driver(), *copy, *stream) : copy.error();
    });
}

CUresult handle(Call &call, const Request<protocol::ReadBox> &request, Reply<protocol::ReadBox> & /*reply*/) {
    const auto &fixed = request.fixed;
    const auto stream = call.stream(fixed.stream);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    const auto size = protocol::packed_size(fixed.box);
    return answer_with_data<protocol::ReadBox>(call, size, *stream, [&](std::byte *to) {
        const auto copy = box_copy(call, {}, fixed.source, fixed.box, to);
        return copy ? copy_box(call.driver(), *copy, *stream) : copy.error();
    });
}

CUresult handle(Call &call, const Request<protocol::CopyBox> &request) {
    const auto &fixed = request.fixed;
    const auto stream = call.stream(fixed.stream);
    if (!stream)
        return CUDA_ERROR_INVALID_HANDLE;
    const auto copy = box_copy(call, fixed.destination, fixed.source, fixed.box, nullptr);
    return copy ? copy_box(call.driver(), *copy, *stream) : copy.error();
}

} // namespace singularity::proxyd::handlers
