// SPDX-License-Identifier: GPL-2.0-or-later
// A session's life: its threads, its begin and its end. What it does with records is in records.cpp.
#include "session.hpp"

#include "driver_mappings.hpp"
#include "log.hpp"
#include "proxy/barrier/messages.hpp"
#include "proxy/channel/memory_file.hpp"
#include "shared_events.hpp"

#include <algorithm>
#include <cstring>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

// How long the ring's thread may take to come back from the driver before the contexts are destroyed around
// it.
constexpr std::chrono::milliseconds kToComeBack{150};
// A farewell that does not fit into the socket is not waited for.
constexpr std::chrono::milliseconds kToSayFarewell{20};
constexpr std::chrono::seconds kSessionLook{5};
// A client says that it has detached, and closes its socket then: moments later, on a machine that is busy.
constexpr std::chrono::seconds kToHangUp{2};

} // namespace

Session::Session(const SessionPlace &place, const BackEnd &back_end, DeviceOutput *output,
                 std::unique_ptr<channel::ServerEnd> channel, channel::Link link,
                 std::function<void()> closed)
    : place_(place), back_end_(back_end), output_(output), channel_(std::move(channel)),
      link_(std::move(link)), on_closed_(std::move(closed)),
      addresses_({.address = place.window, .size = place.window_size}, place.host_slice(),
                 place.device_slice()),
      objects_(addresses_, back_end.device(), place.client.ordinal),
      slabs_(back_end, [this](std::uint64_t context) { make_current_for(context); }), callbacks_(link_),
      communicators_(*this), scratch_(channel_->geometry().record_limit) {}

std::string Session::who() const {
    return fmt::format("session {} (pid {}, uid {})", place_.number, place_.peer.pid, place_.peer.uid);
}

void Session::adopt(channel::Link link, Peer peer) {
    link_ = std::move(link);
    place_.peer = peer;
}

void Session::start() {
    kLog.info("{}: begins, window {:#x}+{:#x}", who(), place_.window, place_.window_size);
    workers_.start(shared_from_this(), [this] { consume(); });
    communicators_.resume();
}

bool Session::run_beside(std::function<void()> whole) {
    auto self = weak_from_this().lock();
    if (self == nullptr)
        return false;
    workers_.start(std::move(self), std::move(whole));
    return true;
}

void Session::begin_thread() const {
    place_mappings_for(place_.mappings());
    relax_capture_mode();
}

void Session::consume() {
    begin_thread();
    while (!ending() && !channel_->interrupted()) {
        auto record = channel_->next(Deadline::after(kSessionLook));
        if (!record)
            return end(record.error().message(), true);
        if (!*record)
            continue;
        if (auto done = process(**record); !done)
            return end(done.error().message(), true);
    }
}

Expected<void> Session::deliver(channel::Packet packet) {
    switch (packet.type) {
    case channel::PacketType::descriptor:
        if (packet.descriptors.size() != 1)
            return failure("take a packet", "descriptor",
                           fmt::format("it carries {} descriptors", packet.descriptors.size()), EPROTO);
        return mailbox_.put(packet.ticket, std::move(packet.descriptors.front()));
    case channel::PacketType::callback_done:
        return callbacks_.done(packet.ticket);
    case channel::PacketType::paused:
        return pause_.answered(packet);
    case channel::PacketType::reported:
        return take_report(packet);
    case channel::PacketType::detached:
        if (presence() != Presence::asked)
            return failure("take a packet", "detached", "the client was not asked to detach", EPROTO);
        leave();
        return {};
    case channel::PacketType::aborted:
        communicators_.abort(packet.ticket);
        return {};
    default:
        return failure("take a packet", fmt::format("{}", std::to_underlying(packet.type)),
                       "a client with an open session does not send it", EPROTO);
    }
}

Expected<void> Session::take_report(const channel::Packet &packet) {
    const auto said = channel::struct_of<channel::Barrier>(packet);
    if (!said)
        return std::unexpected(said.error());
    if (packet.descriptors.size() != 1)
        return failure("take a packet", "reported",
                       fmt::format("it carries {} descriptors", packet.descriptors.size()), EPROTO);
    auto report =
        channel::from_memory_file(packet.descriptors.front().get(), said->size, barrier::kLargestMessage);
    if (!report)
        return propagate(report);
    reports_.answered(packet.ticket, std::move(*report));
    return {};
}

