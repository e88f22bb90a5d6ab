// SPDX-License-Identifier: GPL-2.0-or-later
#include "deleted_mounts.hpp"

#include "file.hpp"
#include "places.hpp"
#include "records.hpp"

#include <algorithm>
#include <cstdio>
#include <optional>
#include <string>
#include <vector>

namespace singularity::host {
namespace {

// Field numbers of CRIU's images/mnt.proto.
constexpr std::uint32_t kDeletedSource = 16;
constexpr std::uint32_t kDeclaredAs = 18;

// Nothing: it stays as it is.
Expected<std::optional<std::string>> without_deletion(const RestoreRequest &request, Bytes message) {
    using Changed = std::optional<std::string>;
    auto fields = fields_of(message);
    if (!fields)
        return propagate(fields);
    const Field *const deleted = find(*fields, kDeletedSource);
    if (deleted == nullptr || deleted->value == 0 ||
        std::ranges::find(request.mounts, text_of(*fields, kDeclaredAs), &OutsideMount::key) ==
            request.mounts.end())
        return Changed();
    std::string out(reinterpret_cast<const char *>(message.data()), message.size());
    out.erase(deleted->begin, deleted->end - deleted->begin);
    return Changed(std::move(out));
}

Expected<void> change(const RestoreRequest &request, const std::string &name) {
    const std::string beside = name + ".new";
    std::vector<std::string> entries;
    bool changed = false;
    auto read = for_each_record(request.images, name, Magic::kMounts, [&](Bytes message) -> Expected<void> {
        auto without = without_deletion(request, message);
        if (!without)
            return propagate(without);
        changed |= without->has_value();
        entries.push_back(
            without->value_or(std::string(reinterpret_cast<const char *>(message.data()), message.size())));
        return {};
    });
    if (!read || !changed)
        return read;
    if (auto written = write_file_at(request.images, beside, framed(Magic::kMounts, entries)); !written)
        return written;
    if (renameat(request.images, beside.c_str(), request.images, name.c_str()) != 0)
        return std::unexpected(errno_error("replace", name));
    return {};
}

} // namespace

Expected<void> bind_what_is_there(const RestoreRequest &request) {
    auto names = names_in(request.images);
    if (!names)
        return propagate(names);
    for (const std::string &name : *names)
        if (name.starts_with("mountpoints-"))
            if (auto done = change(request, name); !done)
                return done;
    return {};
}

} // namespace singularity::host
