// SPDX-License-Identifier: GPL-2.0-or-later
// What a session does with one record: where it goes, in which context, on which thread, and what is
// answered.
#include "back_end.hpp"
#include "call.hpp"
#include "driver_rules.hpp"
#include "log.hpp"
#include "message_table.hpp"
#include "proxy/protocol/message.hpp"
#include "session.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <cstring>
#include <exception>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <unistd.h>

namespace singularity::proxyd {

namespace {

// Failures of the device itself, which no program can do anything about.
constexpr std::array kOfTheDevice{CUDA_ERROR_ECC_UNCORRECTABLE, CUDA_ERROR_NVLINK_UNCORRECTABLE,
                                  CUDA_ERROR_CONTAINED};

std::unexpected<Error> broken(std::string_view what, std::string why) {
    return failure("carry out", std::string(what), std::move(why), EPROTO);
}

// In every reply the result is the first thing behind the header.
constexpr std::size_t kResultAt = sizeof(driver_api::MessageHeader);

void set_result(std::span<std::byte> reply, CUresult result) {
    const auto value = static_cast<std::int32_t>(result);
    if (reply.size() >= kResultAt + sizeof(value))
        std::memcpy(reply.data() + kResultAt, &value, sizeof(value));
}

// A device that is nearly done is cheaper to wait for here than on another thread.
constexpr std::chrono::microseconds kNearlyDone{20};

class Release {
  public:
    Release(channel::ServerEnd &end, const channel::Record &record) : end_(end), record_(record) {}
    ~Release() { end_.release(record_); }
    Release(const Release &) = delete;
    Release &operator=(const Release &) = delete;
    Release(Release &&) = delete;
    Release &operator=(Release &&) = delete;

