// SPDX-License-Identifier: GPL-2.0-or-later
// Commands of nft(8), carried out by libnftables in one network namespace.
#pragma once

#include "common/error.hpp"

#include <memory>
#include <string>

struct nft_ctx;

namespace singularity::network {

class Nft {
  public:
    // Of the namespace that the calling thread is in now; from anywhere after that. Tables with the flag
    // `owner` live as long as the object.
    [[nodiscard]] static Expected<Nft> open();
    // All of them or none.
    [[nodiscard]] Expected<void> run(const std::string &commands) const;

  private:
    struct Free {
        void operator()(nft_ctx *context) const;
    };
    explicit Nft(nft_ctx *context) : context_(context) {}
    std::unique_ptr<nft_ctx, Free> context_;
};

} // namespace singularity::network
