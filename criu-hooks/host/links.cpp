// SPDX-License-Identifier: GPL-2.0-or-later
#include "links.hpp"

#include "common/text.hpp"
#include "places.hpp"
#include "records.hpp"
#include "user_ids.hpp"

#include <cerrno>
#include <future>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <unistd.h>

namespace singularity::host {
namespace {

// Field numbers of CRIU's images/{fdinfo,regfile}.proto.
namespace fields {
constexpr std::uint32_t kId = 2;
constexpr std::uint32_t kRegular = 3;
constexpr std::uint32_t kName = 6; // of a regular file
} // namespace fields

Expected<std::vector<std::string>> links_in(int images) {
    std::vector<std::string> links;
    auto read = for_each_record(images, "files.img", Magic::kFiles, [&](Bytes message) -> Expected<void> {
        auto file = fields_of(message);
        if (!file)
            return propagate(file);
        const Field *const id = find(*file, fields::kId);
        const Field *const body = find(*file, fields::kRegular);
        if (id == nullptr || body == nullptr)
            return {};
        auto regular = fields_of(body->bytes);
        if (!regular)
            return propagate(regular);
        auto name = text_of(*regular, fields::kName);
        if (name.ends_with(fmt::format("/link_remap.{}", id->value)))
            links.push_back(std::move(name));
        return {};
    });
    if (!read)
        return propagate(read);
    return links;
}

// On a thread of its own: by name, with the user's rights, below the node's root.
Expected<void> remove(const Context &context, pid_t init, const std::vector<std::string> &links) {
    auto ids = UserIds::take(context, fmt::format("/proc/{}/root", init));
    if (!ids)
        return propagate(ids);
    if (auto user = ids->become_user(); !user)
        return user;
    for (const std::string &link : links)
        if (unlink(link.c_str()) != 0 && errno != ENOENT)
            return std::unexpected(errno_error("remove", quote(link)));
    return {};
}

} // namespace

Expected<void> remove_links(const Context &context, pid_t init, int images) {
    auto links = links_in(images);
    if (!links)
        return propagate(links);
    if (links->empty())
        return {};
    return std::async(std::launch::async, [&] { return remove(context, init, *links); }).get();
}

} // namespace singularity::host
