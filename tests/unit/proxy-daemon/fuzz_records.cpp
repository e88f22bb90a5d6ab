// SPDX-License-Identifier: GPL-2.0-or-later
// A client that writes anything: bytes become records in the ring of a session whose driver does nothing and
// always succeeds. Nothing may crash, hang, or be touched outside of what is the session's.
//
// Input: records one after the other, each {u16 size, u8 slot, u8 piece, u8 context, u8 lies, message}. slot,
// piece: as they are, 0xff for none. lies: bit 0: the header's size is what the first four bytes of the
// message say instead.
#include "fuzz_records.hpp"

#include "back_end.hpp"
#include "call.hpp"
#include "common/log.hpp"
#include "session.hpp"

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <utility>

#include <sys/socket.h>

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

struct RecordHead {
    std::uint16_t size;
    std::uint8_t slot;
    std::uint8_t piece;
    std::uint8_t context;
    std::uint8_t lies;
};

} // namespace

std::uint64_t fuzz_handle(unsigned kind, std::uint64_t index) {
    return std::uint64_t{0x0C00'0000'0000} | (std::uint64_t{kind} << 36) | (index << 4);
}

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

    const auto ring = segment->ring();
    std::uint64_t head = 0;
    while (input.size() > sizeof(RecordHead)) {
        RecordHead record{};
        std::memcpy(&record, input.data(), sizeof(record));
        input = input.subspan(sizeof(record));
        const auto message =
            input.first(std::min<std::size_t>({record.size, input.size(), geometry().record_limit}));
        input = input.subspan(message.size());
        channel::RecordHeader header;
        header.size = static_cast<std::uint32_t>(message.size());
        header.reply_slot = record.slot == 0xff ? channel::kNoReply : record.slot;
        header.piece = record.piece == 0xff ? channel::kNoPiece : record.piece;
        header.context = record.context == 0 ? 0 : fuzz_handle(driver_api::kHandleContext, record.context);
        std::uint64_t span = channel::record_span(message.size());
        if ((record.lies & 1) != 0 && message.size() >= 4)
            std::memcpy(&header.size, message.data(), 4);
        if (const auto left = ring.size() - head % ring.size(); span > left)
            span = left; // a broken record: there is no room for it here
        std::memcpy(ring.data() + head % ring.size(), &header, sizeof(header));
        std::memcpy(ring.data() + head % ring.size() + sizeof(header), message.data(),
                    std::min<std::size_t>(message.size(), span - sizeof(header)));
        head += span;
        segment->control().head.store(head);
        const auto next = session.channel().next(Deadline::after(std::chrono::milliseconds(0)));
        if (!next)
            break;
        if (*next && (!session.process(**next) || session.ending()))
            break;
    }
    session.give_back();
}

} // namespace singularity::test

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size);

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t *data, std::size_t size) {
    singularity::test::fuzz_records({data, size});
    return 0;
}
