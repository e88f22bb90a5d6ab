// SPDX-License-Identifier: GPL-2.0-or-later
#include "fuzz_session.hpp"

#include "proxy/driver-api/dispatch.hpp"
#include "proxy/protocol/all.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdlib>
#include <cstring>
#include <utility>

#include <fcntl.h>
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

// One for all: nobody looks at what is in it.
CUresult give_page(void **memory, size_t, unsigned) {
    alignas(4096) static std::array<std::byte, 4096> page{};
    *memory = page.data();
    return CUDA_SUCCESS;
}
CUresult same_address(CUdeviceptr *device, void *memory, unsigned) {
    *device = std::bit_cast<CUdeviceptr>(memory);
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

// All arrays are of one kind, and those with levels have two of them.
CUresult describe_array(CUDA_ARRAY3D_DESCRIPTOR *description, CUarray) {
    *description = {8, 4, 0, CU_AD_FORMAT_FLOAT, 1, 0};
    return CUDA_SUCCESS;
}
CUresult give_level(CUarray *, CUmipmappedArray, unsigned level) {
    return level < 2 ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
}
CUresult give_texture(CUtexObject *object, const CUDA_RESOURCE_DESC *, const CUDA_TEXTURE_DESC *,
                      const CUDA_RESOURCE_VIEW_DESC *) {
    *object = 7;
    return CUDA_SUCCESS;
}
CUresult give_surface(CUsurfObject *object, const CUDA_RESOURCE_DESC *) {
    *object = 7;
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
    driver.cuMemHostAlloc = &give_page;
    driver.cuMemHostGetDevicePointer_v2 = &same_address;
    driver.cuFuncGetParamInfo = &two_parameters;
    driver.cuArray3DGetDescriptor_v2 = &describe_array;
    driver.cuMipmappedArrayGetLevel = &give_level;
    driver.cuTexObjectCreate = &give_texture;
    driver.cuSurfObjectCreate = &give_surface;
    // Its promise is a name.
    driver.cuGetErrorName = nullptr;
    return driver;
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

} // namespace

// Each session's own: what one joins is none of another's.
std::shared_ptr<collectives::Engine> fuzz_engine() {
    auto engine = collectives::Engine::start({});
    return engine ? std::move(*engine) : nullptr;
}

driver_api::Backend fuzz_driver() { return make_driver(); }

channel::Geometry fuzz_geometry() {
    return {.ring_size = 1 << 16,
            .record_limit = 1 << 14,
            .slots = 4,
            .inline_size = 4096,
            .pieces = 2,
            .piece_size = 1 << 19};
}

void add_objects(proxyd::Session &session) {
    for (unsigned kind = 1; kind <= kHandleKinds; ++kind)
        session.objects().add(kind, fuzz_handle(kind, 1), 0x1000 + kind);
}

std::unique_ptr<FuzzSession> FuzzSession::begin(const proxyd::BackEnd &back_end) {
    auto end = channel::ServerEnd::create(fuzz_geometry());
    std::array<int, 2> sockets{-1, -1};
    if (!end || socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets.data()) != 0)
        return nullptr;
    UniqueFd other(sockets[1]);
    auto link = channel::Link::adopt(UniqueFd(sockets[0]));
    auto segment = channel::Segment::map((*end)->segment_fd(), fuzz_geometry());
    if (!link || !segment)
        return nullptr;
    proxyd::SessionPlace place;
    place.number = 1;
    place.window = kFuzzWindow;
    place.window_size = kFuzzWindowSize;
    auto session =
        std::make_unique<proxyd::Session>(place, back_end, nullptr, std::move(*end), std::move(*link), [] {});
    session->mailbox().close();
    session->communicators().use({.engine = fuzz_engine(), .device = nullptr, .nccl = nullptr});
    add_objects(*session);
    return std::unique_ptr<FuzzSession>(
        new FuzzSession(std::move(other), std::move(*segment), std::move(session)));
}

FuzzSession::Taken FuzzSession::take(const Part &part) {
    if ((part.flags & kPacket) != 0) {
        send_packet(other_.get(), part);
        return hear();
    }
    write(part);
    return serve();
}

// As the daemon's main thread.
FuzzSession::Taken FuzzSession::hear() {
    auto packet = session_->link().receive();
    if (!packet)
        return {.over = true, .record = {}, .packet = {}};
    if (!*packet)
        return {};
    const auto type = (*packet)->type;
    const bool good = session_->deliver(std::move(**packet)).has_value();
    return {.over = !good, .record = {}, .packet = type};
}

// As a client writes it.
void FuzzSession::write(const Part &part) {
    const auto bytes = segment_.ring();
    const auto size = std::min<std::size_t>(part.message.size(), fuzz_geometry().record_limit);
    channel::RecordHeader header;
    header.size = static_cast<std::uint32_t>(size);
    header.reply_slot = part.slot == kNothing ? channel::kNoReply : part.slot;
    header.piece = part.piece == kNothing ? channel::kNoPiece : part.piece;
    header.context = part.context == 0 ? 0 : fuzz_handle(driver_api::kHandleContext, part.context);
    std::uint64_t span = channel::record_span(size);
    if ((part.flags & kLies) != 0 && size >= sizeof(header.size))
        std::memcpy(&header.size, part.message.data(), sizeof(header.size));
    if (const auto left = bytes.size() - head_ % bytes.size(); span > left)
        span = left; // a broken record: there is no room for it here
    std::memcpy(bytes.data() + head_ % bytes.size(), &header, sizeof(header));
    if (const auto fits = std::min<std::size_t>(size, span - sizeof(header)); fits > 0)
        std::memcpy(bytes.data() + head_ % bytes.size() + sizeof(header), part.message.data(), fits);
    head_ += span;
    segment_.control().head.store(head_);
}

FuzzSession::Taken FuzzSession::serve() {
    const auto next = session_->channel().next(Deadline::after(std::chrono::milliseconds(0)));
    if (!next)
        return {.over = true, .record = {}, .packet = {}};
    if (!*next)
        return {};
    const auto id = protocol::peek_id((*next)->message);
    if (!session_->process(**next) || session_->ending())
        return {.over = true, .record = {}, .packet = {}};
    return {.over = false, .record = id, .packet = {}};
}

} // namespace singularity::test
