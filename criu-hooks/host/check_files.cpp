// SPDX-License-Identifier: GPL-2.0-or-later
#include "check_files.hpp"

#include "aio.hpp"
#include "common/proc.hpp"
#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "file.hpp"
#include "maps.hpp"
#include "outside.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/capability.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/sysmacros.h>
#include <sys/vfs.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr std::string_view kDeleted = " (deleted)";

// Descriptors that are no files and no sockets, by what /proc says of them: saved, or not and why.
struct Kind {
    std::string_view link;
    std::string_view refusal; // empty: CRIU saves it
};
constexpr std::array kKinds{
    Kind{"anon_inode:[eventfd]", ""},
    Kind{"anon_inode:[eventpoll]", ""},
    Kind{"anon_inode:[signalfd]", ""},
    Kind{"anon_inode:[timerfd]", ""},
    Kind{"anon_inode:inotify", ""},
    Kind{"anon_inode:[pidfd]", ""},
    Kind{"pidfd:", ""},
    Kind{"pipe:", ""},
    Kind{
        "anon_inode:[io_uring]",
        "CRIU cannot save io_uring queues: switch io_uring off in the program (for libuv UV_USE_IO_URING=0)"},
    Kind{"anon_inode:[userfaultfd]", "CRIU cannot save userfaultfd"},
    Kind{"anon_inode:[fanotify]", "CRIU cannot restore fanotify without the privileges that made it"},
    Kind{"anon_inode:[perf_event]", "CRIU cannot save performance counters: end the profiler"},
    Kind{"anon_inode:bpf", "CRIU cannot save BPF objects"},
    Kind{"anon_inode:kvm", "CRIU cannot save virtual machines"},
    Kind{"/dmabuf:", "a buffer of a device driver is in use: it must be given back before a checkpoint"},
    Kind{"net:", "a network namespace is kept open"},
    Kind{"mnt:", "a mount namespace is kept open"},
    Kind{"user:", "a user namespace is kept open"},
};

// Character devices that CRIU opens again: memory devices, terminals.
bool is_known_device(dev_t device) {
    constexpr unsigned kMemory = 1;
    constexpr unsigned kTerminal = 5;
    constexpr unsigned kFirstPty = 136;
    constexpr unsigned kLastPty = 143;
    const unsigned number = major(device);
    return number == kMemory || number == kTerminal || (number >= kFirstPty && number <= kLastPty);
}

bool is_under(std::string_view path, const std::filesystem::path &directory) {
    const std::string &base = directory.native();
    return path == base ||
           (path.starts_with(base) && (base.ends_with('/') || path.substr(base.size()).starts_with('/')));
}

Expected<void> check_place(const DumpRequest &request, std::string_view path, const std::string &what) {
    for (const std::filesystem::path &each : request.local_directories)
        if (is_under(path, each))
            return cannot_save(what,
                               quote(each.string()) +
                                   " is of this machine only and will not be there where the job resumes");
    return {};
}

// What NFS makes of a file that is deleted while it is open: gone with the last process that has it.
bool is_silly_rename(std::string_view path) {
    constexpr std::string_view kPrefix = ".nfs";
    const std::string_view name = path.substr(path.rfind('/') + 1);
    return name.size() > kPrefix.size() && name.starts_with(kPrefix) &&
           name.find_first_not_of("0123456789abcdefABCDEF", kPrefix.size()) == std::string_view::npos;
}

