// SPDX-License-Identifier: GPL-2.0-or-later
// The dump's side of written_files.hpp.
#include "common/proc.hpp"
#include "common/unique_fd.hpp"
#include "file.hpp"
#include "maps.hpp"
#include "outside.hpp"
#include "proc.hpp"
#include "user_ids.hpp"
#include "user_work.hpp"
#include "written_files.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <ctime>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

using Inode = std::pair<dev_t, ino_t>;

// File systems that only show what the kernel has.
bool is_of_kernel(std::string_view type) {
    constexpr std::array<std::string_view, 9> kTypes{
        "proc", "sysfs", "cgroup", "cgroup2", "debugfs", "tracefs", "configfs", "securityfs", "devpts"};
    return std::ranges::find(kTypes, type) != kTypes.end();
}

// An inode that a process of the node can write to.
struct Writer {
    std::string proc; // one of the links to it, below /proc
    std::string name; // as the node sees it
    std::uint64_t mount = 0;
    bool appends = true; // all do
    bool mapped = false;
    std::uint64_t end = 0;
    bool is_open = true;
};

bool is_resource_shortage(int code) { return code == EMFILE || code == ENFILE || code == ENOMEM; }

class Keeper {
  public:
    Keeper(Context context, DumpRequest request)
        : context_(std::move(context)), request_(std::move(request)), now_(std::time(nullptr)) {}

    Expected<KeptFiles> run() {
        images_ = UniqueFd(fcntl(request_.images, F_DUPFD_CLOEXEC, 0)); // the caller may not wait for us
        if (!images_)
            return std::unexpected(errno_error("use", "the image directory"));
        if (auto found = find_writers(); !found)
            return propagate(found);
        out_.table.ran_on = request_.goes_on;
        out_.table.made = now_;
        for (auto &[name, directory] : directories_) // a parent's name comes before those in it
            out_.table.directories.push_back(std::move(directory));
        if (!writers_.empty())
            if (auto kept = keep_all(); !kept)
                return propagate(kept);
        if (auto written = write_written_files(images_.get(), out_.table); !written)
            return propagate(written);
        return std::move(out_);
    }

  private:
    // Mounts of the node that are of this host's file systems. All others are in the image, or kept by the
    // caller, or nobody's.
    Expected<void> find_mounts() {
        auto ours = proc::read("/proc/self/mountinfo");
        if (!ours)
            return propagate(ours);
        auto of_node = proc::read(fmt::format("/proc/{}/mountinfo", request_.init));
        if (!of_node)
            return propagate(of_node);
        std::set<dev_t> devices;
        for (const auto &mount : proc::mounts(*ours))
            devices.insert(mount.device);
        const auto is_kept = [this](const proc::Mount &mount) {
            return std::ranges::any_of(request_.mounts, [&](const OutsideMount &one) {
                return one.kept && one.path == mount.point;
            });
        };
        for (const auto &mount : proc::mounts(*of_node))
            if (is_kept(mount))
                kept_.insert(mount.id);
            else if (devices.contains(mount.device) && !is_of_kernel(mount.type))
                mounts_.insert(mount.id);
        return {};
    }

    // Their owners look after what leads out of the node.
    Expected<void> find_outside() {
        for (const OutsideDescriptor &each : request_.descriptors) {
            auto resource = resource_of(each.fd);
            if (!resource)
                return propagate(resource);
            outside_.insert(resource->inherit);
        }
        return {};
    }

    Expected<void> find_writers() {
        if (auto found = find_mounts(); !found)
            return found;
        if (auto found = find_outside(); !found)
            return found;
        auto processes = processes_of(request_.init);
        if (!processes)
            return propagate(processes);
        for (const Process &process : *processes) {
            auto directory = open_file(fmt::format("/proc/{}/fd", process.pid), O_RDONLY | O_DIRECTORY);
            auto numbers = directory ? names_in(directory->get()) : propagate(directory);
            if (!numbers && is_resource_shortage(numbers.error().code))
                return propagate(numbers);
            if (!numbers)
                continue; // a zombie
            look_at_directory(fmt::format("{}/cwd", process.pid));
            for (const std::string &number : *numbers)
                look_at_descriptor(process.pid, number);
            auto mappings = mappings_of(process.pid);
            if (!mappings)
                return propagate(mappings);
            for (const Mapping &mapping : *mappings)
                if (mapping.shared && mapping.name.starts_with('/'))
                    look_at_mapping(process.pid, mapping);
        }
        return {};
    }

