// SPDX-License-Identifier: GPL-2.0-or-later
#include "local_trees.hpp"

#include "agent/log.hpp"
#include "common/text.hpp"
#include "local/tree.hpp"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <iterator>
#include <sstream>
#include <utility>

#include <fmt/format.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;

constexpr auto kFirstPause = 2s; // between two steps nobody is asked
constexpr auto kLongestPause = 60s;
constexpr int kMostErrands = 4;     // at a time
constexpr auto kBetweenLooks = 60s; // and as long until what could not be removed is tried again

constexpr auto kErrandPatience = 120s; // for the disk
constexpr std::size_t kMostText = peers::Subprocess::kLimit - 1024;

// Nothing: it is none.
template <class Number>
std::optional<Number> number_in(const std::string &text) {
    Number out = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), out);
    return error == std::errc() && end == text.data() + text.size() ? std::optional(out) : std::nullopt;
}

} // namespace

std::string LocalTrees::tree_of(const node::Spec &spec) {
    return local::tree_of(spec.uid, spec.job, spec.name);
}

std::function<Expected<void>()> LocalTrees::maker(const node::Spec &spec) {
    if (spec.local.empty())
        return {};
    return [tree = tree_of(spec), run = spec.run, owner = local::Owner{.uid = spec.uid, .gid = spec.gid},
            wanted = spec.local]() -> Expected<void> {
        const auto base = local::base_of(wanted.front().source);
        auto directory = local::open_tree(base, tree, run);
        if (!directory)
            return propagate(directory);
        const auto place = local::place_of(base, tree);
        for (const auto &one : wanted) {
            const auto slot = std::filesystem::path(one.source).parent_path().filename();
            const auto made = one.is_layer()
                                  ? local::make_layer(*directory, place, slot, owner)
                                  : local::make_directory(*directory, place, local::kMain, owner, one.path);
            if (!made)
                return std::unexpected(made.error());
        }
        return {};
    };
}

Expected<void> LocalTrees::name(node::Spec &spec) {
    const auto tree = tree_of(spec);
    if (!local::is_name(tree))
        return failure("make local directories for", quote(tree), "that is no name of a job", EINVAL);
    // Of a job of Slurm's a later run is known by its number.
    local::SlurmTree about;
    const auto is_it = [&](const local::FoundTree &one) { return one.name == tree; };
    if (!local::read_tree_name(tree, about) && std::ranges::any_of(over_, is_it))
        return failure("make local directories for", tree,
                       "what was there under this name is just being put away: try again", EAGAIN);
    for (auto &one : spec.local)
        one.source = one.is_layer()
                         ? local::place_in(settings_.base, tree, local::new_layer(spec.name), local::kUpper)
                         : local::place_in(settings_.base, tree, local::kMain, one.path);
    trees_.try_emplace(tree);
    return {};
}

Expected<bool> LocalTrees::has_layer(const node::Image &image) const {
    using Writable = Config::Containers::Writable;
    if (!image.any() || image.root_is(node::RootIs::read_only))
        return false;
    if (images_ == Writable::kAlways || (images_ == Writable::kBesideLocal && !settings_.paths.empty()))
        return true;
    if (image.root_is(node::RootIs::writable))
        return failure(
            "write to the root of the image", quote(image.directory),
            "the roots of images are read-only on this host (containers.writable in "
            "singularity.yaml): leave out --singularity-root or --container-writable, and write to "
            "/tmp, a home or a mount",
            EROFS);
    return false;
}

Expected<void> LocalTrees::give(node::Spec &spec) {
    spec.local.clear();
    spec.local_origin.clear();
    const auto layer = has_layer(spec.image);
    if (!layer)
        return std::unexpected(layer.error());
    if (settings_.paths.empty() && !*layer)
        return {};
    spec.local_origin = fmt::format("{}-{}", spec.run, host_);
    for (const auto &path : settings_.paths)
        spec.local.push_back({.path = path, .source = {}});
    if (*layer)
        spec.local.push_back({.path = std::string(node::LocalDirectory::kLayer), .source = {}});
    return name(spec);
}

