// SPDX-License-Identifier: GPL-2.0-or-later
// Parts of the input (fuzz_inputs.hpp) become records in the ring, and packets on the socket, of a session
// whose driver does nothing and always succeeds. Nothing may crash, hang, or be touched outside of what is
// the session's.
#include "fuzz_records.hpp"

#include "back_end.hpp"
#include "call.hpp"
#include "common/log.hpp"
#include "common/unique_fd.hpp"
#include "fuzz_inputs.hpp"
#include "proxy/driver-api/api.hpp"
#include "proxy/driver-api/dispatch.hpp"
#include "proxy/protocol/all.hpp"
#include "session.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <set>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

namespace singularity::test {

namespace {

using driver_api::kHandleKinds;

CUresult succeed() { return CUDA_SUCCESS; }

// Grants what is asked for, so that slabs come about.
CUresult grant(CUdeviceptr *address, size_t, size_t, CUdeviceptr wish, unsigned long long) {
    *address = wish;
    return CUDA_SUCCESS;
}

// Kernels have two parameters.
CUresult two_parameters(CUfunction, size_t index, size_t *offset, size_t *size) {
    if (index >= 2)
        return CUDA_ERROR_INVALID_VALUE;
    *offset = index * 8;
    *size = 8;
    return CUDA_SUCCESS;
}

// Every function succeeds and writes nothing. They are called with arguments that they do not take, which the
// calling convention of x86-64 and aarch64 allows.
driver_api::Backend make_driver() {
    driver_api::Backend driver{};
    const auto function = &succeed;
    auto *bytes = static_cast<std::byte *>(static_cast<void *>(&driver));
    for (std::size_t at = 0; at + sizeof(function) <= sizeof(driver); at += sizeof(function))
        std::memcpy(bytes + at, &function, sizeof(function));
    driver.cuMemAddressReserve = &grant;
    driver.cuFuncGetParamInfo = &two_parameters;
    // Its promise is a name.
    driver.cuGetErrorName = nullptr;
    return driver;
}

channel::Geometry geometry() {
    return {.ring_size = 1 << 16,
            .record_limit = 1 << 14,
            .slots = 4,
            .inline_size = 4096,
            .pieces = 2,
            .piece_size = 1 << 19};
}

// Records that sessions have taken without breaking a rule, packets that were whole.
struct Reached {
    std::set<std::uint32_t> records;
    std::set<channel::PacketType> packets;
};
Reached &reached() {
    static Reached instance;
    return instance;
}

// A memfd as a client makes it for shared host memory, and a descriptor that is none.
int descriptor(unsigned which) {
    static const UniqueFd kMemory = [] {
        UniqueFd made(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
        if (ftruncate(made.get(), kFuzzFileSize) != 0 ||
            fcntl(made.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) != 0)
            std::abort();
        return made;
    }();
    static const UniqueFd kOther(open("/dev/null", O_RDWR | O_CLOEXEC));
    return which % 2 == 0 ? kMemory.get() : kOther.get();
}

// As it is: the header may be wrong, and more descriptors may come than are allowed.
void send_packet(int socket, const Part &part) {
    constexpr std::size_t kMost = 6;
    iovec bytes{.iov_base = const_cast<std::uint8_t *>(part.message.data()), .iov_len = part.message.size()};
    msghdr message{};
    message.msg_iov = &bytes;
    message.msg_iovlen = 1;
    alignas(cmsghdr) std::array<char, CMSG_SPACE(kMost * sizeof(int))> control{};
    const auto count = part.slot == kNothing ? 0 : std::min<std::size_t>(part.slot, kMost);
    if (count != 0) {
        message.msg_control = control.data();
        message.msg_controllen = CMSG_SPACE(count * sizeof(int));
        cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(count * sizeof(int));
        for (std::size_t index = 0; index < count; ++index) {
            const int fd = descriptor(part.piece + static_cast<unsigned>(index));
            std::memcpy(CMSG_DATA(head) + index * sizeof(int), &fd, sizeof(fd));
        }
    }
    // What does not fit is not sent.
    static_cast<void>(sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT));
}

// As the daemon's main thread. false: the session is over.
bool hear(proxyd::Session &session) {
    auto packet = session.link().receive();
    if (!packet)
        return false;
    if (!*packet)
        return true;
    reached().packets.insert((*packet)->type);
    return session.deliver(std::move(**packet)).has_value();
}

// The ring, as a client writes it.
class Ring {
  public:
    explicit Ring(const channel::Segment &segment) : segment_(segment), bytes_(segment.ring()) {}

