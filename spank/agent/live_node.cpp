// SPDX-License-Identifier: GPL-2.0-or-later
#include "live_node.hpp"

#include "common/log.hpp"
#include "common/text.hpp"
#include "common/unix_socket.hpp"
#include "task_error.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <ctime>
#include <filesystem>
#include <string_view>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace singularity::agent {

namespace {

using namespace std::chrono_literals;
using node::Phase;
using node::Stdio;

constexpr log::Channel kLog("agent");
constexpr auto kMakePatience = 60s;  // a loaded machine that makes many nodes at once
constexpr auto kJoinPatience = 10s;  // for init's first message
constexpr auto kReplyPatience = 15s; // for any other
constexpr auto kEndPatience = 20s;   // for the kernel to end a PID namespace
constexpr auto kRetry = 200ms;
constexpr std::size_t kWaiterLimit = 4096;

std::string_view words(LiveNode::State state) {
    switch (state) {
    case LiveNode::State::preparing:
        return "preparing";
    case LiveNode::State::restoring:
        return "restoring";
    case LiveNode::State::saving:
        return "saving";
    case LiveNode::State::making:
        return "making";
    case LiveNode::State::joining:
        return "joining";
    case LiveNode::State::running:
        return "running";
    case LiveNode::State::ending:
        return "ending";
    case LiveNode::State::gone:
        break;
    }
    return "gone";
}

std::string task_name(const std::string &node, std::uint32_t task) {
    return fmt::format("task {} of {}", task, node);
}

// What a task may be given as a standard stream: what a checkpoint can cut. The key is CRIU's name of a pipe.
Expected<std::string> stream_key(int fd) {
    struct stat about{};
    if (fstat(fd, &about) != 0)
        return std::unexpected(errno_error("look at", "a standard stream"));
    if (S_ISFIFO(about.st_mode))
        return fmt::format("pipe:[{}]", about.st_ino);
    if (S_ISREG(about.st_mode) || (S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 3)))
        return std::string();
    return failure("give a task", "a standard stream",
                   "it is no pipe, regular file or /dev/null, and could not be checkpointed", EINVAL);
}

Expected<void> check_program(const node::Program &program) {
    const auto refuse = [&](std::string why) {
        return failure("start", program.arguments.empty() ? "a task" : quote(program.arguments.front()),
                       std::move(why), EINVAL);
    };
    if (program.arguments.empty() || program.arguments.front().empty())
        return refuse("no program was named");
    if (!program.directory.starts_with('/'))
        return refuse(fmt::format("the working directory {} is no absolute path", quote(program.directory)));
    if (!node::known(program.stdio))
        return refuse(fmt::format("{} is no kind of standard streams", static_cast<int>(program.stdio)));
    if (program.mask > 0777)
        return refuse(fmt::format("{:o} is no umask", program.mask));
    for (const auto &limit : program.limits)
        if (limit.resource >= RLIM_NLIMITS || limit.soft > limit.hard)
            return refuse(
                fmt::format("resource limit {} of {} to {} is none", limit.resource, limit.soft, limit.hard));
    return {};
}

std::string_view name_of(std::string_view entry) { return entry.substr(0, entry.find('=')); }

// What is set for the node is set for each of its tasks, whatever the task says.
void add_environment(node::Program &program, const std::vector<std::string> &nodes) {
    std::erase_if(program.environment, [&](const std::string &entry) {
        return std::ranges::any_of(nodes,
                                   [&](const auto &other) { return name_of(other) == name_of(entry); });
    });
    program.environment.insert(program.environment.end(), nodes.begin(), nodes.end());
}

// The first record is from before init went into its own network.
void write_down_network(const node::Room &room, node::Record &record) {
    const auto identity = node::identity_of(record.init.pid);
    if (!identity || identity->network_namespace == record.init.network_namespace)
        return;
    record.init.network_namespace = identity->network_namespace;
    if (auto written = room.write(record); !written)
        kLog.error("{}", written.error().message());
}

Error unexpected_reply(const std::string &name) {
    return {"understand", fmt::format("the init of {}", name), "its reply has not the form it must have",
            EPROTO};
}

} // namespace

void Asker::refuse(const Error &error) const {
    tell(Failed{.doing = error.doing, .on = error.on, .why = error.why, .code = error.code});
}

Expected<LiveNode> LiveNode::make(node::MakePlan plan, const Surroundings &surroundings, Asker asker) {
    node::Record record;
    record.spec = plan.spec;
    record.made = std::time(nullptr);
    LiveNode out(plan.room, std::move(record), surroundings);
    const auto devices = plan.spec.devices;
    out.plan_ = std::move(plan);
    auto begun = devices != 0 ? out.start_proxies(out.plan_->cgroups, devices) : out.begin_making();
    if (!begun)
        return propagate(begun);
    out.maker_ = std::move(asker);
    out.patience_ = Deadline::after(kMakePatience);
    return out;
}

