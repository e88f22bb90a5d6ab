// SPDX-License-Identifier: GPL-2.0-or-later
// VXLAN believes every packet that reaches its port. nftables decides what does: from other hosts of the job,
// and from nobody's program.
#pragma once

#include "common/error.hpp"
#include "plan.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

struct nft_ctx;

namespace singularity::network {

// From now on no user of this host can send to the port, of this or any other host, and nothing that passes
// through can either. Stays when the agent ends: other hosts rely on it.
[[nodiscard]] Expected<void> close_port(std::uint16_t port);

// The same for one network, and who may send to it. The kernel takes it away when the object, or its process,
// ends, and lets nobody else touch it.
class Firewall {
  public:
    // In the calling thread's network namespace. Nobody may send to it yet.
    [[nodiscard]] static Expected<Firewall> make(const Prepare &plan);
    [[nodiscard]] Expected<void> admit(const std::vector<std::uint32_t> &hosts) const;

  private:
    struct Free {
        void operator()(nft_ctx *context) const;
    };
    using Context = std::unique_ptr<nft_ctx, Free>;
    Firewall(Context context, std::string table) : context_(std::move(context)), table_(std::move(table)) {}
    [[nodiscard]] static Expected<Context> open();
    [[nodiscard]] static Expected<void> run(const Context &context, const std::string &commands);
    friend Expected<void> close_port(std::uint16_t port);

    Context context_;
    std::string table_;
};

} // namespace singularity::network