    // What a descriptor or a mapping can do.
    struct Use {
        std::string link; // below /proc
        std::optional<std::uint64_t> mount;
        bool appends = false;
        bool mapped = false;
        std::uint64_t end = 0;
    };

    void look_at_descriptor(pid_t pid, const std::string &number) {
        auto info = proc::read(fmt::format("/proc/{}/fdinfo/{}", pid, number));
        if (!info)
            return;
        constexpr int kOctal = 8;
        const auto flags = static_cast<int>(number_after(*info, "flags:", kOctal).value_or(O_PATH));
        if ((flags & O_DIRECTORY) != 0)
            look_at_directory(fmt::format("{}/fd/{}", pid, number));
        if ((flags & O_PATH) != 0 || (flags & O_ACCMODE) == O_RDONLY)
            return;
        add({.link = fmt::format("{}/fd/{}", pid, number),
             .mount = number_after(*info, "mnt_id:"),
             .appends = (flags & O_APPEND) != 0,
             .mapped = false,
             .end = number_after(*info, "pos:").value_or(0)});
    }

    void look_at_directory(const std::string &link) {
        const auto path = "/proc/" + link;
        struct statx about{};
        auto name = read_link(path);
        if (name && name->starts_with('/') && !name->ends_with(kDeleted) &&
            statx(AT_FDCWD, path.c_str(), 0, STATX_TYPE | STATX_MODE | STATX_MNT_ID, &about) == 0 &&
            S_ISDIR(about.stx_mode) && mounts_.contains(about.stx_mnt_id))
            directories_.try_emplace(
                *name, UsedDirectory{.name = *name, .mount = about.stx_mnt_id, .mode = about.stx_mode});
    }

    // Its link's mode tells how the file was opened.
    void look_at_mapping(pid_t pid, const Mapping &mapping) {
        const auto link = fmt::format("{}/map_files/{:x}-{:x}", pid, mapping.begin, mapping.end);
        struct stat about{};
        struct statx there{};
        if (lstat(("/proc/" + link).c_str(), &about) != 0 || (about.st_mode & S_IWUSR) == 0 ||
            statx(AT_FDCWD, ("/proc/" + link).c_str(), 0, STATX_MNT_ID, &there) != 0)
            return;
        add({.link = link, .mount = there.stx_mnt_id, .appends = false, .mapped = true, .end = 0});
    }

    void add(const Use &use) {
        const auto path = "/proc/" + use.link;
        struct stat about{};
        auto name = read_link(path);
        if (!name || !name->starts_with('/') || name->ends_with(kDeleted) || !use.mount ||
            stat(path.c_str(), &about) != 0 || !S_ISREG(about.st_mode))
            return;
        if (kept_.contains(*use.mount))
            out_.in_kept.insert(*name);
        if (!mounts_.contains(*use.mount) ||
            outside_.contains(fmt::format("file[{:x}:{:x}]", *use.mount, about.st_ino)))
            return;
        const auto [found, is_new] = writers_.try_emplace(
            Inode(about.st_dev, about.st_ino), Writer{.proc = use.link, .name = *name, .mount = *use.mount});
        Writer &writer = found->second;
        writer.appends = writer.appends && use.appends;
        writer.mapped = writer.mapped || use.mapped;
        writer.end = std::max(writer.end, use.end);
    }

    Expected<void> keep_all() {
        auto root = open_file(fmt::format("/proc/{}/root", request_.init), O_PATH | O_DIRECTORY);
        if (!root)
            return propagate(root);
        root_ = std::move(*root);
        content_ = UniqueFd(openat(images_.get(), kFilesContent,
                                   O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC | O_NOFOLLOW, 0600));
        if (!content_)
            return std::unexpected(errno_error("create", kFilesContent));
        auto ids = UserIds::take(context_);
        if (!ids)
            return propagate(ids);
        for (const Set &set : sets()) {
            Links links;
            for (const Writer *const writer : set)
                links.emplace_back(writer,
                                   UniqueFd(open(("/proc/" + writer->proc).c_str(), O_PATH | O_CLOEXEC)));
            if (auto changed = ids->become_user(); !changed)
                return changed;
            auto kept = keep(std::move(links));
            if (auto changed = UserIds::become_root(); !changed)
                return changed;
            if (!kept)
                return kept;
        }
        return content_.close();
    }