Expected<void> LiveNode::start_proxies(const std::string &cgroups, std::uint32_t count) {
    auto proxies = Proxies::start({.libraries = surroundings_->libraries,
                                   .spec = record_.spec,
                                   .room = room_,
                                   .cgroups = cgroups,
                                   .count = count});
    if (!proxies)
        return propagate(proxies);
    // Before any of them runs: the next agent must find them.
    record_.proxies = proxies->identities();
    if (auto written = room_.write(record_); !written)
        return written;
    if (auto allowed = proxies->allow(); !allowed)
        return allowed;
    proxies_ = std::move(*proxies);
    state_ = State::preparing;
    return {};
}

Expected<void> LiveNode::begin_making() {
    auto making = node::Making::begin(*plan_);
    if (!making)
        return propagate(making);
    plan_.reset();
    making_ = std::move(*making);
    state_ = State::making;
    return {};
}

Expected<LiveNode> LiveNode::adopt(node::Room room, const Surroundings &surroundings) {
    auto record = room.read();
    if (!record)
        return propagate(record);
    auto proxies = Proxies::adopt(record->proxies);
    auto pidfd = record->init.pid != 0
                     ? node::hold(record->init)
                     : Expected<UniqueFd>(failure("find", record->spec.name, "it was never made", ESRCH));
    if (!pidfd && (pidfd.error().code != ESRCH || proxies.ended()))
        return propagate(pidfd);
    LiveNode out(std::move(room), std::move(*record), surroundings);
    if (!out.record_.proxies.empty())
        out.proxies_ = std::move(proxies);
    if (!pidfd) { // its proxies are still to end
        out.finish();
        return out;
    }
    out.pidfd_ = std::move(*pidfd);
    out.state_ = State::joining;
    // A worker was at it, or still is.
    if (access(out.room_.mark().c_str(), F_OK) == 0) {
        if (auto recovering = out.recover(); !recovering)
            out.work_failed(recovering.error(), true);
        return out;
    }
    out.retry_ = Deadline::after(0s);
    return out;
}

NodeLine LiveNode::line() const {
    NodeLine out{.record = record_, .state = std::string(words(state_)), .tasks = {}};
    out.record.spec.environment.clear(); // a list must fit into a packet
    for (const auto &[id, task] : tasks_)
        out.tasks.push_back(
            {.task = id, .pid = task.pid, .running = task.phase != Phase::ended, .status = task.status});
    return out;
}

void LiveNode::watch(std::vector<int> &fds) const {
    if (making_)
        fds.push_back(making_->fd());
    if (proxies_)
        proxies_->watch(fds);
    if (worker_)
        worker_->watch(fds);
    if (removal_)
        removal_->watch(fds);
    for (const UniqueFd *fd : {&pidfd_, &init_})
        if (*fd)
            fds.push_back(fd->get());
    for (const auto &[id, task] : tasks_)
        if (state_ != State::saving && task.log && task.log->fd() >= 0)
            fds.push_back(task.log->fd());
}

std::optional<Deadline> LiveNode::next_deadline() const {
    std::optional<Deadline> out;
    const auto consider = [&](const Deadline &deadline) {
        if (!out || deadline.when() < out->when())
            out = deadline;
    };
    const auto proxies = proxies_ ? proxies_->next_deadline() : std::nullopt;
    for (const auto &one : {patience_, retry_, proxies, next_save_})
        if (one)
            consider(*one);
    for (const auto &[token, pending] : pending_)
        consider(pending.deadline);
    return out;
}

void LiveNode::handle() {
    if (proxies_)
        step_proxies();
    if (worker_)
        read_worker();
    if (removal_ && removal_->ended()) {
        removal_.reset();
        if (state_ == State::ending && !pidfd_)
            finish();
    }
    if (making_)
        step_making();
    if (state_ != State::gone && pidfd_ && node::has_ended(pidfd_)) {
        if (state_ != State::ending)
            kLog.warning("{}: its init has ended, and everything in it", record_.spec.name);
        pidfd_.reset();
        return finish();
    }
    if (init_)
        read_init();
    // What is in the pipes while a node is saved goes into its image.
    for (auto &[id, task] : tasks_)
        if (task.log && state_ != State::saving)
            if (auto drained = task.log->drain(); !drained) {
                kLog.error("{}: {}; the rest of its output is lost", task_name(record_.spec.name, id),
                           drained.error().message());
                task.log.reset();
            }
    if (state_ != State::gone)
        look_at_deadlines();
}

