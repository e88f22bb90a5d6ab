// SPDX-License-Identifier: GPL-2.0-or-later
#include "shared_networks.hpp"

#include "agent/log.hpp"
#include "job_files.hpp"

#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

Expected<SharedNetworks::Share> SharedNetworks::take(const std::string &name) {
    std::erase_if(known_, [](const auto &entry) { return entry.second.network.expired(); });
    for (auto &[directory, known] : known_)
        if (auto network = known.network.lock();
            network && known.name == name && known.staying != 0 && !network->lost()) {
            ++known.staying;
            return Share{.network = std::move(network), .directory = directory};
        }
    auto earlier = job_directories(place_);
    if (!earlier)
        return propagate(earlier);
    std::string directory;
    do
        directory = fmt::format("{}", ++last_);
    while (earlier->contains(directory));
    if (auto made = make_job_directory(place_ / directory); !made)
        return propagate(made);
    auto started = NetworkClient::start(libraries_, place_ / directory);
    if (!started) {
        remove(directory);
        return propagate(started);
    }
    auto network = std::make_shared<NetworkClient>(std::move(*started));
    known_[directory] = {.name = name, .network = network, .staying = 1};
    return Share{.network = std::move(network), .directory = std::move(directory)};
}

Expected<SharedNetworks::Share> SharedNetworks::adopt(const std::string &name, const std::string &directory) {
    if (directory.empty() || directory.find('/') != std::string::npos || directory.starts_with('.'))
        return failure("find", quote(directory), "that is no network's directory", EBADMSG);
    auto &known = known_[directory];
    auto network = known.network.lock();
    if (!network) {
        auto adopted = NetworkClient::adopt(place_ / directory);
        if (!adopted)
            return propagate(adopted);
        network = std::make_shared<NetworkClient>(std::move(*adopted));
        known = {.name = name, .network = network, .staying = 0};
    }
    ++known.staying;
    return Share{.network = std::move(network), .directory = directory};
}

void SharedNetworks::leave(const Share &share, bool for_all) {
    const auto found = known_.find(share.directory);
    if (found == known_.end() || found->second.network.lock() != share.network)
        return;
    --found->second.staying;
    if (for_all)
        found->second.name.clear();
}

void SharedNetworks::remove(const std::string &directory) const {
    if (auto removed = remove_job_directory(place_ / directory); !removed)
        kLog.error("{}", removed.error().message());
}

void SharedNetworks::end_others() {
    auto directories = job_directories(place_);
    if (!directories) {
        kLog.error("{}", directories.error().message());
        return;
    }
    for (const auto &directory : *directories) {
        const auto found = known_.find(directory);
        if (found != known_.end() && !found->second.network.expired())
            continue;
        if (auto network = NetworkClient::adopt(place_ / directory))
            network->end();
        remove(directory);
    }
}

} // namespace singularity::agent
