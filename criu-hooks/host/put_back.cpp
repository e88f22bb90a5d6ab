// SPDX-License-Identifier: GPL-2.0-or-later
#include "put_back.hpp"

#include "common/text.hpp"
#include "directory.hpp"
#include "file.hpp"
#include "put_back_names.hpp"
#include "user_ids.hpp"
#include "user_work.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::host {
namespace {

constexpr mode_t kPermissions = 07777;

std::string in_words(std::uint64_t bytes) {
    constexpr std::uint64_t kMebibyte = std::uint64_t{1} << 20U;
    return bytes < kMebibyte ? fmt::format("{} bytes", bytes) : fmt::format("{} MiB", bytes / kMebibyte);
}

// Lines for the user, from a thread that may be left behind.
class Notices {
  public:
    void add(std::string text) {
        const std::scoped_lock lock(mutex_);
        lines_.push_back(std::move(text));
    }
    std::vector<std::string> take() {
        const std::scoped_lock lock(mutex_);
        return std::exchange(lines_, {});
    }

  private:
    std::mutex mutex_;
    std::vector<std::string> lines_;
};

// What concerns the image or the disk ends the restore. All else is the file's own matter.
bool ends_the_restore(const Error &error) {
    return error.code == ENOSPC || error.code == EDQUOT || error.code == EIO || error.code == EPROTO ||
           error.code == EBUSY;
}

// What this node knows of a file, and which of the nodes that had it open knows the last of it.
struct Account {
    WrittenFile file;
    bool is_last = true; // its content is this node's to put back
    bool is_of_several = false;
};

class PutBack {
  public:
    PutBack(Context context, RestoreRequest request, Places places, std::shared_ptr<Notices> notices)
        : context_(std::move(context)), request_(std::move(request)), places_(std::move(places)),
          notices_(std::move(notices)) {}