void LiveNode::step_proxies() {
    proxies_->look_at_deadline();
    for (const auto number : proxies_->newly_ended())
        if (state_ != State::ending)
            kLog.error("{}: the proxy of device {} has ended; what uses the device fails from now on",
                       record_.spec.name, number);
    if (state_ == State::preparing) {
        auto serve = proxies_->step();
        if (!serve)
            return fail_making(serve.error());
        if (*serve)
            if (auto begun = worker_ ? begin_restoring() : begin_making(); !begun)
                return fail_making(begun.error());
    }
    if (state_ == State::ending && !pidfd_ && proxies_->ended())
        finish();
}

void LiveNode::fail_making(const Error &error) {
    if (auto maker = std::exchange(maker_, std::nullopt))
        maker->refuse(error);
    if (auto imager = std::exchange(imager_, std::nullopt))
        imager->refuse(error);
    end();
}

void LiveNode::step_making() {
    auto step = making_->step();
    const auto fail = [&](const Error &error) { fail_making(error); };
    if (auto born = making_->born()) {
        pidfd_ = std::move(born->pidfd);
        auto identity = node::identity_of(born->pid);
        if (!identity)
            return fail(identity.error());
        record_.init = *identity;
        if (auto written = room_.write(record_); !written)
            return fail(written.error());
        if (auto allowed = making_->allow(); !allowed)
            return fail(allowed.error());
    }
    if (!step)
        return fail(step.error());
    if (!*step)
        return;
    making_.reset();
    if (!pidfd_)
        return fail({"make", record_.spec.name, "the process that makes it has died", ECHILD});
    state_ = State::joining;
    connect_to_init();
}

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
    init_.reset();
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
        const auto received = node::receive_packet(init_.get(), packet);
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

void LiveNode::take_hello(const node::InitHello &hello) {
    state_ = State::running;
    patience_.reset();
    if (!next_save_ && !worker_)
        save_again_later();
    write_down_network(room_, record_);
    auto before = std::exchange(tasks_, {});
    for (const auto &one : hello.tasks) {
        Task task{.pid = one.pid, .phase = one.phase, .stdio = one.stdio, .status = one.status, .log = {}};
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
                        open_log(id, fcntl(packet.descriptors.all()[0], F_DUPFD_CLOEXEC, 3));
                },
                [](const Error & /*the next connection asks again*/) {});
    }
    if (auto maker = std::exchange(maker_, std::nullopt))
        maker->tell(Created{.name = record_.spec.name, .pid = record_.init.pid});
    std::vector<std::uint32_t> waited;
    waited.reserve(waiters_.size());
    for (const auto &waiter : waiters_)
        waited.push_back(waiter.request.task);
    for (const auto task : waited)
        answer_waiters(task);
    answer_imager();
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

void LiveNode::look_at_deadlines() {
    if (next_save_ && next_save_->expired())
        save_periodically();
    if (retry_ && retry_->expired())
        connect_to_init();
    if (std::ranges::any_of(pending_, [](const auto &one) { return one.second.deadline.expired(); }))
        drop_connection({"wait any longer for the init of", record_.spec.name,
                         fmt::format("it has not answered for {}s", kReplyPatience.count()), ETIMEDOUT});
    if (!patience_ || !patience_->expired())
        return;
    const auto error =
        timeout_error(*patience_, fmt::format("{}, which is {}", record_.spec.name, words(state_)));
    patience_.reset();
    kLog.error("{}", error.message());
    if (auto maker = std::exchange(maker_, std::nullopt)) {
        maker->refuse(error);
        return end();
    }
    for (const auto &destroyer : std::exchange(destroyers_, {}))
        destroyer.refuse(error);
    if (state_ == State::ending && worker_)
        worker_->kill();
    if (state_ == State::joining)
        drop_connection(error);
}

void LiveNode::end() {
    making_.reset(); // a process that is not allowed yet ends by that
    if (worker_)
        worker_->hang_up();
    if (proxies_)
        proxies_->end();
    if (!pidfd_)
        return finish();
    if (auto killed = node::kill_process(pidfd_, record_.spec.name); !killed)
        kLog.error("{}", killed.error().message());
    if (state_ != State::ending)
        patience_ = Deadline::after(kEndPatience);
    state_ = State::ending;
    retry_.reset();
}

