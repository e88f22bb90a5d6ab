// SPDX-License-Identifier: GPL-2.0-or-later
#include "stand_in.hpp"

#include "command_messages.hpp"
#include "nearest_door.hpp"
#include "node/door.hpp"
#include "node/seqpacket.hpp"
#include "sent_input.hpp"
#include "srun_input.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <poll.h>
#include <sys/random.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

namespace singularity::commands {

namespace {

constexpr int kSignalBase = 128;
// What they do by default stops a process. The command's default would stop nothing: it is alone in its
// session.
constexpr std::array kStopping{SIGTSTP, SIGTTIN, SIGTTOU};
// End a command that has not begun. Any other waits until it has: the command may have a use for it.
constexpr std::array kEnding{SIGHUP, SIGINT, SIGQUIT, SIGTERM};
// connect(2): nobody has made the socket yet, nobody listens, too many wait already.
constexpr std::array kNobodyYet{ENOENT, ECONNREFUSED, EAGAIN};
// send(2) on a new connection: the runner has gone before it could read.
constexpr std::array kGone{EPIPE, ECONNRESET, ENOTCONN};

template <class Numbers>
bool has(const Numbers &numbers, int number) {
    return std::ranges::find(numbers, number) != std::ranges::end(numbers);
}

// Closed when it goes.
class Held {
  public:
    explicit Held(int fd) : fd_(fd) {}
    Held(const Held &) = delete;
    Held &operator=(const Held &) = delete;
    Held(Held &&) = delete;
    Held &operator=(Held &&) = delete;
    ~Held() { reset(); }
    [[nodiscard]] int get() const { return fd_; }
    void reset(int fd = -1) {
        if (fd_ >= 0)
            close(fd_);
        fd_ = fd;
    }

  private:
    int fd_;
};

class StandIn {
  public:
    StandIn(const Command &command, const Doors &doors, const Patience &patience)
        : name_(command.path.substr(command.path.rfind('/') + 1)), path_(command.path),
          directory_of_doors_(doors.directory), patience_(patience) {
        if (doors.rank)
            own_door_ = doors.directory + '/' + node::door_name(*doors.rank);
    }

    int stand(const Command &command);

  private:
    // Nothing: to be tried again.
    std::optional<int> attempt(bool at_own);
    std::optional<int> attempt_at(const std::string &door);
    std::optional<int> begin(int socket);
    std::optional<int> follow(int socket);
    [[nodiscard]] bool can_begin_again(Input input);
    [[nodiscard]] int come_again(const GoesOn &saved);
    void begin_input_at(const std::vector<std::uint64_t> &read);
    bool forward(int socket);
    [[nodiscard]] int let_go_of_streams();
    [[nodiscard]] int take_streams_back();
    [[nodiscard]] int ending_signal() const;
    [[nodiscard]] int refused(const Refused &refusal) const;
    [[nodiscard]] int complain(std::string_view doing, std::string_view on, std::string_view why,
                               int exit_status = EXIT_FAILURE) const;
    [[nodiscard]] int complain_of(std::string_view doing, std::string_view on, int code) const {
        return complain(doing, on, std::strerror(code)); // NOLINT(concurrency-mt-unsafe): one thread
    }