void Session::end(const std::string &reason, bool rule_broken) {
    if (ending_.exchange(true, std::memory_order_acq_rel))
        return;
    if (rule_broken)
        kLog.warning("{}: broke a rule and loses its session: {}", who(), reason);
    else
        kLog.info("{}: ends: {}", who(), reason);
    // The client's library may want to say why everything fails from now on.
    if (auto said = link_.send(channel::PacketType::farewell, 0, std::as_bytes(std::span(reason)), {},
                               Deadline::after(kToSayFarewell));
        !said)
        kLog.debug("{}: no farewell: {}", who(), said.error().message());
    channel_->interrupt();
    mailbox_.close();
    callbacks_.release_all();
    pause_.close();
    reports_.close();
    communicators_.abort_all("has ended");
    gate_.end();
    if (residency_ != nullptr)
        residency_->look();
    link_.shut_down();
    // Without an owner there are no threads: who made the session gives back.
    if (auto self = weak_from_this().lock())
        std::thread([self = std::move(self)] { self->close_down(); }).detach();
}

void Session::may_leave(const channel::Paused &said) {
    said_ = said;
    set_presence(Presence::asked);
}

// Everything that it was told is done: no thread is in the driver.
void Session::leave() {
    kLog.info("{}: the client has detached", who());
    set_presence(Presence::leaving);
    channel_->interrupt();
    std::thread([self = shared_from_this()] {
        self->communicators_.suspend();
        self->workers_.stop();
        while (!self->workers_.gone(Deadline::after(kSessionLook)))
            kLog.error("{}: the driver has not returned from a call although the device is quiet",
                       self->who());
        // Its process is stored next, and CRIU stores no socket whose other end is here.
        if (!self->link_.await_hang_up(Deadline::after(kToHangUp)))
            kLog.warning("{}: the client has detached and keeps its connection: its process cannot be saved",
                         self->who());
        self->set_presence(Presence::left);
        self->on_closed_();
    }).detach();
}

void Session::renew(std::unique_ptr<channel::ServerEnd> channel) {
    channel_ = std::move(channel);
    workers_.restart();
    contexts_changed(); // what is current belongs to the thread that was
    set_presence(Presence::here);
}

void Session::close_down() {
    const auto start = Deadline::Clock::now();
    workers_.stop();
    static_cast<void>(workers_.gone(Deadline::after(kToComeBack)));
    give_back();
    // Threads that were in the driver are back once their contexts are gone.
    while (!workers_.gone(Deadline::after(kSessionLook)))
        kLog.error("{}: the driver has not returned from a call although the context is gone", who());
    closed_.store(true, std::memory_order_release);
    kLog.debug("{}: everything was given back in {} ms", who(),
               std::chrono::duration_cast<std::chrono::milliseconds>(Deadline::Clock::now() - start).count());
    on_closed_();
}