Expected<void> LocalTrees::give_again(node::Spec &spec) {
    return spec.local.empty() ? Expected<void>() : name(spec);
}

void LocalTrees::begin(uid_t uid, std::uint32_t job, std::uint32_t run) {
    if (settings_.paths.empty())
        return;
    auto tree = local::tree_name(uid, job);
    // Those that are under way count from the front.
    const auto waiting =
        std::next(begun_.begin(), static_cast<std::ptrdiff_t>(subprocess_ ? begun_under_way_ : 0));
    begun_.erase(std::remove_if(waiting, begun_.end(),
                                [&](const Begun &one) { return one.tree == tree && one.run <= run; }),
                 begun_.end());
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    begun_.push_back({.tree = std::move(tree),
                      .run = run,
                      .when = std::chrono::duration_cast<std::chrono::nanoseconds>(now).count()});
    look_again();
}

std::string LocalTrees::look_after(const std::filesystem::path &base, const std::vector<Begun> &begun,
                                   const std::vector<local::FoundTree> &over) {
    for (const auto &one : begun)
        if (auto confirmed = local::confirm_run(base, one.tree, one.run, one.when); !confirmed)
            kLog.error("{}", confirmed.error().message());
    for (const auto &one : over)
        if (auto aside = local::set_aside(base, one.name, one.identity); !aside)
            kLog.error("{}", aside.error().message());
    auto found = local::look_into(base);
    if (!found) {
        kLog.error("{}", found.error().message());
        return "0\n";
    }
    auto out = fmt::format("{}\n", found->aside ? 1 : 0);
    for (const auto &one : found->trees) {
        if (out.size() > kMostText)
            break; // others are told of when these have gone
        if (!local::is_name(one.name))
            continue; // none of ours
        out += fmt::format("{} {} {} {} {}\n", one.name, one.identity.device, one.identity.inode,
                           one.identity.born, one.run ? std::to_string(*one.run) : "-");
    }
    return out;
}

void LocalTrees::start_subprocess() {
    look_ = Deadline::after(kBetweenLooks);
    auto sent = peers::Subprocess::start(
        "look after jobs' local directories",
        [base = settings_.base, begun = begun_, over = over_] { return look_after(base, begun, over); },
        Deadline::after(kErrandPatience));
    if (!sent) {
        kLog.error("{}", sent.error().message());
        return;
    }
    subprocess_ = std::move(*sent);
    begun_under_way_ = begun_.size();
    over_under_way_ = over_.size();
}

void LocalTrees::take_answer() {
    const auto text = subprocess_->take();
    if (text && !*text)
        return;
    subprocess_.reset();
    // A look finds what should have been moved and was not; what should have been written is tried again.
    const bool some_are_aside = over_under_way_ != 0;
    over_.erase(over_.begin(), std::next(over_.begin(), static_cast<std::ptrdiff_t>(over_under_way_)));
    if (!text) {
        kLog.error("{}", text.error().message());
        return;
    }
    begun_.erase(begun_.begin(), std::next(begun_.begin(), static_cast<std::ptrdiff_t>(begun_under_way_)));
    on_look(**text);
    if (some_are_aside)
        remove_ = Deadline::after(0s);
}

void LocalTrees::on_look(const std::string &text) {
    for (auto &[name, tree] : trees_)
        tree.found.reset();
    std::istringstream lines(text);
    bool aside = false;
    lines >> aside;
    local::FoundTree one;
    std::string run;
    while (lines >> one.name >> one.identity.device >> one.identity.inode >> one.identity.born >> run) {
        one.run = number_in<std::uint32_t>(run);
        trees_[one.name].found = one;
    }
    if (aside && !removal_)
        remove_ = Deadline::after(0s);
    if (settings_.paths.empty() && trees_.empty() && !aside)
        look_.reset();
}

