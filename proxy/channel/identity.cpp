// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy/channel/identity.hpp"

#include "proxy/channel/link.hpp"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <utility>

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
    if (const auto refusal = struct_of<Refusal>(*packet); refusal && packet->type == PacketType::refusal)
        return failure("identify the device of", socket.native(), refusal->text.data(), EPROTO);
    if (packet->type != PacketType::identity)
        return failure("identify the device of", socket.native(),
                       fmt::format("packet {} is no answer", std::to_underlying(packet->type)), EPROTO);
    return struct_of<Identity>(*packet);
}

DeviceIdentity DeviceList::add(DeviceIdentity device) {
    constexpr std::size_t kPciDomain = 50; // CU_DEVICE_ATTRIBUTE_PCI_DOMAIN_ID
    const auto uuid = device.uuid;
    std::uint8_t number = 0;
    while (number < UINT8_MAX && std::ranges::find(uuids_, device.uuid) != uuids_.end())
        device.uuid.back() = static_cast<std::uint8_t>(uuid.back() ^ ++number);
    uuids_.push_back(device.uuid);
    const std::string bus_id(device.pci_bus_id.data());
    const auto colon = bus_id.find(':');
    if (number == 0 || colon == bus_id.npos)
        return device;
    device.attributes.at(kPciDomain) += number;
    const auto text = fmt::format("{:04X}{}", device.attributes.at(kPciDomain), bus_id.substr(colon));
    device.pci_bus_id = {};
    text.copy(device.pci_bus_id.data(), device.pci_bus_id.size() - 1);
    return device;
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