    // On a thread of its own.
    Expected<FileNames> run() {
        auto own = read_written_files(request_.images);
        if (!own)
            return propagate(own);
        made_ = own->made;
        ran_on_ = own->ran_on;
        if (auto read = read_others(); !read)
            return propagate(read);
        if (own->files.empty() && own->directories.empty() && of_others_.empty())
            return FileNames();
        content_ = UniqueFd(openat(request_.images, kFilesContent, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
        if (!content_ && !own->files.empty())
            return std::unexpected(errno_error("open", kFilesContent));
        auto ids = UserIds::take(context_);
        if (!ids)
            return propagate(ids);
        if (auto changed = ids->become_user(); !changed)
            return propagate(changed);
        // A database before what belongs to it.
        std::ranges::sort(own->files, {}, [](const WrittenFile &one) { return one.name.size(); });
        for (const WrittenFile &one : own->files)
            accounts_.push_back(account_of(one));
        note_wanted();
        if (auto made = make_directories(own->directories); !made)
            return propagate(made);
        if (auto looked = look_for_marks(); !looked)
            return propagate(looked);
        if (auto done = put_back_names(); !done)
            return propagate(done);
        find_lost_databases();
        return put_back_all();
    }

  private:
    // ---- accounts

    Expected<void> read_others() {
        auto names = names_in(request_.images);
        if (!names)
            return propagate(names);
        for (const std::string &name : *names) {
            const bool is_earlier = name.starts_with(kEarlierTables);
            if (!is_earlier && !name.starts_with(kLaterTables))
                continue;
            auto others = read_written_files(request_.images, name);
            if (!others)
                return propagate(others);
            made_ = std::max(made_, others->made);
            for (WrittenFile &one : others->files) {
                of_others_.insert(one.name);
                others_[{one.name, one.identity}].emplace_back(std::move(one), is_earlier);
            }
        }
        return {};
    }

    // Nodes of one job are saved one after the other: what one of them has written before it was saved, the
    // account of an earlier one does not have. All of them come to the same result.
    [[nodiscard]] Account account_of(const WrittenFile &own) const {
        Account out{.file = own};
        const auto found = others_.find({own.name, own.identity});
        if (found == others_.end())
            return out;
        out.is_of_several = true;
        for (const auto &[other, is_earlier] : found->second) {
            out.file.end = std::max(out.file.end, other.end);
            out.file.appends = out.file.appends && other.appends;
            out.file.shared = out.file.shared || other.shared;
            out.file.doubtful = true; // others' writing does not show in a time of before it
            const std::pair last(own.changed, own.size);
            const std::pair its(other.changed, other.size);
            if (its > last || (its == last && is_earlier))
                out.is_last = false;
        }
        return out;
    }

    // Another node had a file of that name that was not this one: on its own host, and both nodes may be here
    // now, or since the name went to another file between the two saves.
    [[nodiscard]] bool is_name_of_two(const WrittenFile &was) const {
        for (auto at = others_.lower_bound({was.name, {}});
             at != others_.end() && at->first.first == was.name; ++at)
            if (at->first.second != was.identity)
                return true;
        return false;
    }

    void note_wanted() {
        const auto note = [this](const WrittenFile &one) {
            wanted_.insert(one.identity);
            if (!one.kept)
                only_there_.insert(one.identity);
            for (const auto &[rest, identity] : one.relatives) {
                wanted_.insert(identity);
                only_there_.insert(identity);
            }
        };
        for (const auto &[key, tables] : others_)
            for (const auto &[other, is_earlier] : tables)
                note(other);
        for (const Account &account : accounts_) {
            note(account.file);
            if (account.file.kept)
                only_there_.erase(account.file.identity);
        }
    }

    // ---- names

    // Those that cannot be made criu does not find, and says so.
    [[nodiscard]] Expected<void> make_directories(const std::vector<UsedDirectory> &directories) const {
        for (const UsedDirectory &one : directories) {
            auto path = present_path(places_, one.mount, one.name);
            if (!path)
                return propagate(path);
            const auto &there = *path;
            if (there && !Directory::open(*there))
                static_cast<void>(Directory::make(*there, one.mode));
        }
        return {};
    }

    [[nodiscard]] Expected<std::optional<std::filesystem::path>> path_of(const WrittenFile &one) const {
        return present_path(places_, one.mount, one.name);
    }

    Expected<void> put_back_names() {
        std::map<std::filesystem::path, std::vector<WrittenFile>> by_directory;
        for (const Account &account : accounts_) {
            auto path = path_of(account.file);
            if (!path)
                return propagate(path);
            if (const auto &there = *path)
                by_directory[there->parent_path()].push_back(account.file);
        }
        for (auto &[path, files] : by_directory) {
            const auto directory = Directory::open(path);
            if (!directory)
                continue;
            NamesBack request{.uid = context_.uid,
                              .files = std::move(files),
                              .wanted = &wanted_,
                              .may_change = [this](const FileThere &file) { return is_ours_to_rename(file); },
                              .keep_aside = nullptr};
            if (request_.keep_aside)
                request.keep_aside = [&](const std::string &name, std::string_view why) {
                    name_ = path / name;
                    return keep_aside(*directory, name, 0, why);
                };
            name_ = path.native();
            auto done = put_names_back(*directory, request);
            if (!done && ends_the_restore(done.error()))
                return done;
            if (!done)
                tell(done.error().message());
        }
        return {};
    }

    bool is_ours_to_rename(const FileThere &file) {
        const auto readable = reopened(file, O_RDONLY);
        if (!readable)
            return false;
        const auto mark = mark_of(readable.get());
        ran_on_ = ran_on_ || is_after(mark);
        return ran_on_ && !is_of_another(mark) &&
               (is_on_network(readable.get()) || !is_written_elsewhere(readable));
    }

    // ---- all files

    Expected<FileNames> put_back_all() {
        FileNames out = of_others_; // which may be longer now, or are still to be cut
        for (const Account &account : accounts_) {
            const WrittenFile &one = account.file;
            auto path = path_of(one);
            if (!path)
                return propagate(path);
            const auto &there = *path;
            if (!there)
                continue;
            name_ = one.name;
            auto is_there = put_back(account, *there);
            if (!is_there)
                is_there.error().on = quote(name_);
            if (!is_there && ends_the_restore(is_there.error()))
                return propagate(is_there);
            if (!is_there)
                tell(fmt::format("it cannot be put back as it was: {}", is_there.error().message()));
            if (one.open && is_there && *is_there)
                out.insert(one.name);
        }
        return out;
    }

    // False: there is no file of the user's by that name.
    Expected<bool> put_back(const Account &account, const std::filesystem::path &path) {
        const WrittenFile &was = account.file;
        auto directory = Directory::open(path.parent_path());
        if (!directory && !was.kept)
            return false;
        if (!directory) {
            auto made = Directory::make(path.parent_path(), was.directory_mode);
            if (!made)
                return propagate(made);
            directory = std::move(*made);
        }
        const std::string name = path.filename();
        FileThere now;
        const auto is = directory->look(name, context_.uid, now);
        if (is == Directory::Is::other)
            return false;
        const bool is_lost = lost_.contains(base_of(was.name));
        if (is == Directory::Is::nothing)
            return was.kept && !is_lost ? make(*directory, name, was) : Expected<bool>(false);
        if (now.identity != was.identity && is_name_of_two(was)) {
            if (!is_on_network(reopened(now, O_RDONLY).get()))
                return failure("put back", name,
                               "on another host the job had another file of that name: run it on as many "
                               "hosts as before",
                               EBUSY);
            return tell("another node of the job had another file of that name: it stays as it is now"), true;
        }
        if (is_lost || !account.is_last)
            return true;
        rewritten_ = false;
        auto is_as_it_was = put_back_content(account, *directory, name, now);
        if (!is_as_it_was)
            return propagate(is_as_it_was);
        if (!*is_as_it_was)
            lost_.insert(was.name);
        else if (was.relatives_known && (is_own_writing() || rewritten_))
            if (auto removed = remove_new_parts(was, *directory, name); !removed)
                return propagate(removed);
        return true;
    }

    // A database, and what belongs to it, mean something only together.
    void find_lost_databases() {
        std::map<std::string_view, bool> is_kept;
        for (const Account &account : accounts_)
            is_kept.emplace(account.file.name, account.file.kept);
        for (const Account &account : accounts_) {
            const WrittenFile &part = account.file;
            const auto base = base_of(part.name);
            if (base == part.name)
                continue;
            const auto whole = is_kept.find(base);
            const bool is_lost = whole != is_kept.end() && !(part.kept && whole->second);
            if (is_lost && lost_.insert(base).second) {
                name_ = base;
                tell("it is a database that was too large to be kept: it stays as it is now, with what "
                     "belongs to it");
            }
        }
    }

    // A journal that the database did not have: SQLite would play it back into what has been put back.
    Expected<void> remove_new_parts(const WrittenFile &was, const Directory &directory,
                                    const std::string &name) {
        for (const char *const rest : {"-journal", "-wal", "-shm"}) {
            FileThere part;
            if (was.relatives.contains(rest) ||
                directory.look(name + rest, context_.uid, part) != Directory::Is::file)
                continue;
            name_ = was.name + rest;
            if (!is_own_writing() || request_.keep_aside)
                if (auto kept = keep_aside(directory, name + rest, 0, "it was not there at the checkpoint");
                    !kept)
                    return kept;
            if (const int code = directory.unlink(name + rest); code != 0 && code != ENOENT)
                return std::unexpected(errno_error("remove", name_, code));
        }
        return {};
    }

    // ---- content

    // Whether what has changed may be the node's own writing: it went on after the checkpoint, or from it.
    // Then it had marked all files that it found.
    [[nodiscard]] bool is_own_writing() const { return ran_on_; }
    [[nodiscard]] bool is_after(const std::optional<WriterMark> &mark) const {
        return mark && !request_.owner.empty() && mark->owner == request_.owner && mark->time > made_;
    }
    // The checkpoint had left this node's mark.
    [[nodiscard]] bool is_of_another(const std::optional<WriterMark> &mark) const {
        return mark && !request_.owner.empty() && mark->owner != request_.owner;
    }
    Expected<void> look_for_marks() {
        for (const Account &account : accounts_) {
            auto path = path_of(account.file);
            if (!path)
                return propagate(path);
            const auto &there = *path;
            const auto directory = there ? Directory::open(there->parent_path()) : std::nullopt;
            if (!directory)
                continue;
            ran_on_ = ran_on_ || is_after(mark_of(directory->fd()));
            FileThere file;
            if (directory->look(there->filename(), context_.uid, file) != Directory::Is::file)
                continue;
            if (const auto readable = reopened(file, O_RDONLY))
                ran_on_ = ran_on_ || is_after(mark_of(readable.get()));
        }
        return {};
    }

    // False: it stays otherwise.
    Expected<bool> put_back_content(const Account &account, const Directory &directory,
                                    const std::string &name, const FileThere &now) {
        const WrittenFile &was = account.file;
        const auto readable = reopened(now, O_RDONLY);
        struct stat about{}; // of an open file: network file systems ask their server
        if (!readable || fstat(readable.get(), &about) != 0)
            return std::unexpected(errno_error("open", name));
        const auto size = static_cast<std::uint64_t>(about.st_size);
        if (!was.doubtful && now.identity == was.identity && size == was.size &&
            time_of(about) == was.changed)
            return true;
        const bool is_elsewhere = others_write(account, readable);
        const auto file = reopened(now, O_RDWR);
        if (!file)
            return std::unexpected(errno_error("open", name));
        auto is_whole = was.kept ? is_as_copied(file.get(), was.size, was.copy, content_.get())
                                 : has_only_grown(was, now, file);
        if (!is_whole)
            return is_whole;
        if (*is_whole && size == was.size)
            return with_mode(was, file);
        // Who appends needs no end where it was.
        if (*is_whole && was.appends && !is_own_writing())
            return false;
        if (is_elsewhere)
            return tell(
                       "others write to it as well: what was written to it after the checkpoint stays in it"),
                   false;
        if (!*is_whole && !was.kept)
            return tell(fmt::format(
                       "it has changed since the checkpoint, and its {} were too many to be kept: it "
                       "stays as it is now",
                       in_words(was.size))),
                   false;
        if (!*is_whole && now.identity != was.identity && only_there_.contains(now.identity))
            return tell("another file has its name, whose content is nowhere else: it stays as it is now"),
                   false;
        const std::uint64_t from = *is_whole ? was.size : 0;
        if (!is_own_writing() || request_.keep_aside)
            if (auto kept = keep_aside(directory, name, from,
                                       *is_whole ? "it has grown since the checkpoint"
                                                 : "it has changed since the checkpoint");
                !kept)
                return propagate(kept);
        if (*is_whole && !was.kept && !was.appends && was.end < was.size)
            tell(
                fmt::format("what was added to it since the checkpoint has been cut off; whether its {} have "
                            "changed is not known, since they were too many to be kept",
                            in_words(was.size)));
        auto done = *is_whole ? cut(was, file) : write_copy(file.get(), was.size, was.copy, content_.get());
        if (!done)
            return propagate(done);
        rewritten_ = !*is_whole;
        // Some file systems say only now that there was no room.
        if (fsync(file.get()) != 0 && errno != EINVAL)
            return std::unexpected(errno_error("write", name_));
        return with_mode(was, file);
    }

    static Expected<void> cut(const WrittenFile &was, const UniqueFd &file) {
        if (ftruncate(file.get(), static_cast<off_t>(was.size)) != 0)
            return std::unexpected(errno_error("cut off what was added to", was.name));
        return {};
    }

    [[nodiscard]] Expected<bool> with_mode(const WrittenFile &was, const UniqueFd &file) const {
        struct stat about{};
        if (is_own_writing() && fstat(file.get(), &about) == 0 &&
            ((about.st_mode ^ was.mode) & kPermissions) != 0)
            static_cast<void>(fchmod(file.get(), was.mode & kPermissions));
        return true;
    }

    static Expected<bool> has_only_grown(const WrittenFile &was, const FileThere &now, const UniqueFd &file) {
        if (now.identity != was.identity || was.fingerprint.empty())
            return false;
        auto print = fingerprint_of(file.get(), was.size);
        if (!print)
            return propagate(print);
        return *print == was.fingerprint;
    }

    // As far as that can be seen.
    [[nodiscard]] bool others_write(const Account &account, const UniqueFd &file) const {
        const WrittenFile &was = account.file;
        if (was.shared || (was.appends && was.end < was.size))
            return true;
        // The job's other nodes on this host may be there already.
        return is_of_another(mark_of(file.get())) ||
               (!account.is_of_several && !is_on_network(file.get()) && is_written_elsewhere(file));
    }

    // By another process of this host: nobody gets a lease for reading on what others have open for writing.
    // Who opens it meanwhile has a signal sent to this thread, which blocks it.
    static bool is_written_elsewhere(const UniqueFd &readable) {
        sigset_t signal{};
        sigemptyset(&signal);
        sigaddset(&signal, SIGIO);
        const f_owner_ex self{.type = F_OWNER_TID, .pid = gettid()};
        if (pthread_sigmask(SIG_BLOCK, &signal, nullptr) != 0 ||
            fcntl(readable.get(), F_SETOWN_EX, &self) != 0)
            return true;
        if (fcntl(readable.get(), F_SETLEASE, F_RDLCK) != 0)
            return errno != EINVAL; // there are no leases on this file system
        fcntl(readable.get(), F_SETLEASE, F_UNLCK);
        return false;
    }

    // Another node of the job may make it at the same time, from an earlier account: the last one writes to
    // it.
    [[nodiscard]] Expected<bool> make(const Directory &directory, const std::string &name,
                                      const WrittenFile &was) const {
        auto made = directory.create_whole(name, was.mode, [&](int file) -> Expected<void> {
            if (auto written = write_copy(file, was.size, was.copy, content_.get()); !written)
                return written;
            if (fsync(file) != 0 && errno != EINVAL)
                return std::unexpected(errno_error("write", name_));
            return {};
        });
        if (!made && made.error().code != EEXIST)
            return propagate(made);
        return true;
    }

    // ---- what is removed

    // From `begin` on, to a new file.
    Expected<void> keep_aside(const Directory &directory, const std::string &name, std::uint64_t begin,
                              std::string_view why) {
        FileThere now;
        if (directory.look(name, context_.uid, now) != Directory::Is::file)
            return {};
        const auto from = reopened(now, O_RDONLY);
        if (!from)
            return std::unexpected(errno_error("keep", name_));
        const auto stamp = fmt::format(".aside-{:%Y%m%dT%H%M%SZ}", fmt::gmtime(std::time(nullptr)));
        constexpr int kMost = 100;
        for (int attempt = 1; attempt <= kMost; ++attempt) {
            const auto ending = attempt == 1 ? stamp : fmt::format("{}-{}", stamp, attempt);
            auto file = directory.create(name + ending, now.about.st_mode);
            if (!file && file.error().code == EEXIST)
                continue;
            if (!file)
                return propagate(file);
            auto copied = copy_rest(from.get(), begin, file->get());
            if (copied && fsync(file->get()) != 0 && errno != EINVAL)
                copied = std::unexpected(errno_error("write", name_ + ending));
            if (!copied) {
                static_cast<void>(directory.unlink(name + ending));
                return copied;
            }
            tell(fmt::format("{}: it is as it was then, and {} is in {}", why,
                             begin == 0 ? "what it was now" : "what was added", quote(name_ + ending)));
            return {};
        }
        return failure("keep", name_, "there are too many files of its name and .aside-...", EEXIST);
    }

    void tell(const std::string &what) const { notices_->add(fmt::format("{}: {}", quote(name_), what)); }

    Context context_;
    RestoreRequest request_;
    Places places_;
    std::shared_ptr<Notices> notices_;
    // By name and identity, with whether its node comes before this one.
    std::map<std::pair<std::string, std::string>, std::vector<std::pair<WrittenFile, bool>>> others_;
    std::vector<Account> accounts_;
    std::set<std::string> wanted_;     // identities of all that the checkpoint speaks of
    std::set<std::string> only_there_; // of those whose content is nowhere else
    std::set<std::string> of_others_;  // names in the tables of the job's other nodes
    std::set<std::string> lost_;       // files that are not as they were, as the node sees them
    std::int64_t made_ = 0;            // the checkpoint: time(2)
    bool ran_on_ = false;
    UniqueFd content_;
    bool rewritten_ = false; // the file at hand
    std::string name_;       // of the file at hand, as the node sees it
};

// The directory as well: a program may put another file in the place of this one.
void mark_one(const std::filesystem::path &path, uid_t uid, const WriterMark &mark) {
    const auto directory = Directory::open(path.parent_path());
    if (!directory)
        return;
    set_mark(directory->fd(), mark);
    FileThere there;
    if (directory->look(path.filename(), uid, there) == Directory::Is::file)
        if (const auto file = reopened(there, O_RDONLY))
            set_mark(file.get(), mark);
}

// Without what belongs to the caller alone.
RestoreRequest copy_of(const RestoreRequest &request) {
    RestoreRequest out = request;
    out.hold = nullptr;
    out.connected = nullptr;
    out.notice = nullptr;
    return out;
}

template <class T>
Expected<T> wait_for(Expected<UserWork<T>> work, const Context &context, const Deadline &deadline) {
    if (!work)
        return propagate(work);
    return work->wait([&]() -> Expected<void> {
        if (deadline.expired())
            return std::unexpected(
                timeout_error(deadline, "the file system of the files that are open for writing"));
        return context.progress ? context.progress("files") : Expected<void>();
    });
}

} // namespace

Expected<FileNames> put_back_files(const Context &context, const RestoreRequest &request,
                                   const Places &places, const Deadline &deadline) {
    const auto notices = std::make_shared<Notices>();
    Context of_thread = context;
    of_thread.progress = nullptr;
    const auto work = std::make_shared<PutBack>(std::move(of_thread), copy_of(request), places, notices);
    auto done = wait_for(UserWork<FileNames>::begin([work] { return work->run(); }), context, deadline);
    if (request.notice)
        for (auto &line : notices->take())
            request.notice(std::move(line));
    return done;
}

Expected<void> mark_files(const Context &context, const RestoreRequest &request, const Places &places,
                          const Deadline &deadline) {
    if (request.owner.empty())
        return {};
    auto own = read_written_files(request.images);
    if (!own)
        return propagate(own);
    std::vector<std::filesystem::path> paths;
    for (const WrittenFile &one : own->files) {
        auto path = present_path(places, one.mount, one.name);
        if (!path)
            return propagate(path);
        if (const auto &there = *path)
            paths.push_back(*there);
    }
    if (paths.empty())
        return {};
    Context of_thread = context;
    of_thread.progress = nullptr;
    const WriterMark mark{.owner = request.owner,
                          .time = std::max<std::int64_t>(std::time(nullptr), own->made + 1)};
    return wait_for(UserWork<void>::begin([of_thread, paths, mark]() -> Expected<void> {
                        auto ids = UserIds::take(of_thread);
                        if (!ids)
                            return propagate(ids);
                        if (auto changed = ids->become_user(); !changed)
                            return changed;
                        for (const auto &path : paths)
                            mark_one(path, of_thread.uid, mark);
                        return {};
                    }),
                    context, deadline);
}

} // namespace singularity::host
