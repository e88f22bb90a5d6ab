// SPDX-License-Identifier: GPL-2.0-or-later
// What a node is asked to be, and what may be asked for. Pure.
#pragma once

#include "common/error.hpp"

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::node {

// A node of the same job: what its name means.
struct Neighbour {
    std::string name;
    std::string address; // IPv4, without a prefix
    static void fields(auto &self, auto &visit) { visit(self.name, self.address); }
};
inline constexpr std::size_t kNeighbourLimit = 254;
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

// Where Room::run() is mounted.
inline constexpr const char *kRunInNode = "/run/singularity";

// ---- nodes whose root is an image (image.hpp)

inline constexpr std::size_t kImageMountLimit = 32;
inline constexpr std::size_t kImageDepthLimit = 16; // names in where something is mounted

// What its user has said of it, before a node is known: no more than the limits, and plain paths.
[[nodiscard]] Expected<void> check_image(const Image &image);

// Paths are absolute, without "..", and none is mounted over or in what a node needs.
[[nodiscard]] Expected<void> check_image(const Spec &spec);

// Directories that each image has in memory, unless something else is mounted there. They are in the
// checkpoint.
[[nodiscard]] std::vector<std::string> memory_directories(const Spec &spec);

// Every place in the node at which something lies over the image.
[[nodiscard]] std::vector<std::string> mount_points(const Spec &spec);

// What every node has there, whatever is in its image.
[[nodiscard]] std::span<const std::string_view> own_places();

[[nodiscard]] std::unexpected<Error> refuse_mount(const ImageMount &one, std::string why);

} // namespace singularity::node
