// SPDX-License-Identifier: GPL-2.0-or-later
// What a node and its init say to each other, on a connection that can break at any time.
#include "adoption.hpp"
#include "agent/log.hpp"
#include "common/unix_socket.hpp"
#include "live_node.hpp"
#include "task_error.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/socket.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
using node::Phase;
using node::Stdio;

constexpr auto kJoinPatience = 10s;  // for init's first message
constexpr auto kReplyPatience = 15s; // for any other
constexpr auto kRetry = 200ms;

// The first record is from before init went into its own network.
void write_down_network(const node::Room &room, node::Record &record) {
    const auto identity = node::identity_of(record.init.pid);
    if (!identity || identity->network_namespace == record.init.network_namespace)
        return;
    record.init.network_namespace = identity->network_namespace;
    if (auto written = room.write(record); !written)
        kLog.error("{}", written.error().message());
}

} // namespace

void LiveNode::connect_to_init() {
    retry_.reset();
    // Through a descriptor: the path of a state directory may be longer than a socket's address.
    const auto directory = open_file(room_.run(), O_PATH | O_DIRECTORY | O_NOFOLLOW);
    if (!directory)
        return drop_connection(directory.error());
    // Now or later, but without waiting.
    auto socket =
        connect_unix(fmt::format("/proc/self/fd/{}/init.sock", directory->get()), Deadline::after(0s));
    if (!socket)
        return drop_connection(errno_error("reach the init of", record_.spec.name, socket.error().code));
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (getsockopt(socket->get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0 || peer.pid != record_.init.pid)
        return drop_connection(
            {"reach the init of", record_.spec.name, "another process listens in its place", EPERM});
    node::widen(socket->get());
    init_ = std::move(*socket);
    if (!patience_)
        patience_ = Deadline::after(kJoinPatience);
}

void LiveNode::drop_connection(const Error &why) {
    hang_up(std::move(init_), record_.spec.uid);
    for (auto pending = std::exchange(pending_, {}); const auto &[token, one] : pending)
        one.on_error(why);
    if (state_ != State::running && state_ != State::joining)
        return;
    if (state_ == State::running)
        kLog.warning("{}; trying again", why.message());
    state_ = State::joining;
    retry_ = Deadline::after(kRetry);
}

void LiveNode::read_init() {
    node::Packet packet;
    while (init_) {
        // Init is the user's, and has nothing to say that would need more than a datagram.
        const auto received =
            receive_lent(init_.get(), record_.spec.uid, packet, {.bytes = node::kDatagramLimit});
        if (received == node::Received::nothing)
            return;
        const auto header = received == node::Received::packet ? node::header_of(packet.bytes) : std::nullopt;
        if (!header)
            return drop_connection({"talk to the init of", record_.spec.name, "it has hung up", EPIPE});
        if (header->token != 0) {
            auto found = pending_.find(header->token);
            if (found == pending_.end())
                return drop_connection(unexpected_reply(record_.spec.name));
            const auto pending = std::move(found->second);
            pending_.erase(found);
            pending.on_reply(packet);
        } else if (const auto hello = node::decode<node::InitHello>(packet.bytes);
                   hello && state_ == State::joining && hello->tasks.size() <= node::kTaskLimit) {
            take_hello(*hello);
        } else if (const auto ended = node::decode<node::InitEnded>(packet.bytes);
                   ended && tasks_.contains(ended->task)) {
            take_end(*ended);
        } else {
            return drop_connection(unexpected_reply(record_.spec.name));
        }
    }
}

void LiveNode::look_at_pending() {
    if (std::ranges::any_of(pending_, [](const auto &one) { return one.second.deadline.expired(); }))
        drop_connection({"wait any longer for the init of", record_.spec.name,
                         fmt::format("it has not answered for {}s", kReplyPatience.count()), ETIMEDOUT});
}

void LiveNode::take_hello(const node::InitHello &hello) {
    state_ = State::running;
    patience_.reset();
    if (!next_save_ && !worker_)
        save_again_later();
    write_down_network(room_, record_);
    auto before = std::exchange(tasks_, {});
    for (const auto &one : hello.tasks) {
        Task task{.pid = one.pid,
                  .phase = one.phase,
                  .stdio = one.stdio,
                  .status = one.status,
                  .log = {},
                  .log_lost = false,
                  .share = Share(Budget::tasks, record_.spec.uid)};
        last_task_ = std::max(last_task_, one.task);
        if (const auto found = before.find(one.task); found != before.end())
            task.log = std::move(found->second.log);
        const bool log_missing = one.stdio == Stdio::kept && !task.log;
        tasks_.insert_or_assign(one.task, std::move(task));
        if (log_missing)
            ask(
                node::InitAttach{.task = one.task},
                [this, id = one.task](const node::Packet &packet) {
                    if (node::decode<node::InitLent>(packet.bytes) && packet.descriptors.size() == 1)
                        open_log(id, packet.descriptors.all()[0]);
                },
                [](const Error & /*the next connection asks again*/) {});
    }
    // What init no longer knows is not asked for again: files must not pile up.
    for (const auto &[id, task] : before)
        if (!tasks_.contains(id))
            remove_log(id);
    bind_tasks();
    if (auto maker = std::exchange(maker_, std::nullopt))
        maker->tell(Created{.name = record_.spec.name, .pid = record_.init.pid});
    std::vector<std::uint32_t> waited;
    waited.reserve(waiters_.size());
    for (const auto &waiter : waiters_)
        waited.push_back(waiter.request.task);
    for (const auto task : waited)
        answer_waiters(task);
    send_held_signals();
    answer_imager();
}

// Once: what an init cannot do now, it could not do later.
void LiveNode::bind_tasks() {
    for (auto &[id, cpus] : std::exchange(cpus_, {})) {
        const auto found = tasks_.find(id);
        if (found == tasks_.end() || found->second.phase != Phase::running)
            continue;
        const auto complain = [name = task_name(record_.spec.name, id)](const Error &why) {
            kLog.warning("{} runs wherever its node may, not on the processors of its task: {}", name,
                         why.message());
        };
        ask(
            node::InitBind{.task = id, .cpus = std::move(cpus)},
            [complain, on = task_name(record_.spec.name, id)](const node::Packet &packet) {
                const auto failed = node::decode<node::InitFailed>(packet.bytes);
                if (failed && failed->code != ESRCH)
                    complain(task_error(*failed, on));
            },
            complain);
    }
}

void LiveNode::take_end(const node::InitEnded &ended) {
    Task &task = tasks_.at(ended.task);
    task.phase = Phase::ended;
    task.status = ended.status;
    if (std::erase_if(record_.given, [&](const auto &given) { return given.task == ended.task; }) != 0)
        if (auto written = room_.write(record_); !written)
            kLog.error("{}", written.error().message());
    answer_waiters(ended.task);
}

void LiveNode::open_log(std::uint32_t task, int lent) {
    const auto keep = record_.spec.job.empty() ? TaskLog::Keep::newest : TaskLog::Keep::unread;
    auto pipe = open_lent_pipe(lent);
    auto opened = pipe ? TaskLog::open(room_.log(task), std::move(*pipe), keep, record_.spec.uid)
                       : Expected<TaskLog>(propagate(pipe));
    const auto found = tasks_.find(task);
    // Its output waits in the pipe; with the next connection it is asked for again.
    if (!opened && is_shortage(opened.error().code))
        return drop_connection(opened.error());
    if (!opened) {
        kLog.error("{}; the output of {} waits", opened.error().message(),
                   task_name(record_.spec.name, task));
        if (found != tasks_.end())
            found->second.log_lost = true;
    } else if (found != tasks_.end())
        found->second.log = std::move(*opened);
}

void LiveNode::remove_log(std::uint32_t task) const {
    if (auto removed = TaskLog::remove(room_.log(task)); !removed)
        kLog.error("{}", removed.error().message());
}

std::uint32_t LiveNode::next_token() {
    do
        ++last_token_;
    while (last_token_ == 0 || pending_.contains(last_token_));
    return last_token_;
}

void LiveNode::ask_bytes(std::uint32_t token, const std::string &bytes,
                         std::function<void(const node::Packet &)> on_reply,
                         std::function<void(const Error &)> on_error, const Streams *streams) {
    if (state_ != State::running)
        return on_error(
            {"use", record_.spec.name, fmt::format("it is {}; try again later", to_string(state_)), EAGAIN});
    if (bytes.size() > node::kPacketLimit)
        return on_error(
            {"ask", record_.spec.name,
             fmt::format("{} bytes are more than a request may have, {}", bytes.size(), node::kPacketLimit),
             E2BIG});
    // Init takes one after the other: what waits must not fill the socket's buffer.
    std::size_t unanswered = 0;
    for (const auto &[of, pending] : pending_)
        unanswered += pending.bytes;
    const bool in_memory = bytes.size() + unanswered > node::kDatagramLimit;
    // The user's processes may keep init from answering.
    auto memory = ProgramMemory::take(record_.spec.uid, in_memory ? bytes.size() : 0);
    if (!memory)
        return on_error(memory.error());
    node::Lent lent;
    std::vector<Stream> all;
    for (std::size_t number = 0; streams != nullptr && number < streams->size(); ++number)
        all.push_back({.of = streams, .number = number});
    const int code = send_streams(init_.get(), bytes, all, in_memory ? &lent : nullptr);
    pending_.emplace(token, Pending{.deadline = Deadline::after(kReplyPatience),
                                    .on_reply = std::move(on_reply),
                                    .on_error = std::move(on_error),
                                    .bytes = in_memory ? 0 : bytes.size(),
                                    .memory = std::move(*memory),
                                    .lent = std::move(lent)});
    if (code != 0)
        drop_connection(errno_error("talk to the init of", record_.spec.name, code));
}

} // namespace singularity::agent
