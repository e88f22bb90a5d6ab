// SPDX-License-Identifier: GPL-2.0-or-later
// What must be known of a node to find it again, to end it, and to make the same somewhere else.
#pragma once

#include "common/error.hpp"
#include "process.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace singularity::node {

// A node of the same job: what its name means.
struct Neighbour {
    std::string name;
    std::string address; // IPv4, without a prefix
    static void fields(auto &self, auto &visit) { visit(self.name, self.address); }
};
inline constexpr std::size_t kNeighbourLimit = 254;
// A file like /etc/hosts, with the addresses of these names and no others for them.
[[nodiscard]] std::string hosts_with(std::string_view text, const std::vector<Neighbour> &names);

// A directory of the host that is the job's own.
struct LocalDirectory {
    std::string path;   // in the node
    std::string source; // on the host, in directories of root's that nobody else can enter
    // What the node's programs write to the root, over its image: no mount, and the last of the node's
    // directories. Beside `source` is the directory in which overlayfs works.
    [[nodiscard]] bool is_layer() const { return path == kLayer; }
    static constexpr std::string_view kLayer = "/";
    static void fields(auto &self, auto &visit) { visit(self.path, self.source); }
};
inline constexpr std::size_t kLocalLimit = 9; // 8 of the site's, and the layer

// A directory or file that the user has mounted in an image.
struct ImageMount {
    std::string source; // on the host, as the user finds it
    std::string target; // in the node
    bool read_only = false;
    bool operator==(const ImageMount &) const = default;
    static void fields(auto &self, auto &visit) { visit(self.source, self.target, self.read_only); }
};
// Whether a node's programs write to the root that is an image; a number in packets.
enum class RootIs : std::uint8_t { as_site_says, writable, read_only };
// What is the root of a node instead of the host's.
struct Image {
    std::string directory; // on the host, as the user finds it; empty: there is none
    std::vector<ImageMount> mounts;
    std::string account;             // the user's line of passwd(5)
    std::vector<std::string> groups; // lines of group(5), which the image may not have
    std::uint32_t root = 0;          // a RootIs
    static void fields(auto &self, auto &visit) {
        visit(self.directory, self.mounts, self.account, self.groups, self.root);
    }
    [[nodiscard]] bool root_is(RootIs what) const { return root == static_cast<std::uint32_t>(what); }
    [[nodiscard]] bool any() const { return !directory.empty(); }
};

// What a user asks for. All of it has been checked by check_spec when a node is made.
struct Spec {
    std::string name;     // unique on this machine
    std::string hostname; // empty: the name
    std::string address;  // IPv4, with the length of its prefix: "10.88.0.1/16"
    std::uint32_t uid = 0;
    std::uint32_t gid = 0;
    std::vector<std::uint32_t> groups;    // supplementary
    std::vector<std::string> sockets;     // of proxies on the host; seen as /run/singularity/sockets/0, 1 ...
    std::vector<std::string> environment; // NAME=VALUE, set for every task
    bool tied = false;                    // ends with the connection that has made it
    std::uint32_t devices = 0;            // virtual ones
    std::string backend;     // what their proxies run on: "software", "nvidia", a driver library; empty: the
                             // agent's choice
    std::uint32_t every = 0; // seconds between checkpoints that nobody asks for; 0: none
    std::string job;         // whose network it is connected to, and who reads all its output; empty: none
    std::vector<Neighbour> neighbours;
    std::vector<std::string> commands; // programs that do not work in a node: over each lies the stand-in
    std::string stand_in;              // its path
    std::uint32_t run = 0;             // of Slurm's job: how often that was run again
    std::vector<LocalDirectory> local; // the agent's choice
    std::string local_origin;          // which of the job's trees these are
    Image image;
    std::vector<std::string> shown; // of the host, at the same places in an image; the agent's choice
    static void fields(auto &self, auto &visit) {
        visit(self.name, self.hostname, self.address, self.uid, self.gid, self.groups, self.sockets,
              self.environment, self.tied, self.devices, self.backend, self.every, self.job, self.neighbours,
              self.commands, self.stand_in, self.run, self.local, self.local_origin, self.image, self.shown);
    }
};
// Nothing: the root of the node is read-only, or the host's.
[[nodiscard]] const LocalDirectory *layer_of(const Spec &spec);
// Where a node's tasks find a device's socket.
[[nodiscard]] std::string device_socket(std::uint32_t device); // below Room::devices()
inline constexpr std::uint32_t kDeviceLimit = 64;
// The address of a node that asked for none: nobody else is in its network.
inline constexpr const char *kDefaultAddress = "10.88.0.1/16";
[[nodiscard]] Expected<void> check_spec(const Spec &spec);

