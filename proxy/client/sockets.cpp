// SPDX-License-Identifier: GPL-2.0-or-later
#include "sockets.hpp"

#include "proxy/channel/identity.hpp"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>

#include <fmt/format.h>

namespace singularity::client {

namespace {

constexpr const char *kVariable = "SINGULARITY_PROXY_SOCKETS";
constexpr std::string_view kUuidPrefix = "GPU-";

std::vector<std::string_view> split(std::string_view text, char separator) {
    std::vector<std::string_view> parts;
    while (true) {
        const auto end = text.find(separator);
        parts.push_back(text.substr(0, end));
        if (end == std::string_view::npos)
            return parts;
        text.remove_prefix(end + 1);
    }
}

bool same_start(std::string_view text, std::string_view start) {
    return text.size() >= start.size() &&
           std::ranges::equal(text.substr(0, start.size()), start, [](char a, char b) {
               return std::tolower(static_cast<unsigned char>(a)) ==
                      std::tolower(static_cast<unsigned char>(b));
           });
}

std::string_view trimmed(std::string_view text) {
    while (!text.empty() && text.front() == ' ')
        text.remove_prefix(1);
    while (!text.empty() && text.back() == ' ')
        text.remove_suffix(1);
    return text;
}

std::array<std::uint8_t, 16> uuid_at(const std::string &socket) {
    constexpr std::chrono::seconds kPatience{60}; // it may have to open the device first
    const auto identity = channel::identify(socket, Deadline::after(kPatience));
    return identity ? identity->device.uuid : std::array<std::uint8_t, 16>{};
}

} // namespace

Expected<std::vector<std::string>> configured_sockets() {
    const char *const text = std::getenv(kVariable);
    if (text == nullptr || *text == '\0')
        return failure(
            "find", "a device proxy",
            fmt::format("{} is not set; run the program with singularityctl proxy run, or name the "
                        "sockets of the device proxies in it, separated by colons",
                        kVariable));
    std::vector<std::string> sockets;
    for (const auto part : split(text, ':'))
        if (!part.empty())
            sockets.emplace_back(part);
    return sockets;
}

std::vector<std::size_t> choose_visible(const char *text, std::size_t devices, const UuidOf &uuid_of) {
    std::vector<std::size_t> chosen;
    if (text == nullptr) {
        for (std::size_t device = 0; device < devices; ++device)
            chosen.push_back(device);
        return chosen;
    }
    for (const auto part : split(text, ',')) {
        const auto entry = trimmed(part);
        std::size_t device = devices;
        if (entry.starts_with(kUuidPrefix)) {
            for (std::size_t candidate = 0; candidate < devices; ++candidate)
                if (same_start(channel::uuid_text(uuid_of(candidate)), entry)) {
                    device = candidate;
                    break;
                }
        } else {
            const auto *const end = entry.data() + entry.size();
            if (const auto [at, error] = std::from_chars(entry.data(), end, device);
                error != std::errc() || at != end)
                device = devices;
        }
        if (device >= devices || std::ranges::find(chosen, device) != chosen.end())
            break;
        chosen.push_back(device);
    }
    return chosen;
}

Expected<std::vector<VisibleDevice>> visible_devices(const Expected<std::vector<std::string>> &sockets) {
    if (!sockets)
        return std::unexpected(sockets.error());
    const auto chosen = choose_visible(std::getenv("CUDA_VISIBLE_DEVICES"), sockets->size(),
                                       [&](std::size_t device) { return uuid_at((*sockets)[device]); });
    std::vector<VisibleDevice> visible;
    visible.reserve(chosen.size());
    for (const auto device : chosen)
        visible.push_back({.socket = (*sockets)[device],
                           .device = {.number = static_cast<std::uint32_t>(device),
                                      .of = static_cast<std::uint32_t>(sockets->size())}});
    return visible;
}

} // namespace singularity::client