    std::string name_;
    std::string path_;
    std::string directory_of_doors_;
    std::string own_door_; // empty: there is none
    Patience patience_;
    Run run_;
    std::string request_;            // the encoded Run
    std::optional<SentInput> input_; // of a command that may go on, through a pipe
    off_t input_begins_ = 0;         // in a file
    int directory_ = -1;
    int signals_ = -1;
    // Of a command that may go on after a checkpoint: standard input and output, while it runs.
    std::array<Held, 2> kept_{Held(-1), Held(-1)};
    bool goes_on_ = false;            // it had begun, before its step was saved
    std::vector<std::int32_t> again_; // signals that no step of an earlier connection has had
    int unsent_ = 0;                  // a signal that could not be sent yet
};

std::vector<std::int32_t> ignored_signals() {
    std::vector<std::int32_t> out;
    for (int number = 1; number < NSIG; ++number) {
        struct sigaction now{};
        if (sigaction(number, nullptr, &now) == 0 && now.sa_handler == SIG_IGN)
            out.push_back(number);
    }
    return out;
}

std::vector<node::Limit> limits() {
    std::vector<node::Limit> out;
    for (int resource = 0; resource < RLIM_NLIMITS; ++resource) {
        rlimit now{};
        if (getrlimit(static_cast<__rlimit_resource>(resource), &now) == 0)
            out.push_back({.resource = static_cast<std::uint32_t>(resource),
                           .soft = now.rlim_cur,
                           .hard = now.rlim_max});
    }
    return out;
}

std::uint32_t mask() {
    const mode_t now = umask(0);
    umask(now);
    return now;
}

// Empty where it has no name.
std::string directory_name() {
    char *const name = getcwd(nullptr, 0);
    std::string out(name == nullptr ? "" : name);
    std::free(name); // NOLINT(cppcoreguidelines-no-malloc): getcwd(3) has made it
    return out;
}

// A closed stream would be the next descriptor that is opened.
int open_closed_streams() {
    for (int stream = 0; stream <= STDERR_FILENO; ++stream)
        if (fcntl(stream, F_GETFD) < 0 && open("/dev/null", O_RDWR) != stream)
            return errno;
    return 0;
}

// Nothing: it is of a kind of which nobody can have a part again.
std::optional<Input> input_here() {
    struct stat about{};
    if (fstat(STDIN_FILENO, &about) != 0)
        return std::nullopt;
    if (S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 3)) // of /dev/null (null(4))
        return Input::nothing;
    if (S_ISREG(about.st_mode))
        return Input::file;
    if (!S_ISFIFO(about.st_mode))
        return std::nullopt;
    // There is nothing to be read, and nobody who could write it.
    pollfd input{.fd = STDIN_FILENO, .events = POLLIN, .revents = 0};
    return poll(&input, 1, 0) == 1 && input.revents == POLLHUP ? Input::nothing : Input::pipe;
}

// Whether an srun is one for which there is input of this kind, or none. One that leaves it to others takes
// nothing of it; how much it has taken of a file that it opens itself, nobody can have again.
bool takes_input(const Command &command, Input input) {
    switch (input_source(command)) {
    case InputSource::standard:
        return true;
    case InputSource::nothing:
        return input == Input::nothing;
    case InputSource::named:
        break;
    }
    return false;
}

// Its step can be saved while this process waits for it; 0: it cannot.
std::uint32_t number_by_chance() {
    std::uint32_t out = 0;
    if (getrandom(&out, sizeof(out), 0) != sizeof(out))
        return 0;
    return node::kLeastStandIn + (out % (node::kStandInsEnd - node::kLeastStandIn));
}

int end_as(int status) {
    if (WIFEXITED(status))
        return WEXITSTATUS(status);
    const int number = WTERMSIG(status);
    const rlimit no_core{.rlim_cur = 0, .rlim_max = 0};
    setrlimit(RLIMIT_CORE, &no_core);
    static_cast<void>(std::signal(number, SIG_DFL));
    sigset_t only;
    sigemptyset(&only);
    sigaddset(&only, number);
    kill(getpid(), number);
    sigprocmask(SIG_UNBLOCK, &only, nullptr);
    return kSignalBase + number; // one that does not end a process
}

// Waits for as long as it takes; a signal that stops and continues this process may interrupt poll(2).
void wait_for(std::vector<pollfd> fds, int timeout_ms = -1) {
    static_cast<void>(poll(fds.data(), fds.size(), timeout_ms));
}

int StandIn::complain(std::string_view doing, std::string_view on, std::string_view why,
                      int exit_status) const {
    std::string line =
        name_ + ": cannot " + std::string(doing) + ' ' + std::string(on) + ": " + std::string(why) + '\n';
    // In one piece; where nobody reads it, there is nobody to tell.
    static_cast<void>(write(STDERR_FILENO, line.data(), line.size()) > 0);
    return exit_status;
}

// That has come and is not ignored; 0: none. It is not read, so that it is still there for the command.
int StandIn::ending_signal() const {
    sigset_t pending;
    if (sigpending(&pending) != 0)
        return 0;
    const auto *const found = std::ranges::find_if(kEnding, [&](int number) {
        return sigismember(&pending, number) == 1 && !has(run_.ignored, number);
    });
    return found == kEnding.end() ? 0 : *found;
}

int StandIn::refused(const Refused &refusal) const {
    return complain(refusal.doing, refusal.on, refusal.why, refusal.exit_status);
}

int StandIn::stand(const Command &command) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr);
    if (const int code = open_closed_streams(); code != 0)
        return complain_of("open", "/dev/null", code);
    sigdelset(&all, SIGCHLD); // of processes that an earlier program of this process has started
    const Held signals(signalfd(-1, &all, SFD_CLOEXEC | SFD_NONBLOCK));
    if (signals.get() < 0)
        return complain_of("receive signals for", path_, errno);
    const Held directory(open(".", O_PATH | O_DIRECTORY | O_CLOEXEC));
    if (directory.get() < 0)
        return complain_of("open", "the working directory", errno);
    signals_ = signals.get();
    directory_ = directory.get();
    run_.path = path_;
    run_.ignored = ignored_signals();
    run_.program.arguments = command.arguments;
    run_.program.environment = command.environment;
    run_.program.directory = directory_name();
    run_.program.limits = limits();
    run_.program.mask = mask();
    const auto input = input_here();
    if (input && name_ == kGoesOn && takes_input(command, *input) && can_begin_again(*input)) {
        run_.number = number_by_chance();
        run_.input = *input;
        if (run_.number != 0 && *input == Input::pipe)
            input_.emplace();
    }
    request_ = node::encode(run_);
    for (int tries = 0; tries < patience_.attempts; ++tries) {
        if (const auto status = attempt(tries < patience_.at_own))
            return *status;
        wait_for({}, patience_.pause_ms);
        // One that goes on hears of its signals then.
        if (const int number = goes_on_ ? 0 : ending_signal(); number != 0)
            return end_as(number);
    }
    return complain("run", path_,
                    "nobody outside of the virtual node has taken it at " + directory_of_doors_ + " for " +
                        std::to_string(std::int64_t{patience_.attempts} * patience_.pause_ms / 1000) +
                        " seconds; run it again when the job is not being saved or begun");
}

