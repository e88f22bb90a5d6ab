// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/channel/identity.hpp"

#include "proxy/channel/link.hpp"

#include <cerrno>
#include <cstddef>

#include <fmt/format.h>

namespace singularity::channel {

Expected<Identity> identify(const std::filesystem::path &socket, const Deadline &deadline) {
    auto link = Link::connect(socket, deadline);
    if (!link)
        return propagate(link);
    if (auto sent = link->send(PacketType::identify, 0, {}, {}, deadline); !sent)
        return propagate(sent);
    auto packet = link->receive(deadline);
    if (!packet)
        return propagate(packet);
    if (packet->type != PacketType::identity)
        return failure("identify the device of", socket.native(),
                       "the proxy refused: it serves its own user and root", EPROTO);
    return struct_of<Identity>(*packet);
}

std::string uuid_text(const std::array<std::uint8_t, 16> &uuid) {
    std::string text = "GPU-";
    for (std::size_t at = 0; at < uuid.size(); ++at) {
        if (at == 4 || at == 6 || at == 8 || at == 10)
            text += '-';
        text += fmt::format("{:02x}", uuid.at(at));
    }
    return text;
}

} // namespace singularity::channel