  private:
    channel::ServerEnd &end_;
    const channel::Record &record_;
};

} // namespace

// An exception is memory that was asked for and not there: the client's loss, not everybody's.
Expected<void> Session::process(const channel::Record &record) {
    const Release release(*channel_, record);
    try {
        return process_record(record);
    } catch (const std::exception &error) {
        return broken("a call", error.what());
    }
}

Expected<void> Session::process_record(const channel::Record &record) {
    const auto &header = record.header;
    // A hint where the message goes; what is decided on is read from a copy.
    const auto hint = protocol::peek_id(record.message);
    // Questions, and what may be the missing part of a collective, wait for none.
    if (header.reply_slot == channel::kNoReply && hint != std::to_underlying(protocol::IssueCollectives::kId))
        communicators_.backlog().count([this] { return ending() || channel_->interrupted(); });
    std::optional<Turn> turn;
    if (const auto *row = message_row(hint); row != nullptr && row->payload) {
        await_turn(turn, hint, {});
        if (!*turn)
            return {};
        make_current(header.context);
        return process_message(header, hint, record.message, false);
    }
    const auto message = std::span(scratch_).first(record.message.size());
    channel::copy_once(message, record.message);
    const auto id = protocol::peek_id(message);
    await_turn(turn, id, message);
    if (!*turn)
        return {};
    make_current(header.context);
    auto done = id < driver_api::kApiCount ? process_driver_call(header, id, message, false)
                                           : process_message(header, id, message, false);
    if (!done)
        return done;
    return check_objects();
}

// A call that is repeated has a trace already.
bool Session::is_traced(const JournalRule &rule) const {
    return active_trace == nullptr &&
           (rule.effect != Effect::none || captures_.load(std::memory_order_relaxed) != 0);
}

Expected<void> Session::check_objects() {
    if (auto rule = objects_.broken_rule())
        return broken("a call", std::move(*rule));
    return {};
}

Expected<void> Session::process_message(const channel::RecordHeader &header, std::uint32_t id,
                                        std::span<const std::byte> message, bool may_block) {
    const auto *row = message_row(id);
    if (row == nullptr)
        return broken(fmt::format("message {:#x}", id), "there is no such message");
    if (row->replies != (header.reply_slot != channel::kNoReply))
        return broken(row->name, row->replies ? "it leaves no place for the reply" : "it has no reply");
    if (row->waits && !may_block) {
        hand_over(header, id, message, false);
        return {};
    }
    const ObjectTable::Origin origin(header.context, 0);
    Call call(*this, header, may_block);
    const auto &rule = journal_rule(id);
    std::optional<Trace> own;
    if (is_traced(rule))
        own.emplace();
    const Tracing tracing(own ? &*own : active_trace);
    if (active_trace != nullptr)
        call.will_have(rule, code_of(message));
    if (auto done = row->handle(call, message); !done)
        return done;
    if (call.wants_later())
        hand_over(header, id, message, row->uses_memory);
    return {};
}

Expected<void> Session::process_driver_call(const channel::RecordHeader &header, std::uint32_t id,
                                            std::span<const std::byte> message, bool may_block) {
    const auto api = static_cast<driver_api::ApiId>(id);
    const auto &row = driver_api::dispatch_row(api);
    const auto &info = driver_api::api_info(api);
    if (row.call == nullptr)
        return broken(info.symbol, "it has no generated message");
    if (row.replies != (header.reply_slot != channel::kNoReply))
        return broken(info.symbol, row.replies ? "it leaves no place for the reply" : "it has no reply");
    const auto &rule = driver_rule(info.legacy);
    if (rule.waits && !may_block && !done_soon(rule, message)) {
        hand_over(header, id, message, rule.uses_memory);
        return {};
    }
    // One for each thread: a reply is encoded into it, and it keeps its memory.
    thread_local std::vector<std::byte> out;
    const bool refused = rule.allowed != nullptr && !rule.allowed(*this, message);
    const ObjectTable::Origin origin(header.context, rule.parent != nullptr ? rule.parent(message) : 0);
    // A driver without functions makes the dispatch encode a failure.
    static const driver_api::Backend kNoDriver{};
    const auto &effect = journal_rule(std::to_underlying(info.legacy));
    std::optional<Trace> own;
    if (is_traced(effect))
        own.emplace();
    const Tracing tracing(own ? &*own : active_trace);
    const auto capture = active_trace != nullptr ? ending_capture(effect, message) : 0;
    const auto done_instead = refused                   ? std::optional(CUDA_ERROR_INVALID_VALUE)
                              : rule.instead != nullptr ? rule.instead(*this, message)
                                                        : std::nullopt;
    auto result = row.call(message, done_instead ? kNoDriver : driver(), objects_, out);
    if (!result)
        return propagate(result);
    if (done_instead) {
        result = *done_instead;
        set_result(out, *done_instead);
    }
    log_refusal(info.symbol, *result);
    if (*result == CUDA_SUCCESS && rule.done != nullptr)
        rule.done(*this, message);
    if (*result == CUDA_SUCCESS && rule.corrects != nullptr)
        rule.corrects(*this, message, out);
    if (rule.tried != nullptr)
        rule.tried(*this);
    if (active_trace != nullptr)
        note_effect(effect, header.context, message, *active_trace, *result, capture, nullptr);
    if (!row.replies) {
        note(*result);
        return {};
    }
    if (rule.relays_output)
        relay_output();
    if (info.api_class == driver_api::ApiClass::sync &&
        (*result == CUDA_SUCCESS || *result == CUDA_ERROR_NOT_READY))
        if (const auto earlier = take_noted(); earlier != CUDA_SUCCESS)
            set_result(out, earlier);
    return reply(header, out);
}

void Session::log_refusal(std::string_view call, CUresult result) const {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY) [[likely]]
        return;
    kLog.debug("{}: {}: {}", who(), call, result_name(driver(), result));
    if (std::ranges::contains(kOfTheDevice, result)) {
        kLog.error("{}: {}: {}: the device has failed, and this device proxy ends", who(), call,
                   result_name(driver(), result));
        static_cast<void>(kill(getpid(), SIGTERM)); // the main thread's to hear
    }
}

// Only as long as nobody else wants this thread: other threads of the client go on.
bool Session::done_soon(const DriverRule &rule, std::span<const std::byte> message) {
    if (rule.idle == nullptr)
        return false;
    const auto until = Deadline::Clock::now() + kNearlyDone;
    while (rule.idle(*this, message) == CUDA_ERROR_NOT_READY)
        if (channel_->has_more() || Deadline::Clock::now() >= until)
            return false;
    return true;
}

// The message is copied: the record's place is used again, and so is the copy that this thread has of it.
void Session::hand_over(const channel::RecordHeader &header, std::uint32_t id,
                        std::span<const std::byte> message, bool uses_memory) {
    auto job = [this, header, id, uses_memory, copy = std::vector(message.begin(), message.end())] {
        std::optional<Turn> turn;
        if (uses_memory && !turn.emplace(*this))
            return;
        make_current_here(header.context);
        try {
            auto done = id < driver_api::kApiCount ? process_driver_call(header, id, copy, true)
                                                   : process_message(header, id, copy, true);
            if (done)
                done = check_objects();
            if (!done)
                end(done.error().message(), true);
        } catch (const std::exception &error) {
            end(error.what(), true);
        }
    };
    workers_.run(weak_from_this().lock(), [this] { begin_thread(); }, std::move(job));
}

} // namespace singularity::proxyd