// Where it is not so, the command has its input as it is.
bool StandIn::can_begin_again(Input input) {
    input_begins_ = input == Input::file ? lseek(STDIN_FILENO, 0, SEEK_CUR) : 0;
    return input_begins_ >= 0;
}

// At another rank's only where nobody is at its own: the command ends with that rank then.
std::optional<int> StandIn::attempt(bool at_own) {
    if (!own_door_.empty())
        if (const auto status = attempt_at(own_door_); status || at_own)
            return status;
    for (const auto &door : doors_in(directory_of_doors_))
        if (const auto status = attempt_at(door))
            return status;
    return std::nullopt;
}

// Leaves no connection behind where it is to be tried again: a checkpoint may come meanwhile.
std::optional<int> StandIn::attempt_at(const std::string &door) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    if (door.size() >= sizeof(address.sun_path))
        return complain_of("connect to", door, ENAMETOOLONG);
    door.copy(address.sun_path, door.size());
    const Held socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
    if (socket.get() < 0)
        return complain_of("make a socket for", door, errno);
    if (connect(socket.get(), reinterpret_cast<const sockaddr *>(&address), sizeof(address)) != 0) {
        const int code = errno;
        return has(kNobodyYet, code) ? std::nullopt : std::optional(complain_of("connect to", door, code));
    }
    return begin(socket.get());
}