void LiveNode::finish() {
    // Theirs are the files as well.
    const bool used = (proxies_ && !proxies_->ended()) || (worker_ && !worker_->ended());
    if (!used && !removal_ && !std::exchange(last_removal_, true))
        clear_staging();
    if (used || removal_) {
        if (state_ != State::ending)
            patience_ = Deadline::after(kEndPatience);
        state_ = State::ending;
        retry_.reset();
        if (worker_)
            worker_->hang_up();
        if (proxies_)
            proxies_->end();
        return;
    }
    worker_.reset();
    state_ = State::gone;
    next_save_.reset();
    patience_.reset();
    retry_.reset();
    making_.reset();
    const Error ended{"use", record_.spec.name, "it has ended", ECHILD};
    drop_connection(ended);
    tasks_.clear();
    pidfd_.reset();
    const auto removed = room_.remove();
    if (!removed)
        kLog.error("{}", removed.error().message());
    if (auto maker = std::exchange(maker_, std::nullopt))
        maker->refuse(ended);
    answer_imager();
    if (auto imager = std::exchange(imager_, std::nullopt))
        imager->refuse(ended);
    for (const auto &waiter : std::exchange(waiters_, {}))
        waiter.asker.tell(Ended{.status = SIGKILL, .node_ended = true});
    for (const auto &destroyer : std::exchange(destroyers_, {})) {
        if (removed)
            destroyer.tell(Done{});
        else
            destroyer.refuse(removed.error());
    }
}

void LiveNode::answer_waiters(std::uint32_t task) {
    const auto found = tasks_.find(task);
    if (found != tasks_.end() && found->second.phase != Phase::ended)
        return;
    bool forget = false;
    std::vector<Waiter> left;
    for (auto &waiter : std::exchange(waiters_, {})) {
        if (waiter.request.task != task) {
            left.push_back(std::move(waiter));
        } else if (found == tasks_.end()) {
            waiter.asker.refuse(
                {"wait for", task_name(record_.spec.name, task), "there is no such task", ENOENT});
        } else {
            forget = forget || waiter.request.forget;
            waiter.asker.tell(Ended{.status = found->second.status});
        }
    }
    waiters_ = std::move(left);
    if (!forget)
        return;
    tasks_.erase(found);
    ask(
        node::InitAcknowledge{.task = task}, [](const node::Packet & /*done*/) {},
        [](const Error & /*the next connection shows it again*/) {});
}

void LiveNode::open_log(std::uint32_t task, int descriptor) {
    auto opened = TaskLog::open(room_.log(task), UniqueFd(descriptor));
    const auto found = tasks_.find(task);
    if (!opened)
        kLog.error("{}; the output of {} waits", opened.error().message(),
                   task_name(record_.spec.name, task));
    else if (found != tasks_.end())
        found->second.log = std::move(*opened);
}

template <class Body>
void LiveNode::ask(const Body &body, std::function<void(const node::Packet &)> on_reply,
                   std::function<void(const Error &)> on_error, std::span<const int> descriptors) {
    if (state_ != State::running)
        return on_error(
            {"use", record_.spec.name, fmt::format("it is {}; try again later", words(state_)), EAGAIN});
    do
        ++last_token_;
    while (last_token_ == 0 || pending_.contains(last_token_));
    const auto bytes = node::encode(body, last_token_);
    if (bytes.size() > node::kPacketLimit)
        return on_error(
            {"ask", record_.spec.name,
             fmt::format("{} bytes are more than a request may have, {}", bytes.size(), node::kPacketLimit),
             E2BIG});
    pending_.emplace(last_token_,
                     Pending{Deadline::after(kReplyPatience), std::move(on_reply), std::move(on_error)});
    if (const int code = node::send_packet(init_.get(), bytes, descriptors); code != 0)
        drop_connection(errno_error("talk to the init of", record_.spec.name, code));
}