// Order: what may be done while the device still works, then the contexts (which ends the work), then what
// contexts use.
void Session::give_back() {
    SharedEvents::all().leave_all(*this);
    slabs_.close(); // whoever moves them has ended before their contexts do
    const auto asked = no_questions({});
    relax_capture_mode();
    communicators_.abort_all("has ended");
    communicators_.forget_words();
    const auto &driver = back_end_.driver();
    event_times_.forget(driver, {});
    const auto check = [&](CUresult result, std::string_view what) {
        if (result != CUDA_SUCCESS)
            kLog.warning("{}: {} at its end: {}", who(), what, result_name(driver, result));
    };
    if (driver.cuCtxSetCurrent != nullptr)
        static_cast<void>(driver.cuCtxSetCurrent(nullptr));
    const auto destroy_all = [&]<class Handle>(unsigned kind, CUresult (*destroy)(Handle),
                                               std::string_view what) {
        if (destroy == nullptr)
            return;
        for (const auto real : objects_.made(kind))
            check(destroy(std::bit_cast<Handle>(real)), what);
    };
    destroy_all(driver_api::kHandleGraphExec, driver.cuGraphExecDestroy, "cuGraphExecDestroy");
    destroy_all(driver_api::kHandleContext, driver.cuCtxDestroy_v2, "cuCtxDestroy");
    destroy_all(driver_api::kHandleGraph, driver.cuGraphDestroy, "cuGraphDestroy");
    destroy_all(driver_api::kHandleLibrary, driver.cuLibraryUnload, "cuLibraryUnload");
    destroy_all(driver_api::kHandlePool, driver.cuMemPoolDestroy, "cuMemPoolDestroy");
    {
        const std::scoped_lock lock(mappings_lock_);
        for (const auto &[address, mapping] : mappings_)
            check(driver.cuMemUnmap(address, mapping.size), "cuMemUnmap");
        mappings_.clear();
    }
    destroy_all(driver_api::kHandleAllocation, driver.cuMemRelease, "cuMemRelease");
    for (const auto &range : addresses_.all())
        switch (range.kind) {
        case RangeKind::slab:
            unmap_slab(range);
            break;
        case RangeKind::reservation:
            static_cast<void>(addresses_.remove(range));
            break;
        case RangeKind::host:
            unmap_host(range);
            break;
        }
    slabs_.drop_all(); // one that was asked for as the session ended
    if (residency_ != nullptr)
        residency_->leave(gate_);
    const std::scoped_lock lock(slice_lock_);
    if (const auto slice = place_.device_slice(); std::exchange(slice_held_, false))
        check(driver.cuMemAddressFree(slice.address, slice.size), "cuMemAddressFree");
}

void Session::relax_capture_mode() const {
    // The rules of capture modes are about the program's threads, which are not these: the client keeps them.
    auto mode = CU_STREAM_CAPTURE_MODE_RELAXED;
    if (driver().cuThreadExchangeStreamCaptureMode != nullptr)
        static_cast<void>(driver().cuThreadExchangeStreamCaptureMode(&mode));
}

bool Session::make_current_here(std::uint64_t context) {
    // An unknown context is no context: the driver then says what is wrong in its own words.
    const auto real = objects_.real(driver_api::kHandleContext, context);
    static_cast<void>(driver().cuCtxSetCurrent(std::bit_cast<CUcontext>(real.value_or(0))));
    return real.has_value();
}

void Session::make_current(std::uint64_t context) {
    if (current_known_.load(std::memory_order_acquire) && current_ == context)
        return;
    current_ = context;
    // First: who ends the context in the meantime takes it back.
    current_known_.store(true, std::memory_order_release);
    if (!make_current_here(context))
        current_known_.store(false, std::memory_order_release);
}

void Session::contexts_changed() {
    // Called by workers: the ring's thread sets its context anew with the next record.
    current_known_.store(false, std::memory_order_release);
}

void Session::note(CUresult result) {
    if (result == CUDA_SUCCESS || result == CUDA_ERROR_NOT_READY)
        return;
    int none = 0;
    noted_.compare_exchange_strong(none, static_cast<int>(result), std::memory_order_acq_rel);
}

CUresult Session::take_noted() {
    if (noted_.load(std::memory_order_acquire) == 0)
        return CUDA_SUCCESS;
    return static_cast<CUresult>(noted_.exchange(0, std::memory_order_acq_rel));
}

void Session::relay_output() {
    if (output_ == nullptr)
        return;
    const std::string text = output_->collect();
    for (std::size_t at = 0; at < text.size(); at += channel::kPacketLimit) {
        const auto part =
            std::as_bytes(std::span(text).subspan(at, std::min(channel::kPacketLimit, text.size() - at)));
        if (auto sent = link_.send(channel::PacketType::output, 0, part, {}, Deadline::after(kSessionLook));
            !sent) {
            kLog.debug("{}: device output is lost: {}", who(), sent.error().message());
            return;
        }
    }
}

Expected<void> Session::reply(const channel::RecordHeader &header, std::span<const std::byte> message) {
    return channel().reply(header, message, link_.sent());
}

} // namespace singularity::proxyd
