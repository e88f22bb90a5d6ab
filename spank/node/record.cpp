// SPDX-License-Identifier: GPL-2.0-or-later
#include "record.hpp"

#include "common/replace_file.hpp"
#include "common/text.hpp"
#include "packet.hpp"

#include <algorithm>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::node {

namespace {

// A specification has come in a packet; what is added to it is small: three descriptors of each task.
constexpr std::size_t kRecordLimit = 2 * kPacketLimit;

struct RecordPacket {
    static constexpr std::uint16_t kType = 0x5272;
    Record record;
    static void fields(auto &self, auto &visit) { visit(self.record); }
};

Expected<void> make_directory(const std::filesystem::path &path, mode_t mode, uid_t uid, gid_t gid) {
    if (mkdir(path.c_str(), mode) != 0 && errno != EEXIST)
        return std::unexpected(errno_error("make the directory", path.native()));
    auto directory = open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!directory)
        return propagate(directory);
    if (fchown(directory->get(), uid, gid) != 0 || fchmod(directory->get(), mode) != 0)
        return std::unexpected(errno_error("set owner and mode of", path.native()));
    return {};
}

std::string hosts_text(const Spec &spec) {
    std::ifstream file("/etc/hosts");
    const std::string text(std::istreambuf_iterator<char>(file), {});
    std::vector<Neighbour> names{
        {.name = spec.hostname, .address = spec.address.substr(0, spec.address.find('/'))}};
    names.insert(names.end(), spec.neighbours.begin(), spec.neighbours.end());
    return hosts_with(text, names);
}

} // namespace

// Resolvers may give all addresses that a name has anywhere in the file: it has no other.
std::string hosts_with(std::string_view text, const std::vector<Neighbour> &names) {
    std::string out;
    for (const auto &[name, address] : names)
        out += fmt::format("{} {}\n", address, name);
    const auto is_ours = [&](const std::string &word) {
        return std::ranges::any_of(
            names, [&](const Neighbour &one) { return strcasecmp(one.name.c_str(), word.c_str()) == 0; });
    };
    std::istringstream lines{std::string(text)};
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line.substr(0, line.find('#')));
        std::string address;
        std::vector<std::string> rest;
        words >> address;
        for (std::string word; words >> word;)
            rest.push_back(std::move(word));
        if (std::ranges::none_of(rest, is_ours)) {
            out += line + "\n";
            continue;
        }
        std::erase_if(rest, is_ours);
        if (!rest.empty())
            out += fmt::format("{} {}\n", address, fmt::join(rest, " "));
    }
    return out;
}

std::string encoded(const Record &record) { return encode(RecordPacket{record}); }

std::optional<Record> decoded(std::string_view bytes) {
    const auto header = header_of(bytes);
    auto packet = decode<RecordPacket>(bytes);
    if (!packet || !header ||
        header->token != 0) // a token belongs to a request, and nobody has asked for a record
        return std::nullopt;
    return std::move(packet->record);
}

Expected<void> Room::prepare(const Spec &spec) const {
    // Others may pass, to the proxies' sockets, and see nothing.
    constexpr mode_t kPassage = 0711;
    if (auto made = make_directory(path_, kPassage, 0, 0); !made)
        return made;
    if (auto made = make_directory(run(), 0755, 0, 0); !made)
        return made;
    // Only root makes files there, or a user could fill /run and have root remove millions.
    // Its user's group may list it; the sockets decide who connects.
    if (auto made = make_directory(devices(), 0751, 0, spec.gid); !made)
        return made;
    if (auto made = make_directory(control(), 0700, 0, 0); !made)
        return made;
    if (layer_of(spec) != nullptr)
        if (auto made = make_directory(run() / "image", 0755, 0, 0); !made)
            return made;
    if (auto made = make_directory(run() / "sockets", 0755, 0, 0); !made)
        return made;
    for (std::size_t i = 0; i < spec.sockets.size(); ++i)
        if (auto made = replace_file(run() / "sockets" / std::to_string(i), "", 0644, Durable::kNo);
            !made) // mount points
            return made;
    // Where the stand-in lies over a command, there must be one: a node may come from another host.
    for (const auto &command : spec.commands)
        for (const auto &path : {command, spec.stand_in})
            if (access(path.c_str(), X_OK) != 0)
                return std::unexpected(
                    errno_error("take a stand-in for Slurm's commands into the node:", path));
    return replace_file(hosts(), hosts_text(spec), 0644, Durable::kNo);
}

