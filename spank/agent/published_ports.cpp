// SPDX-License-Identifier: GPL-2.0-or-later
#include "published_ports.hpp"

#include "budget.hpp"

#include <map>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

std::map<std::uint32_t, std::size_t> &published_by() {
    static std::map<std::uint32_t, std::size_t> published;
    return published;
}

} // namespace

Expected<PublishedPorts> PublishedPorts::take(std::uint32_t uid, std::size_t ports) {
    const auto found = published_by().find(uid);
    const std::size_t before = found == published_by().end() ? 0 : found->second;
    if (auto why = budgets().refusal(Budget::ports, uid, before, ports))
        return failure("publish", fmt::format("{} {}", ports, ports == 1 ? "port" : "ports"), *why, EDQUOT);
    return count(uid, ports);
}

PublishedPorts PublishedPorts::count(std::uint32_t uid, std::size_t ports) {
    if (ports != 0)
        published_by()[uid] += ports;
    return {uid, ports};
}

PublishedPorts::~PublishedPorts() {
    if (ports_ == 0)
        return;
    const auto found = published_by().find(uid_);
    found->second -= ports_;
    if (found->second == 0)
        published_by().erase(found);
}

} // namespace singularity::agent
