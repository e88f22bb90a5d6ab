// SPDX-License-Identifier: GPL-2.0-or-later
#include "nft.hpp"

#include <algorithm>
#include <cerrno>

#include <fmt/format.h>
#include <nftables/libnftables.h>

namespace singularity::network {

void Nft::Free::operator()(nft_ctx *context) const { nft_ctx_free(context); }

Expected<Nft> Nft::open() {
    Nft out(nft_ctx_new(NFT_CTX_DEFAULT));
    if (!out.context_ || nft_ctx_buffer_error(out.context_.get()) != 0 ||
        nft_ctx_buffer_output(out.context_.get()) != 0)
        return failure("use", "nftables", "there is no memory", ENOMEM);
    return out;
}

Expected<void> Nft::run(const std::string &commands) const {
    if (nft_run_cmd_from_buffer(context_.get(), commands.c_str()) == 0)
        return {};
    std::string why = nft_ctx_get_error_buffer(context_.get());
    std::ranges::replace(why, '\n', ' ');
    return failure("set", "nftables", fmt::format("{} (does the kernel have nf_tables?)", why), EIO);
}

} // namespace singularity::network