// inotify watches are restored by path: the watched file must still have one.
Expected<void> check_watches(const NodeFacts &facts, pid_t pid, std::string_view info,
                             const std::string &what) {
    for (std::size_t at = info.find("inotify wd:"); at != std::string_view::npos;
         at = info.find("inotify wd:", at + 1)) {
        const std::string_view line = info.substr(at, info.find('\n', at) - at);
        const auto device = number_after(line, "sdev:", 16);
        const auto size = number_after(line, "fhandle-bytes:", 16);
        const auto type = number_after(line, "fhandle-type:", 16);
        const std::size_t data = line.find("f_handle:");
        const auto mount = facts.devices.find(device.value_or(0));
        if (!size || *size == 0 || *size > MAX_HANDLE_SZ || !type || data == std::string_view::npos ||
            mount == facts.devices.end())
            continue; // CRIU finds the path in another way, or says that it does not
        std::vector<std::byte> storage(sizeof(file_handle) + MAX_HANDLE_SZ);
        auto *const handle = reinterpret_cast<file_handle *>(storage.data());
        handle->handle_bytes = static_cast<unsigned>(*size);
        handle->handle_type = static_cast<int>(*type);
        std::string_view digits = line.substr(data + std::strlen("f_handle:"));
        for (std::size_t i = 0; i < *size && digits.size() >= 2; ++i, digits.remove_prefix(2)) {
            unsigned byte = 0;
            const auto two = digits.substr(0, 2);
            std::from_chars(two.data(), two.data() + two.size(), byte, 16);
            handle->f_handle[i] = static_cast<unsigned char>(byte);
        }
        auto base = open_file(fmt::format("/proc/{}/root{}", pid, mount->second), O_RDONLY | O_DIRECTORY);
        if (!base)
            continue;
        if (!opens_by_handle(base->get()))
            continue; // watched.hpp
        const UniqueFd watched(open_by_handle_at(base->get(), handle, O_PATH | O_CLOEXEC));
        if (!watched && errno != ESTALE)
            continue;
        const auto path =
            watched ? read_link(fmt::format("/proc/self/fd/{}", watched.get())) : Expected<std::string>();
        if (!watched || !path || path->ends_with(kDeleted))
            return cannot_save(what, "it watches a file or directory that has been deleted (inotify): CRIU "
                                     "cannot restore the watch");
    }
    return {};
}

// Of a file that was deleted under the name under which it was opened. CRIU gives it one more for the time of
// the dump (links.hpp), and the directory of that must be in the image.
Expected<void> check_other_names(const NodeFacts &facts, const struct stat &file, const std::string &what) {
    if (file.st_nlink == 0 || facts.own_memory.contains(file.st_dev))
        return {};
    return cannot_save(what, "it was deleted under this name but has another, which CRIU cannot find: keep "
                             "the name, or close it");
}

struct Descriptor {
    std::string what; // "descriptor 5 of process 27 (python3), '/dev/kvm'"
    std::string link;
    std::string path; // in /proc
    struct stat status{};
    std::string info;
};

Expected<void> check_file(const NodeFacts &facts, const DumpRequest &request, const Descriptor &one) {
    const auto mount = number_after(one.info, "mnt_id:");
    // mq_open(3) opens it on a mount that no process sees.
    struct statfs on{};
    if (mount && !facts.mounts.contains(*mount) && statfs(one.path.c_str(), &on) == 0 &&
        on.f_type == kMessageQueues)
        return cannot_save(
            one.what,
            "CRIU cannot save message queues of mq_open(3): mq_unlink(3) and close it before a checkpoint");
    if (mount && !facts.mounts.contains(*mount))
        return cannot_save(
            one.what,
            "it was opened outside of the node's mounts: start the node without inherited descriptors, or "
            "declare it as one that leads outside");
    if ((S_ISCHR(one.status.st_mode) && !is_known_device(one.status.st_rdev)) || S_ISBLK(one.status.st_mode))
        return cannot_save(
            one.what, "CRIU cannot save a device's state: the program must close it before a checkpoint");
    if (one.link.ends_with(kDeleted) && S_ISREG(one.status.st_mode)) {
        if (auto good = check_other_names(facts, one.status, one.what); !good || one.status.st_nlink > 0)
            return good;
        if (one.status.st_size > static_cast<off_t>(request.largest_deleted_file))
            return cannot_save(
                one.what,
                fmt::format(
                    "it has been deleted, so its {} bytes would have to be in the image, and the limit is {}",
                    one.status.st_size, request.largest_deleted_file));
        return {};
    }
    if (is_silly_rename(one.link))
        return cannot_save(one.what, "it has been deleted on NFS, where it goes with the last process that "
                                     "has it open: keep the file, or close it");
    return check_place(request, one.link, one.what);
}

