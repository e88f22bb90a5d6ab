// SPDX-License-Identifier: GPL-2.0-or-later
#include "runner.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <climits>
#include <csignal>
#include <iterator>
#include <type_traits>
#include <utility>

#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace singularity::commands {

namespace {

// In one call of `work` from one stand-in, so that no other waits for long.
constexpr int kPacketsAtATime = 16;
constexpr std::chrono::milliseconds kAcceptAgain{100};
constexpr std::chrono::seconds kEndPatience{5};
constexpr std::chrono::seconds kFirstPatience{30}; // for those that go on to have their room again
// Real-time signals do not merge (signal(7)). The kernel has a limit for those that wait, too.
constexpr std::size_t kHeldLimit = 4096;

Refused refusal(std::string doing, std::string on, std::string why, int code) {
    return {.doing = std::move(doing), .on = std::move(on), .why = std::move(why), .code = code};
}
Refused refusal(Error error) {
    return refusal(std::move(error.doing), std::move(error.on), std::move(error.why), error.code);
}

std::string together(const std::vector<std::filesystem::path> &paths) {
    std::string out;
    for (const auto &path : paths)
        out += (out.empty() ? "" : ", ") + path.native();
    return out;
}

pollfd readable(int fd) { return {.fd = fd, .events = POLLIN, .revents = 0}; }

// -1: it is not there.
int pidfd_of(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

bool has_hung_up(int fd) {
    pollfd one{.fd = fd, .events = 0, .revents = 0};
    return poll(&one, 1, 0) == 1 && (one.revents & POLLHUP) != 0;
}

} // namespace

bool ends_with_its_step(const std::string &path) {
    const auto name = std::filesystem::path(path).filename().native();
    return std::ranges::find(kStepCommands, name) != kStepCommands.end();
}

void Runner::open(UniqueFd listening) {
    listening_ = std::move(listening);
    accept_again_at_.reset();
    paused_ = false;
}

bool Runner::full() const { return served_.size() >= setting_.connections + kAnsweredLimit; }

void Runner::watch(std::vector<pollfd> &fds) const {
    if (listening_ && !accept_again_at_ && !full())
        fds.push_back(readable(listening_.get()));
    for (const Served &one : served_) {
        if (one.socket)
            fds.push_back(
                {.fd = one.socket.get(), .events = static_cast<short>(one.deaf ? 0 : POLLIN), .revents = 0});
        if (one.command && one.awaits_step)
            fds.push_back(readable(one.command->notice()));
        if (one.command)
            fds.push_back(readable(one.command->pidfd()));
    }
}

void Runner::work() {
    if (accept_again_at_ && accept_again_at_->expired())
        accept_again_at_.reset();
    forget_the_dead();
    accept_all();
    for (Served &one : served_) {
        listen_to(one);
        look_after(one);
    }
    std::erase_if(served_, [](const Served &one) { return !one.socket && !one.command; });
}

// After a shutdown(2), which another runner may have called on the same socket, those that had connected
// before can still be accepted; then it is EINVAL.
void Runner::accept_all() {
    while (listening_ && !accept_again_at_ && !full()) {
        UniqueFd socket(accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        const int code = errno;
        if (socket) {
            const auto waiting =
                std::ranges::count_if(served_, [](const Served &other) { return !other.answered; });
            Served &one = served_.emplace_back();
            one.socket = std::move(socket);
            admit(one, std::cmp_less(waiting, setting_.connections));
        } else if (code == EAGAIN || code == EINVAL) {
            if (paused_ || code == EINVAL)
                listening_.reset();
            return;
        } else if (code != EINTR && code != ECONNABORTED) {
            accept_again_at_ = Deadline::after(kAcceptAgain);
        }
    }
}

void Runner::admit(Served &one, bool allowed) {
    ucred peer{};
    socklen_t size = sizeof(peer);
    if (getsockopt(one.socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
        refuse(one, refusal(errno_error("learn who asks for", "a command")));
        return;
    }
    one.stand_in = peer.pid;
    if (peer.uid != geteuid()) {
        refuse(one, refusal("run", "a command for uid " + std::to_string(peer.uid),
                            "this is the job of uid " + std::to_string(geteuid()), EPERM));
        return;
    }
    if (paused_) {
        answer(one, Again{});
        return;
    }
    if (!allowed)
        refuse(one, refusal("run", "one more command",
                            std::to_string(setting_.connections) +
                                " of Slurm's commands run already; begin it when one of them has ended",
                            EAGAIN));
}

void Runner::listen_to(Served &one) {
    if (one.deaf) {
        if (one.socket && has_hung_up(one.socket.get()))
            hang_up(one);
        return;
    }
    for (int packets = 0; one.socket && packets < kPacketsAtATime; ++packets) {
        node::Packet packet;
        switch (node::receive_packet(one.socket.get(), packet, {.descriptors = kRunDescriptors})) {
        case node::Received::packet:
            if (!one.answered)
                take(one, packet);
            break;
        case node::Received::nothing:
            return;
        case node::Received::hung_up:
            hang_up(one);
            return;
        case node::Received::failed:
            if (packet.refusal.empty()) {
                hang_up(one);
                return;
            }
            if (!one.answered)
                refuse(one, refusal("read", "what a command asks for", packet.refusal, EBADMSG));
            break;
        }
    }
}

void Runner::take(Served &one, node::Packet &packet) {
    auto asked = node::decode<Run>(packet.bytes);
    if (asked && one.path.empty()) {
        run(one, std::move(*asked), packet.descriptors);
        return;
    }
    if (const auto kept = node::decode<Kept>(packet.bytes); kept && !one.path.empty()) {
        one.kept_from = kept->from;
        return;
    }
    const auto signal = node::decode<Signal>(packet.bytes);
    if (!signal || one.path.empty()) {
        const auto header = node::header_of(packet.bytes);
        refuse(one, refusal("understand", "what a command asks for",
                            "a packet of type " + (header ? std::to_string(header->type) : "none") +
                                " came where one Run is due, then Signals and Kept",
                            EBADMSG));
        return;
    }
    this->signal(one, signal->number);
}

// One that has ended is signalled no more, unless its step goes on.
void Runner::signal(Served &one, int number) {
    const bool waits =
        one.number != 0 && (one.untold || (one.command && (one.goes_on || withheld_ || one.end_held)));
    if (waits && number > 0 && number < NSIG) {
        hold(one, number);
        return;
    }
    if (const int code = one.command ? one.command->signal(number) : 0; code != 0 && code != ESRCH)
        refuse(one, refusal(errno_error("send signal " + std::to_string(number) + " to", one.path, code)));
}

void Runner::run(Served &one, Run &&run, const node::Descriptors &descriptors) {
    one.path = run.path.substr(0, PATH_MAX);
    if (std::ranges::find(setting_.commands, run.path, &std::filesystem::path::native) ==
        setting_.commands.end()) {
        refuse(one, refusal("run", one.path,
                            "it is none of Slurm's commands here: " + together(setting_.commands), EPERM));
        return;
    }
    if (descriptors.size() != kRunDescriptors || run.program.arguments.empty()) {
        refuse(one, refusal("run", one.path,
                            std::to_string(descriptors.size()) + " descriptors and " +
                                std::to_string(run.program.arguments.size()) +
                                " arguments came; send 4 and at least 1",
                            EINVAL));
        return;
    }
    if (is_to_come_again(one, run))
        return;
    if (setting_.adapt)
        setting_.adapt(run.program.environment);
    const bool may_go_on = std::filesystem::path(run.path).filename() == kGoesOn && run.number != 0;
    if (may_go_on && setting_.number && steps_are() == StepsAre::with_rank) {
        one.number = run.number;
        one.input = run.input;
        one.goes_on = !run.checkpoint.empty();
        one.awaits_step = run.input == Input::pipe;
        setting_.number(run.program.environment, run);
    }
    auto started = RealCommand::start(run, descriptors, one.number != 0);
    if (!started) {
        refuse(one, refusal(std::move(started.error())));
        return;
    }
    one.command = std::move(*started);
    answer(one, Begun{});
    // The stand-in does not know that its input goes to no step of the rank's.
    if (may_go_on && one.number == 0 && run.input == Input::pipe)
        answer(one, StepBegun{});
}

StepsAre Runner::steps_are() const { return setting_.steps_are ? setting_.steps_are() : StepsAre::with_rank; }

// One that was sent away has ended, and the node was not saved after all, or not yet.
bool Runner::is_to_come_again(Served &one, const Run &run) {
    if (ends_with_its_step(run.path) &&
        (withheld_ || is_in_doubt() || waits_for_others(run.number) || steps_are() == StepsAre::unknown)) {
        answer(one, Again{});
        return true;
    }
    const auto end = run.number != 0 ? sent_away_.extract(run.number) : decltype(sent_away_)::node_type();
    if (end.empty())
        return false;
    answer(one, Begun{});
    answer(one, end.mapped());
    return true;
}

void Runner::hear_of_step(Served &one, const RealCommand &command) {
    if (command.has_begun_step()) {
        one.awaits_step = false;
        if (!one.answered)
            answer(one, StepBegun{});
    } else if (has_hung_up(command.notice())) {
        one.awaits_step = false;
    }
}

void Runner::look_after(Served &one) {
    if (one.command && one.awaits_step)
        hear_of_step(one, *one.command);
    if (one.command && awaited_.contains(one.number) && one.command->has_begun_step())
        awaited_.erase(one.number);
    auto end = one.command ? one.command->reap() : std::nullopt;
    if (!end)
        return;
    one.began_step = one.command->has_begun_step();
    one.command.reset();
    awaited_.erase(one.number);
    if (one.answered)
        return;
    if (auto *const refused = std::get_if<Refused>(&*end); refused != nullptr) {
        refuse(one, *refused);
        return;
    }
    const auto &ended = std::get<Ended>(*end);
    const bool is_in_doubt = one.number != 0 && !one.began_step && ended.status != 0;
    if (is_in_doubt || one.end_held || (withheld_ && ends_with_its_step(one.path)))
        one.untold = ended;
    else
        answer(one, ended);
}

void Runner::refuse(Served &one, const Refused &refusal) {
    if (one.command)
        static_cast<void>(one.command->signal(SIGKILL));
    answer(one, refusal);
}

// Whoever does not take so little as is ever said to it has hung up as far as the runner is concerned.
template <class Answer>
void Runner::answer(Served &one, const Answer &what) {
    one.answered = !std::is_same_v<Answer, Begun> && !std::is_same_v<Answer, StepBegun>;
    if (one.socket && node::send_packet(one.socket.get(), node::encode(what)) != 0)
        hang_up(one);
}

// A stand-in that is killed takes its command along.
void Runner::hang_up(Served &one) {
    one.socket.reset();
    one.stand_in = 0;
    one.answered = true;
    one.untold.reset();
    if (one.command)
        static_cast<void>(one.command->signal(SIGKILL));
}

void Runner::pause() {
    paused_ = true;
    if (listening_)
        shutdown(listening_.get(), SHUT_RDWR);
    for (Served &one : served_)
        if (one.path.empty() && !one.answered)
            answer(one, Again{});
    work();
}

std::vector<Runner::Running> Runner::running() const {
    std::vector<Running> out;
    out.reserve(served_.size());
    std::ranges::transform(served_, std::back_inserter(out), [](const Served &one) {
        return Running{.path = one.path,
                       .stand_in = one.stand_in,
                       .answered = one.answered,
                       .may_go_on = one.number != 0,
                       .over = one.untold.has_value(),
                       .number = one.number,
                       .began_step = one.command ? one.command->has_begun_step() : one.began_step,
                       .input = one.input,
                       .kept_from = one.kept_from};
    });
    return out;
}

bool Runner::has_child(pid_t pid) const {
    return std::ranges::any_of(served_,
                               [&](const Served &one) { return one.command && one.command->pid() == pid; });
}

bool Runner::withholds() const {
    return std::ranges::any_of(served_, [](const Served &one) { return one.untold && !one.end_held; });
}

void Runner::deliver() {
    withheld_ = false;
    for (Served &one : served_) {
        if (one.end_held)
            continue;
        if (const auto ended = std::exchange(one.untold, std::nullopt))
            answer(one, *ended);
        if (one.command && !one.goes_on)
            signal_again(one);
    }
}

std::vector<std::uint32_t> Runner::untold_steps() const {
    std::vector<std::uint32_t> out;
    for (const Served &one : served_)
        if (one.untold && one.number != 0 && one.began_step)
            out.push_back(one.number);
    return out;
}

std::vector<std::uint32_t> Runner::signalled_steps() const {
    std::vector<std::uint32_t> out;
    for (const Served &one : served_)
        if (one.command && one.goes_on && !one.signals.empty())
            out.push_back(one.number);
    return out;
}

void Runner::step_runs(std::uint32_t number) {
    for (Served &one : served_) {
        if (one.number == number && std::exchange(one.goes_on, false))
            signal_again(one);
    }
}

// As the kernel holds them (signal(7)).
void Runner::hold(Served &one, int number) {
    if (number == SIGSTOP || number == SIGCONT)
        std::erase(one.signals, number == SIGSTOP ? SIGCONT : SIGSTOP);
    const bool merges = number < SIGRTMIN;
    if (merges ? std::ranges::find(one.signals, number) == one.signals.end()
               : one.signals.size() < kHeldLimit)
        one.signals.push_back(number);
}

void Runner::signal_again(Served &one) {
    for (const int waiting : std::exchange(one.signals, {}))
        signal(one, waiting);
}

// What has been sent by now is here, and nothing can be sent any more: the stand-in learns of that, and keeps
// the signal that it could not send.
void Runner::hear_the_last(Served &one) {
    shutdown(one.socket.get(), SHUT_RD);
    one.deaf = true;
    for (node::Packet packet; node::receive_packet(one.socket.get(), packet) == node::Received::packet;)
        if (const auto kept = node::decode<Kept>(packet.bytes))
            one.kept_from = kept->from;
        else if (const auto signal = node::decode<Signal>(packet.bytes);
                 signal && signal->number > 0 && signal->number < NSIG)
            hold(one, signal->number);
}

// From where the first of its ranks has to read on.
bool Runner::has_its_input(const Served &one, const SavedStep &saved) {
    if (one.input == Input::nothing) // one that was read all the same is of a name that only srun knows
        return std::ranges::all_of(saved.read, [](auto read) { return read == 0 || read == kReadsNone; });
    if (saved.read.empty())
        return !one.began_step && one.kept_from == 0;
    return *std::ranges::min_element(saved.read) >= one.kept_from;
}

void Runner::send_away(const std::map<std::uint32_t, SavedStep> &steps) {
    for (Served &one : served_) {
        const auto found = steps.find(one.number);
        const auto untold = one.untold;
        if (!untold || one.number == 0 || (one.began_step && found == steps.end()))
            continue;
        const auto saved = one.began_step ? found->second : SavedStep();
        hear_the_last(one);
        if (!has_its_input(one, saved))
            continue;
        one.untold.reset();
        sent_away_.insert_or_assign(one.number, *untold);
        answer(one, GoesOn{.checkpoint = saved.checkpoint, .signals = one.signals, .read = saved.read});
    }
}

void Runner::hold_end(std::uint32_t number) {
    for (Served &one : served_)
        if (one.number == number && !one.answered)
            one.end_held = true;
}

bool Runner::send_back(std::uint32_t number, const SavedStep &saved) {
    for (Served &one : served_) {
        if (one.number != number || !one.end_held || !one.untold)
            continue;
        hear_the_last(one);
        if (!has_its_input(one, saved))
            return false;
        one.end_held = false;
        one.untold.reset();
        awaited_.insert_or_assign(
            number, Awaited{.checkpoint = saved.checkpoint, .stand_in = UniqueFd(pidfd_of(one.stand_in))});
        awaited_until_ = Deadline::after(kFirstPatience);
        answer(one, GoesOn{.checkpoint = saved.checkpoint, .signals = one.signals, .read = saved.read});
    }
    return true;
}

void Runner::tell_end(std::uint32_t number) {
    for (Served &one : served_) {
        if (one.number != number || !std::exchange(one.end_held, false))
            continue;
        if (withheld_)
            continue;
        if (const auto ended = std::exchange(one.untold, std::nullopt))
            answer(one, *ended);
        else if (one.command && !one.goes_on)
            signal_again(one);
    }
}

std::vector<std::string> Runner::awaited() const {
    std::vector<std::string> out;
    out.reserve(awaited_.size());
    std::ranges::transform(awaited_, std::back_inserter(out),
                           [](const auto &one) { return one.second.checkpoint; });
    return out;
}

void Runner::forget_the_dead() {
    std::erase_if(awaited_, [](const auto &one) {
        pollfd stand_in = readable(one.second.stand_in.get());
        return one.second.stand_in && poll(&stand_in, 1, 0) == 1;
    });
}

bool Runner::waits_for_others(std::uint32_t number) const {
    return !awaited_.empty() && !awaited_.contains(number) && awaited_until_ && !awaited_until_->expired();
}

void Runner::hang_up_all() {
    listening_.reset();
    for (Served &one : served_)
        hang_up(one);
}

void Runner::end() {
    hang_up_all();
    const auto deadline = Deadline::after(kEndPatience);
    for (work(); !served_.empty() && !deadline.expired(); work()) {
        std::vector<pollfd> fds;
        watch(fds);
        if (poll(fds.data(), fds.size(), deadline.poll_timeout()) < 0 && errno != EINTR)
            break;
    }
    served_.clear();
}

} // namespace singularity::commands
