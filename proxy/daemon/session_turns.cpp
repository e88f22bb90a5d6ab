// SPDX-License-Identifier: GPL-2.0-or-later
// A session's turns at a device whose sessions' memory does not fit (residency.hpp).
#include "call_order.hpp"
#include "log.hpp"
#include "proxy/protocol/collective.hpp"
#include "session.hpp"

#include <bit>
#include <thread>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

// What is on the device in front of a collective ends by itself. What does not (it waits for something that
// the program does later) is not waited for any longer, and not again.
constexpr std::chrono::seconds kToSettle{60};
constexpr std::chrono::microseconds kLookAtDevice{20};

} // namespace

void Session::take_turns(std::shared_ptr<Residency> residency, std::shared_ptr<Contents> contents) {
    residency_ = std::move(residency);
    slabs_.use_rules(residency_, std::move(contents),
                     [this](std::uint64_t context) { return communicators_.digest_in(context); });
    residency_->join(shared_from_this(), gate_);
}

bool Session::enter() {
    if (gate_.enter())
        return true;
    const auto result = residency_->ask(gate_, [this](bool on_host) { return bring_in(on_host); });
    if (result == CUDA_SUCCESS)
        return true;
    if (result != CUDA_ERROR_NOT_READY)
        end(fmt::format("its memory ({} MiB) cannot be brought back to the device: {}", slabs_.bytes() >> 20,
                        result_name(driver(), result)),
            false);
    gate_.enter_in_vain();
    return false;
}

// The thread that serves requests: it alone opens and shuts gates.
CUresult Session::bring_in(bool on_host) {
    return slabs_.bring_in(on_host, [this] { return gate_.is_shut() && quiet(); });
}

bool Session::quiet() {
    const auto &calls = driver();
    const std::unique_lock asked(asked_, std::try_to_lock);
    if (!asked || captures() || calls.cuStreamQuery == nullptr)
        return false;
    for (; !leftovers_.empty(); leftovers_.pop_back()) {
        make_current_for(leftovers_.back().context);
        if (calls.cuEventQuery(leftovers_.back().event) == CUDA_ERROR_NOT_READY)
            return false;
        static_cast<void>(calls.cuEventDestroy_v2(leftovers_.back().event));
    }
    const auto idle = [&](std::uint64_t context, CUstream stream) {
        make_current_for(context);
        return calls.cuStreamQuery(stream) != CUDA_ERROR_NOT_READY;
    };
    for (const auto &[context, real] : objects_.handles(driver_api::kHandleContext))
        if (!idle(context, nullptr))
            return false;
    static_cast<void>(parked_.count(communicators_.backlog()));
    for (const auto &[stream, real] : objects_.handles(driver_api::kHandleStream))
        if (!parked_.has(stream) && !idle(objects_.context_of(stream), std::bit_cast<CUstream>(real)))
            return false;
    return true;
}

void Session::leave_over(std::uint64_t stream) {
    const auto &calls = driver();
    const auto real = objects_.real(driver_api::kHandleStream, stream);
    if (residency_ == nullptr || !real || *real == 0 || capturing(std::bit_cast<CUstream>(*real)) ||
        calls.cuStreamQuery == nullptr || calls.cuEventCreate == nullptr || calls.cuEventQuery == nullptr ||
        calls.cuEventRecord == nullptr || calls.cuEventDestroy_v2 == nullptr ||
        calls.cuStreamQuery(std::bit_cast<CUstream>(*real)) != CUDA_ERROR_NOT_READY)
        return;
    CUevent event = nullptr;
    if (calls.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING) != CUDA_SUCCESS)
        return;
    if (calls.cuEventRecord(event, std::bit_cast<CUstream>(*real)) != CUDA_SUCCESS) {
        static_cast<void>(calls.cuEventDestroy_v2(event));
        return;
    }
    const std::scoped_lock lock(asked_);
    leftovers_.push_back({.context = objects_.context_of(stream), .event = event});
}

std::unique_lock<std::mutex> Session::no_questions(std::optional<std::uint64_t> context) {
    std::unique_lock lock(asked_);
    std::erase_if(leftovers_, [&](const Leftover &one) { return !context || one.context == *context; });
    return lock;
}

CUresult Session::send_out() {
    const auto result = slabs_.send_out();
    // Where there is no room, nothing has moved. A context that has failed will not work with it again.
    if (result != CUDA_SUCCESS && result != CUDA_ERROR_OUT_OF_MEMORY)
        end(fmt::format("its memory cannot be moved to memory of the host: {}",
                        result_name(driver(), result)),
            false);
    return result;
}

// The ring's thread, with its turn.
bool Session::settle_for_collective() {
    if (never_settles_ || communicators_.several_of_one())
        return false;
    const auto until = Deadline::after(kToSettle);
    while (!gate_.alone() || !quiet()) {
        if (ending() || channel_->interrupted())
            return false;
        if (until.expired()) {
            kLog.warning(
                "{}: what it has put on the device has not ended in {} s: it keeps its turn in collectives",
                who(), kToSettle.count());
            never_settles_ = true;
            return false;
        }
        std::this_thread::sleep_for(kLookAtDevice);
    }
    return true;
}

// The ring's thread, without its turn: meanwhile others have the device.
void Session::wait_for_collectives() {
    const auto given_up = [this] { return ending() || channel_->interrupted(); };
    gate_.wait_for_others(true);
    residency_->look();
    while (!communicators_.backlog().wait_for_all(given_up, kToSettle) && !given_up()) {
        kLog.warning(
            "{}: collectives have not been completed in {} s; what the others lack may be a later call "
            "of this program",
            who(), kToSettle.count());
        parked_.forget_alone();
        if (parked_.count(communicators_.backlog()) == 0)
            break;
    }
    gate_.wait_for_others(false);
}

// Whether a call may be carried out although streams are parked.
bool Session::may_overtake(std::uint32_t id, std::span<const std::byte> message) {
    const auto order = order_of(id, message);
    switch (order.kind) {
    case CallOrder::Kind::nothing:
        return true;
    case CallOrder::Kind::collectives: // what the parked ones lack may be among them
        return parked_.waits_only_for(order.stream, order.communicator);
    case CallOrder::Kind::streams:
        return parked_.all_alone();
    case CallOrder::Kind::marks:
        if (!parked_.all_alone())
            return false;
        parked_.record(order.event, order.stream);
        return true;
    case CallOrder::Kind::its_stream:
        return parked_.all_alone() && !parked_.has(order.stream);
    case CallOrder::Kind::event:
        return parked_.all_alone() && !parked_.comes_after(order.event, order.stream);
    case CallOrder::Kind::everything:
        break;
    }
    return false;
}

// Once it is the record's turn: what it has to come after is complete, and the session's memory is there.
void Session::await_turn(std::optional<Turn> &turn, std::uint32_t id, std::span<const std::byte> message) {
    if (parked_.count(communicators_.backlog()) != 0 && !may_overtake(id, message))
        wait_for_collectives();
    turn.emplace(*this);
    settled_ = false;
    if (!*turn || id != std::to_underlying(protocol::IssueCollectives::kId) || !crowded())
        return;
    settled_ = settle_for_collective();
    contexts_changed(); // looking at all of them has changed the current one
}

} // namespace singularity::proxyd