std::optional<int> StandIn::begin(int socket) {
    node::widen(socket);
    int input = STDIN_FILENO;
    if (input_)
        if (input = input_->open(); input < 0)
            return complain_of("make a pipe for", path_, errno);
    const int code = node::send_packet(socket, request_, {input, STDOUT_FILENO, STDERR_FILENO, directory_});
    if (input_)
        close(input);
    if (has(kGone, code))
        return std::nullopt;
    if (code == EMSGSIZE)
        return complain("run", path_,
                        "its arguments and environment have " + std::to_string(request_.size()) +
                            " bytes; at most " + std::to_string(node::kPacketLimit) + " are taken");
    if (code != 0)
        return complain_of("ask for", path_, code);
    for (;;) {
        wait_for({{.fd = socket, .events = POLLIN, .revents = 0}});
        node::Packet packet;
        const auto received = node::receive_packet(socket, packet);
        if (received == node::Received::nothing)
            continue;
        if (received == node::Received::hung_up)
            return std::nullopt; // the command had not begun
        if (received == node::Received::failed)
            return complain("learn what becomes of", path_,
                            packet.refusal.empty() ? std::strerror(errno) : packet.refusal);
        if (node::decode<Again>(packet.bytes))
            return std::nullopt;
        if (const auto refusal = node::decode<Refused>(packet.bytes))
            return refused(*refusal);
        if (node::decode<Begun>(packet.bytes))
            return follow(socket);
        return complain("learn what becomes of", path_, "the answer is of no known type");
    }
}

// While the command holds the ends of pipes, nobody else shall: whoever reads or writes the other ends sees
// the command close them. Errors are still told here. A command that may go on after a checkpoint has its
// streams again then: until it has ended for good nobody sees them closed. 0, or errno.
int StandIn::let_go_of_streams() {
    const Held nothing(open("/dev/null", O_RDWR | O_CLOEXEC));
    for (int stream = 0; nothing.get() >= 0 && stream < STDERR_FILENO; ++stream) {
        auto &kept = kept_.at(static_cast<std::size_t>(stream));
        if (run_.number != 0)
            kept.reset(fcntl(stream, F_DUPFD_CLOEXEC, STDERR_FILENO + 1));
        if (run_.number != 0 && kept.get() < 0)
            return errno;
        dup2(nothing.get(), stream);
    }
    return nothing.get() >= 0 || run_.number == 0 ? 0 : errno;
}

// 0, or errno.
int StandIn::take_streams_back() {
    for (int stream = 0; stream < STDERR_FILENO; ++stream) {
        auto &kept = kept_.at(static_cast<std::size_t>(stream));
        if (dup2(kept.get(), stream) < 0)
            return errno;
        kept.reset();
    }
    return 0;
}