// A descriptor that a task was given and whose other end is outside of the node.
struct GivenDescriptor {
    std::string key; // as CRIU's --inherit-fd names it: "pipe:[4711]"
    std::uint32_t task = 0;
    std::uint32_t stream = 0; // 0, 1, 2
    static void fields(auto &self, auto &visit) { visit(self.key, self.task, self.stream); }
};

// A mount that CRIU leaves out of the image.
struct ExternalMount {
    std::string key;
    std::filesystem::path mount_point; // in the node
    std::filesystem::path source;      // on the host
    bool kept = false;                 // what is in it belongs to the node, and is saved with it
    bool of_image = false;             // image.hpp mounts it at `source`, or in the node
};

struct Record {
    Spec spec;
    Identity init;         // pid 0: there is none yet
    std::int64_t made = 0; // time(2)
    std::vector<GivenDescriptor> given;
    std::vector<Identity> proxies; // virtual device D is served by number D modulo their count
    // The last one that it was saved in or restored from; may be empty.
    std::string checkpoint;
    std::string periodic; // the last one that nobody has asked for: it goes when there is another
    // It stands still and must not go on by itself: it is a part of a checkpoint of its job of which only the
    // job's coordinator knows whether it exists.
    bool in_doubt = false;
    static void fields(auto &self, auto &visit) {
        visit(self.spec, self.init, self.made, self.given, self.proxies, self.checkpoint, self.periodic,
              self.in_doubt);
    }
};
// As bytes, which only this release reads: for files, and for whoever keeps a record elsewhere.
[[nodiscard]] std::string encoded(const Record &record);
[[nodiscard]] std::optional<Record> decoded(std::string_view bytes);

// Beside its place, then renamed: nobody sees half of it.
[[nodiscard]] Expected<void> write_file(const std::filesystem::path &path, std::string_view content,
                                        mode_t mode);

// The files of one node: STATE/NAME.
class Room {
  public:
    Room(const std::filesystem::path &state, const std::string &name) : path_(state / name) {}

    [[nodiscard]] const std::filesystem::path &path() const { return path_; }
    [[nodiscard]] std::filesystem::path run() const { return path_ / "run"; }
    static constexpr const char *kRunInNode = "/run/singularity"; // where that is mounted
    [[nodiscard]] std::filesystem::path socket() const { return run() / "init.sock"; }
    [[nodiscard]] std::filesystem::path hosts() const { return path_ / "hosts"; }
    [[nodiscard]] std::filesystem::path log(std::uint32_t task) const {
        return path_ / ("log." + std::to_string(task));
    }
    [[nodiscard]] std::filesystem::path devices() const { return run() / "devices"; }
    // There while a worker is at the node; else it has died.
    [[nodiscard]] std::filesystem::path mark() const { return path_ / "worker"; }
    // What image.hpp makes, in directories that root alone changes.
    [[nodiscard]] std::filesystem::path image() const { return path_ / "image"; }
    [[nodiscard]] std::filesystem::path image_root() const { return image() / "root"; }
    // The image without its node's writable layer, where there is one.
    [[nodiscard]] std::filesystem::path image_below() const { return image() / "below"; }
    static constexpr const char *kBelowInNode = "/run/singularity/image";
    // Root's alone: sockets on which proxies are asked for device images.
    [[nodiscard]] std::filesystem::path control() const { return path_ / "control"; }
    [[nodiscard]] std::filesystem::path proxy_log(std::uint32_t proxy) const {
        return path_ / ("proxy." + std::to_string(proxy) + ".log");
    }
    // From a proxy to the agent, which keeps the newest of it in that log.
    [[nodiscard]] std::filesystem::path proxy_pipe(std::uint32_t proxy) const {
        return path_ / ("proxy-pipe." + std::to_string(proxy));
    }

    // Makes the directories and files that a node sees, new or, before a restore, again.
    [[nodiscard]] Expected<void> prepare(const Spec &spec) const;
    // Names for those devices that have no proxy, and so no socket, of their own: DEVICE modulo PROXIES is
    // theirs.
    [[nodiscard]] Expected<void> link_devices(std::uint32_t devices, std::uint32_t proxies) const;
    [[nodiscard]] Expected<void> write(const Record &record) const;
    [[nodiscard]] Expected<Record> read() const;
    [[nodiscard]] Expected<void> remove() const;

    [[nodiscard]] std::vector<ExternalMount> external_mounts(const Spec &spec) const;

  private:
    std::filesystem::path path_;
};

} // namespace singularity::node
