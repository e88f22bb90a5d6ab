// SPDX-License-Identifier: GPL-2.0-or-later
#include "fake_driver.hpp"

#include "cmocka.hpp"
#include "proxy/libcuda/cuda.hpp"

#include <bit>
#include <chrono>
#include <cstdlib>
#include <memory>
#include <utility>

#include <fmt/format.h>

namespace singularity::test {

using namespace nccl;

namespace {

constexpr std::chrono::seconds kPatience{30};

std::uintptr_t number(const void *pointer) { return std::bit_cast<std::uintptr_t>(pointer); }

} // namespace

thread_local int FakeDriver::device_of_thread = 0;

Expected<Place> FakeDriver::primary(int device) {
    if (device < 0 || device >= kDevices)
        return failure("find", fmt::format("device {}", device), "there is none", CUDA_ERROR_INVALID_DEVICE);
    return Place{.device = device};
}

Expected<StreamState> FakeDriver::stream(const Place & /*place*/, Stream stream) {
    if (number(stream) == kUnknownStream)
        return failure("use", "a stream", "there is none", CUDA_ERROR_INVALID_HANDLE);
    return StreamState{.wire = number(stream) + 1,
                       .capturing = number(stream) == kCapturing || number(stream) == kAlsoCapturing};
}

Expected<std::uint64_t> FakeDriver::memory(const Place &place, const void *address, std::size_t size) {
    const auto at = number(address);
    if (at < kMemory || at >= kMemory + kDevices * kBytes || size > kBytes - (at - kMemory) % kBytes)
        return failure("use", "memory", "it is not allocated", CUDA_ERROR_INVALID_VALUE);
    if ((at - kMemory) / kBytes != static_cast<std::uint64_t>(place.device))
        return failure("use", "memory", "it is another device's", CUDA_ERROR_INVALID_DEVICE);
    return at + kWire;
}

Expected<void> FakeDriver::order(const Place & /*place*/, Stream earlier, Stream later) {
    const std::scoped_lock lock(lock_);
    ordered_.push_back(fmt::format("{:x}>{:x}", number(earlier), number(later)));
    return {};
}

Expected<void> FakeDriver::capture(const Place & /*place*/, Stream stream, std::unique_ptr<Captured> what) {
    const std::scoped_lock lock(lock_);
    if (broken_)
        return failure("capture on", "a stream", "the proxy is gone", CUDA_ERROR_DEVICE_UNAVAILABLE);
    captured.emplace_back(number(stream), std::move(what));
    return {};
}

Expected<void *> FakeDriver::allocate(std::size_t size) {
    if (size > kBytes)
        return failure("allocate", "memory", "there is not so much", CUDA_ERROR_OUT_OF_MEMORY);
    return std::bit_cast<void *>(kMemory);
}

Expected<void> FakeDriver::release(void *memory) {
    if (number(memory) != kMemory)
        return failure("free", "memory", "it is not allocated", CUDA_ERROR_INVALID_VALUE);
    return {};
}

Expected<void> FakeDriver::post(const Place & /*place*/, std::span<const std::byte> message) {
    const std::scoped_lock lock(lock_);
    if (broken_)
        return failure("send to", "the proxy", "it is gone", CUDA_ERROR_DEVICE_UNAVAILABLE);
    const auto decoded = protocol::decode_request<protocol::IssueCollectives>(message);
    if (!decoded)
        std::abort();
    if (!more_)
        issued_.push_back({.communicator = decoded->fixed.communicator,
                           .stream = decoded->fixed.stream,
                           .group = decoded->fixed.group});
    auto &group = issued_.back();
    more_ = decoded->fixed.more != 0;
    const auto count = protocol::element_count<protocol::CollectiveOperation>(decoded->buffers[0]);
    group.sizes.push_back(count);
    for (std::size_t at = 0; at < count; ++at)
        group.operations.push_back(protocol::element<protocol::CollectiveOperation>(decoded->buffers[0], at));
    members_.at(group.communicator).groups = group.group;
    return {};
}

template <class Request>
void FakeDriver::reply(const protocol::ReplyMessage<typename Request::Reply> &message, const Take &take) {
    std::size_t size = protocol::reply_size<Request>();
    for (const auto &buffer : message.buffers)
        size += protocol::padded(buffer.bytes.size());
    std::vector<std::byte> bytes(size);
    if (!protocol::encode_reply<Request>(message, bytes))
        std::abort();
    take(bytes);
}

void FakeDriver::join(const protocol::Message<protocol::JoinCommunicator> &message, const Take &take) {
    const auto &fixed = message.fixed;
    const std::scoped_lock lock(lock_);
    auto &meeting = meetings_[fixed.key];
    meeting.size = fixed.size;
    const bool first = meeting.members.emplace(fixed.rank, fixed.communicator).second;
    members_[fixed.communicator] = {.key = fixed.key, .rank = fixed.rank};
    reply<protocol::JoinCommunicator>({.result = first ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE}, take);
}

void FakeDriver::state(const protocol::Message<protocol::CommunicatorState> &message, const Take &take) {
    const std::scoped_lock lock(lock_);
    const auto &member = members_.at(message.fixed.communicator);
    const auto &meeting = meetings_.at(member.key);
    protocol::ReplyMessage<protocol::CommunicatorStateReply> out;
    if (failure_ != Result::success || member.aborted) {
        out.fixed.phase = std::to_underlying(protocol::CommunicatorPhase::failed);
        out.fixed.result = std::to_underlying(member.aborted ? Result::invalid_usage : failure_);
        out.buffers[0] = protocol::view_of_text(why_);
    } else if (meeting.members.size() == meeting.size) {
        out.fixed.phase = std::to_underlying(protocol::CommunicatorPhase::ready);
        out.fixed.completed = nothing_completes_ ? 0 : member.groups;
    }
    reply<protocol::CommunicatorState>(out, take);
}

void FakeDriver::exchange(const protocol::Message<protocol::ExchangeWithMembers> &message, const Take &take) {
    std::unique_lock lock(lock_);
    auto &member = members_.at(message.fixed.communicator);
    member.groups = message.fixed.group;
    auto &meeting = meetings_.at(member.key);
    auto &all = meeting.exchanges[message.fixed.group];
    const auto bytes = message.buffers[0].bytes;
    all[member.rank].assign(bytes.begin(), bytes.end());
    changed_.notify_all();
    const bool complete = changed_.wait_for(
        lock, kPatience, [&] { return all.size() == meeting.size || member.aborted || broken_; });
    std::vector<std::byte> together;
    for (const auto &[rank, one] : all)
        together.insert(together.end(), one.begin(), one.end());
    protocol::ReplyMessage<protocol::ExchangeReply> out;
    if (complete && all.size() == meeting.size)
        out.buffers[0] = {.bytes = together, .present = true};
    reply<protocol::ExchangeWithMembers>(out, take);
}

Expected<void> FakeDriver::abort(const nccl::Place & /*place*/, std::uint64_t communicator) {
    const std::scoped_lock lock(lock_);
    told_of_abort_.insert(communicator);
    return {};
}

void FakeDriver::leave(const protocol::Message<protocol::LeaveCommunicator> &message, const Take &take) {
    const std::scoped_lock lock(lock_);
    left_.at(message.fixed.abort).push_back(message.fixed.communicator);
    // The message may be late: it was said before.
    assert_int_equal(told_of_abort_.erase(message.fixed.communicator), message.fixed.abort);
    if (message.fixed.abort != 0)
        members_.at(message.fixed.communicator).aborted = true;
    changed_.notify_all();
    reply<protocol::LeaveCommunicator>({}, take);
}

Expected<void> FakeDriver::ask(const Place & /*place*/, std::span<const std::byte> message,
                               std::size_t reply_limit, const Take &take) {
    {
        const std::scoped_lock lock(lock_);
        if (broken_)
            return failure("ask", "the proxy", "it is gone", CUDA_ERROR_DEVICE_UNAVAILABLE);
    }
    const Take limited = [&](std::span<const std::byte> reply) {
        if (reply.size() > reply_limit)
            std::abort();
        take(reply);
    };
    switch (static_cast<protocol::Id>(protocol::peek_id(message))) {
    case protocol::Id::join_communicator:
        join(protocol::decode_request<protocol::JoinCommunicator>(message).value(), limited);
        break;
    case protocol::Id::communicator_state:
        state(protocol::decode_request<protocol::CommunicatorState>(message).value(), limited);
        break;
    case protocol::Id::exchange_with_members:
        exchange(protocol::decode_request<protocol::ExchangeWithMembers>(message).value(), limited);
        break;
    case protocol::Id::leave_communicator:
        leave(protocol::decode_request<protocol::LeaveCommunicator>(message).value(), limited);
        break;
    default:
        std::abort();
    }
    return {};
}

std::vector<IssuedGroup> FakeDriver::issued() {
    const std::scoped_lock lock(lock_);
    return issued_;
}

std::vector<std::string> FakeDriver::ordered() {
    const std::scoped_lock lock(lock_);
    return ordered_;
}

std::vector<std::uint64_t> FakeDriver::left(bool abort) {
    const std::scoped_lock lock(lock_);
    return left_.at(abort ? 1 : 0);
}

std::size_t FakeDriver::joined() {
    const std::scoped_lock lock(lock_);
    return members_.size();
}

void FakeDriver::complete_nothing(bool nothing) {
    const std::scoped_lock lock(lock_);
    nothing_completes_ = nothing;
}

void FakeDriver::fail_all(Result result, std::string why) {
    const std::scoped_lock lock(lock_);
    failure_ = result;
    why_ = std::move(why);
}

void FakeDriver::break_messages(bool broken) {
    const std::scoped_lock lock(lock_);
    broken_ = broken;
    changed_.notify_all();
}

} // namespace singularity::test
