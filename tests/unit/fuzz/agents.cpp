// SPDX-License-Identifier: GPL-2.0-or-later
// What node agents read: packets of clients, workers, the network's process and init; what agents of other
// hosts and, at a barrier, the processes of a job send; records of nodes and jobs on disk; names of cgroups.
// What is believed is the same when it is written again, and is then used as the agent does.
#include "agent/job/job_plan.hpp"
#include "agent/slurm/slurm_cgroup.hpp"
#include "agent/worker/worker_messages.hpp"
#include "commands/command_messages.hpp"
#include "common/plain_path.hpp"
#include "common/unique_fd.hpp"
#include "network/messages.hpp"
#include "node/cgroups.hpp"
#include "node/network.hpp"
#include "node/record.hpp"
#include "node/seqpacket.hpp"
#include "node/spec.hpp"
#include "peers/frames.hpp"
#include "peers/handshake.hpp"
#include "peers/peer_messages.pb.h"
#include "peers/tcp.hpp"
#include "proxy/barrier/coordinator.hpp"
#include "proxy/barrier/messages.hpp"
#include "table.hpp"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <span>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

namespace singularity::test {

namespace {

namespace wire = peers::wire;

// Something of everything: a packet's members are what packet.hpp can write.
class Filler {
  public:
    template <class... Values>
    void operator()(Values &...values) {
        (fill(values), ...);
    }

