// SPDX-License-Identifier: GPL-2.0-or-later
#include "verify.hpp"

#include "file.hpp"
#include "process_tree.hpp"
#include "records.hpp"

#include <algorithm>
#include <array>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/types.h>

namespace singularity::host {
namespace {

// Field numbers of CRIU's images/{core,creds,pstree,ghost-file}.proto.
namespace core {
constexpr std::uint32_t kTask = 3;
constexpr std::uint32_t kThread = 5;
constexpr std::uint32_t kTaskState = 1;
constexpr std::uint32_t kCredentials = 10;
constexpr std::uint64_t kDead = 2; // TASK_DEAD: a zombie, which is nobody
} // namespace core
namespace credentials {
struct Id {
    std::uint32_t field;
    std::string_view name;
    bool is_group;
};
constexpr std::array kIds{Id{1, "uid", false},   Id{2, "gid", true},   Id{3, "euid", false},
                          Id{4, "egid", true},   Id{5, "suid", false}, Id{6, "sgid", true},
                          Id{7, "fsuid", false}, Id{8, "fsgid", true}};
struct Capabilities {
    std::uint32_t field;
    std::string_view name;
};
constexpr std::array kCapabilities{Capabilities{9, "inheritable"}, Capabilities{10, "permitted"},
                                   Capabilities{11, "effective"}, Capabilities{19, "ambient"}};
constexpr std::uint32_t kGroups = 14;
constexpr std::uint32_t kNoNewPrivileges = 18;
} // namespace credentials
namespace ghost {
constexpr std::uint32_t kUid = 1;
constexpr std::uint32_t kMode = 3;
} // namespace ghost

std::unexpected<Error> refused(const std::string &file, std::string why) {
    return failure("restore", "the image " + file,
                   std::move(why) + ": the image is not of this job, or was changed", EACCES);
}

Expected<void> check_credentials(const Context &context, const std::string &file, Bytes message) {
    auto fields = fields_of(message);
    if (!fields)
        return propagate(fields);
    for (const auto &id : credentials::kIds) {
        const Field *const found = find(*fields, id.field);
        const std::uint64_t expected = id.is_group ? context.gid : context.uid;
        if (found == nullptr || found->type != Field::Type::kVarint || found->value != expected)
            return refused(file, found == nullptr ? fmt::format("a thread has no {}", id.name)
                                                  : fmt::format("a thread has {} {}, not {}", id.name,
                                                                found->value, expected));
    }
    for (const auto &set : credentials::kCapabilities) {
        auto words = repeated(*fields, set.field);
        if (!words)
            return propagate(words);
        if (std::ranges::any_of(*words, [](std::uint64_t word) { return word != 0; }))
            return refused(file, fmt::format("a thread has {} capabilities", set.name));
    }
    auto groups = repeated(*fields, credentials::kGroups);
    if (!groups)
        return propagate(groups);
    for (const std::uint64_t group : *groups)
        if (group != context.gid && std::ranges::find(context.groups, group) == context.groups.end())
            return refused(file, fmt::format("a thread is in group {}, in which the user is not", group));
    const Field *const none = find(*fields, credentials::kNoNewPrivileges);
    // CRIU reads 32 bits of it.
    if (context.no_new_privileges && (none == nullptr || static_cast<std::uint32_t>(none->value) == 0))
        return refused(file, "a thread could gain privileges (no_new_privs is not set)");
    return {};
}

// False: a zombie's, which has no credentials.
Expected<bool> check_core(const Context &context, int images, const std::string &file) {
    auto message = first_record(images, file, Magic::kCore);
    if (!message)
        return propagate(message);
    const std::optional<std::string> &text = *message;
    if (!text)
        return refused(file, "it is empty");
    auto fields = fields_of(std::as_bytes(std::span(*text)));
    if (!fields)
        return propagate(fields);
    // CRIU would put together what occurs twice; an image that it wrote has each once.
    for (const std::uint32_t number : {core::kTask, core::kThread})
        if (std::ranges::count(*fields, number, &Field::number) > 1)
            return refused(file, "a part of it occurs twice");
    if (const Field *const task = find(*fields, core::kTask); task != nullptr) {
        auto inner = fields_of(task->bytes);
        if (!inner)
            return propagate(inner);
        const Field *const state = find(*inner, core::kTaskState);
        if (state != nullptr && state->value == core::kDead)
            return false;
    }
    const Field *const thread = find(*fields, core::kThread);
    if (thread == nullptr)
        return refused(file, "a thread has no credentials");
    auto inner = fields_of(thread->bytes);
    if (!inner)
        return propagate(inner);
    const auto count = std::ranges::count(*inner, core::kCredentials, &Field::number);
    if (count != 1)
        return refused(file, fmt::format("a thread has credentials {} times", count));
    if (auto good = check_credentials(context, file, find(*inner, core::kCredentials)->bytes); !good)
        return propagate(good);
    return true;
}

// A file that is made anew on restore, with the owner and mode that it had.
Expected<void> check_ghost(const Context &context, int images, const std::string &file) {
    auto message = first_record(images, file, Magic::kGhostFile);
    if (!message)
        return propagate(message);
    const std::optional<std::string> &text = *message;
    if (!text)
        return refused(file, "it is empty");
    auto fields = fields_of(std::as_bytes(std::span(*text)));
    if (!fields)
        return propagate(fields);
    const Field *const uid = find(*fields, ghost::kUid);
    const Field *const mode = find(*fields, ghost::kMode);
    if (uid == nullptr || mode == nullptr)
        return refused(file, "it has no owner or mode");
    if (uid->value != context.uid && (mode->value & (S_ISUID | S_ISGID)) != 0)
        return refused(file, fmt::format("a deleted file is of user {} and set-user-id", uid->value));
    return {};
}

} // namespace

Expected<void> verify_credentials(const Context &context, int images) {
    auto entries = processes_in(images);
    if (!entries)
        return propagate(entries);
    const auto check = [&](std::uint64_t id) -> Expected<bool> {
        // CRIU reads 32 bits of an id: of a longer one it would open another file than the one checked here.
        if (id == 0 || id > std::uint64_t{std::numeric_limits<pid_t>::max()})
            return refused("pstree.img",
                           fmt::format("a process or thread has the id {}, which none can have", id));
        return check_core(context, images, core_file(id));
    };
    for (const ProcessEntry &process : *entries) {
        auto lives = check(process.pid);
        if (!lives)
            return propagate(lives);
        if (!*lives) // what CRIU writes as a zombie's threads means nothing
            continue;
        for (const std::uint64_t thread : process.threads)
            if (auto good = check(thread); !good)
                return propagate(good);
    }
    auto names = names_in(images);
    if (!names)
        return propagate(names);
    for (const std::string &name : *names) {
        Expected<void> good;
        if (name.starts_with("ghost-file-"))
            good = check_ghost(context, images, name);
        else if (name.starts_with("creds-"))
            good = refused(name, "credentials are not kept in such files since CRIU 1.9");
        if (!good)
            return good;
    }
    return {};
}

} // namespace singularity::host
