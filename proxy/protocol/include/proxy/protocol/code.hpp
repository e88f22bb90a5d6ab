// SPDX-License-Identifier: GPL-2.0-or-later
// Modules, libraries, the linker, and what is asked about functions. Images travel as blobs.
#pragma once

#include "proxy/protocol/message.hpp"

namespace singularity::protocol {

namespace detail {
[[nodiscard]] constexpr bool is_text(const View &view, std::size_t most) {
    return !view.present ||
           (view.bytes.size() <= most && std::ranges::find(view.bytes, std::byte{0}) == view.bytes.end());
}
} // namespace detail

// The image of a module or library that was compiled in several parts is several fatbins, which the driver
// links: they stand one behind the other in the blob, each at a multiple of this.
inline constexpr std::size_t kFatbinAlignment = 8;

// Announces a blob; its bytes follow in order, all of them, before anything uses it.
struct BeginBlob {
    static constexpr Id kId = Id::begin_blob;
    static constexpr const char *kName = "BeginBlob";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = NoReply;
    std::uint64_t blob = 0; // the client's number, not used before
    std::uint64_t size = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return size == 0 || size > kMostBlob ? "a blob is empty or larger than any image" : nullptr;
    }
};

struct BlobData {
    static constexpr Id kId = Id::blob_data;
    static constexpr const char *kName = "BlobData";
    static constexpr std::array<Buffer, 1> kBuffers{{{"data"}}};
    using Reply = NoReply;
    std::uint64_t blob = 0;
    std::uint64_t offset = 0; // what came before
    [[nodiscard]] const char *wrong(const std::array<View, 1> &buffers) const {
        return buffers[0].bytes.size() > kWritePiece ? "more data than one piece" : nullptr;
    }
};

// The client does not need it any more. (The daemon may keep it with the module that was made of it.)
struct DropBlob {
    static constexpr Id kId = Id::drop_blob;
    static constexpr const char *kName = "DropBlob";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = NoReply;
    std::uint64_t blob = 0;
};

struct BlobReply {
    static constexpr std::array<Buffer, 1> kBuffers{{{"data", 1, Nullable::yes}}};
};

// Part of a blob that the daemon made (complete_link).
struct ReadBlob {
    static constexpr Id kId = Id::read_blob;
    static constexpr const char *kName = "ReadBlob";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = BlobReply;
    std::uint64_t blob = 0;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 0> & /*buffers*/) const {
        return size > kReadPiece ? "more data than one piece" : nullptr;
    }
};

// A CUjit_option or CUlibraryOption with its value, an integer (or float in the low 32 bits) as in the void
// *. For CU_JIT_INFO_LOG_BUFFER and CU_JIT_ERROR_LOG_BUFFER the value is 1 where the program wants the log;
// the buffer is the daemon's (of the size in ..._SIZE_BYTES, kMostLogText at most) and its text comes in the
// reply. The options whose values point elsewhere (names and addresses of symbols and functions) do not
// travel.
struct CodeOption {
    std::uint32_t option = 0;
    std::uint32_t reserved = 0;
    std::uint64_t value = 0;
};

struct CodeReply {
    // options: those of the request, with the values after the call. Logs have no NUL.
    static constexpr std::array<Buffer, 3> kBuffers{{{"options", sizeof(CodeOption), Nullable::yes},
                                                     {"info_log", 1, Nullable::yes},
                                                     {"error_log", 1, Nullable::yes}}};
};

struct LoadModule {
    static constexpr Id kId = Id::load_module;
    static constexpr const char *kName = "LoadModule";
    static constexpr std::array<Buffer, 1> kBuffers{{{"options", sizeof(CodeOption), Nullable::yes}}};
    using Reply = CodeReply;
    std::uint64_t module = 0; // the new handle, kind "module"
    std::uint64_t blob = 0;   // fatbin, ELF, or PTX text without its NUL: the daemon puts one behind
};

// cuLibraryLoadData. CU_LIBRARY_BINARY_IS_PRESERVED: the daemon's copy stays as long as the library.
struct LoadLibrary {
    static constexpr Id kId = Id::load_library;
    static constexpr const char *kName = "LoadLibrary";
    static constexpr std::array<Buffer, 2> kBuffers{{{"options", sizeof(CodeOption), Nullable::yes},
                                                     {"library_options", sizeof(CodeOption), Nullable::yes}}};
    using Reply = CodeReply;
    std::uint64_t library = 0; // the new handle, kind "library"
    std::uint64_t blob = 0;
};

struct CreateLink {
    static constexpr Id kId = Id::create_link;
    static constexpr const char *kName = "CreateLink";
    static constexpr std::array<Buffer, 1> kBuffers{{{"options", sizeof(CodeOption), Nullable::yes}}};
    using Reply = CodeReply;
    std::uint64_t link = 0; // the new handle, kind "link"
};

// The logs in the replies of add_link_data and complete_link are those of the link, whole.
struct AddLinkData {
    static constexpr Id kId = Id::add_link_data;
    static constexpr const char *kName = "AddLinkData";
    static constexpr std::array<Buffer, 2> kBuffers{
        {{"name", 1, Nullable::yes}, {"options", sizeof(CodeOption), Nullable::yes}}};
    using Reply = CodeReply;
    std::uint64_t link = 0;
    std::uint64_t blob = 0;
    std::uint32_t type = 0; // CUjitInputType
    std::uint32_t reserved = 0;
    [[nodiscard]] const char *wrong(const std::array<View, 2> &buffers) const {
        return detail::is_text(buffers[0], kMostNameText) ? nullptr : "the name is no text";
    }
};

struct CompleteLinkReply {
    static constexpr std::array<Buffer, 3> kBuffers{CodeReply::kBuffers};
    std::uint64_t size = 0; // of the image
};

// The image becomes the blob of this number, for read_blob and drop_blob; and for load_module and
// load_library.
struct CompleteLink {
    static constexpr Id kId = Id::complete_link;
    static constexpr const char *kName = "CompleteLink";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = CompleteLinkReply;
    std::uint64_t link = 0;
    std::uint64_t blob = 0;
};

struct ParameterPlace {
    std::uint32_t offset = 0;
    std::uint32_t size = 0;
};

struct FunctionLayoutReply {
    static constexpr std::array<Buffer, 1> kBuffers{{{"parameters", sizeof(ParameterPlace), Nullable::yes}}};
};

// A function or a kernel: its handle's kind says which (cuFuncGetParamInfo or cuKernelGetParamInfo, all
// indices).
struct FunctionLayout {
    static constexpr Id kId = Id::function_layout;
    static constexpr const char *kName = "FunctionLayout";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = FunctionLayoutReply;
    std::uint64_t function = 0;
};

struct FunctionNameReply {
    static constexpr std::array<Buffer, 1> kBuffers{{{"name", 1, Nullable::yes}}};
};

struct FunctionName {
    static constexpr Id kId = Id::function_name;
    static constexpr const char *kName = "FunctionName";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = FunctionNameReply;
    std::uint64_t function = 0;
};

struct FunctionOwnerReply {
    static constexpr std::array<Buffer, 0> kBuffers{};
    std::uint64_t owner = 0; // of a function its module, of a kernel its library
};

struct FunctionOwner {
    static constexpr Id kId = Id::function_owner;
    static constexpr const char *kName = "FunctionOwner";
    static constexpr std::array<Buffer, 0> kBuffers{};
    using Reply = FunctionOwnerReply;
    std::uint64_t function = 0;
};

} // namespace singularity::protocol