    // A file, or a database with what belongs to it: all of that is kept, or nothing.
    using Set = std::vector<const Writer *>;
    [[nodiscard]] std::vector<Set> sets() const {
        std::map<std::string, Set> by_name;
        for (const auto &[inode, writer] : writers_)
            by_name[base_of(writer.name)].push_back(&writer);
        std::vector<Set> out;
        for (auto &[name, set] : by_name) {
            std::ranges::sort(set, {}, [](const Writer *writer) { return writer->name.size(); });
            // Without its database such a name means nothing.
            if (set.front()->name == name)
                out.push_back(std::move(set));
            else
                for (const Writer *const writer : set)
                    out.push_back({writer});
        }
        return out;
    }

    using Links = std::vector<std::pair<const Writer *, UniqueFd>>;
    struct Part {
        WrittenFile about;
        UniqueFd file;
    };

    Expected<void> keep(Links links) {
        const Writer &first = *links.front().first;
        const UniqueFd directory = open_directory(first.name);
        struct stat around{};
        if (directory && fstat(directory.get(), &around) != 0)
            around.st_mode = 0;
        std::vector<Part> parts;
        for (auto &[writer, link] : links)
            parts.push_back(part_of(*writer, link, around.st_mode));
        find_relatives(first, directory, parts);
        if (parts.front().file.get() < 0 && is_resource_shortage(shortage_))
            return failure("look at", "a file that a program has open", "there are no more descriptors",
                           shortage_);
        return add(std::move(parts));
    }

    Part part_of(const Writer &writer, const UniqueFd &link, mode_t directory_mode) {
        Part out;
        out.about.name = writer.name;
        out.about.mount = writer.mount;
        out.about.directory_mode = directory_mode;
        out.about.appends = writer.appends;
        out.about.end = writer.end;
        out.about.doubtful = writer.mapped;
        out.about.open = writer.is_open;
        out.file = readable(link);
        return out;
    }

    // Of a database's, those that nobody has open are parts as well.
    void find_relatives(const Writer &writer, const UniqueFd &directory, std::vector<Part> &parts) {
        auto relatives = relatives_of(writer.name, directory);
        parts.front().about.relatives_known = relatives.has_value();
        for (const auto &rest : std::move(relatives).value_or(std::vector<std::string>())) {
            const auto name = writer.name + rest;
            const UniqueFd relative(
                openat(directory.get(), name.c_str() + name.rfind('/') + 1, O_PATH | O_CLOEXEC | O_NOFOLLOW));
            struct stat about{};
            if (!relative || fstat(relative.get(), &about) != 0 || !S_ISREG(about.st_mode))
                continue;
            parts.front().about.relatives.emplace(rest, identity_of(relative.get()));
            if (!is_part_of_database(rest) || writers_.contains(Inode(about.st_dev, about.st_ino)))
                continue;
            Writer closed{.proc = {}, .name = name, .mount = writer.mount};
            closed.appends = false;
            closed.is_open = false;
            parts.push_back(part_of(closed, relative, parts.front().about.directory_mode));
        }
    }

    // An error: of the image. Files that cannot be read stay as they are.
    Expected<void> add(std::vector<Part> parts) {
        std::erase_if(parts, [this](Part &part) { return !describe(part); });
        std::uint64_t left = std::min(request_.largest_copy, request_.all_copies - content_size_);
        std::vector<Extents> data;
        for (const Part &part : parts) {
            const auto found = data_in(part.file.get(), part.about.size, left).value_or(std::nullopt);
            if (!found)
                break;
            for (const Extent &extent : *found)
                left -= extent.size;
            data.push_back(*found);
        }
        const bool kept = data.size() == parts.size();
        for (std::size_t at = 0; at < parts.size(); ++at) {
            if (kept)
                if (auto copied = copy(parts[at], std::move(data[at])); !copied)
                    return copied;
            if (!parts[at].about.kept && !parts[at].about.appends)
                out_.not_copied.push_back(parts[at].about.name);
            out_.table.files.push_back(std::move(parts[at].about));
            out_.to_sync.push_back(std::move(parts[at].file));
        }
        return {};
    }

