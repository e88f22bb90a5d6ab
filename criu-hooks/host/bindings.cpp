// SPDX-License-Identifier: GPL-2.0-or-later
#include "bindings.hpp"

#include "file.hpp"
#include "proc.hpp"
#include "records.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::host {
namespace {

// The first message of the table is init's, the others one of a thread each.
namespace binding_fields {
constexpr std::uint32_t kThread = 1;
constexpr std::uint32_t kMask = 2;
} // namespace binding_fields

// Nothing of a thread that has ended.
std::optional<CpuMask> mask_of(pid_t thread) {
    CpuMask mask(kLargestCpuMask, 0);
    const auto size = syscall(SYS_sched_getaffinity, thread, mask.size(), mask.data());
    if (size < 0)
        return std::nullopt;
    mask.resize(static_cast<std::size_t>(size));
    return mask;
}

std::string encoded(pid_t thread, const CpuMask &mask) {
    return encoded_field(binding_fields::kThread, static_cast<std::uint64_t>(thread)) +
           encoded_field(binding_fields::kMask, std::string_view(mask.data(), mask.size()));
}

} // namespace

Expected<void> keep_bindings(const DumpRequest &request) {
    auto node = processes_of(request.init);
    if (!node)
        return propagate(node);
    const auto base = mask_of(request.init);
    if (!base)
        return std::unexpected(errno_error("ask for", "the processors of the node's init"));
    std::vector<std::string> messages{encoded(1, *base)};
    for (const Process &process : *node)
        for (const pid_t thread : process.threads) {
            const auto mask = mask_of(thread);
            if (!mask || *mask == *base)
                continue;
            auto status = status_of(process.pid, thread);
            if (status && !status->pid_in.empty())
                messages.push_back(encoded(status->pid_in.back(), *mask));
        }
    if (messages.size() == 1)
        return {};
    return write_file_at(request.images, kBindingsTable, framed(Magic::kBindings, messages));
}

Expected<Bindings> read_bindings(int images) {
    Bindings out;
    struct stat about{};
    if (fstatat(images, kBindingsTable, &about, AT_SYMLINK_NOFOLLOW) != 0 && errno == ENOENT)
        return out;
    bool is_first = true;
    auto read =
        for_each_record(images, kBindingsTable, Magic::kBindings, [&](Bytes message) -> Expected<void> {
            auto fields = fields_of(message);
            if (!fields)
                return propagate(fields);
            const Field *const thread = find(*fields, binding_fields::kThread);
            const Field *const mask = find(*fields, binding_fields::kMask);
            if (thread == nullptr || mask == nullptr || mask->bytes.size() > kLargestCpuMask)
                return failure("read", kBindingsTable, "a line of it is damaged", EPROTO);
            const auto text = mask->text();
            CpuMask value(text.begin(), text.end());
            if (std::exchange(is_first, false))
                out.base = std::move(value);
            else
                out.threads.push_back(
                    {.thread = static_cast<pid_t>(thread->value), .mask = std::move(value)});
            return {};
        });
    if (!read)
        return propagate(read);
    return out;
}

Expected<void> bind_again(int images, pid_t init) {
    auto bindings = read_bindings(images);
    if (!bindings)
        return propagate(bindings);
    if (bindings->threads.empty())
        return {};
    auto node = processes_of(init);
    if (!node)
        return propagate(node);
    std::map<pid_t, pid_t> here; // by the id in the node
    for (const Process &process : *node)
        for (const pid_t thread : process.threads)
            if (auto status = status_of(process.pid, thread); status && !status->pid_in.empty())
                here.emplace(status->pid_in.back(), thread);
    const auto base = mask_of(init);
    if (!base)
        return std::unexpected(errno_error("ask for", "the processors of the node's init"));
    for (const ThreadBinding &each : bindings->threads) {
        const auto thread = here.find(each.thread);
        const auto mask = carried_over(each.mask, bindings->base, *base);
        if (thread == here.end() || mask.empty())
            continue;
        // ESRCH: what a zombie was bound to matters to nobody.
        if (syscall(SYS_sched_setaffinity, thread->second, mask.size(), mask.data()) != 0 && errno != ESRCH)
            return std::unexpected(errno_error("bind", fmt::format("thread {} of the node", each.thread)));
    }
    return {};
}

} // namespace singularity::host
