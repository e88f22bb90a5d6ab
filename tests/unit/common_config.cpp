// SPDX-License-Identifier: GPL-2.0-or-later
#include "cmocka.hpp"
#include "common/config.hpp"
#include "common/unique_fd.hpp"

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <initializer_list>
#include <iterator>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include <fmt/format.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

namespace {

using namespace singularity;
using namespace std::chrono_literals;
using namespace std::string_literals;
using test::expect_contains;
using test::expect_equal;

struct Bad {
    std::string text;
    std::vector<std::string_view> parts; // of the message, with file name and line
};

std::string many(std::string_view part, std::size_t times) {
    std::string text;
    for (std::size_t i = 0; i < times; ++i)
        text += part;
    return text;
}

std::vector<Bad> bad_inputs() {
    return {
        // keys that no row of the table has
        {"loglevel: info\n", {"c.yaml:1: loglevel: unknown key, did you mean log_level?"}},
        {"log_level: info\nelastic:\n  min_gpu: 1\n",
         {"c.yaml:3: elastic.min_gpu: unknown key", "mean elastic.min_gpus?"}},
        {"elastic:\n  enabeld: true\n",
         {"c.yaml:2: elastic.enabeld: unknown key", "did you mean elastic.enabled?"}},
        {"\n\nslurmctl:\n  decide: true\n", {"c.yaml:3: slurmctl: unknown key, did you mean slurmctld?"}},
        {"min_gpus: 2\n", {"c.yaml:1: min_gpus: unknown key, did you mean elastic.min_gpus?"}},
        {"slurmctld:\n  max_gpus: 2\n",
         {"c.yaml:2: slurmctld.max_gpus: unknown key, did you mean elastic.max_gpus?"}},
        {"elastic.min_gpus: 2\n",
         {"c.yaml:1: elastic.min_gpus: unknown key, write 'min_gpus:' indented under 'elastic:'"}},
        {"'': 2\n", {"c.yaml:1", "unknown key, did you mean"}},
        {"Log_Level: info\n", {"c.yaml:1: Log_Level: unknown key, did you mean log_level?"}},
        {"<<: {log_level: info}\n", {"c.yaml:1: <<: unknown key"}},
        {"\"a\\nb\": 1\n", {"c.yaml:1: a\\nb: unknown key"}},
        {"elastic:\n  enabled:\n    really: true\n",
         {"c.yaml:2: elastic.enabled: expected true or false, found a section"}},

        // values of the wrong type or out of range
        {"log_level: loud\n",
         {"c.yaml:1: log_level: expected one of error, warning, info, debug, found 'loud'"}},
        {"log_level: 3\n", {"c.yaml:1: log_level: expected one of", "found '3'"}},
        {"log_level:\n", {"c.yaml:1: log_level: expected one of", "found nothing"}},
        {"log_level: ~\n", {"c.yaml:1: log_level: expected one of", "found nothing"}},
        {"log_level: [info]\n", {"c.yaml:1: log_level: expected one of", "found a list"}},
        {"elastic:\n  enabled: yes\n", {"c.yaml:2: elastic.enabled: expected true or false, found 'yes'"}},
        {"elastic:\n  enabled: \"true\"\n",
         {"c.yaml:2: elastic.enabled: expected true or false, found the string 'true'"}},
        {"elastic:\n  min_gpus: 0\n",
         {"c.yaml:2: elastic.min_gpus: expected a whole number from 1 to 1048576, found '0'"}},
        {"elastic:\n  min_gpus: -1\n", {"c.yaml:2: elastic.min_gpus", "found '-1'"}},
        {"elastic:\n  max_gpus: 1048577\n",
         {"c.yaml:2: elastic.max_gpus", "from 1 to 1048576, found '1048577'"}},
        {"elastic:\n  max_gpus: 99999999999999999999\n",
         {"c.yaml:2: elastic.max_gpus", "found '99999999999999999999'"}},
        {"elastic:\n  min_gpus: two\n",
         {"c.yaml:2: elastic.min_gpus: expected a whole number", "found 'two'"}},
        {"elastic:\n  min_gpus: 2.5\n", {"c.yaml:2: elastic.min_gpus", "found '2.5'"}},
        {"elastic:\n  min_gpus: 010\n", {"c.yaml:2: elastic.min_gpus", "found '010'"}},
        {"elastic:\n  min_gpus: '2'\n", {"c.yaml:2: elastic.min_gpus", "found the string '2'"}},
        {"elastic:\n  min_gpus:\n    - 1\n", {"c.yaml:2: elastic.min_gpus", "found a list"}},
        {"slurmctld:\n  decide: 1\n", {"c.yaml:2: slurmctld.decide: expected true or false, found '1'"}},
        {"slurmctld:\n  verify_interval: 60\n",
         {"c.yaml:2: slurmctld.verify_interval: expected a duration from 1s to 1h",
          "unit ms, s, m or h, found '60'"}},
        {"slurmctld:\n  verify_interval: 10 minutes\n",
         {"c.yaml:2: slurmctld.verify_interval", "found '10 minutes'"}},
        {"slurmctld:\n  verify_interval: 999ms\n", {"c.yaml:2: slurmctld.verify_interval", "found '999ms'"}},
        {"slurmctld:\n  verify_interval: 61m\n", {"c.yaml:2: slurmctld.verify_interval", "found '61m'"}},
        {"slurmctld:\n  verify_interval: 3600001ms\n",
         {"c.yaml:2: slurmctld.verify_interval", "found '3600001ms'"}},
        {"slurmctld:\n  verify_interval: 9223372036854775807h\n", {"c.yaml:2: slurmctld.verify_interval"}},
        {"slurmctld:\n  verify_sample: 257\n",
         {"c.yaml:2: slurmctld.verify_sample", "from 1 to 256, found '257'"}},
        {R"(log_level: "a\n\e[2J)" + std::string(200, 'x') + "\"\n",
         {"c.yaml:1: log_level", "found the string 'a\\n\\x1b[2Jxxx", "...' (206 bytes)"}},

        {"store:\n  others: /a:b\n",
         {"c.yaml:2: store.others: expected at most 15 different absolute paths, with colons",
          "found '/a:b'"}},
        {"store:\n  others: /a:/a\n", {"c.yaml:2: store.others", "found '/a:/a'"}},
        {"store:\n  others: \"/a:\"\n", {"c.yaml:2: store.others"}},
        {"store:\n  others: /1:/2:/3:/4:/5:/6:/7:/8:/9:/10:/11:/12:/13:/14:/15:/16\n",
         {"c.yaml:2: store.others"}},

        // values that do not go together
        {"store:\n  directory: /s\n  others: /a:/s/\n",
         {"c.yaml:3: store.others: expected each store once, and other ones than store.directory, which is "
          "/s, "
          "found /s/ again"}},
        {"store:\n  others: /var/lib//singularity/store\n",
         {"c.yaml:2: store.others: expected each store once"}},
        {"store:\n  others: /a:/b/../a\n", {"c.yaml:2: store.others: ", "found /b/../a again"}},
        {"local_directories:\n  paths: /tmp:/tmp/x\n",
         {"c.yaml:2: local_directories.paths: expected directories of which none is in another",
          "found /tmp and /tmp/x"}},
        {"local_directories:\n  paths: /tmp:/tmp/\n", {"c.yaml:2: local_directories.paths"}},
        {"local_directories:\n  paths: /var/..\n", {"c.yaml:2: local_directories.paths", "found /var/.."}},
        {"local_directories:\n  paths: /var//tmp\n", {"c.yaml:2: local_directories.paths", "without //"}},
        {"local_directories:\n  base: /scratch/.jobs\n  paths: /scratch:/tmp\n",
         {"none of them above local_directories.base (/scratch/.jobs)", "found /scratch"}},
        {"containers:\n  mounts: /home:/home/a\n",
         {"c.yaml:2: containers.mounts: expected directories without //", "in another, found /home/a"}},
        {"containers:\n  writable: true\n",
         {"c.yaml:2: containers.writable", "one of beside local_directories, always, never"}},
        {"containers:\n  mounts: /\n", {"c.yaml:2: containers.mounts", "found /"}},
        {"containers:\n  mounts: /a/../b\n", {"c.yaml:2: containers.mounts", "found /a/../b"}},
        {"elastic:\n  min_gpus: 8\n  max_gpus: 4\n",
         {"c.yaml:3: elastic.max_gpus: expected at least elastic.min_gpus, which is 8, found 4"}},
        {"elastic:\n  max_gpus: 4\n  min_gpus: 8\n",
         {"c.yaml:2: elastic.max_gpus: expected at least elastic.min_gpus"}},
        {"elastic:\n  checkpoint_every: 4m\n",
         {"c.yaml:2: elastic.checkpoint_every: expected at least elastic.checkpoint_every_least, which is "
          "5m, "
          "found 4m"}},
        {"elastic:\n  checkpoint_every_least: 31m\n",
         {"c.yaml:2: elastic.checkpoint_every_least: expected at most elastic.checkpoint_every, which is "
          "30m, "
          "found 31m"}},
        {"elastic:\n  checkpoint_every: 8761h\n",
         {"c.yaml:2: elastic.checkpoint_every: expected a duration from 0s to 8760h"}},
        {"elastic:\n  checkpoint_every_least: 0s\n",
         {"c.yaml:2: elastic.checkpoint_every_least: expected a duration from 1s to 24h"}},
        {"elastic:\n  checkpoint_every: off\n", {"c.yaml:2: elastic.checkpoint_every", "found 'off'"}},
        {"standard:\n  guarantee_percent: 96\n",
         {"c.yaml:2: standard.guarantee_percent: expected at most premium.guarantee_percent, which is 95, "
          "found "
          "96"}},
        {"premium:\n  guarantee_percent: 60\n",
         {"c.yaml:2: premium.guarantee_percent: expected at least standard.guarantee_percent"}},
        {"basic:\n  guarantee_percent: 71\n",
         {"c.yaml:2: basic.guarantee_percent: expected at most standard."}},
        {"basic:\n  moves_per_hour: 61\n", {"c.yaml:2: basic.moves_per_hour", "from 0 to 60, found '61'"}},
        {"premium:\n  least_run: 25h\n", {"c.yaml:2: premium.least_run: expected a duration from 0s to 24h"}},
        {"network:\n  publish: 999-2000\n",
         {"c.yaml:2: network.publish: expected nothing, or a range of TCP ports from 1024 to 65535"}},
        {"network:\n  publish: 8000-9000\n",
         {"c.yaml:2: network.publish: expected a range without agents.port, which is 8474, found 8000-9000"}},
        {"planner:\n  horizon: 0s\n", {"c.yaml:2: planner.horizon", "from 1s to 1h"}},

        // sections
        {"elastic: true\n",
         {"c.yaml:1: elastic: expected a section with the keys enabled, min_gpus, max_gpus, "
          "checkpoint_every, checkpoint_every_least, look_every, check_after, save_scripts, "
          "save_running_steps, "
          "hide_unsavable, "
          "gpu_turn, "
          "found "
          "'true'"}},
        {"elastic: ''\n", {"c.yaml:1: elastic: expected a section", "found the string ''"}},
        {"elastic:\n  - enabled: true\n", {"c.yaml:1: elastic: expected a section", "found a list"}},
        {"log_level: {info: true}\n", {"c.yaml:1: log_level: expected one of", "found a section"}},
        {"info\n", {"c.yaml:1: expected settings of the form 'key: value', found 'info'"}},
        {"- log_level: info\n", {"c.yaml:1: expected settings of the form 'key: value', found a list"}},

        // keys
        {"log_level: info\nelastic:\n  enabled: true\nlog_level: debug\n",
         {"c.yaml:4: log_level: expected each key once, found it a second time (first in line 1)"}},
        {"elastic:\n  enabled: true\n  enabled: true\n",
         {"c.yaml:3: elastic.enabled: expected each key once", "line 2"}},
        {"elastic:\n  enabled: true\n\nelastic:\n  min_gpus: 1\n",
         {"c.yaml:4: elastic: expected each key once", "line 1"}},
        {"? [log_level]\n: info\n", {"c.yaml:1: expected a name as key, found a list"}},
        {"? {log_level: 1}\n: info\n", {"c.yaml:1: expected a name as key, found a mapping"}},

        // parts of YAML that are refused
        {"log_level: &level info\n", {"c.yaml:1: log_level: an anchor (&) is not allowed"}},
        {"log_level: info\nelastic: &e\n  enabled: true\n", {"c.yaml:2: elastic: an anchor"}},
        {"log_level: *level\n", {"c.yaml:1: log_level: an alias (*) is not allowed"}},
        {"&k log_level: info\n", {"c.yaml:1: an anchor"}},
        {"log_level: !!str info\n", {"c.yaml:1: log_level: a tag (!) is not allowed"}},
        {"elastic: !mine\n  enabled: true\n", {"c.yaml:1: elastic: a tag"}},
        {"elastic: !!seq []\n", {"c.yaml:1: elastic: a tag"}},
        {"log_level: ! info\n", {"c.yaml:1: log_level: a tag"}},
        {"log_level: info\n---\nlog_level: debug\n",
         {"c.yaml:2: after log_level: a second document (---) is not allowed"}},
        {"%YAML 1.1\n---\nlog_level: info\n", {"c.yaml:1: a directive (%) is not allowed"}},
        {"%TAG ! tag:x,2000:\n---\nlog_level: info\n", {"c.yaml:1: a directive (%) is not allowed"}},
        {"%YAML 3.0\n---\nlog_level: info\n",
         {"c.yaml:", "not valid YAML: found incompatible YAML document"}},

        // not YAML
        {"log_level: info\n\tverify: 1\n", {"c.yaml:2: ", "not valid YAML"}},
        {"elastic:\n  enabled: true\n min_gpus: 1\n",
         {"c.yaml:3: after elastic.enabled: not valid YAML: did not find expected key"}},
        {"elastic: {enabled: true\n", {"c.yaml:", "after elastic.enabled: not valid YAML"}},
        {"log_level: \"info\n", {"c.yaml:", "not valid YAML: found unexpected end of stream"}},
        {"log_level: info: debug\n",
         {"c.yaml:1: after log_level: not valid YAML: mapping values are not allowed"}},
        {"log_level: @info\n",
         {"c.yaml:1: log_level: not valid YAML: found character that cannot start any token"}},
        {"log_level = info\n",
         {"c.yaml:1: expected settings of the form 'key: value', found 'log_level = info'"}},
        {R"({"log_level": "info"} trailing)", {"c.yaml:1: ", "not valid YAML"}},
        {"log_level info\nelastic:\n",
         {"c.yaml:1: expected settings of the form 'key: value', found 'log_level info elastic'"}},

        // not text
        {"log_level: info\nelastic:\n  # \xff\n",
         {"c.yaml:3: expected UTF-8 text, found byte 0xff at offset 29"}},
        {"log_level: \xc3(\n",
         {"c.yaml:1: expected UTF-8 text, found byte 0x28 at offset 12: invalid trailing"}},
        {"log_level: \xed\xa0\x80\n", {"c.yaml:1: expected UTF-8 text"}},
        {"log_level: in\0fo\n"s,
         {"c.yaml:1: expected UTF-8 text, found byte 0x00 at offset 13: control characters"}},
        {"\0"s, {"c.yaml:1: expected UTF-8 text, found byte 0x00 at offset 0"}},
        {"log_level: info\n\x1b", {"c.yaml:2: expected UTF-8 text, found byte 0x1b at offset 16"}},
        {"\xff\xfel\0o\0g\0"s, {"c.yaml:1: expected UTF-8 text, found byte 0xff"}},
        {"\xef\xbb\xbf\xef\xbb\xbflog_level: info\n", {"c.yaml:1"}},

        // too much
        {"elastic: " + many("{a: ", 20) + "1" + many("}", 20),
         {"c.yaml:1: ", "nested more than 8 levels deep"}},
        {"elastic: " + many("[", 100'000), {"c.yaml:1: elastic: expected a section", "found a list"}},
        {many("? ", 100'000), {"c.yaml:1: "}},
        {many("- ", 100'000), {"c.yaml:1: expected settings of the form 'key: value', found a list"}},
        {"# " + std::string(1 << 20, 'x'), {"c.yaml: expected at most 1048576 bytes, found 1048578"}},
    };
}

// What is wrong with how the input was refused; empty if nothing is.
std::string complaint(const Bad &bad) {
    const auto parsed = config::parse(bad.text, "c.yaml");
    if (parsed)
        return "accepted";
    const std::string message = parsed.error().message();
    if (!message.starts_with("cannot read c.yaml:") || message.size() > 400)
        return "not a line to read: " + message;
    for (const auto part : bad.parts) {
        if (!message.contains(part))
            return fmt::format("'{}' does not contain '{}'", message, part);
    }
    return "";
}

void bad_inputs_are_refused_with_place_and_reason(void ** /*state*/) {
    std::string complaints;
    for (const Bad &bad : bad_inputs()) {
        if (const auto what = complaint(bad); !what.empty())
            complaints += fmt::format("{}\n  for: {}\n", what, bad.text.substr(0, 200));
    }
    if (!complaints.empty())
        test::fail(complaints);
}

Config good(std::string_view text) {
    const auto parsed = config::parse(text, "c.yaml");
    if (!parsed)
        test::fail(fmt::format("{}\nin: {}", parsed.error().message(), text));
    return *parsed;
}

void nothing_set_is_all_defaults(void ** /*state*/) {
    for (const std::string_view text :
         {"", "\n", "# only a comment\n", "---\n", "--- \n...\n", "{}", "~", "null\n", "elastic:\n",
          "elastic: {}\nslurmctld:\n  # decide: true\n", "\xef\xbb\xbf# byte order mark\n"})
        assert_true(good(text) == Config());
}

void defaults_are_those_documented(void ** /*state*/) {
    const Config config;
    assert_true(config.log_level == log::Level::kInfo);
    assert_true(config.elastic.enabled);
    assert_true(config.elastic.min_gpus == 1);
    assert_true(config.elastic.max_gpus == 1048576);
    assert_true(config.elastic.checkpoint_every == 30min);
    assert_true(config.elastic.checkpoint_every_least == 5min);
    assert_true(config.elastic.look_every == 1min);
    assert_true(config.elastic.check_after == 20s);
    assert_true(config.elastic.gpu_turn == 10s);
    assert_true(config.elastic.hide_unsavable);
    assert_true(config.elastic.save_scripts == Config::Elastic::SaveScripts::kUntilSrun);
    assert_true(config.elastic.save_running_steps);
    assert_true(
        (config.files == Config::Files{.largest_copy_mib = 16, .all_copies_mib = 256, .keep_aside = false}));
    assert_true(
        (config.local_directories ==
         Config::LocalDirectories{.paths = {}, .base = "/var/spool/singularity/local", .quota_gib = 32}));
    assert_true(config.slurmctld.decide);
    assert_true(config.slurmctld.verify_interval == 60s);
    assert_true(config.slurmctld.verify_sample == 32);
    assert_true(
        (config.premium == Config::Tier{.guarantee_percent = 95, .moves_per_hour = 2, .least_run = 10min}));
    assert_true(
        (config.standard == Config::Tier{.guarantee_percent = 70, .moves_per_hour = 4, .least_run = 5min}));
    assert_true(
        (config.basic == Config::Tier{.guarantee_percent = 0, .moves_per_hour = 12, .least_run = 1min}));
    assert_true((config.planner == Config::Planner{.every = 10s,
                                                   .metrics = {},
                                                   .priority_weight = 1'000'000,
                                                   .horizon = 2min,
                                                   .margin_percent = 30,
                                                   .payback = 15min,
                                                   .service_quantum = 1h,
                                                   .strict_tiers = true}));
    assert_true((config.store ==
                 Config::Store{.directory = "/var/lib/singularity/store", .others = {}, .quota_gib = 0}));
    assert_true((config.agents == Config::Agents{.address = "",
                                                 .port = 8474,
                                                 .vxlan_port = 8475,
                                                 .patience = std::chrono::seconds(30),
                                                 .munge_socket = "/run/munge/munge.socket.2",
                                                 .metrics = "",
                                                 .nccl = "",
                                                 .run_without_slurm = false}));
    assert_true((config.network == Config::Network{.outside = "everything", .publish = "nothing"}));
    assert_true(
        (config.containers == Config::Containers{.enabled = true,
                                                 .mounts = {"/home"},
                                                 .writable = Config::Containers::Writable::kBesideLocal}));
    assert_true((config.per_user == Config::PerUser{.connections = 1024,
                                                    .nodes = 256,
                                                    .jobs = 64,
                                                    .scripts = 256,
                                                    .restores = 8,
                                                    .workers = 256,
                                                    .questions = 128,
                                                    .notes = 1024,
                                                    .closing = 128,
                                                    .ranks = 16384,
                                                    .tasks = 16384,
                                                    .ports = 64,
                                                    .program_mib = 1024,
                                                    .output_mib = 1024}));
}

void every_key_can_be_set(void ** /*state*/) {
    const Config config =
        good("---\n"
             "log_level: debug   # why not\n"
             "slurmctld: {decide: false, verify_interval: 5m, verify_sample: 256}\n"
             "elastic:\r\n"
             "    enabled: false\r\n"
             "    'min_gpus': 2\n"
             "    max_gpus:\n"
             "        64\n"
             "    checkpoint_every: 0s\n"
             "    checkpoint_every_least: 24h\n"
             "    look_every: 0s\n"
             "    check_after: 0s\n"
             "    save_scripts: true\n"
             "    save_running_steps: false\n"
             "    hide_unsavable: false\n"
             "    gpu_turn: 100ms\n"
             "files: {largest_copy_mib: 0, all_copies_mib: 1048576, keep_aside: true}\n"
             "local_directories: {paths: \"/tmp:/var/tmp\", base: /disk/local, quota_gib: 0}\n"
             "premium: {guarantee_percent: 100, moves_per_hour: 0, least_run: 24h}\n"
             "standard: {guarantee_percent: 50, moves_per_hour: 60, least_run: 0s}\n"
             "basic: {guarantee_percent: 50, moves_per_hour: 1, least_run: 2s}\n"
             "planner: {every: 1m, metrics: /run/planner.prom, priority_weight: 0, horizon: 30s, "
             "margin_percent: 0, payback: 1h, "
             "service_quantum: 10m, strict_tiers: false}\n"
             "store: {directory: /shared/store, others: \"/a b:/c\", quota_gib: 500}\n"
             "agents: {address: 10.0.0.1, port: 1, vxlan_port: 65535, patience: 2s, munge_socket: /m, "
             "metrics: /p, nccl: /n, run_without_slurm: true}\n"
             "network: {outside: \"10.0.0.0/8, 192.0.2.7:443\", publish: 20000-20999}\n"
             "containers: {enabled: false, mounts: \"/home:/scratch\", writable: never}\n"
             "per_user: {connections: 16, nodes: 1, jobs: 2, scripts: 3, restores: 4, workers: 11, "
             "questions: 6, notes: 17, closing: 7, ranks: 12, tasks: 13, ports: 5, program_mib: 8, "
             "output_mib: 9}\n");
    Config expected;
    expected.log_level = log::Level::kDebug;
    expected.elastic = {.enabled = false,
                        .min_gpus = 2,
                        .max_gpus = 64,
                        .checkpoint_every = 0s,
                        .checkpoint_every_least = 24h,
                        .look_every = 0s,
                        .check_after = 0s,
                        .save_scripts = Config::Elastic::SaveScripts::kYes,
                        .save_running_steps = false,
                        .hide_unsavable = false,
                        .gpu_turn = 100ms};
    expected.files = {.largest_copy_mib = 0, .all_copies_mib = 1048576, .keep_aside = true};
    expected.local_directories = {.paths = {"/tmp", "/var/tmp"}, .base = "/disk/local", .quota_gib = 0};
    expected.slurmctld = {.decide = false, .verify_interval = 5min, .verify_sample = 256};
    expected.premium = {.guarantee_percent = 100, .moves_per_hour = 0, .least_run = 24h};
    expected.standard = {.guarantee_percent = 50, .moves_per_hour = 60, .least_run = 0s};
    expected.basic = {.guarantee_percent = 50, .moves_per_hour = 1, .least_run = 2s};
    expected.planner = {.every = 1min,
                        .metrics = "/run/planner.prom",
                        .priority_weight = 0,
                        .horizon = 30s,
                        .margin_percent = 0,
                        .payback = 1h,
                        .service_quantum = 10min,
                        .strict_tiers = false};
    expected.store = {.directory = "/shared/store", .others = {"/a b", "/c"}, .quota_gib = 500};
    expected.agents = {.address = "10.0.0.1",
                       .port = 1,
                       .vxlan_port = 65535,
                       .patience = std::chrono::seconds(2),
                       .munge_socket = "/m",
                       .metrics = "/p",
                       .nccl = "/n",
                       .run_without_slurm = true};
    expected.network = {.outside = "10.0.0.0/8, 192.0.2.7:443", .publish = "20000-20999"};
    expected.containers = {
        .enabled = false, .mounts = {"/home", "/scratch"}, .writable = Config::Containers::Writable::kNever};
    expected.per_user = {.connections = 16,
                         .nodes = 1,
                         .jobs = 2,
                         .scripts = 3,
                         .restores = 4,
                         .workers = 11,
                         .questions = 6,
                         .notes = 17,
                         .closing = 7,
                         .ranks = 12,
                         .tasks = 13,
                         .ports = 5,
                         .program_mib = 8,
                         .output_mib = 9};
    assert_true(config == expected);
    assert_true(good(config::to_yaml(config)) == config);
}

void stores_are_chosen_as_people_write_them(void ** /*state*/) {
    const auto stores = good("store: {directory: /shared/store, others: /fast/store/:/slow}").store;
    const auto chosen = [&](std::string_view directory) {
        const auto found = config::chosen_store(stores, directory);
        return found ? found->native() : "none";
    };
    expect_equal(chosen(""), "/shared/store");
    expect_equal(chosen("/shared/store"), "/shared/store");
    expect_equal(chosen("/shared//store/"), "/shared/store");
    expect_equal(chosen("/fast/store"), "/fast/store/");
    expect_equal(chosen("/slow/./"), "/slow");
    for (const auto *const other :
         {"/", "/fast", "/fast/store/x", "slow", "./slow", "/slow/../etc", "/fast/store/:/slow"})
        expect_equal(chosen(other), "none");
    expect_equal(
        config::chosen_store(stores, "/home/alice").error().message(),
        "cannot use the checkpoint store /home/alice: this cluster has: /shared/store, /fast/store/, /slow "
        "(store.directory and store.others in singularity.yaml)");
}

void limits_may_be_equal_and_only_one_set(void ** /*state*/) {
    assert_true(good("elastic: {min_gpus: 4, max_gpus: 4}").elastic.max_gpus == 4);
    assert_true(good("elastic: {min_gpus: 1048576}").elastic.min_gpus == 1048576);
    assert_true(good("elastic: {max_gpus: 1}").elastic.max_gpus == 1);
    assert_true(good("elastic: {checkpoint_every: 5m}").elastic.checkpoint_every == 5min);
    assert_true(good("elastic: {checkpoint_every: 0s}").elastic.checkpoint_every == 0s);
    assert_true(good("slurmctld: {verify_interval: 1000ms}").slurmctld.verify_interval == 1s);
    assert_true(good("slurmctld: {verify_interval: 1h}").slurmctld.verify_interval == 1h);
}

void example_file_explains_every_key_and_has_the_defaults(void ** /*state*/) {
    std::ifstream file(SINGULARITY_EXAMPLE_CONFIGURATION);
    assert_true(file.is_open());
    std::string text;
    std::string settings;
    std::string line;
    std::string before;
    while (std::getline(file, line)) {
        text += line + '\n';
        const auto begin = line.find_first_not_of(' ');
        const bool comment = begin != std::string::npos && line[begin] == '#';
        if (begin != std::string::npos && !comment) {
            settings += line + '\n';
            // A section's name needs no words of its own; its keys do.
            if (!line.ends_with(':') && !before.contains('#'))
                test::fail(fmt::format("no comment above: {}", line));
        }
        before = comment ? line : "";
    }
    assert_true(good(text) == Config());
    // The very text that the table prints: the same keys in the same order with the same values.
    expect_equal(settings, config::to_yaml(Config()));
}

// A directory for one test's files.
class Directory {
  public:
    Directory() {
        std::string pattern = std::filesystem::temp_directory_path() / "singularity-config-XXXXXX";
        if (::mkdtemp(pattern.data()) == nullptr)
            test::fail("cannot make " + pattern);
        path_ = pattern;
        // Other users' files are tested too.
        if (::chmod(path_.c_str(), 0755) != 0)
            test::fail("cannot chmod " + pattern);
    }
    Directory(const Directory &) = delete;
    Directory &operator=(const Directory &) = delete;
    Directory(Directory &&) = delete;
    Directory &operator=(Directory &&) = delete;
    ~Directory() {
        std::error_code ignored; // a directory left in /tmp fails no test
        std::filesystem::remove_all(path_, ignored);
    }

    [[nodiscard]] std::filesystem::path file(std::string_view text, mode_t mode = 0644) const {
        auto path = path_ / "singularity.yaml";
        std::ofstream(path) << text;
        if (::chmod(path.c_str(), mode) != 0)
            test::fail("cannot chmod " + path.native());
        return path;
    }
    [[nodiscard]] std::filesystem::path operator/(std::string_view name) const { return path_ / name; }

  private:
    std::filesystem::path path_;
};

void expect_load_error(const std::filesystem::path &path, int code,
                       std::initializer_list<std::string_view> parts) {
    for (const bool absent_is_fine : {false, true}) {
        const auto loaded = absent_is_fine ? config::load_or_default(path) : config::load(path);
        if (loaded)
            test::fail("accepted " + path.native());
        const std::string message = loaded.error().message();
        expect_contains(message, path.native());
        for (const auto part : parts)
            expect_contains(message, part);
        assert_int_equal(loaded.error().code, code);
    }
}

void file_is_loaded(void ** /*state*/) {
    const Directory directory;
    const auto path = directory.file("elastic: {max_gpus: 8}\n");
    const auto loaded = config::load(path);
    assert_true(loaded.has_value());
    assert_true(loaded->elastic.max_gpus == 8);
    assert_true(config::load_or_default(path) == *loaded);

    std::filesystem::create_symlink(path, directory / "link");
    assert_true(config::load(directory / "link") == *loaded);

    const auto wrong = config::load(directory.file("log_level: info\nelastic: 8\n"));
    assert_false(wrong.has_value());
    expect_contains(wrong.error().message(), path.native() + ":2: elastic: expected a section");
}

void missing_file_is_an_error_or_the_defaults(void ** /*state*/) {
    const Directory directory;
    const auto path = directory / "none.yaml";
    const auto loaded = config::load(path);
    assert_false(loaded.has_value());
    assert_int_equal(loaded.error().code, ENOENT);
    expect_contains(loaded.error().message(),
                    "cannot read " + path.native() + ": there is no such file; fix: create it");
    const auto defaults = config::load_or_default(path);
    assert_true(defaults.has_value());
    assert_true(*defaults == Config());
    assert_true(config::load_or_default(directory / "no/such/directory.yaml").has_value());

    std::filesystem::create_symlink(path, directory / "link");
    const auto dangling = config::load_or_default(directory / "link");
    assert_false(dangling.has_value());
    expect_contains(dangling.error().message(), "it is a link to a file that does not exist");
}

void only_regular_files_are_read(void ** /*state*/) {
    const Directory directory;
    expect_load_error(directory / ".", EISDIR, {"expected a regular file, found a directory"});
    assert_int_equal(::mkfifo((directory / "pipe").c_str(), 0600), 0);
    expect_load_error(directory / "pipe", EINVAL,
                      {"expected a regular file, found a device, socket or pipe"});
    expect_load_error("/dev/null", EINVAL, {"expected a regular file"});
    expect_load_error(directory.file("") / "below", ENOTDIR, {"Not a directory"});
    std::filesystem::create_symlink("loop", directory / "loop");
    expect_load_error(directory / "loop", ELOOP, {"cannot open"});
}

void files_that_others_may_write_are_refused(void ** /*state*/) {
    const Directory directory;
    for (const mode_t mode : {0664U, 0646U, 0666U, 0620U}) {
        const auto path = directory.file("", mode);
        expect_load_error(path, EPERM,
                          {fmt::format("found mode {:04o}; fix: chmod go-w {}", mode, path.native()),
                           "only its owner may write"});
    }
    for (const mode_t mode : {0644U, 0600U, 0400U, 0444U, 0755U})
        assert_true(config::load(directory.file("", mode)).has_value());
}

constexpr uid_t kOther = 65534;

void files_of_other_users_are_refused(void ** /*state*/) {
    if (::geteuid() != 0)
        test::skip("only root can make files of other users");
    const Directory directory;
    const auto path = directory.file("log_level: debug\n");
    if (::chown(path.c_str(), kOther, kOther) != 0)
        test::skip("chown to another user is not permitted here");
    expect_load_error(path, EPERM, {"found one of user 65534; fix: chown root " + path.native()});
}

// The error code that a process of another user gets, 0 if the file is read.
int load_as_other_user(const std::filesystem::path &path) {
    const pid_t child = ::fork();
    if (child == 0) {
        if (::setresuid(kOther, kOther, kOther) != 0)
            ::_exit(255);
        const auto loaded = config::load(path);
        ::_exit(loaded ? 0 : loaded.error().code);
    }
    int status = 0;
    assert_true(child > 0);
    assert_int_equal(::waitpid(child, &status, 0), child);
    assert_true(WIFEXITED(status));
    return WEXITSTATUS(status);
}

void users_read_their_own_files_and_those_of_root(void ** /*state*/) {
    if (::geteuid() != 0)
        test::skip("only root can become another user");
    const Directory directory;
    const auto path = directory.file("", 0644);
    assert_int_equal(load_as_other_user(path), 0);
    assert_int_equal(load_as_other_user(directory.file("", 0600)), EACCES);
    if (::chown(path.c_str(), kOther, kOther) != 0)
        test::skip("chown to another user is not permitted here");
    assert_int_equal(load_as_other_user(path), 0);
}

void huge_files_are_refused(void ** /*state*/) {
    const Directory directory;
    const auto path = directory.file("");
    std::filesystem::resize_file(path, (1U << 20U) + 1);
    expect_load_error(path, EFBIG, {"expected at most 1048576 bytes, found 1048577"});
    std::filesystem::resize_file(path, std::uintmax_t(1) << 40U); // sparse
    expect_load_error(path, EFBIG, {"expected at most 1048576 bytes, found 1099511627776"});
    assert_true(config::load(directory.file("#" + std::string((1U << 20U) - 1, 'x'))).has_value());
}

void default_path_can_be_set_in_the_environment(void ** /*state*/) {
    assert_int_equal(::unsetenv("SINGULARITY_CONF"), 0);
    expect_equal(config::default_path().native(), "/etc/slurm/singularity.yaml");
    assert_int_equal(::setenv("SINGULARITY_CONF", "/srv/s.yaml", 1), 0);
    expect_equal(config::default_path().native(), "/srv/s.yaml");
    assert_int_equal(::setenv("SINGULARITY_CONF", "", 1), 0);
    expect_equal(config::default_path().native(), "/etc/slurm/singularity.yaml");
    assert_int_equal(::unsetenv("SINGULARITY_CONF"), 0);
}

} // namespace

int main() {
    const CMUnitTest tests[] = {
        cmocka_unit_test(bad_inputs_are_refused_with_place_and_reason),
        cmocka_unit_test(nothing_set_is_all_defaults),
        cmocka_unit_test(defaults_are_those_documented),
        cmocka_unit_test(every_key_can_be_set),
        cmocka_unit_test(stores_are_chosen_as_people_write_them),
        cmocka_unit_test(limits_may_be_equal_and_only_one_set),
        cmocka_unit_test(example_file_explains_every_key_and_has_the_defaults),
        cmocka_unit_test(file_is_loaded),
        cmocka_unit_test(missing_file_is_an_error_or_the_defaults),
        cmocka_unit_test(only_regular_files_are_read),
        cmocka_unit_test(files_that_others_may_write_are_refused),
        cmocka_unit_test(files_of_other_users_are_refused),
        cmocka_unit_test(users_read_their_own_files_and_those_of_root),
        cmocka_unit_test(huge_files_are_refused),
        cmocka_unit_test(default_path_can_be_set_in_the_environment),
    };
    return cmocka_run_group_tests_name("common_config", tests, nullptr, nullptr);
}