  private:
    template <class Value>
    void fill(Value &value) {
        if constexpr (std::is_arithmetic_v<Value> || std::is_enum_v<Value>)
            value = static_cast<Value>(1);
        else
            Value::fields(value, *this);
    }
    void fill(std::string &text) { text = "n1"; }
    template <class Element>
    void fill(std::vector<Element> &list) {
        list.resize(2);
        for (auto &element : list)
            fill(element);
    }
};

template <class Body>
Body filled() {
    Body body;
    Filler filler;
    Body::fields(body, filler);
    return body;
}

constexpr std::uint32_t kToken = 7;
constexpr std::uint32_t kVni = 0x12ab34;

node::Spec good_spec() {
    node::Spec out;
    out.name = "u1000-j12ab34-0";
    out.hostname = "n1";
    out.address = "10.64.1.1/24";
    out.uid = 1000;
    out.gid = 1000;
    out.groups = {1000, 27};
    out.sockets = {"/tmp/a"};
    out.environment = {"A=b"};
    out.devices = 2;
    out.backend = "software";
    out.job = "u1000-j12ab34";
    out.neighbours = {{.name = "n2", .address = "10.64.1.2"}};
    out.commands = {"/usr/bin/srun"};
    out.stand_in = "/usr/lib/singularity/singularity-command";
    out.run = 2;
    out.local = {{.path = "/tmp", .source = "/var/spool/singularity/local/u1000-s4711/main/tmp"}};
    out.local_origin = "0-n1";
    out.image = {.directory = "/home/alice/image",
                 .mounts = {{.source = "/data", .target = "/mnt/data", .read_only = true}},
                 .account = "alice:x:1000:1000::/home/alice:/bin/sh",
                 .groups = {"alice:x:1000:"},
                 .root = 1};
    out.shown = {"/usr/lib/singularity", "/sys", "/home"};
    return out;
}

void use(const node::Spec &spec) {
    if (!node::check_spec(spec))
        return;
    expect(node::parse_address(spec.address).has_value(), "a node's address is one");
    expect(!spec.name.empty() && !spec.name.contains('/') && spec.name != "..",
           "a node's name is one of a file");
    static_cast<void>(node::hosts_with("127.0.0.1 localhost\n", spec.neighbours));
    static_cast<void>(node::Room("/run/none", spec.name).external_mounts(spec));
    for (const auto &one : spec.image.mounts)
        expect(is_plain_path(one.target), "a user's mount is at a plain path");
    static_cast<void>(node::memory_directories(spec));
}

template <class Body>
void use(const Body & /*nothing is done with it here*/) {}
void use(const agent::Create &request) { use(request.spec); }
void use(const agent::WorkSave &request) { use(request.record.spec); }
void use(const agent::WorkCheck &request) { use(request.record.spec); }
void use(const network::PrepareRequest &request) {
    if (network::check(request.plan))
        expect(request.plan.hosts.size() <= network::kHostLimit, "hosts have a limit");
}
void use(const network::PublishRequest &request) {
    if (network::check(request.plan))
        expect(request.plan.ports.size() <= network::kPublishedLimit && request.plan.range.any(),
               "published ports have a limit, and are somewhere");
}
void use(const network::ConnectRequest &request) {
    static_cast<void>(network::check(request.plan, {.vni = 1, .port = 1, .local = 1, .hosts = {2, 3}}));
}

template <class Body>
bool reads_packet(std::string_view bytes) {
    const auto body = node::decode<Body>(bytes);
    if (!body)
        return false;
    expect(node::encode(*body, node::header_of(bytes)->token) == bytes, "a packet is written as it was read");
    use(*body);
    return true;
}

template <class... Bodies>
void add_packets(std::vector<Parser> &to, std::string_view of) {
    (to.push_back({.name = fmt::format("{}-{}", of, static_cast<unsigned>(Bodies::kType)),
                   .reads = &reads_packet<Bodies>,
                   .good = {node::encode(filled<Bodies>(), kToken), node::encode(Bodies{})}}),
     ...);
}

// Of a node, on disk and in the store.
bool reads_node_record(std::string_view bytes) {
    const auto record = node::decoded(bytes);
    if (!record)
        return false;
    expect(node::encoded(*record) == bytes, "a record is written as it was read");
    use(record->spec);
    return true;
}

template <class Message>
std::optional<Message> parsed(std::string_view bytes) {
    Message message;
    if (!message.ParseFromArray(bytes.data(), static_cast<int>(bytes.size())))
        return std::nullopt;
    return message;
}

template <class Message>
bool reads_message(std::string_view bytes) {
    return parsed<Message>(bytes).has_value();
}

wire::ConnectJob good_connect() {
    wire::ConnectJob out;
    auto nodes = agent::plan_nodes(agent::job_name(1000, kVni), kVni, {"n1", "n2"});
    for (const auto &node : *nodes)
        *out.add_nodes() = node;
    expect(agent::spread_ranks(*out.mutable_nodes(), 2, "j").has_value(), "ranks can be spread");
    out.set_job(agent::job_name(1000, kVni));
    out.set_mtu(1450);
    return out;
}

wire::StartJob good_start() {
    wire::StartJob out;
    out.set_job(agent::job_name(1000, kVni));
    auto *const program = out.mutable_program();
    program->add_arguments("/bin/true");
    program->add_environment("RANK=9");
    program->add_environment("A");
    program->set_directory("/");
    auto *const limit = program->add_limits();
    limit->set_resource(7);
    limit->set_soft(1024);
    return out;
}

// What it says of ranks and nodes is used as an index by who has checked it.
void use(const wire::ConnectJob &connect) {
    if (!agent::check_nodes(connect, agent::job_name(1000, kVni), kVni))
        return;
    const auto nodes = agent::nodes_of_ranks(connect.nodes(), "j");
    expect(nodes.has_value(), "nodes that have been checked have all ranks");
    for (const int at : *nodes)
        expect(at >= 0 && at < connect.nodes_size(), "a rank is on a node");
    for (const auto &node : connect.nodes())
        static_cast<void>(agent::program_of(good_start(), connect, node, 0));
}

bool reads_envelope(std::string_view bytes) {
    const auto envelope = parsed<wire::Envelope>(bytes);
    if (!envelope)
        return false;
    if (envelope->has_connect_job())
        use(envelope->connect_job());
    if (envelope->has_start_job() && agent::check_start(envelope->start_job())) {
        const auto connect = good_connect();
        const auto program = agent::program_of(envelope->start_job(), connect, connect.nodes(1), 1);
        static_cast<void>(agent::message_of(program));
    }
    return true;
}

std::vector<std::string> good_envelopes() {
    std::vector<std::string> out;
    const auto add = [&](const auto &fill) {
        wire::Envelope envelope;
        envelope.set_token(kToken);
        fill(envelope);
        out.push_back(envelope.SerializeAsString());
    };
    add([](auto &one) { one.mutable_ping(); });
    add([](auto &one) { *one.mutable_connect_job() = good_connect(); });
    add([](auto &one) { *one.mutable_start_job() = good_start(); });
    add([](auto &one) {
        auto *const prepare = one.mutable_prepare_job();
        prepare->set_job("u1000-j12ab34");
        prepare->set_vni(kVni);
        prepare->add_hosts(1);
        prepare->mutable_user()->add_groups(1000);
    });
    add([](auto &one) {
        auto *const news = one.mutable_news_of_job();
        news->add_output()->set_text("out");
        news->add_ends()->set_status(9);
    });
    add([](auto &one) {
        auto *const save = one.mutable_save_job();
        save->set_step(wire::SaveJob::ROUND);
        save->add_requests()->set_text("?");
    });
    add([](auto &one) {
        one.mutable_tell_user()->set_job("u1000-j12ab34");
        one.mutable_tell_user()->set_words("it cannot be saved");
    });
    add([](auto &one) { one.mutable_check_job()->set_job("u1000-j12ab34"); });
    add([](auto &one) { one.mutable_checked_job()->set_obstacle("cannot save process 4 (app)"); });
    add([](auto &one) { one.mutable_fault()->set_why("because"); });
    return out;
}

wire::JobRecord good_job() {
    wire::JobRecord out;
    out.set_name(agent::job_name(1000, kVni));
    out.mutable_user()->set_uid(1000);
    out.set_vni(kVni);
    *out.mutable_nodes() = good_connect().nodes();
    out.set_ranks(agent::rank_count(out.nodes()));
    *out.mutable_program() = good_start().program();
    out.set_state(wire::JobRecord::RUNNING);
    out.add_ends()->set_rank(3);
    out.add_hosts("n1");
    return out;
}

// Of a job, on disk and in the store; used as Job and JobKeeper do.
bool reads_job_record(std::string_view bytes) {
    auto record = parsed<wire::JobRecord>(bytes);
    if (!record || !agent::check_record(*record))
        return false;
    static_cast<void>(agent::check_job_name(record->name(), record->user().uid()));
    const auto nodes = agent::rank_count(record->nodes()) == 0
                           ? Expected<std::vector<int>>(std::vector<int>(record->ranks(), 0))
                           : agent::nodes_of_ranks(record->nodes(), record->name());
    expect(nodes.has_value() && nodes->size() == record->ranks(), "every rank is on a node");
    for (const int at : *nodes)
        expect(at >= 0 && at < record->nodes_size(), "a rank is on a node that is there");
    for (const auto &end : record->ends())
        expect(end.rank() < nodes->size(), "what has ended is a rank");
    static_cast<void>(agent::place_nodes(
        *record->mutable_nodes(),
        {{.host = "n1", .tasks = 3, .devices = 1}, {.host = "n2", .tasks = 1, .devices = 0}},
        record->name()));
    return true;
}

wire::MemberRecord good_member() {
    wire::MemberRecord out;
    out.set_coordinator("n1");
    *out.mutable_connect() = good_connect();
    *out.mutable_start() = good_start();
    out.mutable_prepare()->set_job(agent::job_name(1000, kVni));
    out.add_tasks()->set_rank(1);
    out.add_ends()->set_rank(1);
    return out;
}

bool reads_member_record(std::string_view bytes) {
    const auto record = parsed<wire::MemberRecord>(bytes);
    if (!record)
        return false;
    use(record->connect());
    return true;
}

// Whatever pieces they come in, frames are the same.
bool reads_frames(std::string_view bytes) {
    constexpr std::size_t kLimit = 4096;
    const auto frames_in = [&](std::size_t most) {
        peers::FrameReader reader(kLimit);
        std::vector<std::string> frames;
        for (auto rest = bytes;;) {
            auto frame = reader.next();
            if (!frame || (!*frame && rest.empty()))
                return std::pair(frame.has_value(), frames);
            if (*frame) {
                expect(!(*frame)->empty() && (*frame)->size() <= kLimit, "a frame has its limit");
                frames.push_back(std::move(**frame));
                continue;
            }
            const auto piece = rest.substr(0, std::min(most, reader.room()));
            expect(!piece.empty(), "who waits for a frame has room for it");
            reader.add(piece);
            rest.remove_prefix(piece.size());
        }
    };
    const auto at_once = frames_in(bytes.size());
    expect(at_once == frames_in(3), "frames are the same in pieces");
    std::string again;
    for (const auto &frame : at_once.second)
        again += peers::framed(frame);
    expect(bytes.starts_with(again), "frames are written as they were read");
    return at_once.first && !at_once.second.empty();
}

std::string good_hello() {
    wire::Hello hello;
    hello.set_version(2);
    hello.set_from("n1");
    hello.set_to("n2");
    hello.set_share(std::string(32, 's'));
    return hello.SerializeAsString();
}

bool reads_hello(std::string_view bytes) {
    const auto hello = parsed<wire::Hello>(bytes);
    return hello && peers::is_host_name(hello->from()) && peers::is_host_name(peers::short_name(hello->to()));
}

bool reads_address(std::string_view bytes) {
    const std::string text(bytes);
    const auto address = peers::address_of(text);
    if (address)
        expect(peers::address_of(peers::text_of(*address)) == *address,
               "an address is written as it was read");
    return node::parse_address(text).has_value() || address.has_value();
}

bool reads_job_name(std::string_view bytes) {
    const bool good = agent::check_job_name(bytes, 1000).has_value();
    if (good)
        expect(bytes.starts_with("u1000-") && !bytes.contains('/'), "a job's name is one of a file");
    return good;
}

// Of a process of a user's: what its cgroup's name says of Slurm's job.
bool reads_cgroup(std::string_view bytes) {
    const auto place = agent::slurm_cgroup(bytes, 1000);
    const auto step = agent::step_of(place);
    expect(step.empty() || place.job != 0, "a step is of a job");
    expect(agent::script_of(place) == 0 || step.empty(), "a batch script is no step of srun's");
    if (const auto script = agent::script_of(place); script != 0)
        expect(agent::is_script(agent::step_of_script(script)), "a script is known by the name of its step");
    static_cast<void>(agent::cgroups_of_step(bytes));
    return place.job != 0;
}

// theirs, ours, mountinfo
bool reads_cgroups(std::string_view bytes) {
    const auto texts = texts_in(bytes, 3);
    const auto files = node::cgroup_files(texts[0], texts[1], texts[2]);
    const auto of_root = node::made_by_root(texts[0], texts[2]);
    return files.has_value() && !files->empty() && !of_root.empty();
}

// Of a process of a job at the barrier before a checkpoint, which may say anything.
bool reads_report(std::string_view bytes) {
    auto report = barrier::decode_report(std::as_bytes(std::span(bytes)));
    if (!report)
        return false;
    expect(barrier::decode_report(barrier::encode(*report)) == *report, "a report is read as it was written");
    static_cast<void>(barrier::total_of({&*report, 1}));
    barrier::Coordinator coordinator(report->barrier);
    report->round = coordinator.round();
    const auto decision = coordinator.decide({&*report, 1});
    if (decision)
        for (const auto &[process, request] : decision->requests)
            expect(barrier::decode_request(barrier::encode(request)) == request,
                   "a request is read as it was written");
    static_cast<void>(coordinator.behind());
    return decision.has_value();
}

std::string good_report() {
    barrier::Report report;
    report.barrier = 11;
    report.round = 1;
    report.settled = true;
    report.pid = 17;
    report.doing = "ncclAllReduce";
    for (std::uint32_t rank = 4; rank < 6; ++rank) {
        report.members.push_back({.communicator = {.words = {1, 2}}, .rank = rank, .size = 8});
        report.issued.push_back({.line = {.communicator = {.words = {1, 2}}, .rank = rank}, .number = rank});
    }
    const auto bytes = barrier::encode(report);
    return {reinterpret_cast<const char *>(bytes.data()), bytes.size()};
}

// What comes through a socket: four bytes of the size that a packet is said to have, one of the seals of its
// memfd, and what lies in there; without all of that a datagram.
bool reads_from_socket(std::string_view bytes) {
    std::array<int, 2> pair{};
    expect(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair.data()) == 0, "there are sockets");
    const UniqueFd here(pair[0]);
    const UniqueFd there(pair[1]);
    const UniqueFd memory(memfd_create("fuzz", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    std::uint32_t size = 0;
    constexpr std::size_t kHead = sizeof(size) + 1;
    const bool in_memory = bytes.size() >= kHead;
    std::string_view content = bytes;
    if (in_memory) {
        bytes.copy(reinterpret_cast<char *>(&size), sizeof(size));
        content.remove_prefix(kHead);
        expect(std::cmp_equal(write(memory.get(), content.data(), content.size()), content.size()),
               "memory is there");
        static_cast<void>(fcntl(memory.get(), F_ADD_SEALS, static_cast<int>(bytes[kHead - 1]) & 0xf));
        const int fd = memory.get();
        expect(node::send_datagram(there.get(), node::encode(node::Elsewhere{.size = size}), {&fd, 1}) == 0,
               "what is sent is taken");
    } else if (bytes.empty() || node::send_datagram(there.get(), bytes, {}) != 0)
        return false;
    node::Packet packet;
    const bool good = node::receive_packet(here.get(), packet) == node::Received::packet;
    expect(good == packet.refusal.empty(), "who refuses says why");
    if (good)
        expect(packet.bytes == content && packet.descriptors.size() == 0, "a packet is what was sent");
    else
        expect(in_memory, "a datagram is a packet");
    return good && in_memory;
}

bool reads_hosts_file(std::string_view bytes) {
    const std::vector<node::Neighbour> names{{.name = "n1", .address = "10.64.1.1"}};
    return node::hosts_with(bytes, names).starts_with("10.64.1.1 n1\n") && !bytes.empty();
}

} // namespace

std::vector<Parser> parsers() {
    std::vector<Parser> all;
    {
        using namespace agent;
        add_packets<Create, Start, Signal, Wait, Attach, Tie, List, Log, Destroy, Created, Started, Done,
                    Ended, Lent, Nodes, Failed, Checkpoint, Restore, Progress, Imaged, RunJob, JobMade,
                    FollowJob, JobNews, ListJobs, Jobs, SignalJob, DestroyJob, TieJob, CutJob, JoinStep,
                    Joined, WaitRank, RankEnded, SignalRank, BeginScript, HoldScript, ScriptFate, OpenDoor,
                    Door, WatchSaves, SaveBegins, CommandsRest, FindSteps, FoundSteps, StepRuns, InputRead,
                    WatchStandstill, StandsStill, SaveSteps, SavedSteps, BeginApart>(all, "agent");
        add_packets<WorkSave, WorkRestore, WorkRecover, WorkGiven, WorkGo, WorkKeep, WorkNetwork, WorkFound,
                    WorkBorn, WorkRunning, WorkFinished, WorkFailed, WorkStepped, WorkHeld, WorkRound,
                    WorkReports, WorkStep, WorkPart, WorkSaveJob, WorkBegun, WorkParts, WorkSettleJob,
                    WorkKeepEnd, WorkForget, WorkFoundJob, WorkOutputs, WorkCheck, WorkChecked>(all,
                                                                                                "worker");
    }
    {
        using namespace network;
        add_packets<PrepareRequest, ConnectRequest, AttachRequest, PlaceRequest, CutRequest, OpenRequest,
                    StatusRequest, ReleaseRequest, PublishRequest, EndRequest, Prepared, network::Done, State,
                    PublishedPorts, network::Failed>(all, "network");
    }
    {
        using namespace node;
        add_packets<InitStart, InitSignal, InitAttach, InitAcknowledge, InitBind, InitStarted, InitDone,
                    InitLent, InitFailed, InitEnded, InitHello>(all, "init");
        add_packets<Elsewhere>(all, "packet");
    }
    add_packets<commands::Run, commands::Signal, commands::Begun, commands::Ended, commands::Again,
                commands::Refused>(all, "commands");
    all.front().good.push_back(node::encode(agent::Create{.spec = good_spec()}, kToken));

    node::Record record;
    record.spec = good_spec();
    record.given = {{.key = "pipe:[4711]", .task = 1, .stream = 1}};
    record.proxies = {{.pid = 7, .start_time = 8, .pid_namespace = 9, .network_namespace = 10}};
    const auto hello = good_hello();
    std::vector<Parser> others{
        {.name = "node-record",
         .reads = &reads_node_record,
         .good = {node::encoded(record), node::encoded({})}},
        {.name = "socket",
         .reads = &reads_from_socket,
         .good = {std::string("\3\0\0\0\x0f"
                              "abc",
                              8)}},
        {.name = "envelope", .reads = &reads_envelope, .good = good_envelopes()},
        {.name = "job-record", .reads = &reads_job_record, .good = {good_job().SerializeAsString()}},
        {.name = "member-record", .reads = &reads_member_record, .good = {good_member().SerializeAsString()}},
        {.name = "node-ranks",
         .reads = &reads_message<wire::NodeRanks>,
         .good = {"\x0a\x04\x08\x01\x10\x01"}},
        {.name = "hello", .reads = &reads_hello, .good = {hello}},
        {.name = "proof", .reads = &reads_message<wire::Proof>, .good = {"\x0a\x05MUNGE"}},
        {.name = "pledge", .reads = &reads_message<wire::Pledge>, .good = {"\x08\x01\x10\x01\x1a\x02n1"}},
        {.name = "findings", .reads = &reads_message<wire::Findings>, .good = {"\x12\x05MUNGE"}},
        {.name = "frames", .reads = &reads_frames, .good = {peers::framed(hello) + peers::framed("b")}},
        {.name = "address", .reads = &reads_address, .good = {"10.64.1.1/24", "10.0.0.1"}},
        {.name = "job-name",
         .reads = &reads_job_name,
         .good = {"u1000-j12ab34", "u1000-s4711-0", "u1000-s4711-batch"}},
        {.name = "cgroup",
         .reads = &reads_cgroup,
         .good = {"9:memory:/slurm/uid_1000/job_4711/step_0/task_0\n",
                  "0::/system.slice/n1_slurmstepd.scope/job_4711/step_batch/user/task_0\n"}},
        {.name = "cgroups",
         .reads = &reads_cgroups,
         .good = {texts({"0::/a/b\n1:cpu,cpuacct:/c\n", "0::/\n",
                         "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
                         "31 24 0:27 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"})}},
        {.name = "barrier-report", .reads = &reads_report, .good = {good_report()}},
        {.name = "hosts-file",
         .reads = &reads_hosts_file,
         .good = {"127.0.0.1 localhost\n10.0.0.1 n1 N1.cluster gate # old\n"}},
    };
    std::ranges::move(others, std::back_inserter(all));
    return all;
}

} // namespace singularity::test