    void write(const Part &part) {
        const auto size = std::min<std::size_t>(part.message.size(), geometry().record_limit);
        channel::RecordHeader header;
        header.size = static_cast<std::uint32_t>(size);
        header.reply_slot = part.slot == kNothing ? channel::kNoReply : part.slot;
        header.piece = part.piece == kNothing ? channel::kNoPiece : part.piece;
        header.context = part.context == 0 ? 0 : fuzz_handle(driver_api::kHandleContext, part.context);
        std::uint64_t span = channel::record_span(size);
        if ((part.flags & kLies) != 0 && size >= sizeof(header.size))
            std::memcpy(&header.size, part.message.data(), sizeof(header.size));
        if (const auto left = bytes_.size() - head_ % bytes_.size(); span > left)
            span = left; // a broken record: there is no room for it here
        std::memcpy(bytes_.data() + head_ % bytes_.size(), &header, sizeof(header));
        if (const auto fits = std::min<std::size_t>(size, span - sizeof(header)); fits > 0)
            std::memcpy(bytes_.data() + head_ % bytes_.size() + sizeof(header), part.message.data(), fits);
        head_ += span;
        segment_.control().head.store(head_);
    }

  private:
    const channel::Segment &segment_;
    std::span<std::byte> bytes_;
    std::uint64_t head_ = 0;
};

// false: the session is over.
bool serve(proxyd::Session &session) {
    const auto next = session.channel().next(Deadline::after(std::chrono::milliseconds(0)));
    if (!next)
        return false;
    if (!*next)
        return true;
    const auto id = protocol::peek_id((*next)->message);
    if (!session.process(**next) || session.ending())
        return false;
    reached().records.insert(id);
    return true;
}

} // namespace

void fuzz_records(std::span<const std::uint8_t> input) {
    log::set_level(log::Level::kError);
    static const auto back_end = proxyd::BackEnd::with(make_driver());
    auto end = channel::ServerEnd::create(geometry());
    int sockets[2] = {-1, -1};
    if (!end || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        return;
    const UniqueFd other(sockets[1]);
    auto link = channel::Link::adopt(UniqueFd(sockets[0]));
    auto segment = channel::Segment::map((*end)->segment_fd(), geometry());
    if (!link || !segment)
        return;
    proxyd::Session session({.number = 1, .peer = {}, .window = kFuzzWindow, .window_size = kFuzzWindowSize},
                            *back_end, nullptr, std::move(*end), std::move(*link), [] {});
    session.mailbox().close();
    // One object of each kind, for which the client can guess the handle.
    for (unsigned kind = 1; kind <= kHandleKinds; ++kind)
        session.objects().add(kind, fuzz_handle(kind, 1), 0x1000 + kind);

    Ring ring(*segment);
    for (const auto &part : parts_of(input)) {
        if ((part.flags & kPacket) != 0) {
            send_packet(other.get(), part);
            if (!hear(session))
                break;
        } else {
            ring.write(part);
            if (!serve(session))
                break;
        }
    }
    session.give_back();
}

std::string reached_text() {
    const auto &known = reached();
    std::size_t messages = 0;
    std::string missing;
    protocol::for_each_message([&]<class M>() {
        if (known.records.contains(std::to_underlying(M::kId)))
            ++messages;
        else
            missing += fmt::format(" {}", M::kName);
    });
    std::size_t calls = 0;
    std::size_t all_calls = 0;
    for (std::uint32_t id = 0; id < driver_api::kApiCount; ++id) {
        if (driver_api::dispatch_row(static_cast<driver_api::ApiId>(id)).call == nullptr)
            continue;
        ++all_calls;
        if (known.records.contains(id))
            ++calls;
        else
            missing += fmt::format(" {}", driver_api::api_info(static_cast<driver_api::ApiId>(id)).symbol);
    }
    std::size_t packets = 0;
    for (const auto type : {channel::PacketType::descriptor, channel::PacketType::callback_done})
        packets += known.packets.contains(type) ? 1 : 0;
    return fmt::format("reached: {} of {} messages, {} of {} calls, {} of 2 packets; not:{}", messages,
                       protocol::kMessageCount, calls, all_calls, packets,
                       missing.empty() ? " nothing" : missing);
}

} // namespace singularity::test
