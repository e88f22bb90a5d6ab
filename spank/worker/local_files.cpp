// SPDX-License-Identifier: GPL-2.0-or-later
#include "local_files.hpp"

#include "common/text.hpp"
#include "common/unique_fd.hpp"
#include "local/tree.hpp"
#include "local_written.hpp"
#include "log.hpp"
#include "node/user_process.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <optional>
#include <sstream>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <linux/openat2.h>
#include <poll.h>
#include <sched.h>
#include <sys/file.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::worker {

namespace {

using namespace std::chrono_literals;

constexpr std::size_t kMostWords = 16384; // of what tar says
constexpr int kLook = 200;                // ms between two looks at the agent
constexpr int kSomeDiffer = 1;            // tar's exit status: files changed or went while they were read
constexpr int kSomeFailed = 2;            // likewise: it says which
constexpr int kNotStarted = 125;          // and none of tar's
constexpr auto kKilledPatience = 5s;      // for a process that has been killed
constexpr unsigned kGibibyteBits = 30;

constexpr const char *kWrittenName = "local-written";
constexpr std::array kOfOverlay{"--xattrs-exclude=user.overlay.origin",
                                "--xattrs-exclude=user.overlay.impure", "--xattrs-exclude=user.overlay.uuid",
                                "--xattrs-exclude=user.overlay.nlink", "--xattrs-exclude=user.overlay.upper"};

std::string archive_name(std::size_t number) { return fmt::format("local-{}.tar", number); }

// ---- tar

struct Run {
    const node::Spec *user;
    int directory = -1;
    int in = -1;
    int out = -1;
    int names = -1; // what it finds at kNames
    std::vector<const char *> arguments;
    std::uint64_t largest = 0; // that it may write; 0: no limit
};

// The user's processes of any other group may neither trace tar, nor take its descriptors, nor change its
// limits (ptrace(2), "Ptrace access mode checking"): the archive and the agent's cgroup are not theirs.
// No user has it, and it gives access to nothing; the user's group is one of the supplementary ones.
constexpr gid_t kNobodysGroup = static_cast<gid_t>(-2);
constexpr int kNamesNumber = STDERR_FILENO + 1;
constexpr const char *kNames = "--files-from=/dev/fd/3";
constexpr rlim_t kMostMemory = rlim_t{1} << 30U; // names of a directory are sorted there

[[noreturn]] void become_tar(const Run &run, const std::vector<gid_t> &groups,
                             const std::vector<char *> &arguments, int words) {
    const auto &user = *run.user;
    const rlimit largest{.rlim_cur = run.largest, .rlim_max = run.largest};
    const rlimit memory{.rlim_cur = kMostMemory, .rlim_max = kMostMemory};
    umask(0);
    if (fchdir(run.directory) != 0 || dup2(run.in, STDIN_FILENO) < 0 || dup2(run.out, STDOUT_FILENO) < 0 ||
        dup2(words, STDERR_FILENO) < 0 || !node::leave_session_keyring() ||
        (run.names >= 0 && dup2(run.names, kNamesNumber) < 0) ||
        (run.largest != 0 && setrlimit(RLIMIT_FSIZE, &largest) != 0) ||
        setrlimit(RLIMIT_DATA, &memory) != 0 || setgroups(groups.size(), groups.data()) != 0 ||
        setresgid(kNobodysGroup, kNobodysGroup, kNobodysGroup) != 0 ||
        setresuid(user.uid, user.uid, user.uid) != 0 || prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0)
        _exit(kNotStarted);
    close_range(static_cast<unsigned>(run.names >= 0 ? kNamesNumber : STDERR_FILENO) + 1, ~0U, 0);
    std::array<char *, 3> environment{const_cast<char *>("PATH=/usr/bin:/bin"),
                                      const_cast<char *>("LC_ALL=C"), nullptr}; // execve does not write
    for (const char *const program : {"/usr/bin/tar", "/bin/tar"})
        execve(program, arguments.data(), environment.data());
    constexpr std::string_view kNone = "there is no /usr/bin/tar that can be run: install GNU tar\n";
    [[maybe_unused]] const auto told = write(STDERR_FILENO, kNone.data(), kNone.size());
    _exit(kNotStarted);
}

// Ended by a signal, or stopped, which its user can do: as a shell says it.
constexpr int kBySignal = 128;

// The first process of a PID namespace, and root's: when it ends, be it because the worker does, so does all
// that is in there, whatever it has made of itself.
[[noreturn]] void watch_over_tar(const Run &run, const std::vector<gid_t> &groups,
                                 const std::vector<char *> &arguments, int words) {
    pollfd worker{.fd = words, .events = 0, .revents = 0};
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || poll(&worker, 1, 0) != 0)
        _exit(kNotStarted);
    const pid_t tar = fork();
    if (tar == 0)
        become_tar(run, groups, arguments, words);
    int status = 0;
    for (;;) {
        const pid_t changed = tar < 0 ? tar : waitpid(tar, &status, WUNTRACED);
        if (changed < 0 && errno == EINTR)
            continue;
        if (changed < 0)
            _exit(kNotStarted);
        if (WIFSTOPPED(status))
            _exit(kBySignal + WSTOPSIG(status));
        _exit(WIFSIGNALED(status) ? kBySignal + WTERMSIG(status) : WEXITSTATUS(status));
    }
}