void LocalTrees::handle(const std::function<bool(const std::string &)> &is_used) {
    if (subprocess_)
        take_answer();
    for (auto at = trees_.begin(); at != trees_.end();) {
        auto &[name, tree] = *at;
        if (is_used(name)) {
            tree = {
                .found = tree.found, .pause = {}, .ask = {}, .turn = {}, .subprocess = {}, .asked_about = {}};
            ++at;
        } else if (!tree.found && !tree.subprocess) {
            look_again(); // it finds the tree, or there is none
            at = trees_.erase(at);
        } else if (is_over(name, tree)) {
            over_.push_back(tree.asked_about ? *tree.asked_about : *tree.found);
            look_again();
            at = trees_.erase(at);
        } else {
            ++at;
        }
    }
    if (removal_ && removal_->ended())
        removal_.reset();
    if (remove_ && remove_->expired() && !removal_)
        begin_removal();
    if (!subprocess_ && look_ && look_->expired())
        start_subprocess();
}

bool LocalTrees::is_over(const std::string &name, Tree &tree) {
    local::SlurmTree about;
    if (!local::read_tree_name(name, about))
        return true;
    if (!tree.subprocess && !tree.ask) {
        tree.pause = kFirstPause;
        tree.ask = Deadline::after(tree.pause);
    }
    if (!tree.subprocess && tree.ask->expired())
        ask(tree, {.id = about.job, .uid = about.uid});
    auto answer =
        tree.subprocess ? tree.subprocess->take() : Expected<std::optional<std::string>>(std::nullopt);
    if (tree.subprocess && answer && !*answer)
        return false;
    if (tree.subprocess) {
        tree.subprocess.reset();
        auto job = answer ? parse_slurm_job(**answer) : propagate(answer);
        using Fate = SlurmJob::Fate;
        if (!job)
            kLog.warning("{}: its local directories stay until it is known: {}", name, job.error().message());
        else if (!job->known || (tree.asked_about->run && *tree.asked_about->run < job->restarts) ||
                 (!job->completing && job->fate != Fate::stays && job->fate != Fate::preempted))
            return true;
    }
    if (!tree.ask) {
        tree.pause = std::min<std::chrono::seconds>(tree.pause * 2, kLongestPause);
        tree.ask = Deadline::after(tree.pause);
    }
    return false;
}

void LocalTrees::ask(Tree &tree, const OwnedJob &job) {
    const auto asking =
        std::ranges::count_if(trees_, [](const auto &one) { return one.second.subprocess.has_value(); });
    if (asking >= kMostErrands ||
        !tree.turn.has_come(Budget::questions, job.uid, fmt::format("job {}", job.id))) {
        tree.ask = Deadline::after(kFirstPause);
        return;
    }
    tree.ask.reset();
    auto subprocess = SlurmRequest::about(*libraries_, job);
    if (!subprocess) {
        kLog.error("{}", subprocess.error().message());
        return;
    }
    // What is heard is about this one, and not about one that a new run makes meanwhile.
    tree.asked_about = tree.found;
    tree.subprocess = std::move(*subprocess);
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
        if (tree.subprocess)
            fds.push_back({.fd = tree.subprocess->fd(), .events = POLLIN, .revents = 0});
    if (subprocess_)
        fds.push_back({.fd = subprocess_->fd(), .events = POLLIN, .revents = 0});
    std::vector<int> removing;
    if (removal_)
        removal_->watch(removing);
    for (const int fd : removing)
        fds.push_back({.fd = fd, .events = POLLIN, .revents = 0});
}

std::optional<Deadline> LocalTrees::next_deadline() const {
    std::optional<Deadline> out = subprocess_ ? std::optional(subprocess_->deadline()) : look_;
    const auto consider = [&out](const std::optional<Deadline> &deadline) {
        if (deadline && (!out || deadline->when() < out->when()))
            out = deadline;
    };
    if (!removal_)
        consider(remove_);
    for (const auto &[name, tree] : trees_) {
        consider(tree.ask);
        if (tree.subprocess)
            consider(tree.subprocess->deadline());
    }
    return out;
}

} // namespace singularity::agent
