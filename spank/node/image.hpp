// SPDX-License-Identifier: GPL-2.0-or-later
// A node whose root is a directory or a file of the user's (an image), and what the user mounts in it.
//
// The root is an overlay: a skeleton of root's that holds every mount point, over the image, and below a
// layer to which the node's programs write where the site has local directories (layer_of). Mount points are
// never looked up in the image, so its links lead nowhere; its own entries of these names are hidden. The
// overlay reaches the image with the user's file system ids, as does everything here that follows a name that
// the user has chosen.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "image_server.hpp"
#include "record.hpp"
#include "spec.hpp"

#include <string>
#include <vector>

namespace singularity::node {

// Mounts that are nowhere yet: nosuid and nodev, the root read-only where it has no layer.
struct ImageMounts {
    UniqueFd root;
    UniqueFd below;               // of a root with a layer: the same without it, read-only
    std::vector<UniqueFd> mounts; // as Image::mounts
};
// The calling thread is root's, and has root's rights again afterwards. Its mount namespace is its own, and
// what is mounted there appears nowhere else; / is the agent's. It may wait for the user's file systems,
// without end.
[[nodiscard]] Expected<ImageMounts> open_image(const Room &room, const Spec &spec, const ImageServer &server);

// For whoever restores the node, outside of it: gives the calling process a mount namespace of its own, in
// which these are at Room::image_root() and where Room::external_mounts says. It may wait as open_image does.
[[nodiscard]] Expected<void> show_image(const Room &room, const Spec &spec);

// Mounts it there, where every directory above is the skeleton's.
[[nodiscard]] Expected<void> attach(const UniqueFd &tree, const std::string &target);

} // namespace singularity::node