Expected<void> check_descriptor(const NodeFacts &facts, const DumpRequest &request, const Process &process,
                                const Descriptor &one, const UniqueFd &pidfd, int number) {
    if (facts.outside.contains(one.link))
        return {};
    if (S_ISSOCK(one.status.st_mode) && one.link.starts_with("socket:")) {
        const UniqueFd socket(static_cast<int>(syscall(SYS_pidfd_getfd, pidfd.get(), number, 0)));
        return socket ? check_socket(facts, socket.get(), one.what)
                      : Expected<void>(); // else closed meanwhile
    }
    const auto *const kind =
        std::ranges::find_if(kKinds, [&](const Kind &each) { return one.link.starts_with(each.link); });
    if (kind != kKinds.end()) {
        if (!kind->refusal.empty())
            return cannot_save(one.what, std::string(kind->refusal));
        return check_watches(facts, process.pid, one.info, one.what);
    }
    if (one.link.starts_with("/memfd:"))
        return {};
    if (!one.link.starts_with('/'))
        return cannot_save(one.what,
                           "CRIU cannot save descriptors of this kind: close it before a checkpoint");
    if (S_ISCHR(one.status.st_mode) &&
        facts.outside.contains(fmt::format("tty[{:x}:{:x}]", one.status.st_rdev, one.status.st_dev)))
        return {};
    const auto mount = number_after(one.info, "mnt_id:");
    if (mount && facts.outside.contains(fmt::format("file[{:x}:{:x}]", *mount, one.status.st_ino)))
        return {};
    return check_file(facts, request, one);
}

// In a restore CRIU's own descriptors lie above those of the process.
Expected<void> check_number(const NodeFacts &facts, const std::string &what, std::uint64_t number) {
    constexpr std::uint64_t kRoom = 64;  // CRIU 4.2 takes 21 of its own and 16 to be safe
    constexpr std::uint64_t kUnit = 128; // up to a multiple of this (criu/servicefd.c)
    if (number + kRoom <= facts.descriptors / kUnit * kUnit)
        return {};
    return cannot_save(
        what,
        fmt::format("a restore has room for {} descriptors here, and CRIU's own could not lie above it: "
                    "raise the limit of singularityd (LimitNOFILE=), or lower the program's",
                    facts.descriptors));
}

// How many descriptors CRIU can have: it raises its limit as far as it may.
Expected<std::uint64_t> most_descriptors() {
    __user_cap_header_struct head{.version = _LINUX_CAPABILITY_VERSION_3, .pid = 0};
    std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> rights{};
    struct rlimit limit{};
    if (syscall(SYS_capget, &head, rights.data()) != 0 || getrlimit(RLIMIT_NOFILE, &limit) != 0)
        return std::unexpected(errno_error("find", "the limit of descriptors"));
    if ((rights[0].effective & (1U << CAP_SYS_RESOURCE)) == 0)
        return limit.rlim_max;
    auto text = proc::read("/proc/sys/fs/nr_open");
    if (!text)
        return propagate(text);
    return number_after(*text, "").value_or(limit.rlim_max);
}

} // namespace

bool opens_by_handle(int fd) {
    std::vector<std::byte> storage(sizeof(file_handle) + MAX_HANDLE_SZ);
    auto *const handle = reinterpret_cast<file_handle *>(storage.data());
    handle->handle_bytes = MAX_HANDLE_SZ;
    int mount = 0;
    return name_to_handle_at(fd, "", handle, &mount, AT_EMPTY_PATH) == 0 || errno != EOPNOTSUPP;
}

Expected<NodeFacts> facts_of(const DumpRequest &request) {
    NodeFacts facts;
    facts.others_are_reset = request.others_are_reset;
    facts.neighbours.insert(request.neighbours.begin(), request.neighbours.end());
    auto network = read_link(fmt::format("/proc/{}/ns/net", request.init));
    if (!network)
        return propagate(network);
    facts.network = *network;
    auto most = most_descriptors();
    if (!most)
        return propagate(most);
    facts.descriptors = *most;
    auto mountinfo = proc::read(fmt::format("/proc/{}/mountinfo", request.init));
    if (!mountinfo)
        return propagate(mountinfo);
    auto here = proc::read("/proc/thread-self/mountinfo");
    if (!here)
        return propagate(here);
    const auto others = proc::mounts(*here);
    for (const auto &mount : proc::mounts(*mountinfo)) {
        if (mount.type == "tmpfs" &&
            std::ranges::find(others, mount.device, &proc::Mount::device) == others.end())
            facts.own_memory.insert(mount.device);
        constexpr unsigned kMinorBits = 20; // of dev_t inside of the kernel
        facts.mounts[mount.id] = mount.point;
        facts.devices.try_emplace((std::uint64_t{major(mount.device)} << kMinorBits) | minor(mount.device),
                                  mount.point);
    }
    auto sockets = unix_sockets(request.init);
    if (!sockets)
        return propagate(sockets);
    facts.unix_sockets = std::move(*sockets);
    for (const OutsideDescriptor &each : request.descriptors) {
        auto resource = resource_of(each.fd);
        if (!resource)
            return propagate(resource);
        facts.outside.insert(resource->inherit);
    }
    return facts;
}

