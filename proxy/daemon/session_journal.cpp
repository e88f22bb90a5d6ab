// SPDX-License-Identifier: GPL-2.0-or-later
// What a session's calls leave in its journal, and the calls of a journal carried out again.
#include "call.hpp"
#include "driver_api/messages.hpp"
#include "driver_rules.hpp"
#include "log.hpp"
#include "message_table.hpp"
#include "proxy/protocol/all.hpp"
#include "session.hpp"

#include <bit>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

// The blob that a message names, in those that use one; all have it in the same place.
std::optional<std::uint64_t> blob_of(std::span<const std::byte> message) {
    using protocol::Id;
    const auto id = static_cast<Id>(protocol::peek_id(message));
    if (id != Id::load_module && id != Id::load_library && id != Id::add_link_data)
        return std::nullopt;
    static_assert(offsetof(protocol::LoadModule, blob) == 8 && offsetof(protocol::LoadLibrary, blob) == 8 &&
                  offsetof(protocol::AddLinkData, blob) == 8);
    constexpr std::size_t kAt = sizeof(driver_api::MessageHeader) + 8;
    std::uint64_t blob = 0;
    if (message.size() < kAt + sizeof(blob))
        return std::nullopt;
    std::memcpy(&blob, message.data() + kAt, sizeof(blob));
    return blob;
}

// A blob that the message makes (the linker's output), for the end of its repetition.
std::optional<std::uint64_t> blob_made_by(std::span<const std::byte> message) {
    if (static_cast<protocol::Id>(protocol::peek_id(message)) != protocol::Id::complete_link)
        return std::nullopt;
    const auto request = protocol::decode_request<protocol::CompleteLink>(message);
    return request ? std::optional(request->fixed.blob) : std::nullopt;
}

std::string name_of_message(std::uint32_t id) {
    if (id < driver_api::kApiCount)
        return std::string(driver_api::api_info(static_cast<driver_api::ApiId>(id)).symbol);
    const auto *row = message_row(id);
    return row == nullptr ? fmt::format("message {:#x}", id) : row->name;
}

} // namespace

std::uint64_t Session::capture_of(std::uint64_t stream) {
    const auto real = objects_.real(driver_api::kHandleStream, stream);
    const auto &calls = driver();
    if (!real || *real == 0)
        return 0;
    auto status = CU_STREAM_CAPTURE_STATUS_NONE;
    cuuint64_t number = 0;
    const auto value = std::bit_cast<CUstream>(*real);
    auto result = CUDA_ERROR_NOT_SUPPORTED;
    if (calls.cuStreamGetCaptureInfo_v2 != nullptr)
        result = calls.cuStreamGetCaptureInfo_v2(value, &status, &number, nullptr, nullptr, nullptr);
    else if (calls.cuStreamGetCaptureInfo_v3 != nullptr)
        result = calls.cuStreamGetCaptureInfo_v3(value, &status, &number, nullptr, nullptr, nullptr, nullptr);
    return result == CUDA_SUCCESS && status == CU_STREAM_CAPTURE_STATUS_ACTIVE ? number : 0;
}

std::uint64_t Session::ending_capture(const JournalRule &rule, std::span<const std::byte> message) {
    if (rule.effect != Effect::capture_ends)
        return 0;
    const auto request = driver_api::decode_StreamEndCaptureRequest(message);
    const Tracing unseen(nullptr);
    return request ? capture_of(request->hStream) : 0;
}

std::shared_ptr<const Blob> Session::code_of(std::span<const std::byte> message) {
    const auto blob = blob_of(message);
    return blob ? blobs_.find(*blob) : nullptr;
}