class Tar {
  public:
    static Expected<Tar> start(const Run &run) {
        std::array<int, 2> ends{};
        if (pipe2(ends.data(), O_CLOEXEC) != 0)
            return std::unexpected(errno_error("make a pipe for", "tar"));
        UniqueFd reader(ends[0]);
        const UniqueFd writer(ends[1]);
        std::vector<gid_t> groups(run.user->groups.begin(), run.user->groups.end());
        groups.push_back(run.user->gid);
        std::vector<char *> arguments;
        arguments.reserve(run.arguments.size() + 1);
        for (const char *const one : run.arguments)
            arguments.push_back(const_cast<char *>(one)); // execve does not write
        arguments.push_back(nullptr);
        // As fork(2), which has no flags: the worker has one thread, and what it starts later is to be in
        // its own namespace.
        const auto child = static_cast<pid_t>(syscall(SYS_clone, CLONE_NEWPID | SIGCHLD, 0, 0, 0, 0));
        if (child < 0)
            return std::unexpected(errno_error("start", "tar"));
        if (child == 0) {
            reader.reset();
            watch_over_tar(run, groups, arguments, writer.get());
        }
        return Tar(child, std::move(reader));
    }
    Tar(Tar &&other) noexcept
        : child_(std::exchange(other.child_, -1)), words_(std::move(other.words_)),
          said_(std::move(other.said_)) {}
    Tar(const Tar &) = delete;
    Tar &operator=(const Tar &) = delete;
    Tar &operator=(Tar &&) = delete;
    ~Tar() {
        if (child_ < 0)
            return;
        kill(child_, SIGKILL);
        const auto gone = [this] { return waitpid(child_, nullptr, WNOHANG) != 0; };
        if (auto ended =
                wait_until(gone, Deadline::after(kKilledPatience), "tar, which has been killed, to end");
            !ended)
            kLog.error("{}: it is left to itself", ended.error().message());
    }

    // As waitpid(2) gives it.
    Expected<int> wait(AgentLink &agent, const Deadline &deadline, const std::function<void()> &progress) {
        int status = 0;
        for (;;) {
            pollfd watched{.fd = words_ ? words_.get() : -1, .events = POLLIN, .revents = 0};
            if (poll(&watched, 1, kLook) > 0)
                hear();
            const pid_t ended = waitpid(child_, &status, WNOHANG);
            if (ended == child_) {
                child_ = -1;
                hear();
                return status;
            }
            if (deadline.expired())
                return std::unexpected(timeout_error(deadline, "tar, which is at its local directories"));
            if (auto wanted = agent.still_wanted(); !wanted)
                return propagate(wanted);
            progress();
        }
    }
    [[nodiscard]] bool heard_all() const { return said_.size() < kMostWords; }
    [[nodiscard]] std::vector<std::string> said() const {
        std::vector<std::string> out;
        std::istringstream lines(said_);
        for (std::string line; std::getline(lines, line);)
            out.push_back(std::move(line));
        return out;
    }

