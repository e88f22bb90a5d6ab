// SPDX-License-Identifier: GPL-2.0-or-later
#include "devices.hpp"

#include "common/deadline.hpp"
#include "proxy/channel/identity.hpp"

#include <chrono>
#include <ranges>
#include <string_view>

#include <fmt/format.h>

namespace singularity::nvml {

namespace {

constexpr std::chrono::seconds kPatience{60}; // it may have to open the device first

// Numbers of CUdevice_attribute.
constexpr unsigned kPciBus = 33;
constexpr unsigned kPciDevice = 34;
constexpr unsigned kPciDomain = 50;

} // namespace

std::string Device::uuid() const { return channel::uuid_text(identity.device.uuid); }

unsigned Device::pci(unsigned attribute) const {
    return identity.device.knows_attribute(attribute)
               ? static_cast<unsigned>(identity.device.attributes[attribute])
               : 0;
}

std::string Device::bus_id() const {
    return fmt::format("{:08X}:{:02X}:{:02X}.0", pci(kPciDomain), pci(kPciBus), pci(kPciDevice));
}

Expected<channel::Identity> identify(const std::string &socket) {
    return channel::identify(socket, Deadline::after(kPatience));
}

Expected<std::vector<Device>> find_devices(const std::string &sockets) {
    std::vector<Device> out;
    channel::DeviceList devices;
    for (const auto part : std::views::split(std::string_view(sockets), ':')) {
        const std::string socket(part.begin(), part.end());
        if (socket.empty())
            continue;
        auto identity = identify(socket);
        if (!identity)
            return propagate(identity);
        identity->device = devices.add(identity->device);
        out.push_back({.socket = socket, .identity = *identity, .index = static_cast<unsigned>(out.size())});
    }
    return out;
}

} // namespace singularity::nvml
