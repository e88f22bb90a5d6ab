// SPDX-License-Identifier: GPL-2.0-or-later
// What comments of jobs ask for, what is kept in an AdminComment, what becomes of a job's wishes, and what
// Slurm prints of its topology.
#include "cmocka.hpp"
#include "common/slurm/gres.hpp"
#include "common/slurm/note.hpp"
#include "common/slurm/placement.hpp"
#include "common/slurm/topology.hpp"
#include "common/slurm/verb.hpp"

#include <string>

namespace {

using namespace singularity::slurm; // NOLINT(google-build-using-namespace): all of it is tested
using singularity::test::expect_equal;

std::string shown(std::string_view comment) {
    const auto verb = parse_verb(comment);
    if (!verb)
        return "wrong";
    return *verb ? to_comment(**verb) : "none";
}

void verbs(void **) {
    for (const auto *const text : {"singularity:migrate", "singularity:migrate=n7.example_1",
                                   "singularity:resize=4", "singularity:checkpoint"})
        expect_equal(shown(text), std::string(text));
    for (const auto *const text :
         {"", "migrate", "my experiment", "Singularity:migrate", "singularity: saved as x"})
        expect_equal(shown(text), std::string("none"));
    for (const auto *const text :
         {"singularity:", "singularity:migrat", "singularity:migrate=", "singularity:migrate=n1,n2",
          "singularity:migrate=n[1-2]", "singularity:migrate=$(reboot)", "singularity:migrate=n1 n2",
          "singularity:resize", "singularity:resize=", "singularity:resize=0", "singularity:resize=-1",
          "singularity:resize=4x", "singularity:resize=99999999999", "singularity:resize=1048577",
          "singularity:checkpoint=1", "singularity:checkpoint "})
        expect_equal(std::string(text) + " " + shown(text), std::string(text) + " wrong");
    expect_equal(shown("singularity:migrate=" + std::string(256, 'n')), std::string("wrong"));
    expect_equal(answer("a\nb"), std::string("singularity: a\\nb"));
    assert_true(is_answer(answer("done")));
}

void notes(void **) {
    assert_false(Note::parse("the site's own").has_value());
    auto note = Note::parse("");
    assert_true(note.has_value() && note->empty());
    assert_true(note->take("ranks=8").has_value());
    assert_true(note->take("checkpoints=+1").has_value());
    assert_true(note->take("checkpoints=+1").has_value());
    for (const auto *const word :
         {"", "=", "ranks", "=8", "Ranks=8", "ranks=a b", "ranks=a\nb", "ranks=\xc3\xa4"})
        expect_equal(std::string(word) + (note->take(word) ? " taken" : " refused"),
                     std::string(word) + " refused");
    expect_equal(note->text(), std::string("singularity: checkpoints=2 ranks=8"));
    const auto again = Note::parse(note->text());
    expect_equal(again->text(), note->text());
    assert_true(again->number("checkpoints") == 2U);
    assert_false(again->number("elastic").has_value());
    note->set("ranks", "");
    expect_equal(note->text(), std::string("singularity: checkpoints=2"));
    // Whatever is in it.
    expect_equal(Note::parse("singularity: = == a= =b ranks=1  x")->text(),
                 std::string("singularity: ranks=1"));
}

std::string gpus(const GpuWish &wish, std::uint32_t count) {
    auto change = with_gpus(wish, count);
    if (!change)
        return "refused";
    return "job " + change->per_job.value_or("-") + " node " + change->per_node.value_or("-") + " task " +
           change->per_task.value_or("-");
}

GpuWish wish(std::string per_job, std::string per_node = {}, std::string per_task = {},
             std::uint32_t nodes = 2) {
    return {.per_job = std::move(per_job),
            .per_node = std::move(per_node),
            .per_socket = {},
            .per_task = std::move(per_task),
            .nodes = nodes};
}

void sizes(void **) {
    expect_equal(gpus(wish("gres/gpu:8"), 4), std::string("job gres/gpu:4 node - task -"));
    expect_equal(gpus(wish("gres:gpu:8"), 4), std::string("job gres:gpu:4 node - task -"));
    expect_equal(gpus(wish("gres/gpu:a100:8"), 2), std::string("job gres/gpu:a100:2 node - task -"));
    expect_equal(gpus(wish("gres/gpu=8,gres/nic:1"), 2),
                 std::string("job gres/gpu=2,gres/nic:1 node - task -"));
    expect_equal(gpus(wish("gres/gpu"), 2), std::string("job gres/gpu:2 node - task -"));
    expect_equal(gpus(wish("gres/gpu:8", "", "gres/gpu:1"), 4), std::string("job gres/gpu:4 node - task "));
    expect_equal(gpus(wish("", "gres/gpu:4"), 4), std::string("job - node gres/gpu:2 task -"));
    expect_equal(gpus(wish("", "gres/gpu:4"), 3), std::string("refused"));
    expect_equal(gpus(wish("", "gres/gpu:4", "", 0), 4), std::string("refused"));
    expect_equal(gpus(wish("", "", "cpu=2,gres/gpu=1"), 4), std::string("job gres/gpu:4 node - task "));
    expect_equal(gpus(wish("", "", "gres:gpu:1"), 4), std::string("job gres:gpu:4 node - task "));
    expect_equal(gpus(wish("gres/gpu:a100:4,gres/gpu:h100:4"), 4), std::string("refused"));
    expect_equal(gpus(wish("gres/gpu:8", "gres/gpu:4"), 4), std::string("refused"));
    expect_equal(gpus(wish("gres/gpumem:8"), 4), std::string("refused"));
    expect_equal(gpus(wish(""), 4), std::string("refused"));
}

Verb migrate(std::string node = {}) {
    return {.kind = Verb::Kind::kMigrate, .node = std::move(node), .gpus = 0};
}

// A verb holds for one run, and gives back what the user had.
void placements(void **) {
    Wishes wishes{.required_nodes = "n1", .excluded_nodes = "n9", .gpus = wish("gres/gpu:8")};
    auto placed = place(migrate("n7"), wishes, *Note::parse("singularity: nodes=n[1-2]"));
    expect_equal(placed->change.required_nodes.value_or(""), std::string("n7"));
    expect_equal(placed->note.get("placed"), std::string("required:n1"));

    wishes.required_nodes = "n7"; // as it is now
    auto again = place(migrate(), wishes, placed->note);
    expect_equal(again->change.required_nodes.value_or("-"), std::string("n1"));
    expect_equal(again->change.excluded_nodes.value_or("-"), std::string("n9,n[1-2]"));
    expect_equal(again->note.get("placed"), std::string("excluded:n9"));

    wishes = {.required_nodes = "n1", .excluded_nodes = "n9,n[1-2]", .gpus = wish("gres/gpu:8")};
    auto after = place(std::nullopt, wishes, again->note);
    expect_equal(after->change.excluded_nodes.value_or("-"), std::string("n9"));
    assert_false(after->change.required_nodes.has_value());
    expect_equal(after->note.get("placed"), std::string());

    assert_true(place(std::nullopt, wishes, after->note)->change == Change{});
    assert_false(place(migrate(), wishes, Note()).has_value());
}

// What the planner has decided holds for one run as well, and a verb of the user's goes before it.
void decisions(void **) {
    const Wishes wishes{.required_nodes = {}, .excluded_nodes = {}, .gpus = wish("gres/gpu:8")};
    auto note = *Note::parse("singularity: elastic=2-8");
    assert_false(decision_of(note).has_value());
    assert_true(decide(note, {.waits = false, .gpus = 4, .nodes = "n1,n2"}).has_value());
    expect_equal(note.get("plan"), std::string("4@n1,n2"));
    auto placed = place(std::nullopt, wishes, note);
    expect_equal(placed->change.gpus.per_job.value_or(""), std::string("gres/gpu:4"));
    expect_equal(placed->change.required_nodes.value_or(""), std::string("n1,n2"));
    assert_false(placed->waits || decision_of(placed->note).has_value());
    expect_equal(placed->note.get("placed"), std::string("required:"));

    auto other = place(migrate("n7"), wishes, note);
    expect_equal(other->change.required_nodes.value_or(""), std::string("n7"));
    assert_true(other->change.gpus == GpuChange{} && !decision_of(other->note));

    assert_true(decide(note, {.waits = true, .gpus = 0, .nodes = {}}).has_value());
    assert_true(place(std::nullopt, wishes, note)->waits);
    assert_true(decide(note, {.waits = false, .gpus = 9, .nodes = {}}).has_value());
    assert_false(place(std::nullopt, wishes, note).has_value());
    assert_false(decide(note, {.waits = false, .gpus = 4, .nodes = "n 1"}).has_value());
    for (const auto *const junk : {"singularity: plan=0", "singularity: plan=4x", "singularity: plan=@n1"})
        assert_false(decision_of(*Note::parse(junk)).has_value());
}

void ranges(void **) {
    const auto allowed = [](const char *note, std::uint32_t count) {
        return check_size(count, Note::parse(note).value_or(Note())).has_value();
    };
    assert_false(allowed("singularity: elastic=2-8", 1));
    assert_true(allowed("singularity: elastic=2-8", 2));
    assert_true(allowed("singularity: elastic=2-8", 8));
    assert_false(allowed("singularity: elastic=2-8", 9));
    assert_true(allowed("singularity: elastic=2-requested", 9));
    assert_true(
        allowed("singularity: elastic=junk", 9)); // the user's own wrapper says it: slurmctld's limits hold
    assert_true(allowed("", 9));
    const Wishes wishes{.required_nodes = {}, .excluded_nodes = {}, .gpus = wish("gres/gpu:8")};
    const Verb resize{.kind = Verb::Kind::kResize, .node = {}, .gpus = 16};
    assert_false(place(resize, wishes, *Note::parse("singularity: elastic=2-8")).has_value());
    expect_equal(place(resize, wishes, Note())->change.gpus.per_job.value_or(""), std::string("gres/gpu:16"));
}

void topologies(void **) {
    const auto shown = [](std::string_view printed) {
        std::string out;
        for (const auto &leaf : leaves_of(printed))
            out += leaf.name + ":" + leaf.nodes + " ";
        return out;
    };
    expect_equal(shown("SwitchName=s0 Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=s[1-2]\n"
                       "SwitchName=s1 Level=0 LinkSpeed=1 Nodes=n[1,3]\n"
                       "SwitchName=s2 Level=0 LinkSpeed=1 Nodes=n[2,4]\n"),
                 std::string("s1:n[1,3] s2:n[2,4] "));
    expect_equal(
        shown("AggregatedBlock=b[1-2] BlockIndex=2 Nodes=n[1-4] BlockSize=4\n"
              "BlockName=b1 BlockIndex=0 Nodes=n[1-2] BlockSize=2\nBlockName=b2 BlockIndex=1 Nodes=n[3-4]"),
        std::string("b1:n[1-2] b2:n[3-4] "));
    expect_equal(
        shown("SwitchName=s1 Level=0 LinkSpeed=1\nSwitchName= Level=0 Nodes=n1\nLevel=0\n\n = =\nNodes=n1"),
        std::string());
    expect_equal(shown(""), std::string());
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(verbs),      cmocka_unit_test(notes),  cmocka_unit_test(sizes),
        cmocka_unit_test(placements), cmocka_unit_test(ranges), cmocka_unit_test(decisions),
        cmocka_unit_test(topologies),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
