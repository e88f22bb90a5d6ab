// SPDX-License-Identifier: GPL-2.0-or-later
#include "put_back_names.hpp"

#include <algorithm>
#include <cerrno>
#include <map>
#include <optional>
#include <utility>

namespace singularity::host {
namespace {

std::string last_name(const std::string &path) { return path.substr(path.rfind('/') + 1); }

class Names {
  public:
    Names(const Directory &directory, const NamesBack &request) : directory_(directory), request_(request) {}

    Expected<void> run() {
        if (std::ranges::all_of(request_.files, [this](const WrittenFile &one) { return is_in_place(one); }))
            return {};
        const auto lock = directory_.lock(); // the job's other nodes do the same
        auto found = directory_.files(request_.uid, kMostNames);
        if (!found)
            return {};
        is_now_ = std::move(*found);
        for (const WrittenFile &one : request_.files) {
            was_.emplace(last_name(one.name), one.identity);
            for (const auto &[rest, identity] : one.relatives)
                was_.emplace(last_name(one.name) + rest, identity);
        }
        const auto rotated = those_rotated();
        if (auto renamed = rename_all(); !renamed)
            return renamed;
        for (const WrittenFile *const one : rotated)
            if (is_in_place(*one))
                if (auto removed = remove_new(*one); !removed)
                    return removed;
        return {};
    }

  private:
    [[nodiscard]] bool is_in_place(const WrittenFile &one) const {
        FileThere file;
        return directory_.look(last_name(one.name), request_.uid, file) == Directory::Is::file &&
               file.identity == one.identity;
    }

    [[nodiscard]] bool is_wanted(const std::string &identity) const {
        return identity.empty() || request_.wanted->contains(identity);
    }

    [[nodiscard]] std::optional<std::string> name_now(const std::string &identity) const {
        const auto found = std::ranges::find_if(
            is_now_, [&](const auto &one) { return !identity.empty() && one.second == identity; });
        return found == is_now_.end() ? std::nullopt : std::optional(found->first);
    }

    // Logs that have gone the way of rotated logs themselves.
    [[nodiscard]] std::vector<const WrittenFile *> those_rotated() const {
        std::vector<const WrittenFile *> out;
        for (const WrittenFile &one : request_.files) {
            const auto stem = last_name(one.name);
            const auto now = name_now(one.identity);
            if (one.relatives_known && now && now->starts_with(stem) &&
                is_rotated(std::string_view(*now).substr(stem.size())))
                out.push_back(&one);
        }
        return out;
    }

    Expected<void> rename_all() {
        std::map<std::string, std::string> astray; // where it is -> where it was
        for (const auto &[name, identity] : was_) {
            const auto here = is_now_.find(name);
            const auto now = name_now(identity);
            if (now && *now != name && (here == is_now_.end() || here->second != identity))
                astray.emplace(*now, name);
        }
        while (!astray.empty()) {
            // First where nothing that is wanted is in the way; then what is in each other's.
            auto one = std::ranges::find_if(astray, [this](const auto &edge) {
                const auto in_the_way = is_now_.find(edge.second);
                return in_the_way == is_now_.end() || !is_wanted(in_the_way->second);
            });
            const bool changes_places = one == astray.end();
            if (changes_places)
                one = astray.begin();
            const auto [from, to] = *one;
            astray.erase(one);
            auto done = changes_places ? Expected<bool>(change_places(from, to)) : rename(from, to);
            if (!done)
                return propagate(done);
            if (!*done)
                continue;
            std::swap(is_now_[from], is_now_[to]);
            if (!changes_places)
                is_now_.erase(from);
            // What was in the way is where the other one was.
            const auto moved = astray.extract(to);
            if (changes_places && !moved.empty() && moved.mapped() != from)
                astray.emplace(from, moved.mapped());
        }
        return {};
    }

    // As it was when all names were read, and ours to change.
    [[nodiscard]] bool is_still(const std::string &name, FileThere &file) const {
        const auto found = is_now_.find(name);
        return directory_.look(name, request_.uid, file) == Directory::Is::file && found != is_now_.end() &&
               file.identity == found->second && request_.may_change(file);
    }

    [[nodiscard]] bool change_places(const std::string &one, const std::string &other) const {
        FileThere first;
        FileThere second;
        return is_still(one, first) && is_still(other, second) && directory_.exchange(one, other) == 0;
    }

    // False: it is not what it was any more, or not ours to rename.
    [[nodiscard]] Expected<bool> rename(const std::string &from, const std::string &to) const {
        FileThere file;
        if (!is_still(from, file))
            return false;
        FileThere replaced;
        const auto is = directory_.look(to, request_.uid, replaced);
        const bool has_more_names = file.about.st_nlink > 1;
        if (is == Directory::Is::other || (has_more_names && is == Directory::Is::file) ||
            (is == Directory::Is::file && (is_wanted(replaced.identity) || !request_.may_change(replaced))))
            return false;
        if (is == Directory::Is::file && request_.keep_aside)
            if (auto kept = request_.keep_aside(to, "another file had its name at the checkpoint"); !kept)
                return propagate(kept);
        const int code = has_more_names ? directory_.link(from, to)
                                        : directory_.rename(from, to, is == Directory::Is::file);
        if (code != 0 && code != ENOENT && code != EEXIST)
            return std::unexpected(errno_error("give its name back to", to, code));
        return code == 0;
    }

    [[nodiscard]] Expected<void> remove_new(const WrittenFile &was) const {
        const auto stem = last_name(was.name);
        for (const auto &[name, identity] : is_now_) {
            FileThere file;
            if (!name.starts_with(stem) || !is_rotated(std::string_view(name).substr(stem.size())) ||
                was_.contains(name) || is_wanted(identity) || !is_still(name, file) ||
                time_of(file.about) <= was.changed)
                continue;
            if (request_.keep_aside)
                if (auto kept = request_.keep_aside(name, "it was not there at the checkpoint"); !kept)
                    return kept;
            if (const int code = directory_.unlink(name); code != 0 && code != ENOENT)
                return std::unexpected(errno_error("remove", name, code));
        }
        return {};
    }

    const Directory &directory_;
    const NamesBack &request_;
    std::map<std::string, std::string> is_now_; // name -> identity
    std::map<std::string, std::string> was_;
};

} // namespace

Expected<void> put_names_back(const Directory &directory, const NamesBack &request) {
    return Names(directory, request).run();
}

} // namespace singularity::host