void Session::note_effect(const JournalRule &rule, std::uint64_t context, std::span<const std::byte> message,
                          const Trace &trace, CUresult result, std::uint64_t capture,
                          std::shared_ptr<const Blob> code) {
    if (trace.repeating)
        repeated_ = result;
    if (result != CUDA_SUCCESS && rule.effect != Effect::capture_ends)
        return;
    JournalCall call{.context = context,
                     .message = std::vector(message.begin(), message.end()),
                     .names = trace.named,
                     .code = std::move(code)};
    const auto captured = [&]() -> std::uint64_t {
        const Tracing unseen(nullptr);
        for (const auto handle : trace.used)
            if (handle >> 62 == 0 && kind_of(handle) == driver_api::kHandleStream)
                if (const auto number = capture_of(handle); number != 0)
                    return number;
        return 0;
    };
    switch (rule.effect) {
    case Effect::capture_begins:
        if (const auto number = captured(); number != 0)
            journal_.begin_capture(number, std::move(call), trace);
        return;
    case Effect::capture_ends:
        return journal_.end_capture(capture, std::move(call), trace, result == CUDA_SUCCESS);
    case Effect::none:
    case Effect::names:
        if (const auto number = captures_.load(std::memory_order_relaxed) == 0 ? 0 : captured(); number != 0)
            return journal_.add_to_capture(number, std::move(call), trace);
        if (rule.effect == Effect::none)
            return;
        break;
    default:
        break;
    }
    journal_.record(rule, std::move(call), trace);
}

Expected<void> Session::repeat(const JournalCall &call) {
    const auto id = protocol::peek_id(call.message);
    const auto cannot = [&](std::string why) {
        return failure("repeat", name_of_message(id), std::move(why), EPROTO);
    };
    if (journal_rule(id).effect == Effect::none && captures_.load(std::memory_order_relaxed) == 0)
        return cannot("it is no call that makes anything");
    // Its image, under the number that the message has for it.
    const auto blob = blob_of(call.message);
    if (blob) {
        if (call.code == nullptr)
            return cannot("its module image is not there");
        if (auto put = blobs_.put(*blob, std::span(call.code->bytes).first(call.code->size)); !put)
            return propagate(put);
    }
    Trace trace;
    trace.repeating = true;
    trace.names = call.names;
    auto outcome = CUDA_SUCCESS;
    Expected<void> done;
    {
        const Tracing tracing(&trace);
        channel::RecordHeader header;
        header.size = static_cast<std::uint32_t>(call.message.size());
        header.context = call.context;
        const bool generated = id < driver_api::kApiCount;
        const auto *row = generated ? nullptr : message_row(id);
        if (generated ? driver_api::dispatch_row(static_cast<driver_api::ApiId>(id)).replies
                      : row != nullptr && row->replies) {
            header.reply_slot = 0;
            header.piece = 0;
        }
        make_current_here(call.context);
        repeated_ = CUDA_SUCCESS;
        done = generated ? process_driver_call(header, id, call.message, true)
                         : process_message(header, id, call.message, true);
        outcome = std::exchange(repeated_, CUDA_SUCCESS);
        if (done)
            done = check_objects();
    }
    if (blob)
        static_cast<void>(blobs_.drop(*blob));
    if (const auto made = blob_made_by(call.message))
        static_cast<void>(blobs_.drop(*made));
    if (!done)
        return done;
    if (outcome != CUDA_SUCCESS)
        return cannot(fmt::format("the driver says {}", result_name(driver(), outcome)));
    if (trace.differs)
        return cannot(*trace.differs);
    return {};
}

std::vector<EventTimes::Event> Session::events() {
    std::vector<EventTimes::Event> out;
    for (const auto &[handle, real] : objects_.handles(driver_api::kHandleEvent))
        out.push_back({.handle = handle, .real = real, .context = objects_.context_of(handle)});
    return out;
}

CUresult Session::finish_restore() {
    const auto calls = std::exchange(late_, {});
    const Tracing own(nullptr);
    for (const auto &call : calls)
        if (auto done = repeat(call); !done) {
            kLog.error("{}: the image cannot be restored: {}", who(), done.error().message());
            return CUDA_ERROR_INVALID_SOURCE;
        }
    unread_.reset();
    // The last thing: from here on the program's time goes on.
    const auto result = event_times_.begin(
        driver(), [this](std::uint64_t event) { return objects_.real(driver_api::kHandleEvent, event); },
        [this](std::uint64_t context) { make_current_for(context); });
    contexts_changed();
    return result;
}

} // namespace singularity::proxyd
