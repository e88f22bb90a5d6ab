// SPDX-License-Identifier: GPL-2.0-or-later
// What a device image consists of. A stream of records, each a head and at most kMostPayload bytes; whoever
// reads or writes it holds one record at a time.
//
//     stream                                  once, the first
//       client                                for each client process and device
//         code, code_data...                  module images, before the first call that uses them
//         call...                             what makes the objects anew, in the order of the calls
//         slab...                             device memory of the session
//         place, content...                   what memory holds; pieces of zeros are left out
//         access, event, blob, blob_data...   the rest of the objects' states
//         object_number, call                 textures and surfaces, when there is what they are of
//         communicator...                     that are joined again
//       client_end                            with counts
//     end                                     the last
//
// Numbers are this machine's (little-endian). The check sum finds what storage and wires do to a stream; it
// is no proof of who wrote it, so whoever reads checks every number all the same.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

namespace singularity::image {

inline constexpr std::array<char, 8> kMagic{'S', 'G', 'D', 'E', 'V', 'I', 'M', 'G'};
inline constexpr std::uint32_t kVersion = 5;
inline constexpr std::size_t kMostPayload = (std::size_t{1} << 20) + (std::size_t{64} << 10);
// Content and code travel in pieces of this many bytes.
inline constexpr std::size_t kPiece = std::size_t{1} << 20;

enum class RecordType : std::uint32_t { // NOLINT(performance-enum-size): as in the file
    stream = 1,
    client,
    code,
    code_data,
    call,
    slab,
    place,
    content,
    access,
    event,
    blob,
    blob_data,
    communicator,
    client_end,
    end,
    object_number,
};
[[nodiscard]] const char *record_name(RecordType type);

struct RecordHead {
    std::uint32_t type = 0; // RecordType
    std::uint32_t reserved = 0;
    std::uint64_t index = 0; // of the record in the stream, from 0
    std::uint64_t size = 0;  // of the payload
    std::uint64_t check = 0; // of the head with 0 here, and the payload
};
static_assert(sizeof(RecordHead) == 32 && std::is_trivially_copyable_v<RecordHead>);
[[nodiscard]] std::uint64_t check_of(RecordHead head, std::span<const std::byte> payload);

// 128 bits of a module image's content.
using Digest = std::array<std::uint64_t, 2>;
[[nodiscard]] Digest digest_of(std::span<const std::byte> bytes);

// Payloads. What follows a struct is said behind it.
struct StreamRecord {
    std::array<char, 8> magic = kMagic;
    std::uint32_t version = kVersion;
    std::uint32_t clients = 0;
};

// Which client process and which of its devices: random numbers that the process has made up, and the
// device's ordinal in it.
struct ClientKey {
    std::array<std::uint64_t, 2> process{};
    std::uint64_t ordinal = 0;
    auto operator<=>(const ClientKey &) const = default;
};

struct ClientRecord {
    ClientKey key;
    std::uint64_t window = 0;
    std::uint64_t window_size = 0;
    std::array<std::uint32_t, 6> geometry{}; // of its channel, in the order of channel::Geometry
    std::int32_t pid = 0;                    // in its PID namespace
    std::int32_t noted = 0;                  // a failure that the client has not been told
    std::int32_t device_ordinal = 0;         // what messages call the device
    std::int32_t compute_major = 0;
    std::int32_t compute_minor = 0;
    std::uint32_t devices = 0;                  // of the process, as it has said in its hello
    std::array<std::uint32_t, 2> node_device{}; // the same: number of the node's device, and how many it has
    std::uint64_t names = 0;                    // objects that the daemon has named
    std::array<char, 256> device_name{};
};

struct CodeRecord { // code_data records follow
    Digest digest{};
    std::uint64_t size = 0;
};

inline constexpr std::uint32_t kCallLate = 1;      // needs the client's host memory, or something that does
inline constexpr std::uint32_t kCallContinues = 2; // the next record belongs to the same entry

struct CallRecord { // then `names` u64, then the message
    std::uint64_t context = 0;
    Digest digest{}; // of the image that the message names by a blob's number; zeros: none
    std::uint32_t flags = 0;
    std::uint32_t names = 0;
    std::uint64_t message_size = 0;
};

// Other clients of the same stream may have it, too: those have the same key.
struct SlabRecord { // then `exports` ExportRecords
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t context = 0;
    std::array<std::uint64_t, 2> key{}; // zeros: it is not shared
    std::uint64_t made = 0;             // it is the client's own
    std::uint64_t exports = 0;
};
struct ExportRecord { // an allocation that others may open
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
    std::uint64_t number = 0;
};

enum class PlaceKind : std::uint32_t { // NOLINT(performance-enum-size): as in the file
    memory = 1,                        // [address, address + size) of slabs and mappings
    variable = 2,                      // of a module or library: owner, context and name say which
    allocation = 3,                    // physical memory that is not mapped as a whole: owner
    array = 4,                         // CUDA array: owner; all of its content is there
    mipmap_level = 5,                  // of a mipmapped array: owner, and the level as the address
    end = 6,
};

inline constexpr std::uint32_t kAddressSeen = 1; // the program has asked for the variable's address
inline constexpr std::uint32_t kManaged = 2;     // cuLibraryGetManaged
inline constexpr std::uint32_t kUntouched = 4;   // as its module makes it: no content follows

struct PlaceRecord {        // then the name
    std::uint32_t kind = 0; // PlaceKind
    std::uint32_t flags = 0;
    std::uint64_t owner = 0; // handle
    std::uint64_t context = 0;
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t name_size = 0;
};

struct ContentRecord { // then bytes of the last place
    std::uint64_t offset = 0;
};

struct AccessRecord { // of a mapping of the program's
    std::uint64_t address = 0;
    std::uint64_t size = 0;
    std::uint64_t flags = 0; // CUmemAccess_flags
};

// An event that has been recorded. A context's are in the order in which they were.
struct EventRecord { // then `later` floats: milliseconds from it to each of the next ones
    std::uint64_t event = 0;
    std::uint64_t context = 0;
    double before = 0; // the save, in milliseconds
    std::uint64_t later = 0;
};

// A texture or surface object that the next call makes, and the number that the program has for it.
struct ObjectNumberRecord {
    std::uint64_t object = 0;
    std::uint64_t number = 0;
};

struct BlobRecord { // blob_data records follow, `held` bytes in all
    std::uint64_t number = 0;
    std::uint64_t size = 0;
    std::uint64_t held = 0;
};

// Nothing of it is under way: its key, and how many groups it has carried out, are all that there is.
struct CommunicatorRecord {
    std::uint64_t number = 0; // the client's
    std::uint64_t context = 0;
    std::array<std::uint64_t, 2> key{};
    std::uint32_t rank = 0;
    std::uint32_t size = 0;
    std::uint64_t completed = 0;
};

struct ClientEndRecord {
    std::uint64_t calls = 0;
    std::uint64_t slabs = 0;
    std::uint64_t places = 0;
    std::uint64_t communicators = 0;
    std::uint64_t content_bytes = 0;
};

struct EndRecord {
    std::uint64_t records = 0; // this one included
};

} // namespace singularity::image
