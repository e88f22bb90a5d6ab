// SPDX-License-Identifier: GPL-2.0-or-later
#include "blob.hpp"

#include "proxy/protocol/code.hpp"

#include <algorithm>
#include <atomic>
#include <fstream>
#include <ios>

namespace singularity::client {

std::uint64_t new_blob_number() {
    static std::atomic<std::uint64_t> next = 1;
    return next.fetch_add(1, std::memory_order_relaxed);
}

Blob::Blob(const Route &route, std::span<const std::byte> bytes)
    : route_(route), number_(new_blob_number()),
      result_(post(
          route, protocol::Message<protocol::BeginBlob>{.fixed = {.blob = number_, .size = bytes.size()}})) {
    for (std::size_t at = 0; at < bytes.size() && result_ == CUDA_SUCCESS; at += protocol::kWritePiece) {
        const auto piece = bytes.subspan(at, std::min(protocol::kWritePiece, bytes.size() - at));
        result_ = post(
            route_, protocol::Message<protocol::BlobData>{.fixed = {.blob = number_, .offset = at},
                                                          .buffers = {{{.bytes = piece, .present = true}}}});
    }
}

Blob::~Blob() {
    // An error is the daemon's death: the next call says it.
    static_cast<void>(post(route_, protocol::Message<protocol::DropBlob>{.fixed = {.blob = number_}}));
}

CUresult read_blob(const Route &route, std::uint64_t number, std::span<std::byte> bytes) {
    for (std::size_t at = 0; at < bytes.size(); at += protocol::kReadPiece) {
        const auto piece = bytes.subspan(at, std::min(protocol::kReadPiece, bytes.size() - at));
        bool complete = false;
        const auto result = ask(route,
                                protocol::Message<protocol::ReadBlob>{
                                    .fixed = {.blob = number, .offset = at, .size = piece.size()}},
                                piece.size(), [&](const auto &reply) {
                                    complete = reply.buffers[0].bytes.size() == piece.size();
                                    if (complete)
                                        std::ranges::copy(reply.buffers[0].bytes, piece.begin());
                                });
        if (result != CUDA_SUCCESS)
            return result;
        if (!complete)
            return CUDA_ERROR_UNKNOWN;
    }
    return CUDA_SUCCESS;
}

CUresult read_file(const char *path, std::vector<std::byte> &bytes) {
    std::ifstream file(path, std::ios::binary | std::ios::ate);
    if (!file)
        return CUDA_ERROR_FILE_NOT_FOUND;
    const auto size = static_cast<std::streamoff>(file.tellg());
    if (size < 0)
        return CUDA_ERROR_FILE_NOT_FOUND;
    bytes.resize(static_cast<std::size_t>(size));
    file.seekg(0);
    if (!file.read(static_cast<char *>(static_cast<void *>(bytes.data())), size))
        return CUDA_ERROR_FILE_NOT_FOUND;
    return CUDA_SUCCESS;
}

} // namespace singularity::client
