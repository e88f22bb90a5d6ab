// SPDX-License-Identifier: GPL-2.0-or-later
#include "tree.hpp"

#include "common/text.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::local {

namespace {

constexpr mode_t kRootsAlone = 0700;
constexpr mode_t kPermissions = 07777;
constexpr mode_t kAsTmp = 01777;
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

Expected<UniqueFd> found_or_made(const std::filesystem::path &base, const std::string &tree) {
    if (!is_name(tree))
        return failure("make local directories for", quote(tree), "that is no name of a job", EINVAL);
    auto above = open_base(base);
    if (!above)
        return above;
    const auto place = place_of(base, tree);
    return made_of_root(above->get(), place.filename().native(), place.native());
}

bool is_same(const struct stat &one, const struct stat &other) {
    return one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

Expected<bool> moved_aside(const std::filesystem::path &base, const std::string &tree, const UniqueFd *only) {
    auto above = open_base(base);
    if (!above)
        return propagate(above);
    const auto name = place_of(base, tree).filename().native();
    for (int number = 0;; ++number) {
        const auto aside = fmt::format("{}{}.{}", kAside, number, name);
        if (renameat(above->get(), name.c_str(), above->get(), aside.c_str()) != 0) {
            if (errno == ENOENT)
                return false;
            if (errno == EEXIST || errno == ENOTEMPTY)
                continue;
            return std::unexpected(errno_error("move aside", (base / name).native()));
        }
        struct stat moved{};
        struct stat meant{};
        if (only == nullptr)
            return true;
        if (fstatat(above->get(), aside.c_str(), &moved, AT_SYMLINK_NOFOLLOW) != 0 ||
            fstat(only->get(), &meant) != 0)
            return std::unexpected(errno_error("look at", (base / aside).native()));
        if (is_same(moved, meant))
            return true;
        // A new run has begun just then: it keeps its own.
        if (renameat2(above->get(), aside.c_str(), above->get(), name.c_str(), RENAME_NOREPLACE) != 0)
            return std::unexpected(errno_error("move back", (base / aside).native()));
        return false;
    }
}

// Beside its place, then renamed: others read it at the same time.
Expected<void> write_run(const UniqueFd &tree, std::uint32_t run) {
    const auto beside = fmt::format(".{}.{}", kRun, getpid());
    const UniqueFd file(
        openat(tree.get(), beside.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
    const auto text = std::to_string(run);
    if (!file || write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size()) ||
        renameat(tree.get(), beside.c_str(), tree.get(), kRun) != 0)
        return std::unexpected(errno_error("write", kRun));
    return {};
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

Expected<UniqueFd> open_tree(const std::filesystem::path &base, const std::string &tree, std::uint32_t run) {
    auto directory = found_or_made(base, tree);
    auto its = directory ? run_of(*directory) : propagate(directory);
    if (!its)
        return propagate(its);
    auto known = *its;
    if (known && *known < run) {
        // Somebody else may be at it as well, and have made the new one already.
        if (auto aside = set_aside(base, tree, *directory); !aside)
            return propagate(aside);
        directory = found_or_made(base, tree);
        if (!directory)
            return directory;
        known.reset();
    }
    if (!known) // both write the same
        if (auto written = write_run(*directory, run); !written)
            return propagate(written);
    return directory;
}

Expected<UniqueFd> begin_tree(const std::filesystem::path &base, const std::string &tree) {
    if (!is_name(tree))
        return failure("make local directories for", quote(tree), "that is no name of a job", EINVAL);
    if (auto aside = set_aside(base, tree); !aside)
        return propagate(aside);
    return found_or_made(base, tree);
}

Expected<std::optional<std::uint32_t>> run_of(const UniqueFd &tree) {
    const UniqueFd file(openat(tree.get(), kRun, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file && errno == ENOENT)
        return std::nullopt;
    std::array<char, 16> text{};
    const ssize_t size = file ? read(file.get(), text.data(), text.size()) : -1;
    if (size < 0)
        return std::unexpected(errno_error("read", kRun));
    std::uint32_t out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + size, out);
    if (error != std::errc() || end != text.data() + size)
        return failure("read", kRun, "it is no number of a run of a job");
    return out;
}

Expected<bool> set_aside(const std::filesystem::path &base, const std::string &tree) {
    return moved_aside(base, tree, nullptr);
}

Expected<bool> set_aside(const std::filesystem::path &base, const std::string &tree, const UniqueFd &only) {
    return moved_aside(base, tree, &only);
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

} // namespace singularity::local
