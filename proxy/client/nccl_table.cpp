// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/client/nccl_table.hpp"

#include "barrier.hpp"
#include "context.hpp"
#include "copy.hpp"
#include "graph_collectives.hpp"
#include "memory.hpp"
#include "process.hpp"
#include "proxy/client/forward.hpp"
#include "proxy/libcuda/hooks.hpp"

#include <algorithm>
#include <bit>
#include <chrono>
#include <cstring>
#include <memory>

namespace singularity::client {

namespace {

Route route_of(const NcclTarget &target) {
    return {.session = static_cast<Session *>(target.session),
            .context = static_cast<Context *>(target.context)};
}

std::span<const std::byte> bytes_of(const void *data, std::size_t size) {
    return {static_cast<const std::byte *>(data), size};
}

int target_of(void *handle, NcclTarget *out) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    auto *const context = context_of(static_cast<CUcontext>(handle));
    if (const auto bad = healthy(context); bad != CUDA_SUCCESS)
        return bad;
    *out = {.session = context->session, .context = context, .device = context->session->ordinal()};
    return CUDA_SUCCESS;
}

int stream_of(const NcclTarget *target, void *stream, std::uint64_t *wire, int *capturing) {
    const auto wanted = route_of(*target);
    const OnContext scope(*wanted.context);
    Route route;
    if (const auto bad = stream_route(static_cast<CUstream>(stream), *wire, route); bad != CUDA_SUCCESS)
        return bad;
    if (route.context != wanted.context)
        return CUDA_ERROR_INVALID_CONTEXT;
    bool captures = false;
    const auto result = is_capturing(route, *wire, captures);
    *capturing = captures ? 1 : 0;
    return result;
}

// What libnccl.so.2 has given.
class GivenCollective final : public CapturedCollective {
  public:
    GivenCollective(const NcclCaptured &given, Context &context)
        : CapturedCollective(context), given_(given) {}
    ~GivenCollective() override {
        if (kept_)
            given_.release(given_.part);
    }
    GivenCollective(const GivenCollective &) = delete;
    GivenCollective &operator=(const GivenCollective &) = delete;
    GivenCollective(GivenCollective &&) = delete;
    GivenCollective &operator=(GivenCollective &&) = delete;

    void keep() { kept_ = true; } // before that it is the caller's
    [[nodiscard]] const char *unusable() const override { return given_.unusable(given_.part); }
    [[nodiscard]] const char *issue(CUstream stream) const override {
        return given_.issue(given_.part, stream);
    }

  private:
    NcclCaptured given_;
    bool kept_ = false;
};

int capture_on(const NcclTarget *target, void *stream, const NcclCaptured *what) {
    auto &context = *static_cast<Context *>(target->context);
    const OnContext scope(context);
    auto given = std::make_shared<GivenCollective>(*what, context);
    const auto result = capture_collective(static_cast<CUstream>(stream), given);
    if (result == CUDA_SUCCESS)
        given->keep();
    return result;
}

int memory_at(const NcclTarget *target, const void *address, std::size_t size, std::uint64_t *wire) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const auto location = locate(address);
    if (location.where == Where::pageable || !is_allocated(location, size))
        return CUDA_ERROR_INVALID_VALUE;
    if (location.where == Where::device && location.session != target->session)
        return CUDA_ERROR_INVALID_DEVICE;
    *wire = location.wire;
    return CUDA_SUCCESS;
}

int post_to(const NcclTarget *target, const void *message, std::size_t size) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    return submit(route_of(*target), bytes_of(message, size));
}

int ask_of(const NcclTarget *target, const void *message, std::size_t size, std::size_t reply_limit,
           void (*take)(void *, const void *, std::size_t), void *taker) {
    if (const auto bad = not_ready(); bad != CUDA_SUCCESS)
        return bad;
    const Exchange exchange(route_of(*target), bytes_of(message, size), reply_limit + kReplyOverhead);
    if (exchange.failure() != CUDA_SUCCESS)
        return exchange.failure();
    take(taker, exchange.reply().data(), exchange.reply().size());
    return CUDA_SUCCESS;
}

int abort_of(const NcclTarget *target, std::uint64_t communicator) {
    constexpr std::chrono::seconds kToSend{5};
    auto &session = *static_cast<Session *>(target->session);
    const std::scoped_lock lock(session.link_lock);
    if (!session.linked())
        return CUDA_SUCCESS; // the message is for the daemon that comes
    auto sent = session.end().link().send(channel::PacketType::aborted, communicator, {}, {},
                                          Deadline::after(kToSend));
    return sent ? CUDA_SUCCESS : CUDA_ERROR_OPERATING_SYSTEM;
}

constexpr NcclTable kTable{
    .size = sizeof(NcclTable),
    .version = kNcclTableVersion,
    .target = &target_of,
    .stream = &stream_of,
    .capture = &capture_on,
    .memory = &memory_at,
    .post = &post_to,
    .ask = &ask_of,
    .abort = &abort_of,
    .join = [](const barrier::Member *member) { gate().join(*member); },
    .leave = [](const barrier::Member *member) { gate().leave(*member); },
    .enter = [](const barrier::Line *lines, std::size_t count) { gate().enter({lines, count}); },
    .exit = [] { gate().exit(); }};

} // namespace

} // namespace singularity::client

const void *singularity_export_table(const CUuuid &id) {
    using namespace singularity::client;
    const auto bytes = std::bit_cast<std::array<unsigned char, sizeof(id.bytes)>>(id.bytes);
    return bytes == kNcclTable ? &kTable : nullptr;
}
