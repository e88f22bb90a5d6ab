// SPDX-License-Identifier: GPL-2.0-or-later
#include "tree.hpp"

#include "common/deadline.hpp"
#include "common/replace_file.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace singularity::local {

namespace {

constexpr mode_t kRootsAlone = 0700;
constexpr mode_t kPermissions = 07777;
constexpr mode_t kAsTmp = 01777;
constexpr mode_t kReadable = 0600;
constexpr std::int64_t kSecond = 1'000'000'000;
constexpr const char *kLock = ".lock";
// For others to have made or moved their trees: the disk may be busy.
constexpr std::chrono::seconds kLockPatience{30};
constexpr std::size_t kLongestName = 128;

// Root's, and nobody else's to change.
Expected<UniqueFd> opened_of_root(int above, const std::string &name, const std::string &shown) {
    UniqueFd out(openat(above, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat about{};
    if (!out || fstat(out.get(), &about) != 0)
        return std::unexpected(errno_error("open the directory", shown));
    if (about.st_uid != geteuid())
        return failure("use the directory", shown,
                       fmt::format("it belongs to uid {}: it must be root's", about.st_uid), EPERM);
    // It may be one that somebody has named by mistake, with other things in it: nothing of it is changed.
    if ((about.st_mode & kPermissions) != kRootsAlone)
        return failure(
            "use the directory", shown,
            fmt::format("it has mode {:o}: it must be root's alone, with mode 700, and have nothing "
                        "else in it",
                        about.st_mode & kPermissions),
            EPERM);
    return out;
}

Expected<UniqueFd> made_of_root(int above, const std::string &name, const std::string &shown) {
    if (mkdirat(above, name.c_str(), kRootsAlone) != 0 && errno != EEXIST)
        return std::unexpected(errno_error("make the directory", shown));
    return opened_of_root(above, name, shown);
}

// Whoever was interrupted between making it and giving it away comes again.
Expected<void> make_of_user(int slot, const std::string &name, Owner owner) {
    if (mkdirat(slot, name.c_str(), kRootsAlone) != 0 && errno != EEXIST)
        return std::unexpected(errno_error("make the local directory", name));
    const UniqueFd directory(openat(slot, name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat about{};
    if (!directory || fstat(directory.get(), &about) != 0)
        return std::unexpected(errno_error("open the local directory", name));
    if (about.st_uid == owner.uid && owner.uid != 0)
        return {};
    if (about.st_uid != geteuid())
        return failure("use the local directory", name, fmt::format("it is uid {}'s", about.st_uid), EPERM);
    // The mode first: once it is the user's, nothing more is to be done.
    if (fchmod(directory.get(), kAsTmp) != 0 || fchown(directory.get(), owner.uid, owner.gid) != 0)
        return std::unexpected(errno_error("give the user the local directory", name));
    return {};
}

// While it is held nobody else makes a tree or moves one. Only root can open the file.
Expected<UniqueFd> locked(const UniqueFd &base, const std::filesystem::path &shown) {
    UniqueFd out(openat(base.get(), kLock, O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!out)
        return std::unexpected(errno_error("open", (shown / kLock).native()));
    int code = 0;
    const auto taken = [&] {
        code = flock(out.get(), LOCK_EX | LOCK_NB) == 0 ? 0 : errno;
        return code != EWOULDBLOCK && code != EINTR;
    };
    if (auto waited = wait_until(taken, Deadline::after(kLockPatience),
                                 fmt::format("the lock {}", (shown / kLock).native()));
        !waited)
        return propagate(waited);
    if (code != 0)
        return std::unexpected(errno_error("lock", (shown / kLock).native(), code));
    return out;
}

// With the lock. False: there is none.
Expected<bool> moved_aside(const UniqueFd &base, const std::string &name) {
    for (int number = 0;; ++number) {
        const auto aside = fmt::format("{}{}.{}", kAside, number, name);
        if (renameat2(base.get(), name.c_str(), base.get(), aside.c_str(), RENAME_NOREPLACE) == 0)
            return true;
        if (errno == ENOENT)
            return false;
        if (errno != EEXIST)
            return std::unexpected(errno_error("move aside", name));
    }
}

std::int64_t nanoseconds(std::int64_t seconds, std::uint32_t rest) { return (seconds * kSecond) + rest; }

// When nobody has changed the directory since the machine has started, whoever made it is gone.
Expected<bool> is_from_before_start(const UniqueFd &tree) {
    struct stat about{};
    timespec now{};
    timespec up{};
    if (fstat(tree.get(), &about) != 0 || clock_gettime(CLOCK_REALTIME, &now) != 0 ||
        clock_gettime(CLOCK_BOOTTIME, &up) != 0)
        return std::unexpected(errno_error("look at", "a job's local directories"));
    return about.st_mtim.tv_sec < now.tv_sec - up.tv_sec;
}

// An error of the lock or the name; else BASE and its lock, for as long as they are needed.
struct Held {
    UniqueFd base;
    UniqueFd lock;
    std::filesystem::path place; // of the tree
    [[nodiscard]] std::string name() const { return place.filename().native(); }
};
Expected<Held> held(const std::filesystem::path &base, const std::string &tree) {
    if (!is_name(tree))
        return failure("make local directories for", quote(tree), "that is no name of a job", EINVAL);
    auto above = open_base(base);
    auto lock = above ? locked(*above, base) : propagate(above);
    if (!lock)
        return propagate(lock);
    return Held{.base = *std::move(above), .lock = *std::move(lock), .place = place_of(base, tree)};
}

Expected<UniqueFd> made(const Held &base) {
    return made_of_root(base.base.get(), base.name(), base.place.native());
}

// The tree that there is; none: no descriptor.
Expected<UniqueFd> found_in(const Held &above) {
    UniqueFd out(
        openat(above.base.get(), above.name().c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    if (!out && errno != ENOENT)
        return std::unexpected(errno_error("open", above.place.native()));
    return out;
}

// Nobody waits for the disk with the lock: a run or an origin that a loss of power takes is one that is not
// known, and the tree is from before the machine started.
Expected<void> write_run(const Held &base, std::uint32_t run) {
    return replace_file(base.place / kRun, std::to_string(run), kReadable, Durable::kNo);
}

Expected<std::string> text_in(const UniqueFd &tree, const char *name) {
    const UniqueFd file(openat(tree.get(), name, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file && errno == ENOENT)
        return std::string();
    std::array<char, 2 * kLongestName> text{};
    const ssize_t size = file ? read(file.get(), text.data(), text.size()) : -1;
    if (size < 0)
        return std::unexpected(errno_error("read", name));
    return std::string(text.data(), static_cast<std::size_t>(size));
}

// Whether it has been made since the run has started, whoever has written another one's number into it.
Expected<bool> is_of_run(const UniqueFd &tree, std::int64_t started) {
    auto identity = started == 0 ? Expected<Identity>(Identity{}) : identity_of(tree);
    if (!identity)
        return propagate(identity);
    return started != 0 && identity->born > started;
}

Expected<UniqueFd> opened_tree(const Held &base, std::uint32_t run, std::int64_t started) {
    if (mkdirat(base.base.get(), base.name().c_str(), kRootsAlone) == 0) {
        if (auto written = write_run(base, run); !written)
            return propagate(written);
    } else if (errno != EEXIST) {
        return std::unexpected(errno_error("make the directory", base.place.native()));
    }
    auto directory = opened_of_root(base.base.get(), base.name(), base.place.native());
    if (!directory || run == 0) // it may have been left off
        return directory;
    auto known = directory ? run_of(*directory) : propagate(directory);
    if (!known)
        return propagate(known);
    const auto its = *known;
    auto is_own = is_of_run(*directory, started);
    auto is_old = its ? Expected<bool>(*its < run) : is_from_before_start(*directory);
    if (!is_own || !is_old)
        return propagate(is_own ? is_old : is_own);
    const bool is_unsure = !its || *is_old;
    *is_old = *is_old && !*is_own;
    if (*is_old) {
        if (auto aside = moved_aside(base.base, base.name()); !aside)
            return propagate(aside);
        directory = made(base);
        if (!directory)
            return directory;
    }
    if (is_unsure)
        if (auto written = write_run(base, run); !written)
            return propagate(written);
    return directory;
}

} // namespace

std::string tree_name(uid_t uid, std::uint32_t job) { return fmt::format("u{}-s{}", uid, job); }

bool read_tree_name(std::string_view name, SlurmTree &out) {
    const auto take = [&name](std::string_view before, auto &number) {
        if (!name.starts_with(before))
            return false;
        name.remove_prefix(before.size());
        const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
        name.remove_prefix(static_cast<std::size_t>(end - name.data()));
        return error == std::errc();
    };
    return take("u", out.uid) && take("-s", out.job) && name.empty();
}

std::string tree_of(uid_t uid, std::string_view job, const std::string &node) {
    const auto end = job.rfind('-'); // "u1000-s17-0": step 0 of job 17
    SlurmTree about;
    if (end != std::string_view::npos && read_tree_name(job.substr(0, end), about) && about.uid == uid)
        return std::string(job.substr(0, end));
    return job.empty() ? node : std::string(job);
}

bool is_name(std::string_view name) {
    return !name.empty() && name.size() <= kLongestName && name.front() != '.' &&
           std::ranges::all_of(name, [](char c) {
               return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                      c == '.' || c == '-' || c == '_';
           });
}

Expected<UniqueFd> open_base(const std::filesystem::path &base) {
    std::error_code error;
    std::filesystem::create_directories(base.parent_path(), error);
    if (error)
        return failure("make the directory", base.parent_path().native(), error.message(), error.value());
    return made_of_root(AT_FDCWD, base.native(), base.native());
}

Expected<UniqueFd> open_tree(const std::filesystem::path &base, const std::string &tree, std::uint32_t run,
                             std::int64_t started) {
    const auto above = held(base, tree);
    if (!above)
        return std::unexpected(above.error());
    return opened_tree(*above, run, started);
}

Expected<void> confirm_run(const std::filesystem::path &base, const std::string &tree, std::uint32_t run,
                           std::int64_t begun) {
    const auto above = held(base, tree);
    if (!above)
        return std::unexpected(above.error());
    const auto found = found_in(*above);
    if (!found)
        return std::unexpected(found.error());
    if (!*found)
        return {};
    auto identity = identity_of(*found);
    auto known = identity ? run_of(*found) : propagate(identity);
    if (!known)
        return propagate(known);
    const auto its = *known;
    return identity->born > begun || (its && *its >= run) ? Expected<void>() : write_run(*above, run);
}

Expected<UniqueFd> begin_tree(const std::filesystem::path &base, const std::string &tree) {
    const auto above = held(base, tree);
    if (!above)
        return std::unexpected(above.error());
    if (auto aside = moved_aside(above->base, above->name()); !aside)
        return propagate(aside);
    return made(*above);
}

Expected<std::optional<std::uint32_t>> run_of(const UniqueFd &tree) {
    const auto text = text_in(tree, kRun);
    if (!text)
        return std::unexpected(text.error());
    std::uint32_t out = 0;
    const auto *const end = text->data() + text->size();
    const auto [parsed, error] = std::from_chars(text->data(), end, out);
    if (error != std::errc() || parsed != end)
        return std::nullopt;
    return out;
}

Expected<std::string> origin_of(const UniqueFd &tree) { return text_in(tree, kOrigin); }

Expected<Identity> identity_of(const UniqueFd &directory) {
    struct statx about{};
    if (statx(directory.get(), "", AT_EMPTY_PATH, STATX_INO | STATX_BTIME, &about) != 0)
        return std::unexpected(errno_error("look at", "a job's local directories"));
    const bool says = (about.stx_mask & STATX_BTIME) != 0;
    return Identity{.device = makedev(about.stx_dev_major, about.stx_dev_minor),
                    .inode = about.stx_ino,
                    .born = says ? nanoseconds(about.stx_btime.tv_sec, about.stx_btime.tv_nsec) : 0};
}

Expected<bool> set_aside(const std::filesystem::path &base, const std::string &tree, const Identity &only) {
    const auto above = held(base, tree);
    if (!above)
        return std::unexpected(above.error());
    const auto found = found_in(*above);
    if (!found)
        return std::unexpected(found.error());
    if (!*found)
        return false;
    auto identity = identity_of(*found);
    if (!identity)
        return propagate(identity);
    return *identity == only ? moved_aside(above->base, above->name()) : false;
}

std::filesystem::path place_of(const std::filesystem::path &base, const std::string &tree) {
    return base / fmt::format("{}{}", kTree, tree);
}

std::string directory_name(const std::filesystem::path &path) {
    std::string out;
    const auto text = (path / "").lexically_normal().native(); // with a slash at its end
    for (std::size_t at = 1; at + 1 < text.size(); ++at) {
        const char c = text[at];
        const bool plain = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
                           c == '-' || (c == '.' && !out.empty());
        if (c == '/')
            out += '_';
        else if (plain)
            out += c;
        else
            out += fmt::format("={:02x}", static_cast<unsigned char>(c));
    }
    return out;
}

Expected<std::filesystem::path> make_directory(const UniqueFd &tree, const std::filesystem::path &where,
                                               const std::string &slot, Owner owner,
                                               const std::filesystem::path &path) {
    if (!is_name(slot) || slot == kOrigin || slot == kRun)
        return failure("make local directories in", where.native(), "that is no name of a place", EINVAL);
    auto directory = made_of_root(tree.get(), slot, (where / slot).native());
    if (!directory)
        return propagate(directory);
    const auto name = directory_name(path);
    if (auto made = make_of_user(directory->get(), name, owner); !made)
        return propagate(made);
    return where / slot / name;
}

std::string new_layer(const std::string &node) {
    return fmt::format("{}{}-{}", kLayer, node,
                       std::chrono::system_clock::now().time_since_epoch() / std::chrono::microseconds(1));
}

Expected<std::filesystem::path> make_layer(const UniqueFd &tree, const std::filesystem::path &where,
                                           const std::string &slot, Owner owner) {
    if (faccessat(tree.get(), slot.c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0)
        return failure("make a layer over an image in", where.native(),
                       fmt::format("there is {} already", quote(slot)), EEXIST);
    auto work = make_directory(tree, where, slot, owner, kWork);
    auto upper = work ? make_directory(tree, where, slot, owner, kUpper) : propagate(work);
    // The root of a node has its mode.
    if (upper && chmod(upper->c_str(), S_IRWXU | S_IRGRP | S_IXGRP | S_IROTH | S_IXOTH) != 0)
        return std::unexpected(errno_error("make a layer over an image in", where.native()));
    return upper;
}

std::filesystem::path place_in(const std::filesystem::path &base, const std::string &tree,
                               const std::string &slot, const std::filesystem::path &path) {
    return place_of(base, tree) / slot / directory_name(path);
}

std::filesystem::path base_of(const std::filesystem::path &place) {
    return place.parent_path().parent_path().parent_path();
}

Expected<std::string> slot_for(const std::filesystem::path &base, const std::string &tree, std::uint32_t run,
                               const std::string &origin) {
    if (!is_name(origin))
        return failure("restore the local directories of", tree, "their origin is no name", EPROTO);
    const auto above = held(base, tree);
    if (!above)
        return std::unexpected(above.error());
    auto directory = opened_tree(*above, run, 0);
    auto first = directory ? origin_of(*directory) : propagate(directory);
    if (!first)
        return propagate(first);
    if (first->empty())
        if (auto written = replace_file(above->place / kOrigin, origin, kReadable, Durable::kNo); !written)
            return propagate(written);
    return first->empty() || *first == origin ? kMain : origin;
}

} // namespace singularity::local
