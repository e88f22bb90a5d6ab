// SPDX-License-Identifier: GPL-2.0-or-later
// Ids of the hand-written messages, and the limits that both sides keep.
#pragma once

#include <cstddef>
#include <cstdint>

namespace singularity::protocol {

// Above all ids of driver_api, which are indices into its table of functions. As wide as on the wire.
// NOLINTNEXTLINE(performance-enum-size)
enum class Id : std::uint32_t {
    first = 0x10000,
    // contexts
    create_context = first,
    destroy_context,
    // memory
    map_slab,
    unmap_slab,
    reserve_address,
    free_address,
    map_host_memory,
    unmap_host_memory,
    memory_info,
    retain_allocation,
    share_slab,
    end_export,
    open_slab,
    // copies
    write_memory,
    read_memory,
    copy_memory,
    write_box,
    read_box,
    copy_box,
    // code
    begin_blob,
    blob_data,
    drop_blob,
    read_blob,
    load_module,
    load_library,
    create_link,
    add_link_data,
    complete_link,
    function_layout,
    function_name,
    function_owner,
    // launches and streams
    launch_kernel,
    launch_host_function,
    occupancy_of_clusters,
    processor_places,
    get_stream_attribute,
    set_stream_attribute,
    capture_info,
    share_event,
    open_event,
    // graphs
    add_node,
    set_node,
    get_node,
    get_node_attribute,
    set_node_attribute,
    instantiate_graph,
    update_graph_exec,
    print_graph,
    // textures and surfaces
    create_texture,
    create_surface,
    // device images
    finish_restore,
    // communicators and collectives
    join_communicator,
    communicator_state,
    issue_collectives,
    exchange_with_members,
    leave_communicator,
    // graphs with collectives
    instantiate_parts,
    end
};

// Data of one write_memory, write_box or blob_data.
inline constexpr std::size_t kWritePiece = std::size_t{128} * 1024;
// Data of one reply to read_memory, read_box or read_blob: with its head it fits into a piece of the channel.
inline constexpr std::size_t kReadPiece = std::size_t{256} * 1024;
// Parameters of one kernel launch; the driver's own limit is 32764.
inline constexpr std::size_t kMostParameters = std::size_t{32} * 1024;
inline constexpr std::size_t kMostLaunchAttributes = 64;
// Text of one log of the compiler or linker, or of a name.
inline constexpr std::size_t kMostLogText = std::size_t{64} * 1024;
inline constexpr std::size_t kMostNameText = std::size_t{16} * 1024;
// A module image.
inline constexpr std::uint64_t kMostBlob = std::uint64_t{4} << 30;

// The stream number that stands for the legacy default stream of the record's context (CU_STREAM_LEGACY).
inline constexpr std::uint64_t kLegacyStream = 1;

} // namespace singularity::protocol
