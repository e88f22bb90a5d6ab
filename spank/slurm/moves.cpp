// SPDX-License-Identifier: GPL-2.0-or-later
#include "moves.hpp"

#include "common/deadline.hpp"
#include "common/published_places.hpp"
#include "common/slurm/controller.hpp"
#include "common/text.hpp"

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <ctime>
#include <optional>
#include <string_view>
#include <thread>

#include <fmt/format.h>

namespace singularity::slurm {

namespace {

using namespace std::chrono_literals;

// A node refuses a job that begins in the very second in which its last run was ended there: it tells the two
// apart by whole seconds, of clocks that may differ a little.
constexpr std::time_t kAfterRevocation = 3;
// Agents look at comments once a minute (elastic.look_every), and a checkpoint takes its time.
constexpr auto kCheckpointPatience = 600s;
constexpr auto kBetweenLooks = 1s;
constexpr std::string_view kSaved = "saved";

User owner_of(const Job &job) { return {.uid = job.uid, .gid = job.gid}; }

Expected<void> say(const Job &job, std::string_view words) {
    return update_job(job.id, {.comment = answer(words)}, owner_of(job));
}

// As in_words(): whatever an agent has had to say.
std::string one_line(std::string words) {
    constexpr std::size_t kLongest = 500;
    words.resize(std::min(words.size(), kLongest));
    std::ranges::replace_if(
        words, [](unsigned char one) { return one == '=' || std::iscntrl(one) != 0; }, ' ');
    return words;
}

std::string was_not_done(const Verb &verb, std::string_view why) {
    return fmt::format("{} was not done: {}", in_words(verb), why);
}

// Why what the verb asks for is not done now; empty: nothing is known against it.
Expected<std::string> against(const Verb &verb, const Job &job) {
    if (verb.kind == Verb::Kind::kResize) {
        if (job.gpus && *job.gpus == verb.gpus)
            return fmt::format("it has {} GPUs already", verb.gpus);
        auto placed = place(verb, job.wishes, Note::parse(job.admin_comment).value_or(Note()));
        return placed ? std::string() : placed.error().why;
    }
    if (verb.node.empty())
        return std::string();
    auto node = load_node(verb.node);
    if (!node)
        return propagate(node);
    if (!node->known)
        return fmt::format("there is no node {}", verb.node);
    if (node->down || node->leaves)
        return fmt::format("{} is {}", verb.node, node->down ? "down" : "drained");
    return std::string();
}

Expected<void> look_at(const Job &job, Seen &seen) {
    const auto parsed = parse_verb(job.comment);
    if (!parsed)
        return say(job, parsed.error().message());
    const auto &verb = parsed.value();
    if (!verb)
        return {};
    if (verb->kind == Verb::Kind::kCheckpoint) {
        seen.save.push_back(job.id);
        return {};
    }
    auto why_not = against(*verb, job);
    if (!why_not)
        return propagate(why_not);
    if (!why_not->empty())
        return say(job, was_not_done(*verb, *why_not));
    seen.move.push_back(job.id);
    return {};
}

// To its comment, if it is one that can be understood, or else to what the planner has decided; what the last
// one has changed is taken back in any case. Whether it is to wait.
Expected<bool> see_to(const Job &job) {
    const auto parsed = parse_verb(job.comment);
    if (!parsed)
        if (auto said = say(job, parsed.error().message()); !said)
            return propagate(said);
    const auto verb = parsed ? parsed.value() : std::nullopt;
    auto note = Note::parse(job.admin_comment);
    const bool ours = note.has_value();
    auto placed = place(verb, job.wishes, std::move(note).value_or(Note()));
    const auto refused = [&](Error error) -> Expected<bool> {
        if (!verb)
            return std::unexpected(std::move(error));
        if (auto said = say(job, was_not_done(*verb, error.why)); !said)
            return propagate(said);
        return false;
    };
    if (!placed)
        return refused(std::move(placed.error()));
    // What will be taken back is written down before it is done.
    const auto text = placed->note.text();
    const bool changed =
        ours && text != job.admin_comment && !(placed->note.empty() && job.admin_comment.empty());
    if (changed)
        if (auto noted = update_job(job.id, {.admin_comment = text}); !noted)
            return propagate(noted);
    if (verb)
        placed->change.comment.emplace();
    if (placed->change == Change{})
        return placed->waits;
    if (auto done = update_job(job.id, placed->change, owner_of(job)); !done) {
        if (changed)
            if (auto back = update_job(job.id, {.admin_comment = job.admin_comment}); !back)
                return propagate(back);
        return refused(std::move(done.error()));
    }
    return placed->waits;
}

// MIN of "MIN-MAX" or "MIN-requested", and the GPUs that the job has; empty: there is none.
std::string range_within(std::string_view range, std::optional<std::uint32_t> gpus) {
    const auto text = range.substr(0, range.find('-'));
    std::uint32_t least = 0;
    const auto [end, error] = std::from_chars(text.begin(), text.end(), least);
    if (gpus.value_or(0) == 0 || error != std::errc() || end != text.end() || least == 0)
        return {};
    return fmt::format("{}-{}", std::min(least, *gpus), *gpus);
}

std::string where_to(const Verb &verb) {
    if (verb.kind == Verb::Kind::kResize)
        return fmt::format("with {} GPUs", verb.gpus);
    return verb.node.empty() ? std::string("on other nodes") : fmt::format("on {}", verb.node);
}

Expected<std::string> wait_for_checkpoint(std::uint32_t id, const Verb &verb) {
    const auto deadline = Deadline::after(kCheckpointPatience);
    while (!deadline.expired()) {
        auto job = load_job(id);
        if (!job)
            return propagate(job);
        if (!job->running)
            return failure("save", fmt::format("job {}", id), fmt::format("it is {}", job->state), ESRCH);
        if (job->comment != to_comment(verb)) {
            constexpr std::string_view kAnswer = "singularity: ";
            auto words = is_answer(job->comment) ? job->comment.substr(kAnswer.size()) : job->comment;
            if (words.starts_with(kSaved))
                return words;
            return failure("save", fmt::format("job {}", id), quote(words), EIO);
        }
        std::this_thread::sleep_for(kBetweenLooks);
    }
    return std::unexpected(timeout_error(
        deadline, fmt::format("a checkpoint of job {} (does a step of it run, and the node agent "
                              "where the script does?)",
                              id)));
}

} // namespace

Expected<void> begin(std::uint32_t id) {
    auto job = load_job(id);
    if (!job)
        return propagate(job);
    if (!job->known || !job->pending || job->completing)
        return failure("let begin job", std::to_string(id),
                       fmt::format("it does not wait: it is {}", job->known ? job->state : "unknown"),
                       EINVAL);
    const auto seen_to = see_to(*job);
    // Whatever came of that, it runs.
    const bool waits = seen_to && seen_to.value();
    auto begun = update_job(id, {.begin = std::time(nullptr) + (waits ? kPause : kAfterRevocation)});
    if (!seen_to)
        return std::unexpected(seen_to.error());
    return begun;
}

Expected<Seen> look(const std::string &node, std::span<const std::uint32_t> jobs) {
    Seen seen;
    auto about = load_node(node);
    if (!about)
        return propagate(about);
    if (about->leaves)
        seen.leave = about->reason.empty() ? "drained" : about->reason;
    for (const auto id : jobs) {
        auto job = load_job(id);
        if (!job)
            return propagate(job);
        if (!job->running)
            continue;
        if (auto looked = look_at(*job, seen); !looked)
            return propagate(looked);
    }
    return seen;
}

Expected<void> note(std::uint32_t id, const std::vector<std::string> &words) {
    auto job = load_job(id);
    if (!job)
        return propagate(job);
    auto note = Note::parse(job->admin_comment);
    if (!note)
        return {}; // the site's
    if (!job->running && std::ranges::all_of(words, is_word_of_places))
        return {}; // nothing of it is reached any more
    const auto gpus =
        job->gpus.transform([](std::uint32_t count) { return std::to_string(count); }).value_or("");
    const auto known = note->get("elastic");
    for (const auto &word : words)
        if (is_word_of_places(word))
            note->set(std::string(kPublishedKey),
                      with_places(note->get(std::string(kPublishedKey)), job->restarts, word));
        else if (auto taken = note->take(word); !taken)
            return taken;
    if (job->running) {
        note->set("nodes", job->nodes);
        note->set("gpus", gpus);
    }
    // The range is what slurmctld was told when the job was submitted. What agents say of it comes from the
    // environment of the job's own processes: of a job of which slurmctld was told none, it counts for the
    // first run, and up to the GPUs that Slurm gave to that.
    note->set("elastic", known.empty() ? range_within(note->get("elastic"), job->gpus) : known);
    return update_job(id, {.admin_comment = note->text()});
}

Expected<void> hold(std::uint32_t id, const std::string &why) {
    if (auto requeued = requeue_job(id, true); !requeued)
        return requeued;
    auto job = load_job(id);
    if (!job)
        return propagate(job);
    const auto verb = parse_verb(job->comment);
    const bool ours = job->comment.empty() || is_answer(job->comment) || !verb || verb.value();
    return ours ? say(*job, one_line(why)) : Expected<void>();
}

Expected<void> answer_checkpoint(std::uint32_t id, const std::string &words) {
    auto job = load_job(id);
    if (!job)
        return propagate(job);
    // Its user may have written something else meanwhile.
    const Verb asked{.kind = Verb::Kind::kCheckpoint, .node = {}, .gpus = 0};
    return job->comment == to_comment(asked) ? say(*job, words) : Expected<void>();
}

Expected<std::string> ask(std::uint32_t id, const Verb &verb) {
    auto job = load_job(id);
    if (!job)
        return propagate(job);
    const auto refused = [&](std::string why) {
        return failure(verb.kind == Verb::Kind::kCheckpoint ? "save" : "move", fmt::format("job {}", id),
                       std::move(why), EINVAL);
    };
    if (!job->known)
        return refused("slurmctld does not know it: squeue shows which there are");
    const auto note = Note::parse(job->admin_comment);
    if (note && note->empty())
        return refused("it has no elastic step that has run yet (or the node agents cannot write its "
                       "AdminComment): submit it with --singularity-elastic");
    if (job->pending && !job->completing && verb.kind == Verb::Kind::kResize) {
        auto placed = place(verb, job->wishes, note.value_or(Note()));
        if (!placed)
            return refused(placed.error().why);
        if (auto done = update_job(id, {.gpus = placed->change.gpus}); !done)
            return propagate(done);
        return fmt::format("job {} waits; it goes on with {} GPUs", id, verb.gpus);
    }
    if (!job->running)
        return refused(fmt::format("it is {}", job->state));
    auto why_not = against(verb, *job);
    if (!why_not)
        return propagate(why_not);
    if (!why_not->empty())
        return refused(*why_not);
    if (auto asked = update_job(id, {.comment = to_comment(verb)}); !asked)
        return propagate(asked);
    if (verb.kind == Verb::Kind::kCheckpoint)
        return wait_for_checkpoint(id, verb);
    if (!note)
        return fmt::format("job {}'s comment says so: node agents see it within elastic.look_every", id);
    if (auto requeued = requeue_job(id); !requeued)
        return propagate(requeued);
    return fmt::format("job {} is saved, and goes on {}", id, where_to(verb));
}

} // namespace singularity::slurm
