// SPDX-License-Identifier: GPL-2.0-or-later
// What must be known of a node to find it again, to end it, and to make the same somewhere else.
#pragma once

#include "common/error.hpp"
#include "process.hpp"
#include "spec.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <sys/types.h>

namespace singularity::node {

// A file like /etc/hosts, with the addresses of these names and no others for them.
[[nodiscard]] std::string hosts_with(std::string_view text, const std::vector<Neighbour> &names);

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

// The files of one node: STATE/NAME.
class Room {
  public:
    Room(const std::filesystem::path &state, const std::string &name) : path_(state / name) {}

    [[nodiscard]] const std::filesystem::path &path() const { return path_; }
    [[nodiscard]] std::filesystem::path run() const { return path_ / "run"; } // at kRunInNode in the node
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
