// SPDX-License-Identifier: GPL-2.0-or-later
#include "local_trees.hpp"

#include "common/text.hpp"
#include "local/remove.hpp"
#include "local/tree.hpp"
#include "log.hpp"

#include <algorithm>
#include <array>
#include <charconv>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kFirstPause = 2s; // between two steps nobody is asked
constexpr auto kLongestPause = 60s;
constexpr int kMostErrands = 4;     // at a time
constexpr auto kBetweenLooks = 60s; // and as long until what could not be removed is tried again

std::optional<std::uint32_t> slurm_job_of(const node::Spec &spec) {
    std::string_view text = spec.job;
    const auto before = fmt::format("u{}-s", spec.uid);
    if (!text.starts_with(before))
        return std::nullopt;
    text.remove_prefix(before.size());
    std::uint32_t out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    if (error != std::errc() || end == text.data() + text.size() || *end != '-')
        return std::nullopt;
    return out;
}

// Empty: there is none.
Expected<std::string> read_origin(const UniqueFd &tree) {
    const UniqueFd file(openat(tree.get(), local::kOrigin, O_RDONLY | O_CLOEXEC | O_NOFOLLOW));
    if (!file && errno == ENOENT)
        return std::string();
    std::array<char, 256> text{};
    const ssize_t size = file ? read(file.get(), text.data(), text.size()) : -1;
    if (size < 0)
        return std::unexpected(errno_error("read", local::kOrigin));
    return std::string(text.data(), static_cast<std::size_t>(size));
}

// Of a run before that one.
bool is_of_earlier(const UniqueFd &tree, std::uint32_t run) {
    const auto its = local::run_of(tree);
    return its && *its && **its < run;
}

} // namespace

std::string LocalTrees::tree_of(const node::Spec &spec) {
    if (const auto job = slurm_job_of(spec))
        return local::tree_name(spec.uid, *job);
    return spec.job.empty() ? spec.name : spec.job;
}

Expected<void> LocalTrees::give(node::Spec &spec, const UniqueFd &tree, const std::string &slot) {
    const auto name = tree_of(spec);
    for (auto &one : spec.local) {
        auto made = local::make_directory(tree, local::place_of(settings_.base, name), slot,
                                          {.uid = spec.uid, .gid = spec.gid}, one.path);
        if (!made)
            return propagate(made);
        one.source = *made;
    }
    trees_.try_emplace(name);
    return {};
}

Expected<void> LocalTrees::give(node::Spec &spec) {
    spec.local.clear();
    spec.local_origin.clear();
    if (settings_.paths.empty())
        return {};
    auto directory = local::open_tree(settings_.base, tree_of(spec), spec.run);
    auto origin = directory ? read_origin(*directory) : propagate(directory);
    if (!origin)
        return propagate(origin);
    spec.local_origin = origin->empty() ? fmt::format("{}-{}", spec.run, host_) : *origin;
    for (const auto &path : settings_.paths)
        spec.local.push_back({.path = path, .source = {}});
    return give(spec, *directory, local::kMain);
}

Expected<void> LocalTrees::give_again(node::Spec &spec) {
    if (spec.local.empty())
        return {};
    if (!local::is_name(spec.local_origin))
        return failure("restore the local directories of", spec.name, "their origin is no name", EPROTO);
    auto directory = local::open_tree(settings_.base, tree_of(spec), spec.run);
    auto origin = directory ? read_origin(*directory) : propagate(directory);
    if (!origin)
        return propagate(origin);
    if (origin->empty())
        if (auto written = node::write_file(local::place_of(settings_.base, tree_of(spec)) / local::kOrigin,
                                            spec.local_origin, 0600);
            !written)
            return written;
    const bool is_main = origin->empty() || *origin == spec.local_origin;
    return give(spec, *directory, is_main ? local::kMain : spec.local_origin);
}

void LocalTrees::begin(uid_t uid, std::uint32_t job, std::uint32_t run) {
    look_again();
    if (settings_.paths.empty())
        return;
    if (auto opened = local::open_tree(settings_.base, local::tree_name(uid, job), run); !opened)
        kLog.error("{}", opened.error().message());
}

void LocalTrees::look() {
    look_ = Deadline::after(kBetweenLooks);
    auto found = local::look_into(settings_.base);
    if (!found) {
        kLog.error("{}", found.error().message());
        return;
    }
    for (const auto &name : found->trees)
        trees_.try_emplace(name);
    if (found->aside && !removal_)
        remove_ = Deadline::after(0s);
    if (settings_.paths.empty() && trees_.empty() && !found->aside)
        look_.reset();
}

