// SPDX-License-Identifier: GPL-2.0-or-later
#include "devices.hpp"

#include "common/deadline.hpp"
#include "proxy/channel/link.hpp"

#include <chrono>
#include <cstddef>
#include <ranges>
#include <string_view>

#include <fmt/format.h>

namespace singularity::nvml {

namespace {

constexpr std::chrono::seconds kPatience{5};

// Numbers of CUdevice_attribute.
constexpr unsigned kPciBus = 33;
constexpr unsigned kPciDevice = 34;
constexpr unsigned kPciDomain = 50;

} // namespace

std::string Device::uuid() const {
    std::string out = "GPU-";
    for (std::size_t at = 0; at < identity.device.uuid.size(); ++at) {
        if (at == 4 || at == 6 || at == 8 || at == 10)
            out += '-';
        out += fmt::format("{:02x}", identity.device.uuid[at]);
    }
    return out;
}

unsigned Device::pci(unsigned attribute) const {
    return identity.device.knows_attribute(attribute)
               ? static_cast<unsigned>(identity.device.attributes[attribute])
               : 0;
}

std::string Device::bus_id() const {
    return fmt::format("{:08X}:{:02X}:{:02X}.0", pci(kPciDomain), pci(kPciBus), pci(kPciDevice));
}

Expected<channel::Identity> identify(const std::string &socket) {
    const auto deadline = Deadline::after(kPatience);
    auto link = channel::Link::connect(socket, deadline);
    if (!link)
        return propagate(link);
    if (auto sent = link->send(channel::PacketType::identify, 0, {}, {}, deadline); !sent)
        return propagate(sent);
    auto packet = link->receive(deadline);
    if (!packet)
        return propagate(packet);
    if (packet->type != channel::PacketType::identity)
        return failure("identify the device of", socket,
                       "the proxy refused: it serves its own user and root");
    return channel::struct_of<channel::Identity>(*packet);
}

Expected<std::vector<Device>> find_devices(const std::string &sockets) {
    std::vector<Device> out;
    for (const auto part : std::views::split(std::string_view(sockets), ':')) {
        const std::string socket(part.begin(), part.end());
        if (socket.empty())
            continue;
        auto identity = identify(socket);
        if (!identity)
            return propagate(identity);
        out.push_back({.socket = socket, .identity = *identity, .index = static_cast<unsigned>(out.size())});
    }
    return out;
}

} // namespace singularity::nvml
