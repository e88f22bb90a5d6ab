// SPDX-License-Identifier: GPL-2.0-or-later
#include "process_tree.hpp"

#include "records.hpp"

#include <cerrno>
#include <utility>

namespace singularity::host {
namespace {

// Field numbers of CRIU's images/pstree.proto.
constexpr std::uint32_t kPid = 1;
constexpr std::uint32_t kThreads = 5;

constexpr const char *kTree = "pstree.img";

std::unexpected<Error> bad_tree(const char *why) {
    return failure("restore", "the image pstree.img",
                   std::string(why) + ": the image is not of this job, or was changed", EACCES);
}

} // namespace

Expected<std::vector<ProcessEntry>> processes_in(int images) {
    std::vector<ProcessEntry> entries;
    auto read = for_each_record(images, kTree, Magic::kProcesses, [&](Bytes message) -> Expected<void> {
        auto fields = fields_of(message);
        if (!fields)
            return propagate(fields);
        auto threads = repeated(*fields, kThreads);
        if (!threads)
            return propagate(threads);
        const Field *const pid = find(*fields, kPid);
        if (pid == nullptr)
            return bad_tree("a process has no id");
        entries.push_back({pid->value, std::move(*threads)});
        return {};
    });
    if (!read)
        return propagate(read);
    if (entries.empty())
        return bad_tree("it has no process");
    return entries;
}

} // namespace singularity::host