Expected<void> check_descriptors(const NodeFacts &facts, const DumpRequest &request, const Process &process) {
    const UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, process.pid, 0)));
    auto directory = open_file(fmt::format("/proc/{}/fd", process.pid), O_RDONLY | O_DIRECTORY);
    if (!pidfd || !directory)
        return {}; // it has ended
    auto numbers = names_in(directory->get());
    if (!numbers)
        return {};
    for (const std::string &number : *numbers) {
        Descriptor one;
        one.path = fmt::format("/proc/{}/fd/{}", process.pid, number);
        auto link = read_link(one.path);
        auto info = proc::read(fmt::format("/proc/{}/fdinfo/{}", process.pid, number));
        if (!link || !info || stat(one.path.c_str(), &one.status) != 0)
            continue; // closed meanwhile
        one.link = std::move(*link);
        one.info = std::move(*info);
        one.what = fmt::format("descriptor {} of {}, {}", number, process.title(), quote(one.link));
        if (auto good = check_descriptor(facts, request, process, one, pidfd, std::stoi(number)); !good)
            return good;
        if (auto good = check_number(facts, one.what, std::stoul(number)); !good)
            return good;
    }
    return {};
}

namespace {

// CRIU 4.2 maps before it seals, from a descriptor as the program had it: the kernel refuses to seal what
// could be written to by such a mapping, though it made the program's own, which came after the seal, such
// that it cannot.
Expected<void> check_seals(const Process &process, const Mapping &mapping, const std::string &what) {
    constexpr std::string_view kSealed = "/memfd:";
    if (!mapping.shared || !mapping.name.starts_with(kSealed))
        return {};
    const auto path = fmt::format("/proc/{}/map_files/{:x}-{:x}", process.pid, mapping.begin, mapping.end);
    struct stat link{};
    const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file || lstat(path.c_str(), &link) != 0 || (link.st_mode & S_IWUSR) == 0)
        return {}; // mapped from a descriptor for reading, or not any more
    const int seals = fcntl(file.get(), F_GET_SEALS);
    if (seals < 0 || (static_cast<unsigned>(seals) & F_SEAL_WRITE) == 0)
        return {};
    return cannot_save(what, "it is sealed against writing, and CRIU cannot map it again: map it from a "
                             "descriptor for reading (open(2) of /proc/self/fd/N)");
}

} // namespace

Expected<void> check_mappings(const NodeFacts &facts, const DumpRequest &request, const Process &process) {
    auto mappings = mappings_of(process.pid);
    if (!mappings)
        return {}; // it has ended
    constexpr std::array<std::string_view, 4> kGoodDevices{"/dev/zero", "/dev/shm/", "/dev/hugepages/",
                                                           "/dev/mqueue/"};
    for (const Mapping &each : *mappings) {
        const std::string what = fmt::format("the mapping of {} in {}", quote(each.name), process.title());
        if (each.name.starts_with("anon_inode:"))
            return cannot_save(what, "CRIU cannot save memory that the kernel shares with a program "
                                     "(io_uring, performance counters)");
        if (each.name.starts_with("/dev/") && std::ranges::none_of(kGoodDevices, [&](std::string_view good) {
                return each.name.starts_with(good);
            }))
            return cannot_save(
                what, "CRIU cannot save a device's memory: the program must unmap it before a checkpoint");
        if (auto good = check_seals(process, each, what); !good)
            return good;
        if (is_aio_ring(process.pid, each.begin, each.end))
            continue;
        struct stat file{};
        if (each.name.starts_with('/') && each.name.ends_with(kDeleted) &&
            stat(fmt::format("/proc/{}/map_files/{:x}-{:x}", process.pid, each.begin, each.end).c_str(),
                 &file) == 0)
            if (auto good = check_other_names(facts, file, what); !good)
                return good;
        if (each.name.starts_with('/'))
            if (auto good = check_place(request, each.name, what); !good)
                return good;
    }
    return {};
}

} // namespace singularity::host