  private:
    Tar(pid_t child, UniqueFd words) : child_(child), words_(std::move(words)) {}

    // What there is now; of many words the first.
    void hear() {
        std::array<char, 4096> text{};
        pollfd watched{.fd = words_ ? words_.get() : -1, .events = POLLIN, .revents = 0};
        while (words_ && poll(&watched, 1, 0) > 0) {
            const ssize_t size = read(words_.get(), text.data(), text.size());
            if (size <= 0)
                words_.reset();
            else if (said_.size() < kMostWords)
                said_.append(text.data(), static_cast<std::size_t>(size));
        }
    }

    pid_t child_;
    UniqueFd words_;
    std::string said_;
};

bool is_good(int status, int worst) { return WIFEXITED(status) && WEXITSTATUS(status) <= worst; }

// 0: none.
int signal_of(int status) {
    if (WIFSIGNALED(status))
        return WTERMSIG(status);
    return WEXITSTATUS(status) > kBySignal ? WEXITSTATUS(status) - kBySignal : 0;
}

// tar's last line only says that there were others.
bool says_nothing(const std::string &line) { return line.starts_with("tar: Exiting with failure"); }

std::string reason(const Tar &tar, int status) {
    for (const auto &line : tar.said())
        if (!says_nothing(line))
            return line;
    if (const int signal = signal_of(status); signal != 0)
        return fmt::format("tar was ended or stopped by signal {}", signal);
    if (WEXITSTATUS(status) == kNotStarted)
        return "tar could not be started";
    return fmt::format("tar ended with exit status {}", WEXITSTATUS(status));
}

// All of the file is there, but for whose it is: no user can give files away.
bool is_about_owner(const std::string &line) {
    return line.find(": Cannot change ownership to uid ") != std::string::npos &&
           line.ends_with("Operation not permitted");
}

std::uint64_t size_of(int file) {
    struct stat about{};
    return fstat(file, &about) == 0 ? static_cast<std::uint64_t>(about.st_size) : 0;
}