void LocalTrees::handle(const std::function<bool(const std::string &)> &is_used) {
    if (look_ && look_->expired())
        look();
    for (auto at = trees_.begin(); at != trees_.end();) {
        auto &[name, tree] = *at;
        if (is_used(name)) {
            tree = {};
            ++at;
            continue;
        }
        if (!is_over(name, tree)) {
            ++at;
            continue;
        }
        if (auto aside = tree.asked_about ? local::set_aside(settings_.base, name, tree.asked_about)
                                          : local::set_aside(settings_.base, name);
            !aside)
            kLog.error("{}", aside.error().message());
        else if (*aside)
            remove_ = Deadline::after(0s);
        at = trees_.erase(at); // a look finds what is still there
    }
    if (removal_ && removal_->ended())
        removal_.reset();
    if (remove_ && remove_->expired() && !removal_)
        begin_removal();
}

bool LocalTrees::is_over(const std::string &name, Tree &tree) {
    local::SlurmTree about;
    if (!local::read_tree_name(name, about))
        return true;
    if (!tree.errand && !tree.ask) {
        tree.pause = kFirstPause;
        tree.ask = Deadline::after(tree.pause);
    }
    if (!tree.errand && tree.ask->expired())
        ask(name, tree, {.id = about.job, .uid = about.uid});
    auto answer = tree.errand ? tree.errand->take() : Expected<std::optional<std::string>>(std::nullopt);
    if (tree.errand && answer && !*answer)
        return false;
    if (tree.errand) {
        tree.errand.reset();
        auto job = answer ? parse_slurm_job(**answer) : propagate(answer);
        using Fate = SlurmJob::Fate;
        if (!job)
            kLog.warning("{}: its local directories stay until it is known: {}", name, job.error().message());
        else if (!job->known || is_of_earlier(tree.asked_about, job->restarts) ||
                 (!job->completing && job->fate != Fate::stays && job->fate != Fate::preempted))
            return true;
    }
    if (!tree.ask) {
        tree.pause = std::min<std::chrono::seconds>(tree.pause * 2, kLongestPause);
        tree.ask = Deadline::after(tree.pause);
    }
    return false;
}

void LocalTrees::ask(const std::string &name, Tree &tree, const OwnedJob &job) {
    const auto asking =
        std::ranges::count_if(trees_, [](const auto &one) { return one.second.errand.has_value(); });
    if (asking >= kMostErrands) {
        tree.ask = Deadline::after(kFirstPause);
        return;
    }
    tree.ask.reset();
    // What is heard is about this one, and not about one that a new run makes meanwhile.
    auto directory = open_file(local::place_of(settings_.base, name), O_RDONLY | O_DIRECTORY | O_NOFOLLOW);
    auto errand = directory ? SlurmErrand::about(*libraries_, job) : propagate(directory);
    if (!errand) {
        kLog.error("{}", errand.error().message());
        return;
    }
    tree.asked_about = std::move(*directory);
    tree.errand = std::move(*errand);
}

void LocalTrees::begin_removal() {
    remove_.reset();
    auto started = Removal::start([base = settings_.base] {
        for (const auto &error : local::remove_set_aside(base))
            kLog.error("{}", error.message());
    });
    if (started)
        removal_ = std::move(*started);
    else
        kLog.error("{}", started.error().message());
}

void LocalTrees::watch(std::vector<pollfd> &fds) const {
    for (const auto &[name, tree] : trees_)
        if (tree.errand)
            fds.push_back({.fd = tree.errand->fd(), .events = POLLIN, .revents = 0});
    std::vector<int> removing;
    if (removal_)
        removal_->watch(removing);
    for (const int fd : removing)
        fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
}

std::optional<Deadline> LocalTrees::next_deadline() const {
    std::optional<Deadline> out = look_;
    const auto consider = [&out](const std::optional<Deadline> &deadline) {
        if (deadline && (!out || deadline->when() < out->when()))
            out = deadline;
    };
    if (!removal_)
        consider(remove_);
    for (const auto &[name, tree] : trees_) {
        consider(tree.ask);
        if (tree.errand)
            consider(tree.errand->deadline());
    }
    return out;
}

} // namespace singularity::agent
