// SPDX-License-Identifier: GPL-2.0-or-later
#include "image.hpp"

#include "as_user.hpp"
#include "common/plain_path.hpp"
#include "common/replace_file.hpp"
#include "common/text.hpp"
#include "image_search.hpp"
#include "image_skeleton.hpp"
#include "own_mounts.hpp"

#include <algorithm>
#include <array>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <linux/openat2.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::node {

namespace {

std::string resolvers() {
    std::ifstream file("/etc/resolv.conf");
    return {std::istreambuf_iterator<char>(file), {}};
}

bool is_directory(const UniqueFd &file) {
    struct stat about{};
    return fstat(file.get(), &about) == 0 && S_ISDIR(about.st_mode);
}

Expected<Skeleton> make_skeleton(const Room &room, const Spec &spec, const FoundImage &found) {
    auto out = Skeleton::make(room.image() / "skeleton");
    if (!out)
        return out;
    Expected<void> made;
    if (layer_of(spec) != nullptr)
        made = out->give_to(spec.uid, spec.gid);
    const auto add = [&](Expected<void> one) {
        if (made)
            made = std::move(one);
    };
    for (const auto place : own_places())
        add(out->add_directory(place));
    for (const auto &place : memory_directories(spec))
        add(out->add_directory(place));
    for (const auto &place : spec.shown)
        add(out->add_directory(place));
    for (const auto &one : spec.local)
        if (!one.is_layer())
            add(out->add_directory(one.path));
    for (const auto &command : spec.commands)
        add(out->add_file(command, ""));
    add(out->add_file("/etc/hosts", ""));
    add(out->add_file("/etc/resolv.conf", resolvers()));
    add(out->add_file("/etc/passwd", found.passwd));
    add(out->add_file("/etc/group", found.group));
    for (std::size_t at = 0; at < found.sources.size(); ++at) {
        const auto &target = spec.image.mounts[at].target;
        add(is_directory(found.sources[at]) ? out->add_directory(target) : out->add_file(target, ""));
    }
    if (!made)
        return propagate(made);
    return out;
}

// What the kernel has said of a file system that it does not make, or the error's own text.
std::string words_of(const UniqueFd &file_system, int code) {
    std::array<char, 1024> text{};
    std::string out;
    for (ssize_t size = 0; (size = read(file_system.get(), text.data(), text.size())) > 0;)
        out += fmt::format("{}{}", out.empty() ? "" : "; ",
                           std::string_view(text.data(), static_cast<std::size_t>(size)).substr(2));
    return out.empty() ? errno_error("", "", code).why : out;
}

// The user's directories over an image. Their names are root's.
struct Layer {
    UniqueFd upper; // none: there is no layer
    UniqueFd work;
};
Expected<Layer> open_layer(const Spec &spec) {
    Layer out;
    const auto *const layer = layer_of(spec);
    if (layer == nullptr)
        return out;
    const std::filesystem::path upper(layer->source);
    for (const auto &[place, file] :
         {std::pair(upper, &out.upper), std::pair(upper.parent_path() / "work", &out.work)}) {
        *file = open_by_name(AT_FDCWD, place, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS);
        if (!*file)
            return std::unexpected(errno_error("open the node's layer over its image", place.native()));
    }
    return out;
}

// overlayfs makes its directory of work with no permissions at all, and must get into it. What programs may
// do in the root is decided by modes and owners first, as everywhere, so they get nothing from this.
bool enter_any_directory() {
    __user_cap_header_struct header{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> sets{};
    if (syscall(SYS_capget, &header, sets.data()) != 0)
        return false;
    sets[CAP_TO_INDEX(CAP_DAC_OVERRIDE)].effective |= CAP_TO_MASK(CAP_DAC_OVERRIDE);
    return syscall(SYS_capset, &header, sets.data()) == 0;
}

Expected<UniqueFd> make_root(const Spec &spec, const Skeleton &skeleton, const UniqueFd &image,
                             const Layer &layer) {
    const auto refuse = [&](std::string why) {
        return failure("use the image", quote(spec.image.directory), std::move(why), EINVAL);
    };
    // The overlay's own accesses are made with the rights of who mounts it (overlayfs.rst, "Permission
    // model"): the user's. What an image says by extended attributes is not followed.
    auto ids = AsUser::begin(spec);
    if (!ids)
        return propagate(ids);
    if (layer.upper && !enter_any_directory())
        return refuse(errno_error("", "").why);
    const UniqueFd system(fsopen("overlay", FSOPEN_CLOEXEC));
    if (!system)
        return refuse(fmt::format("this kernel has no overlay file system ({}): modprobe overlay",
                                  errno_error("", "").why));
    const auto layers = fmt::format("/proc/self/fd/{}:/proc/self/fd/{}", skeleton.fd(), image.get());
    for (const auto &[key, value] :
         {std::pair("source", "image"), std::pair("lowerdir", layers.c_str()),
          std::pair("redirect_dir", "nofollow"), std::pair("metacopy", "off"), std::pair("index", "off")})
        if (fsconfig(system.get(), FSCONFIG_SET_STRING, key, value, 0) != 0)
            return refuse(words_of(system, errno));
    // userxattr: what overlayfs notes is the user's, so that the user's tar(1) saves it.
    if (layer.upper) {
        const auto upper = fmt::format("/proc/self/fd/{}", layer.upper.get());
        const auto work = fmt::format("/proc/self/fd/{}", layer.work.get());
        if (fsconfig(system.get(), FSCONFIG_SET_FLAG, "userxattr", nullptr, 0) != 0 ||
            fsconfig(system.get(), FSCONFIG_SET_STRING, "xino", "off", 0) != 0 ||
            fsconfig(system.get(), FSCONFIG_SET_STRING, "upperdir", upper.c_str(), 0) != 0 ||
            fsconfig(system.get(), FSCONFIG_SET_STRING, "workdir", work.c_str(), 0) != 0)
            return refuse(
                fmt::format("no layer to which programs write lies over it: {}", words_of(system, errno)));
    }
    if (fsconfig(system.get(), FSCONFIG_CMD_CREATE, nullptr, nullptr, 0) != 0)
        return refuse(fmt::format("the kernel makes no overlay of it: {}", words_of(system, errno)));
    UniqueFd out(fsmount(system.get(), FSMOUNT_CLOEXEC,
                         (layer.upper ? 0U : MOUNT_ATTR_RDONLY) | MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV));
    if (!out)
        return refuse(errno_error("", "").why);
    return out;
}

Expected<UniqueFd> clone(const ImageMount &one, const UniqueFd &source) {
    UniqueFd out(
        open_tree(source.get(), "", OPEN_TREE_CLONE | OPEN_TREE_CLOEXEC | AT_EMPTY_PATH | AT_RECURSIVE));
    if (!out)
        return refuse_mount(one, errno_error("", "").why);
    mount_attr attributes{};
    attributes.attr_set =
        MOUNT_ATTR_NOSUID | MOUNT_ATTR_NODEV | (one.read_only ? std::uint64_t{MOUNT_ATTR_RDONLY} : 0);
    attributes.propagation = MS_PRIVATE; // nothing that is mounted in it goes to the host
    if (mount_setattr(out.get(), "", AT_EMPTY_PATH | AT_RECURSIVE, &attributes, sizeof(attributes)) != 0)
        return refuse_mount(one, errno_error("", "").why);
    return out;
}

// A place for a mount in the directory of root's own.
Expected<void> make_place(const std::filesystem::path &place, bool directory) {
    if (directory ? mkdir(place.c_str(), 0755) != 0 && errno != EEXIST : false)
        return std::unexpected(errno_error("make", place.native()));
    if (directory)
        return {};
    return replace_file(place, "", 0644, Durable::kNo);
}

// What a file holds, for as long as this lives: an overlay takes no layer that is mounted nowhere.
class Served {
  public:
    static Expected<Served> mount(const Room &room, const Spec &spec, const UniqueFd &file,
                                  std::uint64_t offset, const ImageServer &server) {
        auto tree = server.serve(file, offset);
        if (!tree)
            return propagate(tree);
        Served out(room.image() / "file");
        if (auto made = make_place(out.place_, true); !made)
            return propagate(made);
        if (auto attached = attach(*tree, out.place_); !attached)
            return propagate(attached);
        out.mounted_ = true;
        // The first that is asked of it: here it shows whether it is served at all.
        out.top_ = open_by_name(AT_FDCWD, out.place_, O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS);
        if (!out.top_)
            return std::unexpected(errno_error("open the mount of", quote(spec.image.directory)));
        if (auto noted = note_connection(room, out.top_); !noted)
            return propagate(noted);
        struct stat about{};
        if (fstat(out.top_.get(), &about) != 0) {
            return server.not_served(errno_error("ask", "squashfuse_ll"));
        }
        return out;
    }
    Served(Served &&other) noexcept
        : place_(std::move(other.place_)), top_(std::move(other.top_)),
          mounted_(std::exchange(other.mounted_, false)) {}
    Served(const Served &) = delete;
    Served &operator=(const Served &) = delete;
    Served &operator=(Served &&) = delete;
    ~Served() {
        if (mounted_)
            umount2(place_.c_str(), MNT_DETACH | UMOUNT_NOFOLLOW);
    }

    [[nodiscard]] const UniqueFd &top() const { return top_; }

  private:
    explicit Served(std::filesystem::path place) : place_(std::move(place)) {}
    std::filesystem::path place_;
    UniqueFd top_;
    bool mounted_ = false;
};

} // namespace

Expected<ImageMounts> open_image(const Room &room, const Spec &spec, const ImageServer &server) {
    const auto view = LocalView::show(spec);
    if (!view)
        return std::unexpected(view.error());
    auto named = find_named(spec);
    if (!named)
        return propagate(named);
    if (mkdir(room.image().c_str(), 0755) != 0 && errno != EEXIST)
        return std::unexpected(errno_error("make", room.image().native()));
    std::optional<Served> served;
    if (const auto offset = named->squashfs) {
        auto mounted = Served::mount(room, spec, named->file, *offset, server);
        if (!mounted)
            return propagate(mounted);
        served.emplace(std::move(*mounted));
    }
    const auto &image = served ? served->top() : named->file;
    auto found = look_into(spec, image);
    if (!found)
        return propagate(found);
    auto skeleton = make_skeleton(room, spec, *found);
    if (!skeleton)
        return propagate(skeleton);
    const auto layer = open_layer(spec);
    if (!layer)
        return std::unexpected(layer.error());
    auto root = make_root(spec, *skeleton, image, {});
    if (!root)
        return propagate(root);
    ImageMounts out;
    if (layer->upper) {
        out.below = std::move(*root);
        root = make_root(spec, *skeleton, image, *layer);
        if (!root)
            return propagate(root);
    }
    out.root = std::move(*root);
    for (std::size_t at = 0; at < found->sources.size(); ++at) {
        auto tree = clone(spec.image.mounts[at], found->sources[at]);
        if (!tree)
            return propagate(tree);
        out.mounts.push_back(std::move(*tree));
    }
    return out;
}

Expected<void> attach(const UniqueFd &tree, const std::string &target) {
    const UniqueFd place = open_by_name(AT_FDCWD, target, O_PATH, RESOLVE_NO_SYMLINKS);
    if (!place ||
        move_mount(tree.get(), "", place.get(), "", MOVE_MOUNT_F_EMPTY_PATH | MOVE_MOUNT_T_EMPTY_PATH) != 0)
        return std::unexpected(errno_error("mount in the node", target));
    return {};
}

namespace {

// A layer that was saved lies over the mount points as well: whatever it has there, a restore mounts where
// it should.
Expected<void> check_points_of_layer(const Room &room, const Spec &spec) {
    constexpr std::array<std::string_view, 3> kNoMounts{"/etc/resolv.conf", "/etc/passwd", "/etc/group"};
    const UniqueFd root =
        open_by_name(AT_FDCWD, room.image_root(), O_PATH | O_DIRECTORY, RESOLVE_NO_SYMLINKS);
    if (!root)
        return std::unexpected(errno_error("open", room.image_root().native()));
    for (const auto &point : mount_points(spec)) {
        if (std::ranges::find(kNoMounts, point) != kNoMounts.end())
            continue;
        const UniqueFd there = open_by_name(root.get(), point.substr(1), O_PATH | O_NOFOLLOW,
                                            RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS);
        struct stat about{};
        if (!there || fstat(there.get(), &about) != 0 || S_ISLNK(about.st_mode))
            return failure("restore what was written to the image", quote(spec.image.directory),
                           fmt::format("{}, where a job has something mounted, has been removed or replaced",
                                       quote(point)),
                           EPERM);
    }
    return {};
}

} // namespace

Expected<void> show_image(const Room &room, const Spec &spec) {
    auto server = ImageServer::begin(spec);
    if (!server)
        return propagate(server);
    auto own = OwnMounts::make();
    if (!own)
        return propagate(own);
    if (auto gone = own->go_to_root_of_agent(); !gone)
        return gone;
    auto mounts = open_image(room, spec, *server);
    if (!mounts)
        return propagate(mounts);
    if (auto made = make_place(room.image_root(), true); !made)
        return made;
    if (auto attached = attach(mounts->root, room.image_root()); !attached)
        return attached;
    if (mounts->below) {
        auto made = make_place(room.image_below(), true);
        if (made)
            made = attach(mounts->below, room.image_below());
        if (made)
            made = check_points_of_layer(room, spec);
        if (!made)
            return made;
    }
    for (std::size_t at = 0; at < mounts->mounts.size(); ++at) {
        const auto place = room.image() / std::to_string(at);
        auto made = make_place(place, is_directory(mounts->mounts[at]));
        if (made)
            made = attach(mounts->mounts[at], place);
        if (!made)
            return made;
    }
    return {};
}

} // namespace singularity::node