void LiveNode::start(node::Program program, node::Descriptors descriptors, const Asker &asker) {
    if (auto checked = check_program(program); !checked)
        return asker.refuse(checked.error());
    if (descriptors.size() != (program.stdio == Stdio::given ? 3U : 0U))
        return asker.refuse({"start", quote(program.arguments.front()),
                             fmt::format("{} descriptors came with the request", descriptors.size()),
                             EINVAL});
    do
        ++last_task_;
    while (last_task_ == 0 || tasks_.contains(last_task_));
    const auto id = last_task_;
    for (std::uint32_t stream = 0; stream < descriptors.size(); ++stream) {
        auto key = stream_key(descriptors.all()[stream]);
        if (!key) {
            std::erase_if(record_.given, [&](const auto &given) { return given.task == id; });
            return asker.refuse(key.error());
        }
        if (!key->empty())
            record_.given.push_back({.key = std::move(*key), .task = id, .stream = stream});
    }
    // Before anything has the descriptors.
    const auto give_back = [this, id] {
        tasks_.erase(id);
        if (std::erase_if(record_.given, [&](const auto &given) { return given.task == id; }) != 0)
            if (auto written = room_.write(record_); !written)
                kLog.error("{}", written.error().message());
    };
    if (descriptors.size() != 0)
        if (auto written = room_.write(record_); !written) {
            give_back();
            return asker.refuse(written.error());
        }
    add_environment(program, record_.spec.environment);
    tasks_[id].stdio = program.stdio;
    node::InitStart request{.task = id, .program = std::move(program)};
    ask(
        request,
        [this, id, asker, give_back, program = request.program](const node::Packet &packet) {
            const auto started = node::decode<node::InitStarted>(packet.bytes);
            const auto failed = node::decode<node::InitFailed>(packet.bytes);
            const auto found = tasks_.find(id);
            if (failed || !started || found == tasks_.end() ||
                packet.descriptors.size() != (program.stdio == Stdio::given ? 0U : 1U)) {
                give_back();
                return asker.refuse(failed ? task_error(*failed, subject(*failed, program))
                                           : unexpected_reply(record_.spec.name));
            }
            found->second.pid = started->pid;
            found->second.phase = Phase::running;
            if (program.stdio == Stdio::kept)
                open_log(id, fcntl(packet.descriptors.all()[0], F_DUPFD_CLOEXEC, 3));
            asker.tell(Started{.task = id, .pid = started->pid},
                       program.stdio == Stdio::terminal ? packet.descriptors.all() : std::span<const int>());
        },
        [asker, give_back](const Error &error) {
            give_back();
            asker.refuse(error);
        },
        descriptors.all());
}

void LiveNode::signal(const Signal &request, const Asker &asker) {
    const auto on = request.task == 0 ? record_.spec.name : task_name(record_.spec.name, request.task);
    if (request.number < 0 || request.number >= NSIG)
        return asker.refuse(
            {"send", fmt::format("signal {}", request.number), "there is no such signal", EINVAL});
    ask(
        node::InitSignal{.task = request.task, .number = request.number},
        [asker, on](const node::Packet &packet) {
            if (const auto failed = node::decode<node::InitFailed>(packet.bytes))
                asker.refuse(task_error(*failed, on));
            else
                asker.tell(Done{});
        },
        [asker](const Error &error) { asker.refuse(error); });
}

void LiveNode::wait(const Wait &request, const Asker &asker) {
    if (waiters_.size() >= kWaiterLimit)
        return asker.refuse(
            {"wait for", task_name(record_.spec.name, request.task), "too many wait here already", ENOSPC});
    waiters_.push_back({.request = request, .asker = asker});
    if (state_ == State::running)
        answer_waiters(request.task);
}

void LiveNode::attach(std::uint32_t task, const Asker &asker) {
    const auto found = tasks_.find(task);
    if (found == tasks_.end() || found->second.stdio != Stdio::terminal)
        return asker.refuse({"attach to", task_name(record_.spec.name, task), "it has no terminal", ENOTTY});
    ask(
        node::InitAttach{.task = task},
        [asker, name = record_.spec.name, task](const node::Packet &packet) {
            if (const auto failed = node::decode<node::InitFailed>(packet.bytes))
                asker.refuse(task_error(*failed, task_name(name, task)));
            else if (packet.descriptors.size() == 1)
                asker.tell(Lent{}, packet.descriptors.all());
            else
                asker.refuse(unexpected_reply(name));
        },
        [asker](const Error &error) { asker.refuse(error); });
}

void LiveNode::log(std::uint32_t task, const Asker &asker) const {
    std::vector<UniqueFd> files;
    std::vector<int> numbers;
    const auto path = room_.log(task);
    for (const auto &file : {TaskLog::older(path), path}) {
        auto opened = open_file(file, O_RDONLY | O_NOFOLLOW);
        if (!opened)
            continue;
        numbers.push_back(opened->get());
        files.push_back(std::move(*opened));
    }
    if (files.empty())
        return asker.refuse({"read the output of", task_name(record_.spec.name, task),
                             "there is none: only that of detached tasks is kept", ENOENT});
    asker.tell(Lent{}, numbers);
}

void LiveNode::destroy(std::optional<Asker> asker) {
    if (asker)
        destroyers_.push_back(std::move(*asker));
    if (state_ == State::gone)
        return;
    end();
    if (!patience_) // it has been ending for longer than anybody waits
        patience_ = Deadline::after(kEndPatience);
}

} // namespace singularity::agent
