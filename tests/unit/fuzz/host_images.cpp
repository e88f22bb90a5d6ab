// SPDX-License-Identifier: GPL-2.0-or-later
// A directory of CRIU's images with any content, as another host or an ill disk may have left it: each part
// is a message of the file that its slot names, in a directory of its own. Everything that reads such a
// directory before criu itself does reads it. Nothing may crash, hang, take much more memory than the files
// have bytes, or be led out of the places that the request gives.
#include "bindings.hpp"
#include "bound.hpp"
#include "common/log.hpp"
#include "common/unique_fd.hpp"
#include "criu-hooks/host/connections.hpp"
#include "expect.hpp"
#include "file.hpp"
#include "grown.hpp"
#include "host_connections.hpp"
#include "log.hpp"
#include "memory_directory.hpp"
#include "pages.hpp"
#include "places.hpp"
#include "reached.hpp"
#include "records.hpp"
#include "socket_options.hpp"
#include "statistics.hpp"
#include "subject.hpp"
#include "verify.hpp"
#include "written_files.hpp"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <map>
#include <string>
#include <vector>

#include <fcntl.h>
#include <netinet/in.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <unistd.h>

namespace singularity::test {

namespace {

using host::encoded_varint;
using host::Magic;

// Of a part's flags.
constexpr std::uint8_t kRaw = 1;     // no length in front of the message
constexpr std::uint8_t kNoMagic = 2; // of a file's first part: nothing in front of that, either

enum class Kind : std::uint8_t { records, pages, text };
struct File {
    const char *name;
    Kind kind;
    Magic magic;
};
constexpr std::array kFiles{
    File{"pstree.img", Kind::records, Magic::kProcesses},
    File{"core-1.img", Kind::records, Magic::kCore},
    File{"core-2.img", Kind::records, Magic::kCore},
    File{"files.img", Kind::records, Magic::kFiles},
    File{"mountpoints-12.img", Kind::records, Magic::kMounts},
    File{"pagemap-1.img", Kind::records, Magic::kPagemap},
    File{"pages-1.img", Kind::pages, Magic::kPagemap},
    File{"ghost-file-1.img", Kind::records, Magic::kGhostFile},
    File{"stats-dump", Kind::records, Magic::kStatistics},
    File{"criu.log", Kind::text, Magic::kCore},
    File{host::kFilesTable, Kind::records, Magic::kWrittenFiles},
    File{host::kSocketsTable, Kind::records, Magic::kSocketOptions},
    File{host::kBindingsTable, Kind::records, Magic::kBindings},
};
enum Slot : std::uint8_t {
    kTree,
    kCore1,
    kCore2,
    kOpen,
    kMounts,
    kPagemap,
    kPages,
    kGhost,
    kStatistics,
    kLog,
    kWritten,
    kSockets,
    kProcessors
};

constexpr std::uint32_t kUid = 1000;
constexpr std::size_t kWhole = std::size_t{1} << 20U;

MemoryDirectory &images() {
    static MemoryDirectory instance;
    return instance;
}
MemoryDirectory &outside() { // what the node's mounts are bound from
    static MemoryDirectory instance;
    return instance;
}

void append(std::string &content, const File &file, const Part &part) {
    if (content.empty() && file.kind == Kind::records && (part.flags & kNoMagic) == 0)
        content = host::framed(file.magic, {});
    if (file.kind == Kind::records && (part.flags & kRaw) == 0) {
        const auto size = static_cast<std::uint32_t>(part.message.size());
        content.append(reinterpret_cast<const char *>(&size), sizeof(size));
    }
    content.append(part.message.begin(), part.message.end());
}

// A file of pages is as long as the number in front of its part says, and has none.
void write_pages(const File &file, const std::string &content) {
    constexpr std::uint32_t kMostPages = 1U << 26U;
    std::uint32_t size = 0;
    std::memcpy(&size, content.data(), std::min(content.size(), sizeof(size)));
    const UniqueFd fd(openat(images().fd(), file.name, O_WRONLY | O_CREAT | O_CLOEXEC, 0600));
    if (ftruncate(fd.get(), size % kMostPages) != 0)
        std::abort();
}

void write_images(const std::vector<Part> &parts) {
    const auto before = host::names_in(images().fd());
    for (const auto &name : before.value_or(std::vector<std::string>()))
        unlinkat(images().fd(), name.c_str(), 0);
    std::map<std::size_t, std::string> contents;
    for (const auto &part : parts) {
        const auto slot = part.slot % kFiles.size();
        append(contents[slot], kFiles.at(slot), part);
    }
    for (const auto &[slot, content] : contents) {
        const auto &file = kFiles.at(slot);
        if (file.kind == Kind::pages)
            write_pages(file, content);
        else if (!host::write_file_at(images().fd(), file.name, content))
            std::abort();
    }
}

Reached &reached() {
    static Reached instance({"credentials", "pages", "places", "names", "grown", "written", "bound",
                             "connections", "sockets", "processors", "statistics", "log", "end of the log"});
    return instance;
}

void reached_if(bool good, std::string_view what) {
    if (good)
        reached().add(what);
}

void read_pages() {
    const auto cuts = host::page_cuts(images().fd());
    if (!cuts)
        return;
    for (const auto &[name, offsets] : *cuts)
        expect(std::ranges::is_sorted(offsets) && (offsets.empty() || offsets.front() > 0),
               "a file of pages is cut in its order");
    reached_if(std::ranges::any_of(*cuts, [](const auto &one) { return !one.second.empty(); }), "pages");
}

// Which files it speaks of, for who looks at their sizes.
host::FileNames read_written() {
    host::FileNames out;
    const auto table = host::read_written_files(images().fd());
    for (const auto &one : table.value_or(host::WrittenFiles()).files) {
        reached().add("written");
        std::uint64_t behind = 0;
        for (const auto &extent : one.copy.extents) {
            expect(extent.begin >= behind && extent.size <= one.size - extent.begin,
                   "extents lie in the file, in their order");
            behind = extent.begin + extent.size;
        }
        for (const auto &[rest, identity] : one.relatives)
            expect(rest.find('/') == std::string::npos, "a relative is in the same directory");
        out.insert(one.name);
    }
    return out;
}

// Whatever an image calls a file, it is below the mount that the file is on.
void read_places(const host::RestoreRequest &request) {
    const auto places = host::places_of(request);
    if (!places)
        return;
    reached_if(!places->empty(), "places");
    const auto look_at_names = [&](host::Bytes message) {
        const auto fields = host::fields_of(message);
        for (const auto &field : fields.value_or(std::vector<host::Field>()))
            for (const auto &[mount, place] : *places) {
                const auto path = host::present_path(*places, mount, field.text());
                if (!path || !*path || !place.outside)
                    continue;
                reached().add("names");
                const auto where = (*path)->lexically_relative(*place.outside);
                expect(where.empty() || *where.begin() != "..", "a name is below its mount");
            }
    };
    const auto look_at_files = [&](host::Bytes message) {
        const auto fields = host::fields_of(message);
        for (const auto &field : fields.value_or(std::vector<host::Field>()))
            look_at_names(field.bytes);
        return Expected<void>();
    };
    static_cast<void>(host::for_each_record(request.images, "files.img", Magic::kFiles, look_at_files));
}

// Messages, from the field numbers of CRIU's images/*.proto.
std::string number(std::uint32_t field, std::uint64_t value) {
    return encoded_varint(std::uint64_t{field} << 3U) + encoded_varint(value);
}
std::string bytes(std::uint32_t field, const std::string &value) {
    return encoded_varint(std::uint64_t{field} << 3U | 2U) + encoded_varint(value.size()) + value;
}

Part part_of(Slot slot, const std::string &message) {
    return {.slot = slot,
            .piece = kNothing,
            .context = 0,
            .flags = 0,
            .message = Bytes(message.begin(), message.end())};
}

std::string core() {
    std::string ids;
    for (std::uint32_t field = 1; field <= 8; ++field)
        ids += number(field, kUid);
    return bytes(3, number(1, 1)) +
           bytes(5, bytes(10, ids + number(9, 0) + number(14, kUid) + number(18, 1)));
}

std::string open_file_of(std::uint64_t flags, std::uint64_t size) {
    return number(1, 1) + bytes(3, number(2, flags) + bytes(6, "/home/log") + number(7, 5 << 1U) +
                                       number(8, size) + number(10, 0100644));
}

std::string bound_socket() {
    return number(1, 9) +
           bytes(16, bytes(11, std::string("socket\0", 7)) + bytes(14, "/home") + number(17, 5 << 1U));
}

// Two extents, and a relative.
std::string written_file() {
    return bytes(1, "/home/log") + number(2, 5) + bytes(3, "inode 1:2.3") + number(4, 100) + number(9, 1) +
           number(10, 1) + number(12, 0) + number(13, 10) + number(12, 50) + number(13, 50) +
           bytes(15, ".1") + bytes(16, "inode 4:5.6");
}

// With an option, and a group that takes what one sender sends.
std::string settings_of_socket() {
    const std::string address(sizeof(sockaddr_in), '\1');
    return number(1, 1) + number(2, 3) +
           bytes(3, number(1, SOL_SOCKET) + number(2, SO_TIMESTAMP) + bytes(3, "\1")) +
           bytes(4, number(1, 0) + bytes(2, "lo") + bytes(3, address) + number(4, 1) + bytes(5, address));
}

// flags: USK_...
std::string stream_of(std::uint64_t inode, std::uint64_t peer, std::uint64_t flags) {
    return bytes(16, number(2, inode) + number(3, SOCK_STREAM) + number(6, flags) + number(8, peer));
}

std::vector<std::vector<Part>> all_good() {
    const std::uint32_t size = 3U << 20U;
    const std::string length(reinterpret_cast<const char *>(&size), sizeof(size));
    std::vector<Part> all{
        part_of(kTree, number(1, 1) + number(2, 0) + number(5, 1)),
        part_of(kTree, number(1, 2) + number(2, 1) + number(5, 2)),
        part_of(kCore1, core()),
        part_of(kCore2, core()),
        part_of(kMounts, number(2, 5) + bytes(7, "/home") + bytes(18, "home")),
        part_of(kMounts, number(2, 6) + bytes(7, "./")),
        part_of(kMounts, number(2, 7) + bytes(7, "/etc") + bytes(8, outside().path()) +
                             bytes(18, "CRIU:AUTOGENERATED")),
        part_of(kOpen, open_file_of(O_APPEND, 2)),
        part_of(kPagemap, number(1, 1)),
        part_of(kPagemap, number(1, 0x7f0000000000) + number(5, 512) + number(4, 4)),
        part_of(kPagemap, number(1, 0x7f1000000000) + number(2, 256) + number(3, 0)),
        part_of(kPages, length),
        part_of(kGhost, number(1, kUid) + number(3, 0100644)),
        part_of(kStatistics, bytes(1, number(2, 1234))),
        part_of(kLog, "(00.2)     27: Error (criu/files-reg.c:2175): File a has bad size 5 (expect 4)\n"),
    };
    auto with_socket = all;
    with_socket.push_back(part_of(kOpen, bound_socket()));
    auto with_written = all;
    with_written.push_back(part_of(kWritten, number(1, 1) + number(2, 1)));
    with_written.push_back(part_of(kWritten, written_file()));
    auto with_connection = all;
    with_connection.push_back(part_of(kOpen, stream_of(4711, 4712, 0)));
    with_connection.push_back(part_of(kOpen, stream_of(4712, 0, 1)));
    auto with_settings = all;
    with_settings.push_back(part_of(kSockets, settings_of_socket()));
    with_settings.push_back(part_of(kProcessors, number(1, 1) + bytes(2, "\x0f")));
    with_settings.push_back(part_of(kProcessors, number(1, 2) + bytes(2, "\x02")));
    return {all, with_socket, with_written, with_connection, with_settings};
}

} // namespace

void run_input(std::span<const std::uint8_t> input) {
    log::set_sink([](log::Level, std::string_view) {});
    write_images(parts_of(input));
    static const bool kMade = host::write_file_at(outside().fd(), "log", "grown").has_value();
    expect(kMade, "there is a file that has grown");
    host::Context context;
    context.uid = kUid;
    context.gid = kUid;
    context.no_new_privileges = true;
    host::RestoreRequest request;
    request.images = images().fd();
    request.root = outside().path();
    request.mounts = {{.key = "home", .path = outside().path()}};

    reached_if(host::verify_credentials(context, images().fd()).has_value(), "credentials");
    read_pages();
    read_places(request);
    reached_if(host::verify_bound_sockets(context, request).has_value(), "bound");
    const auto half = host::half_connections(images().fd());
    reached_if(half && !half->empty(), "connections");
    const auto settings = host::read_socket_options(images().fd());
    reached_if(settings && !settings->empty(), "sockets");
    const auto bindings = host::read_bindings(images().fd());
    reached_if(bindings && !bindings->threads.empty(), "processors");
    static_cast<void>(host::saved_connections(images().fd()));
    prctl(PR_SET_DUMPABLE,
          1); // or sanitizers could not look at a process of which a thread has had other ids
    const auto before = host::read_file_at(images().fd(), "files.img", kWhole);
    const auto places = host::places_of(request);
    if (places && host::accept_grown_files(request, *places, read_written()) && before)
        reached_if(host::read_file_at(images().fd(), "files.img", kWhole).value_or(*before) != *before,
                   "grown");
    reached_if(host::frozen_time(images().fd()).has_value(), "statistics");
    const auto text = host::read_file_at(images().fd(), "criu.log", kWhole);
    reached_if(text && !host::explain(*text).empty(), "log");
    reached_if(text && !host::last_words(*text).empty(), "end of the log");
}

const std::vector<std::vector<Part>> &good_inputs() {
    static const auto kGood = all_good();
    return kGood;
}

std::string reached_text() {
    static_cast<void>(images()); // which ends after what is counted has been said
    return reached().text();
}

} // namespace singularity::test
