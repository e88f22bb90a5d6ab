// SPDX-License-Identifier: GPL-2.0-or-later
// A node's parameters: from the message's body to the driver's struct.
#pragma once

#include "call.hpp"
#include "launch_config.hpp"
#include "proxy/protocol/graph.hpp"

#include <optional>
#include <vector>

namespace singularity::proxyd::handlers {

// The driver's struct and the memory that it points to. Built in place.
class NodeParams {
  public:
    NodeParams() = default;
    NodeParams(const NodeParams &) = delete;
    NodeParams &operator=(const NodeParams &) = delete;
    NodeParams(NodeParams &&) = delete;
    NodeParams &operator=(NodeParams &&) = delete;
    ~NodeParams() = default;

    // The body is of the type's size: the message's own check has seen to it.
    [[nodiscard]] CUresult read(Call &call, protocol::NodeType type, const driver_api::View &body,
                                const driver_api::View &parameters);

    CUgraphNodeParams params{};
    CUcontext context = nullptr; // of memcpy and memset nodes
    bool cooperative = false;    // a kernel node that needs the attribute
    Callbacks::Request *callback = nullptr;

  private:
    [[nodiscard]] CUresult read_kernel(Call &call, const protocol::KernelBody &body,
                                       const driver_api::View &parameters);
    [[nodiscard]] CUresult read_memset(Call &call, const protocol::MemsetBody &body);
    [[nodiscard]] CUresult read_batch(Call &call, const protocol::BatchMemOpBody &body,
                                      const driver_api::View &parameters);
    // A handle of a context, or 0: the record's.
    [[nodiscard]] static std::optional<CUcontext> context_of(Call &call, std::uint64_t handle);

    std::optional<ParameterBuffer> buffer_;
    std::vector<CUstreamBatchMemOpParams> operations_;
};

} // namespace singularity::proxyd::handlers
