// SPDX-License-Identifier: GPL-2.0-or-later
#include "connection.hpp"

#include <algorithm>
#include <array>
#include <utility>
#include <vector>

#include <fmt/format.h>

namespace singularity::collectives {

namespace {

// A distant process says something so often, and is lost when nothing has come for so long.
constexpr std::chrono::seconds kBetweenSigns{2};
constexpr Silence kWithoutSign{std::chrono::seconds(10)};
// A process of this host hangs up when it dies.
constexpr Silence kForever{std::chrono::hours(24 * 365)};
// Whoever takes nothing for so long has stopped reading.
constexpr Silence kToTake{std::chrono::seconds(30)};
constexpr std::size_t kMostTogether = 64;

std::unexpected<Error> nonsense(std::string what) {
    return failure("understand", "a peer", std::move(what), EPROTO);
}

} // namespace

void Connection::put(Frame frame) {
    const std::scoped_lock lock(lock_);
    if (closing_)
        return;
    queue_.push_back(std::move(frame));
    changed_.notify_one();
}

void Connection::write(Instance instance, std::uint32_t rank, const std::shared_ptr<Area> &area,
                       std::size_t at, std::size_t size) {
    Frame frame{.head = {.kind = std::to_underlying(Kind::data),
                         .rank = rank,
                         .instance = instance,
                         .a = at,
                         .b = size},
                .area = area,
                .text = {}};
    // Heads go to everybody, and who does not read one may be through with its round before it has gone: its
    // place may be written again.
    if (size <= kHead) {
        const auto bytes = area->bytes(at, size);
        frame.text.assign(static_cast<const char *>(static_cast<const void *>(bytes.data())), size);
        frame.area = nullptr;
    }
    put(std::move(frame));
}

void Connection::count(Instance instance, std::uint32_t rank, std::uint32_t counter, std::uint64_t value) {
    put({.head = {.kind = std::to_underlying(Kind::count),
                  .rank = rank,
                  .instance = instance,
                  .a = counter,
                  .b = value},
         .area = nullptr,
         .text = {}});
}

void Connection::say_here(Instance instance) {
    put({.head = {.kind = std::to_underlying(Kind::here), .instance = instance},
         .area = nullptr,
         .text = {}});
}

void Connection::show_area(Instance instance, std::uint32_t rank, const std::shared_ptr<Area> &area) {
    put({.head = {.kind = std::to_underlying(Kind::area), .rank = rank, .instance = instance},
         .area = area,
         .text = {}});
}

void Connection::say_failed(Instance instance, std::string text) {
    text.resize(std::min(text.size(), kMostReason));
    const auto size = text.size();
    put({.head = {.kind = std::to_underlying(Kind::failed), .instance = instance, .a = size},
         .area = nullptr,
         .text = std::move(text)});
}

void Connection::close(bool at_once) {
    const std::scoped_lock lock(lock_);
    closing_ = true;
    changed_.notify_all();
    if (at_once)
        socket_.shut_down();
}

Expected<void> Connection::send(std::deque<Frame> &frames) {
    std::vector<iovec> parts;
    const auto flush = [&](int descriptor) {
        auto sent = socket_.send(parts, kToTake, descriptor);
        parts.clear();
        return sent;
    };
    for (auto &frame : frames) {
        const bool shows = frame.head.kind == std::to_underlying(Kind::area);
        if (shows && !parts.empty())
            if (auto sent = flush(-1); !sent)
                return sent;
        parts.push_back({.iov_base = &frame.head, .iov_len = sizeof(frame.head)});
        if (!frame.text.empty())
            parts.push_back({.iov_base = frame.text.data(), .iov_len = frame.text.size()});
        else if (frame.head.kind == std::to_underlying(Kind::data))
            parts.push_back(
                {.iov_base = frame.area->bytes(frame.head.a, frame.head.b).data(), .iov_len = frame.head.b});
        if (shows)
            if (auto sent = flush(frame.area->descriptor()); !sent)
                return sent;
    }
    return parts.empty() ? Expected<void>() : flush(-1);
}

void Connection::write_out() {
    for (;;) {
        std::deque<Frame> frames;
        {
            std::unique_lock lock(lock_);
            const auto something = [this] { return closing_ || !queue_.empty(); };
            if (!changed_.wait_for(lock, kBetweenSigns, something) && distant_)
                queue_.push_back(
                    {.head = {.kind = std::to_underlying(Kind::alive)}, .area = nullptr, .text = {}});
            if (queue_.empty() && closing_)
                break;
            for (; !queue_.empty() && frames.size() < kMostTogether; queue_.pop_front())
                frames.push_back(std::move(queue_.front()));
        }
        if (!send(frames))
            break; // the reader says why
    }
    socket_.shut_down();
}

void Connection::read() {
    Expected<void> done;
    while (done)
        done = read_one();
    close(true);
    receiver_.lost(peer_, done.error().message());
}

Expected<void> Connection::receive(std::span<std::byte> bytes, UniqueFd *descriptor) {
    return socket_.receive(bytes, distant_ ? kWithoutSign : kForever, descriptor);
}

Expected<void> Connection::read_one() {
    FrameHead head;
    UniqueFd descriptor;
    if (auto got = receive(std::as_writable_bytes(std::span(&head, 1)), distant_ ? nullptr : &descriptor);
        !got)
        return got;
    switch (static_cast<Kind>(head.kind)) {
    case Kind::here:
        receiver_.here(peer_, head.instance);
        return {};
    case Kind::area:
        if (!descriptor)
            return nonsense("it shows memory without a descriptor");
        receiver_.area(peer_, head.instance, head.rank, std::move(descriptor));
        return {};
    case Kind::data:
        return read_data(head);
    case Kind::count:
        return take_count(head);
    case Kind::failed: {
        if (head.a > kMostReason)
            return nonsense("its reason is too long");
        std::string text(head.a, '\0');
        if (auto got = receive(std::as_writable_bytes(std::span(text))); !got)
            return got;
        receiver_.failed(peer_, head.instance, text);
        return {};
    }
    case Kind::alive:
        return {};
    default:
        return nonsense(fmt::format("there is no frame {}", head.kind));
    }
}

Expected<void> Connection::read_data(const FrameHead &head) {
    const auto kept = receiver_.kept(peer_, head.instance, head.rank);
    if (kept.area == nullptr) {
        // Data of a communicator that was left here, unless it is larger than any area.
        if (head.b > Shape::of(1).size + Shape::of(kMostMembers).size)
            return nonsense("it sends no member's data");
        return skip(head.b);
    }
    const auto &shape = kept.area->shape();
    if (head.a < shape.data_at || head.a > shape.size || head.b > shape.size - head.a)
        return nonsense(fmt::format("data at {:#x}+{:#x} lies outside of a member's area", head.a, head.b));
    return receive(kept.area->bytes(head.a, head.b));
}

Expected<void> Connection::skip(std::uint64_t size) {
    std::array<std::byte, 16384> nowhere{};
    while (size != 0) {
        const auto now = std::min<std::uint64_t>(size, nowhere.size());
        if (auto got = receive(std::span(nowhere).first(now)); !got)
            return got;
        size -= now;
    }
    return {};
}

Expected<void> Connection::take_count(const FrameHead &head) {
    const auto kept = receiver_.kept(peer_, head.instance, head.rank);
    if (kept.area == nullptr)
        return {};
    const auto counter = static_cast<std::uint32_t>(head.a);
    if (head.a >= kept.area->shape().counters() || head.b < kept.area->read(counter))
        return nonsense(fmt::format("counter {} does not go to {}", head.a, head.b));
    if (kept.group != nullptr)
        kept.group->arrived(head.rank, counter, head.b);
    else
        kept.area->write(counter, head.b);
    return {};
}

} // namespace singularity::collectives
