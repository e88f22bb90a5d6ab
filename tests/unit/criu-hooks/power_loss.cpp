// SPDX-License-Identifier: GPL-2.0-or-later
#include "power_loss.hpp"

#include "store_fixture.hpp"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>

namespace singularity::test {

Disk::Disk(fs::path directory) : directory_(std::move(directory)), top_(know(directory_)) {
    sync_all(directory_);
}

ino_t Disk::know(const fs::path &path) {
    UniqueFd pin(::open(path.c_str(), O_PATH | O_CLOEXEC));
    struct stat status{};
    if (!pin || ::fstat(pin.get(), &status) != 0)
        return 0; // renamed or removed by another thread since it was listed
    auto &file = files_[status.st_ino];
    if (!file.pin)
        file.pin = std::move(pin);
    file.mode = status.st_mode;
    return status.st_ino;
}

void Disk::sync(ino_t number, const fs::path &path) {
    File &file = files_.at(number);
    if (!S_ISDIR(file.mode)) {
        file.content = read_file(path);
        return;
    }
    std::erase_if(renamed_, [&](const Renamed &renamed) {
        if (renamed.from != number && renamed.to != number)
            return false;
        files_.at(renamed.from).entries.erase(renamed.old_name);
        files_.at(renamed.to).entries[renamed.new_name] = renamed.file;
        return true;
    });
    std::map<std::string, ino_t> entries;
    for (const auto &entry : fs::directory_iterator(path))
        if (const ino_t inside = know(entry.path()); inside != 0)
            entries[entry.path().filename()] = inside;
    files_.at(number).entries = std::move(entries);
}

void Disk::sync_all(const fs::path &path) {
    sync(know(path), path);
    for (const auto &entry : fs::directory_iterator(path))
        if (entry.is_directory())
            sync_all(entry.path());
        else
            sync(know(entry.path()), entry.path());
}

// The caller is held until the answer, so what is read here is what it wanted to be durable.
Verdict Disk::decide(const Call &call) {
    if (call.name == "renameat") {
        const fs::path from = directory_ / call.path.substr(1);
        const fs::path to = directory_ / call.to.substr(1);
        const Renamed renamed{know(from), know(from.parent_path()), from.filename(), know(to.parent_path()),
                              to.filename()};
        if (renamed.file != 0 && renamed.from != renamed.to)
            renamed_.push_back(renamed);
    }
    if (call.name != "fsync" && call.name != "fdatasync")
        return Proceed{};
    const fs::path path = descriptor_of(call);
    const ino_t number = know(path);
    assert_true(number != 0);
    sync(number, path);
    return Answer{};
}

void Disk::make(const fs::path &path, ino_t number, const fs::path *now) const {
    const auto found = files_.find(number);
    // Never synced, and nobody has synced a directory in which it is.
    const bool known = found != files_.end();
    struct stat status{};
    if (now != nullptr)
        assert_int_equal(::lstat(now->c_str(), &status), 0);
    const mode_t mode = now != nullptr ? status.st_mode : found->second.mode;
    if (!S_ISDIR(mode)) {
        write_file(path, known ? found->second.content : Bytes());
        return;
    }
    assert_int_equal(::mkdir(path.c_str(), 0700), 0);
    if (now != nullptr) {
        for (const auto &entry : fs::directory_iterator(*now)) {
            assert_int_equal(::lstat(entry.path().c_str(), &status), 0);
            make(path / entry.path().filename(), status.st_ino, &entry.path());
        }
    } else {
        for (const auto &[name, inside] : found->second.entries)
            make(path / name, inside, nullptr);
    }
}

void Disk::recover(const fs::path &into, Lost lost) const {
    make(into, top_, lost == Lost::kContents ? &directory_ : nullptr);
}

} // namespace singularity::test