// From the command's beginning to its end; nothing: it is to be asked for again.
std::optional<int> StandIn::follow(int socket) {
    if (const int code = let_go_of_streams(); code != 0)
        return complain_of("keep the streams of", path_, code);
    bool wants_input = false; // its step has begun
    int kept_code = 0;        // of the last Kept: EAGAIN, it waits; any other, no more are taken
    for (bool takes_signals = true;;) {
        takes_signals = takes_signals && forward(socket);
        const bool signal_waits = takes_signals && unsent_ != 0;
        const bool writing = signal_waits || kept_code == EAGAIN;
        std::vector<pollfd> watched{
            {.fd = socket, .events = static_cast<short>(writing ? POLLIN | POLLOUT : POLLIN), .revents = 0},
            {.fd = takes_signals && !signal_waits ? signals_ : -1, .events = POLLIN, .revents = 0}};
        if (wants_input && kept_code == 0)
            watched.push_back(input_->wish(kept_.front().get()));
        wait_for(watched);
        if (wants_input && (kept_code == 0 || kept_code == EAGAIN)) {
            kept_code = 0;
            input_->work(kept_.front().get(), [&](std::uint64_t from) {
                kept_code = node::send_packet(socket, node::encode(Kept{.from = from}));
                return kept_code == 0;
            });
        }
        node::Packet packet;
        const auto received = node::receive_packet(socket, packet);
        if (received == node::Received::nothing)
            continue;
        if (received == node::Received::hung_up)
            return complain("learn the end of", path_,
                            "the connection out of the virtual node has ended; the wrapper, "
                            "singularity-task, which held it, is gone");
        if (received == node::Received::failed)
            return complain("learn the end of", path_,
                            packet.refusal.empty() ? std::strerror(errno) : packet.refusal);
        if (const auto refusal = node::decode<Refused>(packet.bytes))
            return refused(*refusal);
        if (const auto ended = node::decode<Ended>(packet.bytes))
            return end_as(ended->status);
        if (input_ && node::decode<StepBegun>(packet.bytes))
            wants_input = true;
        const auto saved = node::decode<GoesOn>(packet.bytes);
        if (run_.number == 0 || !saved)
            continue;
        if (const int code = come_again(*saved); code != 0)
            return complain_of("give its streams back to", path_, code);
        return std::nullopt;
    }
}

// The stream begins where the first rank has to read on.
void StandIn::begin_input_at(const std::vector<std::uint64_t> &read) {
    const auto first = std::ranges::min_element(read);
    const auto begin = first == read.end() || *first == kReadsNone ? 0 : *first;
    run_.had = read;
    for (auto &one : run_.had)
        one = one == kReadsNone ? 0 : one - begin;
    // Where all read on at one place, it does not matter on which hosts they are then.
    if (std::ranges::all_of(run_.had, [](auto one) { return one == 0; }))
        run_.had.clear();
    if (input_)
        input_->begin_at(begin);
    input_begins_ += static_cast<off_t>(begin);
}

// 0, or errno.
int StandIn::come_again(const GoesOn &saved) {
    if (!saved.checkpoint.empty()) {
        run_.checkpoint = saved.checkpoint;
        begin_input_at(saved.read);
    } else if (input_) {
        input_->begin_at(0);
    }
    if (unsent_ != 0)
        again_.insert(again_.begin(), std::exchange(unsent_, 0));
    again_.insert(again_.begin(), saved.signals.begin(), saved.signals.end());
    request_ = node::encode(run_);
    goes_on_ = true;
    if (const int code = take_streams_back(); code != 0)
        return code;
    return run_.input == Input::file && lseek(STDIN_FILENO, input_begins_, SEEK_SET) < 0 ? errno : 0;
}

// All signals that are there, as far as the connection takes them. False: it takes none any more; the
// command's end may lie there to be read.
bool StandIn::forward(int socket) {
    for (;;) {
        if (unsent_ == 0 && !again_.empty()) {
            unsent_ = again_.front();
            again_.erase(again_.begin());
        }
        if (unsent_ == 0) {
            signalfd_siginfo signal{};
            if (read(signals_, &signal, sizeof(signal)) != sizeof(signal))
                return true;
            unsent_ = static_cast<int>(signal.ssi_signo);
        }
        const bool stop = has(kStopping, unsent_) && !has(run_.ignored, unsent_);
        const int code = node::send_packet(socket, node::encode(Signal{.number = stop ? SIGSTOP : unsent_}));
        if (code == EAGAIN)
            return true;
        if (code != 0)
            return false;
        unsent_ = 0;
        if (stop)
            static_cast<void>(raise(SIGSTOP)); // SIGCONT, though blocked, continues it, and is read here
    }
}

} // namespace

int stand_for(const Command &command, const Doors &doors, const Patience &patience) {
    return StandIn(command, doors, patience).stand(command);
}

} // namespace singularity::commands
