// SPDX-License-Identifier: GPL-2.0-or-later
// Manifests as files. All numbers little-endian, all texts with their length in front:
//
//     16 bytes "singularity-mfst", u32 format version, text name of the hash algorithm,
//     header, sizes, attributes, virtual nodes with their devices and images, hash of all bytes before.
//
// Reading and writing take memory for the manifest itself and nothing that grows beyond it.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "criu-hooks/store/manifest.hpp"

#include <cstddef>
#include <functional>
#include <span>
#include <string>
#include <vector>

namespace singularity::store {

class UserSpace;

inline constexpr std::uint32_t kManifestVersion = 1;

// From the beginning of the file, which is cut behind the manifest. Not made durable.
[[nodiscard]] Expected<void> write_manifest(const UniqueFd &file, const std::string &name,
                                            const Manifest &manifest);

// Checks the file's own hash before anything in it is believed.
[[nodiscard]] Expected<Manifest> read_manifest(const UniqueFd &file, const std::string &name);

// A manifest of the user by its id, checked to be that and no other.
[[nodiscard]] Expected<Manifest> load_manifest(const UserSpace &space, const std::string &id);

// Virtual nodes alone, for the way from the host that wrote their images to the one that commits.
[[nodiscard]] std::vector<std::byte> encode_nodes(const std::vector<VirtualNode> &nodes);
[[nodiscard]] Expected<std::vector<VirtualNode>> decode_nodes(std::span<const std::byte> data);

} // namespace singularity::store
