// SPDX-License-Identifier: GPL-2.0-or-later
#include "account.hpp"

#include <algorithm>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <grp.h>
#include <pwd.h>
#include <unistd.h>

namespace singularity::node {

namespace {

constexpr std::size_t kMostGroups = 64;
constexpr std::size_t kBuffer = 65536;

// A field cannot hold what separates fields and lines.
std::string field(const char *text) {
    std::string out = text == nullptr ? "" : text;
    std::ranges::replace_if(out, [](char c) { return c == ':' || static_cast<unsigned char>(c) < ' '; }, ' ');
    return out;
}

} // namespace

void add_account(Image &image) {
    std::vector<char> buffer(kBuffer);
    passwd account{};
    passwd *found = nullptr;
    if (getpwuid_r(getuid(), &account, buffer.data(), buffer.size(), &found) == 0 && found != nullptr)
        image.account =
            fmt::format("{}:x:{}:{}:{}:{}:{}", field(account.pw_name), account.pw_uid, account.pw_gid,
                        field(account.pw_gecos), field(account.pw_dir), field(account.pw_shell));
    std::vector<gid_t> ids(static_cast<std::size_t>(std::max(getgroups(0, nullptr), 0)));
    ids.resize(static_cast<std::size_t>(std::max(getgroups(static_cast<int>(ids.size()), ids.data()), 0)));
    ids.push_back(getgid());
    std::ranges::sort(ids);
    const auto again = std::ranges::unique(ids);
    ids.erase(again.begin(), again.end());
    for (const gid_t id : ids) {
        group one{};
        group *known = nullptr;
        if (image.groups.size() < kMostGroups &&
            getgrgid_r(id, &one, buffer.data(), buffer.size(), &known) == 0 && known != nullptr)
            image.groups.push_back(fmt::format("{}:x:{}:", field(one.gr_name), one.gr_gid));
    }
}

} // namespace singularity::node
