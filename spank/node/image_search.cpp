// SPDX-License-Identifier: GPL-2.0-or-later
#include "image_search.hpp"

#include "as_user.hpp"
#include "common/plain_path.hpp"
#include "common/proc.hpp"
#include "common/text.hpp"
#include "image_file.hpp"
#include "kernel_file_systems.hpp"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/magic.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace singularity::node {

UniqueFd open_by_name(int directory, const std::string &path, std::uint64_t flags, std::uint64_t resolve) {
    open_how how{};
    how.flags = flags | O_CLOEXEC;
    how.resolve = resolve | RESOLVE_NO_MAGICLINKS;
    return UniqueFd(static_cast<int>(syscall(SYS_openat2, directory, path.c_str(), &how, sizeof(how))));
}

namespace {

constexpr off_t kAccountsLimit = off_t{64} << 10;
// NOLINTNEXTLINE(google-runtime-int)
constexpr long kFuse = 0x65735546;

std::string why_not(const Spec &spec, std::string_view name, int code, const char *option) {
    switch (code) {
    case ENOENT:
        for (const auto &one : spec.local)
            if (!one.is_layer() && is_in(name, one.path))
                return fmt::format("{} is the job's own on this host (local_directories in "
                                   "singularity.yaml), and has nothing of that name: correct {}",
                                   one.path, option);
        return fmt::format("this host has nothing of that name: correct {}", option);
    case ENOTDIR:
        return fmt::format("it is neither a directory nor a regular file, or something above it is no "
                           "directory: correct {}",
                           option);
    case EACCES:
    case EPERM:
        return fmt::format("uid {} may not read it: have its owner permit that for it and all directories "
                           "above (chmod o+rx, setfacl)",
                           spec.uid);
    default:
        return fmt::format("{}: correct {}", errno_error("", "", code).why, option);
    }
}

// FUSE asks for the user's real and effective ids too, which stay root's here: whether this user reaches a
// mount of it the mount itself says.
Expected<void> check_fuse(const Spec &spec, const UniqueFd &file) {
    struct statx about{};
    if (statx(file.get(), "", AT_EMPTY_PATH | AT_NO_AUTOMOUNT, STATX_MNT_ID, &about) != 0 ||
        (about.stx_mask & STATX_MNT_ID) == 0)
        return std::unexpected(errno_error("find", "the mount"));
    auto text = proc::read("/proc/self/mountinfo");
    if (!text)
        return propagate(text);
    for (const auto &mount : proc::mounts(*text)) {
        if (mount.id != about.stx_mnt_id)
            continue;
        const auto options = fmt::format(",{},", mount.options);
        if (options.contains(",allow_other,") || options.contains(fmt::format(",user_id={},", spec.uid)))
            return {};
        break;
    }
    return failure("use", "a file system of FUSE",
                   fmt::format("uid {} has not mounted it: mount it with allow_other", spec.uid), EACCES);
}

// What is mounted below it, by where in it that is: "/data".
struct MountedBelow {
    std::string place;
    std::string type;
};
Expected<std::vector<MountedBelow>> mounted_below(const UniqueFd &directory) {
    std::error_code error;
    const auto path =
        std::filesystem::read_symlink(fmt::format("/proc/self/fd/{}", directory.get()), error).native();
    if (error)
        return failure("find", "the path of a directory", error.message(), error.value());
    auto text = proc::read("/proc/self/mountinfo");
    if (!text)
        return propagate(text);
    const std::string_view top = path == "/" ? std::string_view() : path;
    std::vector<MountedBelow> out;
    for (const auto &mount : proc::mounts(*text))
        if (mount.point.size() > top.size() + 1 && is_in(mount.point, top))
            out.push_back({.place = mount.point.substr(top.size()), .type = mount.type});
    return out;
}

// An overlay has one file system as its layer: what lies below a mount in it would come to light.
Expected<void> check_is_one(const Spec &spec, const UniqueFd &image) {
    auto below = mounted_below(image);
    if (!below)
        return propagate(below);
    const auto points = mount_points(spec);
    for (const auto &one : *below)
        if (std::ranges::none_of(points, [&](const auto &point) { return is_in(one.place, point); }))
            return failure("use the image", quote(spec.image.directory),
                           fmt::format("on this host something is mounted in it, at {}: an image is one "
                                       "directory tree of one file system; use a copy of it (cp -ax)",
                                       quote(one.place)),
                           EINVAL);
    return {};
}

std::unexpected<Error> refuse_image(const Spec &spec, int code) {
    const auto &name = spec.image.directory;
    return failure("use the image", quote(name), why_not(spec, name, code, "--singularity-image"), code);
}

// It is opened anew by its name: what was looked at before has been the other kind, and may be exchanged.
Expected<NamedImage> open_file_image(const Spec &spec) {
    const auto &name = spec.image.directory;
    NamedImage out{.file = open_by_name(AT_FDCWD, name, O_RDONLY | O_NONBLOCK | O_NOCTTY, 0), .squashfs = {}};
    struct stat about{};
    if (!out.file || fstat(out.file.get(), &about) != 0)
        return refuse_image(spec, errno);
    if (!S_ISREG(about.st_mode)) // exchanged in between
        return refuse_image(spec, ENOTDIR);
    auto offset = squashfs_offset(out.file, name);
    if (!offset)
        return propagate(offset);
    out.squashfs = *offset;
    return out;
}

Expected<UniqueFd> open_directory(const Spec &spec) {
    const auto &name = spec.image.directory;
    const auto refuse = [&](int code) { return refuse_image(spec, code); };
    UniqueFd out = open_by_name(AT_FDCWD, name, O_PATH | O_DIRECTORY, 0);
    if (!out)
        return refuse(errno);
    if (syscall(SYS_faccessat2, out.get(), "", R_OK | X_OK, AT_EMPTY_PATH | AT_EACCESS) != 0)
        return refuse(errno);
    struct statfs about{};
    if (fstatfs(out.get(), &about) != 0)
        return refuse(errno);
    if (kernel_file_system(about.f_type) != nullptr)
        return failure("use the image", quote(name), "it is of the kernel's own file systems", EINVAL);
    if (about.f_type == OVERLAYFS_SUPER_MAGIC) // CRIU does not find what has been started from one on another
        return failure("use the image", quote(name),
                       "it lies on an overlay, and nothing that runs from there could be saved: copy it to "
                       "another file system",
                       EINVAL);
    if (about.f_type == kFuse)
        if (auto checked = check_fuse(spec, out); !checked)
            return failure("use the image", quote(name), checked.error().why, checked.error().code);
    if (auto checked = check_is_one(spec, out); !checked)
        return propagate(checked);
    return out;
}

// A mount point in a directory that the image has as a link would hide what the link leads to; one that its
// user could not reach would be of no use.
Expected<void> check_point(const Spec &spec, const UniqueFd &image, std::string_view point) {
    const auto refuse = [&](std::string why, int code) {
        return failure("use the image", quote(spec.image.directory), std::move(why), code);
    };
    for (std::size_t slash = 0; slash != std::string_view::npos;) {
        slash = point.find('/', slash + 1);
        const std::string name(point.substr(0, slash));
        const UniqueFd there = open_by_name(image.get(), name.substr(1), O_PATH | O_NOFOLLOW,
                                            RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
        struct stat about{};
        if (!there && errno == EACCES)
            return refuse(
                fmt::format("uid {} may not enter the directory of {} in it, and {} is to be mounted "
                            "there: permit that, or choose another place",
                            spec.uid, quote(name), quote(point)),
                EACCES);
        if (!there)
            return {}; // the skeleton's is the only one
        if (slash != std::string_view::npos && (fstat(there.get(), &about) != 0 || S_ISLNK(about.st_mode)))
            return refuse(fmt::format("{} is a link in it, and {} is to be mounted there: name the path to "
                                      "which the link leads, or make it a directory",
                                      quote(name), quote(point)),
                          EINVAL);
    }
    return {};
}

// A small file of the image's, if it has one that the user may read.
std::optional<std::string> read_of_image(const UniqueFd &image, const std::string &path) {
    const UniqueFd file = open_by_name(image.get(), path, O_RDONLY | O_NONBLOCK | O_NOCTTY, RESOLVE_IN_ROOT);
    struct stat about{};
    if (!file || fstat(file.get(), &about) != 0 || !S_ISREG(about.st_mode) || about.st_size > kAccountsLimit)
        return std::nullopt;
    std::string out(static_cast<std::size_t>(about.st_size), '\0');
    const ssize_t got = pread(file.get(), out.data(), out.size(), 0);
    if (got < 0)
        return std::nullopt;
    out.resize(static_cast<std::size_t>(got));
    return out;
}

// The image's lines, and ours whose number (the third field, passwd(5)) it does not have.
std::string accounts(std::string text, const std::vector<std::string> &lines) {
    const auto number = [](std::string_view line) {
        for (int field = 0; field < 2; ++field)
            line.remove_prefix(std::min(line.find(':') + 1, line.size()));
        return line.substr(0, line.find(':'));
    };
    if (!text.empty() && !text.ends_with('\n'))
        text += '\n';
    std::string out = text;
    for (const auto &line : lines) {
        std::istringstream known(text);
        bool is_known = false;
        for (std::string one; std::getline(known, one);)
            is_known = is_known || number(one) == number(line);
        if (!is_known && !line.empty())
            out += line + '\n';
    }
    return out;
}

Expected<UniqueFd> find_source(const Spec &spec, const ImageMount &one) {
    const auto refuse = [&](std::string why) { return refuse_mount(one, std::move(why)); };
    UniqueFd out = open_by_name(AT_FDCWD, one.source, O_PATH, 0);
    if (!out)
        return refuse(why_not(spec, one.source, errno, "--singularity-mount"));
    struct stat about{};
    struct statfs where{};
    // Only so an automounter mounts it.
    if (fstat(out.get(), &about) == 0 && S_ISDIR(about.st_mode)) {
        out = open_by_name(AT_FDCWD, one.source, O_PATH | O_DIRECTORY, 0);
        if (!out)
            return refuse(why_not(spec, one.source, errno, "--singularity-mount"));
    }
    if (fstat(out.get(), &about) != 0 || fstatfs(out.get(), &where) != 0)
        return refuse(errno_error("", "").why);
    if (where.f_type == AUTOFS_SUPER_MAGIC)
        return refuse("it is an automounter's, which would mount nothing in the job: name a directory in it");
    if (!S_ISDIR(about.st_mode) && !S_ISREG(about.st_mode))
        return refuse("only directories and regular files can be mounted");
    if (kernel_file_system(where.f_type) != nullptr)
        return refuse("it is of the kernel's own file systems, of which a job has its own");
    if (where.f_type == kFuse)
        if (auto checked = check_fuse(spec, out); !checked)
            return refuse(checked.error().why);
    // They come with it.
    auto below = mounted_below(out);
    if (!below)
        return propagate(below);
    for (const auto &mounted : *below)
        if (kernel_file_system(mounted.type) != nullptr)
            return refuse(fmt::format("at {} in it is one of the kernel's own file systems ({}), of which a "
                                      "job has its own: name a directory without it",
                                      quote(mounted.place), mounted.type));
    return out;
}

} // namespace

// All of it as the user.
Expected<NamedImage> find_named(const Spec &spec) {
    auto ids = AsUser::begin(spec);
    if (!ids)
        return propagate(ids);
    const UniqueFd named = open_by_name(AT_FDCWD, spec.image.directory, O_PATH, 0);
    struct stat about{};
    if (named && fstat(named.get(), &about) == 0 && S_ISREG(about.st_mode))
        return open_file_image(spec);
    auto directory = open_directory(spec);
    if (!directory)
        return propagate(directory);
    return NamedImage{.file = std::move(*directory), .squashfs = {}};
}

Expected<FoundImage> look_into(const Spec &spec, const UniqueFd &image) {
    auto ids = AsUser::begin(spec);
    if (!ids)
        return propagate(ids);
    FoundImage out;
    for (const auto &one : spec.image.mounts) {
        auto source = find_source(spec, one);
        if (!source)
            return propagate(source);
        out.sources.push_back(std::move(*source));
    }
    const auto points = mount_points(spec);
    for (const auto &point : points)
        if (auto checked = check_point(spec, image, point); !checked)
            return propagate(checked);
    out.passwd = accounts(read_of_image(image, "etc/passwd").value_or(""), {spec.image.account});
    out.group = accounts(read_of_image(image, "etc/group").value_or(""), spec.image.groups);
    return out;
}

} // namespace singularity::node