Expected<void> Room::link_devices(std::uint32_t devices, std::uint32_t proxies) const {
    auto shown = open_file(this->devices(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    if (!shown)
        return propagate(shown);
    for (std::uint32_t device = proxies; device < devices; ++device)
        if (symlinkat(device_socket(device % proxies).c_str(), shown->get(), device_socket(device).c_str()) !=
                0 &&
            errno != EEXIST)
            return std::unexpected(errno_error("make", (this->devices() / device_socket(device)).native()));
    return {};
}

Expected<void> Room::write(const Record &record) const {
    return replace_file(path_ / "record", encoded(record), 0600, Durable::kYes);
}

Expected<Record> Room::read() const {
    const auto path = path_ / "record";
    auto file = open_file(path, O_RDONLY | O_NOFOLLOW);
    if (!file)
        return propagate(file);
    struct stat about{};
    if (fstat(file->get(), &about) != 0)
        return std::unexpected(errno_error("look at", path.native()));
    if (std::cmp_greater(about.st_size, kRecordLimit))
        return failure("read", path.native(),
                       fmt::format("it has {} bytes, and a record at most {}", about.st_size, kRecordLimit),
                       EFBIG);
    std::string content(static_cast<std::size_t>(about.st_size), '\0');
    const ssize_t got = ::read(file->get(), content.data(), content.size());
    if (got < 0)
        return std::unexpected(errno_error("read", path.native()));
    content.resize(static_cast<std::size_t>(got));
    auto record = decoded(content);
    if (!record || record->spec.name != path_.filename())
        return failure("read", path.native(),
                       "it is not the whole record of this node, or one of another release", EBADMSG);
    return std::move(*record);
}

Expected<void> Room::remove() const {
    std::error_code error;
    // Its user may hold one of the logs open, which were lent: its memory must not stay.
    for (const auto &entry : std::filesystem::directory_iterator(path_, error))
        if (entry.symlink_status(error).type() == std::filesystem::file_type::regular &&
            truncate(entry.path().c_str(), 0) != 0 && errno != ENOENT)
            return std::unexpected(errno_error("empty", entry.path().native()));
    std::filesystem::remove_all(path_, error);
    if (error)
        return failure("remove", path_.native(), error.message(), error.value());
    return {};
}

std::vector<ExternalMount> Room::external_mounts(const Spec &spec) const {
    std::vector<ExternalMount> out{{"singularity-run", kRunInNode, run()},
                                   {"singularity-hosts", "/etc/hosts", hosts()}};
    for (std::size_t i = 0; i < spec.sockets.size(); ++i)
        out.push_back({fmt::format("singularity-socket-{}", i), fmt::format("/run/singularity/sockets/{}", i),
                       spec.sockets[i]});
    for (std::size_t i = 0; i < spec.commands.size(); ++i)
        out.push_back({fmt::format("singularity-command-{}", i), spec.commands[i], spec.stand_in});
    for (std::size_t i = 0; i < spec.local.size(); ++i)
        if (spec.local[i].is_layer())
            out.push_back({.key = "singularity-below",
                           .mount_point = kBelowInNode,
                           .source = image_below(),
                           .of_image = true});
        else
            out.push_back({.key = fmt::format("singularity-local-{}", i),
                           .mount_point = spec.local[i].path,
                           .source = spec.local[i].source,
                           .kept = true});
    for (std::size_t i = 0; i < spec.image.mounts.size(); ++i)
        out.push_back({.key = fmt::format("singularity-mount-{}", i),
                       .mount_point = spec.image.mounts[i].target,
                       .source = image() / std::to_string(i),
                       .of_image = true});
    return out;
}

} // namespace singularity::node
