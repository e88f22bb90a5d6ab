// SPDX-License-Identifier: GPL-2.0-or-later
#include "callbacks.hpp"

#include "log.hpp"

#include <string>
#include <utility>

namespace singularity::proxyd {

namespace {
// A client that does not read its socket for so long is not going to.
constexpr auto kToCallBack = std::chrono::seconds(10);
} // namespace

Callbacks::Request *Callbacks::add(const channel::Callback &what, bool once) {
    auto request = std::make_unique<Request>(Request{.owner = this, .what = what, .once = once});
    auto *address = request.get();
    const std::scoped_lock lock(lock_);
    requests_.emplace(address, std::move(request));
    return address;
}

void Callbacks::drop(Request *request) {
    const std::scoped_lock lock(lock_);
    requests_.erase(request);
}

void Callbacks::host_function(void *request) {
    auto *mine = static_cast<Request *>(request);
    mine->owner->call(mine->what);
    if (mine->once)
        mine->owner->drop(mine);
}

void Callbacks::stream_callback(CUstream /*stream*/, CUresult status, void *request) {
    auto *mine = static_cast<Request *>(request);
    auto what = mine->what;
    what.status = static_cast<std::int32_t>(status);
    mine->owner->call(what);
    if (mine->once)
        mine->owner->drop(mine);
}

void Callbacks::call(const channel::Callback &what) {
    std::uint64_t ticket = 0;
    {
        const std::scoped_lock lock(lock_);
        if (released_)
            return;
        ticket = next_ticket_++;
        waiting_.insert(ticket);
    }
    if (auto sent =
            link_.send_struct(channel::PacketType::callback, ticket, what, Deadline::after(kToCallBack));
        !sent) {
        // Hung up, or as good as: the session's end is on its way, and nobody will answer.
        kLog.debug("a host function is not called: {}", sent.error().message());
        const std::scoped_lock lock(lock_);
        waiting_.erase(ticket);
        return;
    }
    // As long as the program's function runs; its death or the session's end releases.
    std::unique_lock lock(lock_);
    acknowledged_.wait(lock, [&] { return released_ || !waiting_.contains(ticket); });
    waiting_.erase(ticket);
}

Expected<void> Callbacks::done(std::uint64_t ticket) {
    const std::scoped_lock lock(lock_);
    if (waiting_.erase(ticket) == 0)
        return failure("take the end of callback", std::to_string(ticket), "no such callback waits", EPROTO);
    acknowledged_.notify_all();
    return {};
}

void Callbacks::release_all() {
    const std::scoped_lock lock(lock_);
    released_ = true;
    acknowledged_.notify_all();
}

} // namespace singularity::proxyd