// Its name and those above are root's.
Expected<UniqueFd> open_directory(const std::filesystem::path &path) {
    return open_file(path, O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
}

// Where a node's directories lie, and which of the job's they are.
struct Slot {
    std::filesystem::path base;
    std::string tree;
    std::string name;
    std::string origin;
};

// What the node sees there, be it a link: a user cannot mount anything, and nothing else is asked for it.
Expected<local::Identity> seen_by(const node::Record &record, const std::string &path) {
    const auto place = fmt::format("/proc/{}/root", record.init.pid);
    const UniqueFd root(open(place.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
    open_how how{.flags = O_PATH | O_NOFOLLOW | O_CLOEXEC,
                 .mode = 0,
                 .resolve = RESOLVE_IN_ROOT | RESOLVE_NO_MAGICLINKS};
    const UniqueFd seen(
        root ? static_cast<int>(syscall(SYS_openat2, root.get(), path.c_str(), &how, sizeof(how))) : -1);
    if (!seen)
        return std::unexpected(errno_error("look at the node's", path));
    return local::identity_of(seen);
}

// The directory in a slot. An error of code ESTALE: it is not what the node has mounted.
Expected<UniqueFd> mounted_of(const node::Record &record, const Slot &slot, std::size_t number) {
    const auto &path = record.spec.local[number].path;
    if (record.spec.local[number].is_layer()) // nobody else ever has one at this place
        return open_directory(record.spec.local[number].source);
    auto seen = seen_by(record, path);
    auto directory = seen ? open_directory(local::place_in(slot.base, slot.tree, slot.name, path))
                          : Expected<UniqueFd>(propagate(seen));
    auto identity = directory ? local::identity_of(*directory) : propagate(directory);
    if (!identity)
        return propagate(identity);
    if (*identity != *seen)
        return failure("save", path, "what the node has mounted there is not its job's any more", ESTALE);
    return directory;
}

Expected<Slot> slot_of(const node::Record &record) {
    const auto &spec = record.spec;
    Slot out{.base = local::base_of(spec.local.front().source),
             .tree = local::tree_of(spec.uid, spec.job, spec.name),
             .name = local::kMain,
             .origin = spec.local_origin};
    if (auto mounted = mounted_of(record, out, 0)) {
        auto tree = open_directory(local::place_of(out.base, out.tree));
        auto first = tree ? local::origin_of(*tree) : propagate(tree);
        if (!first)
            return propagate(first);
        if (!first->empty())
            out.origin = *first;
        return out;
    }
    out.name = spec.local_origin;
    if (auto mounted = mounted_of(record, out, 0); !mounted) {
        auto why = std::move(mounted.error());
        if (why.code == ESTALE || why.code == ENOENT)
            why.code = EOPNOTSUPP; // it cannot be saved as it is, and its user is told
        return std::unexpected(std::move(why));
    }
    return out;
}

std::unexpected<Error> exceeded(const std::string &path, std::uint64_t quota) {
    return failure(
        "save", path,
        fmt::format("the job's local directories on this host hold more than {} GiB, which is what "
                    "the site saves (local_directories.quota_gib in singularity.yaml): remove what "
                    "is not needed any more",
                    quota >> kGibibyteBits),
        EOPNOTSUPP); // it cannot be saved as it is, and its user is told
}

// ---- archives as data

constexpr std::size_t kTarBlock = 512; // the shortest archive has two
constexpr std::uint64_t kWorthACut = 65536;

// Fields of a header as tar(5) has them.
constexpr std::size_t kSizeAt = 124;
constexpr std::size_t kSizeLength = 12;
constexpr std::size_t kMagicAt = 257;
constexpr std::string_view kMagic = "ustar";

using Header = std::array<char, kTarBlock>;

// In octal digits; nothing for the other way of writing it, which files of more than 8 GiB have.
std::optional<std::uint64_t> size_in(const Header &header) {
    if (std::string_view(header.data() + kMagicAt, kMagic.size()) != kMagic)
        return std::nullopt;
    std::uint64_t out = 0;
    for (const char c : std::string_view(header.data() + kSizeAt, kSizeLength)) {
        if (c == '\0' || c == ' ')
            break;
        if (c < '0' || c > '7')
            return std::nullopt;
        out = (out << 3U) | static_cast<std::uint64_t>(c - '0');
    }
    return out;
}

std::vector<std::uint64_t> cuts_of(int archive) {
    std::vector<std::uint64_t> out;
    const std::uint64_t end = size_of(archive);
    Header header{};
    for (std::uint64_t at = 0; at < end && end - at >= kTarBlock;) {
        if (pread(archive, header.data(), kTarBlock, static_cast<off_t>(at)) !=
            static_cast<ssize_t>(kTarBlock))
            break;
        const auto size = size_in(header);
        if (!size || *size > end - at - kTarBlock)
            break;
        at += kTarBlock;
        if (*size >= kWorthACut && (out.empty() || out.back() < at))
            out.push_back(at);
        at += (*size + kTarBlock - 1) / kTarBlock * kTarBlock;
        if (*size >= kWorthACut && at < end)
            out.push_back(at);
    }
    return out;
}

// A file that its node could not read is in no archive.
bool is_about_absence(const std::string &line) { return line.ends_with(": Not found in archive"); }

Expected<void> run_unpack(const Run &run, const node::LocalDirectory &one, AgentLink &agent,
                          const Deadline &deadline, const Notice &notice) {
    auto tar = Tar::start(run);
    if (!tar)
        return propagate(tar);
    auto status = tar->wait(agent, deadline, [&] {
        agent.progress("restoring local directories", static_cast<std::uint64_t>(lseek(run.in, 0, SEEK_CUR)));
    });
    if (!status)
        return propagate(status);
    const bool is_harmless = is_good(*status, kSomeFailed) && tar->heard_all() && !tar->said().empty() &&
                             std::ranges::all_of(tar->said(), [](const std::string &line) {
                                 return says_nothing(line) || is_about_owner(line) || is_about_absence(line);
                             });
    if (!is_good(*status, 0) && !is_harmless)
        return failure("restore", one.path,
                       fmt::format("{} (it lies in {} on this host)", reason(*tar, *status), one.source));
    for (const auto &line : is_harmless ? tar->said() : std::vector<std::string>())
        if (is_about_owner(line))
            notice(fmt::format("{}: a file of somebody else's belongs to the job's user now: {}", one.path,
                               line));
    return {};
}

} // namespace

Expected<void> take_local(node::Spec &spec) {
    if (spec.local.empty())
        return {};
    const auto base = local::base_of(spec.local.front().source);
    const auto name = local::tree_of(spec.uid, spec.job, spec.name);
    auto slot = local::slot_for(base, name, spec.run, spec.local_origin);
    auto tree = slot ? local::open_tree(base, name, spec.run) : propagate(slot);
    if (!tree)
        return propagate(tree);
    const local::Owner owner{.uid = spec.uid, .gid = spec.gid};
    const auto place = local::place_of(base, name);
    for (auto &one : spec.local) {
        auto made = one.is_layer()
                        ? local::make_layer(*tree, place,
                                            std::filesystem::path(one.source).parent_path().filename(), owner)
                        : local::make_directory(*tree, place, *slot, owner, one.path);
        if (!made)
            return propagate(made);
        one.source = *made;
    }
    return {};
}

Expected<std::string> save_local(const node::Record &record, std::uint64_t quota,
                                 const std::vector<std::string> &written, int images, AgentLink &agent,
                                 const Deadline &deadline, const Notice &notice) {
    const auto &spec = record.spec;
    if (spec.local.empty())
        return spec.local_origin;
    auto slot = slot_of(record);
    if (!slot)
        return propagate(slot);
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null)
        return std::unexpected(errno_error("open", "/dev/null"));
    std::uint64_t left = quota;
    LocalFiles files;
    for (std::size_t number = 0; number < spec.local.size(); ++number) {
        const auto &path = spec.local[number].path;
        auto directory = mounted_of(record, *slot, number);
        if (!directory)
            return propagate(directory);
        add_below(files, spec.name, static_cast<std::uint32_t>(number), path, written);
        const auto name = archive_name(number);
        UniqueFd archive(openat(images, name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600));
        if (!archive)
            return std::unexpected(errno_error("create", name));
        // The same files in the same order make the same bytes.
        Run run{.user = &spec,
                .directory = directory->get(),
                .in = null.get(),
                .out = archive.get(),
                .arguments = {"tar", "--create", "--file=-", "--format=posix", "--sort=name", "--sparse",
                              "--xattrs", "--numeric-owner", "--one-file-system",
                              "--pax-option=delete=atime,delete=ctime,exthdr.name=%d/PaxHeaders/%f",
                              "--ignore-failed-read", "--warning=no-file-ignored",
                              "--warning=no-file-changed", "--warning=no-file-removed", "."},
                .largest = left};
        // Of what overlayfs notes, only that a directory hides the image's is of use elsewhere.
        if (spec.local[number].is_layer())
            for (const char *const one : kOfOverlay)
                run.arguments.insert(run.arguments.begin() + 2, one);
        auto tar = Tar::start(run);
        if (!tar)
            return propagate(tar);
        auto status = tar->wait(agent, deadline,
                                [&] { agent.progress("saving local directories", size_of(archive.get())); });
        if (!status)
            return propagate(status);
        if (quota != 0 && signal_of(*status) == SIGXFSZ)
            return exceeded(path, quota);
        if (!is_good(*status, kSomeDiffer))
            return failure("save", path, reason(*tar, *status));
        // What its owner cannot read is told. Anything else, and what was not heard, would be lost in
        // silence.
        if (!tar->heard_all())
            return failure("save", path, "too much of it cannot be read");
        // What programs have put over a file of the image must not show that file again.
        for (const auto &line : tar->said())
            if (!line.ends_with("Permission denied") || spec.local[number].is_layer())
                return failure("save", path, line, EOPNOTSUPP);
        for (const auto &line : tar->said())
            notice(fmt::format("{}: not all of it could be saved: {}", path, line));
        const auto size = size_of(archive.get());
        if (size < kTarBlock)
            return failure("save", path, "tar has made no archive");
        if (quota != 0 && size >= left)
            return exceeded(path, quota);
        left -= quota != 0 ? size : 0;
        if (auto closed = archive.close(); !closed)
            return propagate(closed);
    }
    if (auto told = write_local_files(images, kWrittenName, files); !told)
        return propagate(told);
    return slot->origin;
}

host::Cuts cuts_of_local(int images) {
    host::Cuts out;
    for (std::size_t number = 0; number < node::kLocalLimit; ++number) {
        const auto name = archive_name(number);
        const UniqueFd archive(openat(images, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (archive)
            out[name] = cuts_of(archive.get());
    }
    return out;
}

Expected<void> load_local(const node::Spec &spec, int images, AgentLink &agent, const Patience &patience,
                          const Notice &notice) {
    if (spec.local.empty())
        return {};
    const UniqueFd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null)
        return std::unexpected(errno_error("open", "/dev/null"));
    auto slot = open_directory(std::filesystem::path(spec.local.front().source).parent_path());
    if (!slot)
        return propagate(slot);
    agent.progress("waiting for another node's local directories");
    if (auto locked = wait_until([&] { return flock(slot->get(), LOCK_EX | LOCK_NB) == 0; },
                                 Deadline::after(patience.for_others),
                                 "another node of the job to have its local directories");
        !locked)
        return locked;
    const auto deadline = Deadline::after(patience.for_own);
    const bool is_first = faccessat(slot->get(), local::kLoaded, F_OK, 0) != 0;
    auto saved = read_local_files(images, kWrittenName);
    auto all = is_first ? LocalFiles() : read_local_files(slot->get(), local::kWritten);
    if (!saved || !all)
        return saved ? propagate(all) : propagate(saved);
    LocalFiles mine;
    for (const auto &one : *saved)
        mine.insert({.node = spec.name, .directory = one.directory, .name = one.name});
    std::erase_if(*all, [&](const LocalFile &one) { return one.node == spec.name; });
    for (std::size_t number = 0; number < spec.local.size(); ++number) {
        const auto &path = spec.local[number].path;
        auto directory = open_directory(spec.local[number].source);
        if (!directory)
            return propagate(directory);
        const auto name = archive_name(number);
        const UniqueFd archive(openat(images, name.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (!archive)
            return std::unexpected(errno_error("open the archive of", path));
        Run run{.user = &spec,
                .directory = directory->get(),
                .in = archive.get(),
                .out = null.get(),
                .arguments = {"tar", "--extract", "--file=-", "--preserve-permissions", "--same-owner",
                              "--numeric-owner", "--xattrs", "--delay-directory-restore",
                              "--warning=no-timestamp", "--warning=no-ignore-newer"}};
        const auto unpack = [&]() -> Expected<void> {
            if (lseek(archive.get(), 0, SEEK_SET) != 0)
                return std::unexpected(errno_error("read the archive of", path));
            return run_unpack(run, spec.local[number], agent, deadline, notice);
        };
        if (is_first || spec.local[number].is_layer()) {
            if (auto unpacked = unpack(); !unpacked)
                return unpacked;
        } else {
            // What is there may be open by now. (--keep-newer-files would not do besides: where directories
            // are there already, tar 1.35 fails with "Unexpected inconsistency when making directory".)
            auto names = names_for_tar(mine, *all, static_cast<std::uint32_t>(number));
            if (!names)
                return propagate(names);
            run.arguments.push_back("--skip-old-files");
            if (auto unpacked = unpack(); !unpacked)
                return unpacked;
            run.arguments.pop_back();
            run.names = names->get();
            run.arguments.insert(run.arguments.end(), {"--null", "--no-unquote", kNames});
            if (*names)
                if (auto unpacked = unpack(); !unpacked)
                    return unpacked;
        }
        if (unlinkat(images, name.c_str(), 0) != 0)
            return std::unexpected(errno_error("remove", name));
    }
    all->insert(mine.begin(), mine.end());
    if (auto told = write_local_files(slot->get(), local::kWritten, *all); !told)
        return told;
    if (unlinkat(images, kWrittenName, 0) != 0 && errno != ENOENT)
        return std::unexpected(errno_error("remove", kWrittenName));
    const UniqueFd mark(
        openat(slot->get(), local::kLoaded, O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!mark)
        return std::unexpected(errno_error("make", local::kLoaded));
    return {};
}

} // namespace singularity::worker