    Expected<void> copy(Part &part, Extents data) {
        const auto begin = content_size_;
        auto copied = append_copy(part.file.get(), data, content_.get());
        if (!copied)
            return propagate(copied);
        for (const Extent &extent : data)
            content_size_ += extent.size;
        part.about.kept = *copied;
        if (part.about.kept)
            part.about.copy = {.extents = std::move(data), .begin = begin};
        return {};
    }

    bool describe(Part &part) const {
        struct stat about{};
        if (!part.file || fstat(part.file.get(), &about) != 0)
            return false;
        WrittenFile &one = part.about;
        one.identity = identity_of(part.file.get());
        one.size = static_cast<std::uint64_t>(about.st_size);
        one.changed = time_of(about);
        // Within the same second, or the kernel's tick, it can be changed once more and say the same time.
        constexpr std::int64_t kSeconds = 2;
        one.doubtful = one.doubtful || about.st_mtim.tv_sec > now_ - kSeconds;
        one.mode = about.st_mode;
        one.fingerprint = fingerprint_of(part.file.get(), one.size).value_or(std::string());
        if (request_.owner.empty())
            return true;
        const auto mark = mark_of(part.file.get());
        one.shared = mark && mark->owner != request_.owner && mark->time >= request_.since;
        set_mark(part.file.get(), {.owner = request_.owner, .time = now_});
        return true;
    }

    // The same inode, through no name. Nothing if the user may not read it.
    UniqueFd readable(const UniqueFd &link) {
        UniqueFd out(link ? open(fmt::format("/proc/self/fd/{}", link.get()).c_str(),
                                 O_RDONLY | O_CLOEXEC | O_NONBLOCK)
                          : -1);
        if (!out)
            shortage_ = errno;
        return out;
    }

    // Of a file, as the node sees it.
    [[nodiscard]] UniqueFd open_directory(const std::string &name) const {
        open_how how{.flags = O_RDONLY | O_DIRECTORY | O_CLOEXEC, .mode = 0, .resolve = RESOLVE_IN_ROOT};
        const auto path = name.substr(0, name.rfind('/') + 1);
        return UniqueFd(static_cast<int>(syscall(SYS_openat2, root_.get(), path.c_str(), &how, sizeof(how))));
    }

    // Nothing: they are not known.
    std::optional<std::vector<std::string>> relatives_of(const std::string &name, const UniqueFd &directory) {
        const auto base = name.rfind('/') + 1;
        const auto [found, is_new] = names_.try_emplace(name.substr(0, base));
        if (is_new && directory)
            if (auto names = names_in(directory.get(), kMostNames); names)
                found->second = std::move(*names);
        const auto &all = found->second;
        if (!all)
            return std::nullopt;
        std::vector<std::string> out;
        // They are sorted: those that begin so lie together.
        const auto stem = name.substr(base);
        for (auto at = std::ranges::lower_bound(*all, stem); at != all->end() && at->starts_with(stem); ++at)
            if (auto rest = at->substr(stem.size()); is_part_of_database(rest) || is_rotated(rest))
                out.push_back(std::move(rest));
        return out;
    }

    Context context_;
    DumpRequest request_;
    std::int64_t now_; // time(2)
    UniqueFd images_;
    std::set<std::uint64_t> mounts_;
    std::set<std::uint64_t> kept_; // mounts of which the caller saves what is in them
    std::set<std::string> outside_;
    std::map<Inode, Writer> writers_;
    std::map<std::string, UsedDirectory> directories_;                     // by name
    std::map<std::string, std::optional<std::vector<std::string>>> names_; // in directories
    int shortage_ = 0;                                                     // errno of the last open
    UniqueFd root_;                                                        // the node's
    UniqueFd content_;
    std::uint64_t content_size_ = 0;
    KeptFiles out_;
};

} // namespace

Expected<KeptFiles> keep_written_files(const Context &context, const DumpRequest &request) {
    return Keeper(context, request).run();
}

Expected<void> write_to_disk(std::vector<UniqueFd> files, const std::function<Expected<void>()> &go_on) {
    if (files.empty())
        return {};
    const auto all = std::make_shared<std::vector<UniqueFd>>(std::move(files));
    auto work = UserWork<void>::begin([all]() -> Expected<void> {
        for (const UniqueFd &file : *all)
            if (fsync(file.get()) != 0 && errno != EINVAL && errno != EROFS)
                return std::unexpected(errno_error("write to the disk", "a file that a program has open"));
        return {};
    });
    return work ? work->wait(go_on) : propagate(work);
}

} // namespace singularity::host
