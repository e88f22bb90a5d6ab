// SPDX-License-Identifier: GPL-2.0-or-later
#include "streams.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace singularity::spank {

namespace {

Expected<UniqueFd> copy_of(int stream) {
    UniqueFd fd(fcntl(stream, F_DUPFD_CLOEXEC, 3));
    if (!fd && errno == EBADF) // closed: as a shell's <&- or >&-
        return open_file("/dev/null", O_RDWR);
    if (!fd)
        return std::unexpected(errno_error("copy", "a standard stream"));
    return fd;
}

} // namespace

node::WindowSize window_size() {
    winsize size{};
    ioctl(STDIN_FILENO, TIOCGWINSZ, &size);
    return {.rows = size.ws_row, .columns = size.ws_col};
}

// The program's terminal gets the size of ours, if we have one.
void pass_window_size(const UniqueFd &terminal) {
    const auto window = window_size();
    const winsize size{.ws_row = window.rows, .ws_col = window.columns, .ws_xpixel = 0, .ws_ypixel = 0};
    if (terminal && window.rows != 0)
        ioctl(terminal.get(), TIOCSWINSZ, &size);
}

RawTerminal::RawTerminal() {
    if (tcgetattr(STDIN_FILENO, &before_) != 0)
        return;
    termios raw = before_;
    cfmakeraw(&raw);
    changed_ = tcsetattr(STDIN_FILENO, TCSADRAIN, &raw) == 0;
}

RawTerminal::~RawTerminal() {
    if (changed_)
        tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
}

Expected<void> Pipes::add(int stream) {
    std::array<int, 2> ends{};
    if (pipe2(ends.data(), O_CLOEXEC) != 0)
        return std::unexpected(errno_error("make", "a pipe"));
    UniqueFd reading(ends[0]);
    UniqueFd writing(ends[1]);
    auto own = copy_of(stream);
    if (!own)
        return propagate(own);
    const bool input = stream == STDIN_FILENO;
    inner.at(static_cast<std::size_t>(stream)) = std::move(input ? reading : writing);
    struct stat about{};
    if (input) {
        const bool empty =
            fstat(own->get(), &about) == 0 && S_ISCHR(about.st_mode) && about.st_rdev == makedev(1, 3);
        pumps.emplace_back(std::move(*own), std::move(writing));
        if (empty) // /dev/null (null(4)): the program sees at once that nothing comes
            pumps.back().close();
    } else
        pumps.emplace_back(std::move(reading), std::move(*own));
    return {};
}

Expected<Pipes> Pipes::make() {
    Pipes out;
    for (const int stream : {STDIN_FILENO, STDOUT_FILENO})
        if (auto added = out.add(stream); !added)
            return propagate(added);
    struct stat output{};
    struct stat errors{};
    if (fstat(STDOUT_FILENO, &output) == 0 && fstat(STDERR_FILENO, &errors) == 0 &&
        output.st_dev == errors.st_dev && output.st_ino == errors.st_ino) {
        out.inner[2] = UniqueFd(fcntl(out.inner[1].get(), F_DUPFD_CLOEXEC, 3));
        return out;
    }
    if (auto added = out.add(STDERR_FILENO); !added)
        return propagate(added);
    return out;
}

Expected<void> Pipes::add_terminal(const UniqueFd &terminal) {
    for (const bool input : {true, false}) {
        auto own = copy_of(input ? STDIN_FILENO : STDOUT_FILENO);
        UniqueFd other(fcntl(terminal.get(), F_DUPFD_CLOEXEC, 3));
        if (!own || !other)
            return own ? Expected<void>(std::unexpected(errno_error("copy", "a terminal"))) : propagate(own);
        if (input)
            pumps.emplace_back(std::move(*own), std::move(other));
        else
            pumps.emplace_back(std::move(other), std::move(*own));
    }
    return {};
}

std::vector<int> Pipes::given() const {
    std::vector<int> out;
    for (const auto &one : inner)
        if (one)
            out.push_back(one.get());
    return out;
}

void Pipes::have_been_given() {
    for (auto &one : inner)
        one.reset();
}

Expected<void> Pipes::deliver() {
    return deliver_until([](const Pump &pump) { return pump.done(); });
}

Expected<void> Pipes::deliver_what_there_is() {
    for (auto &pump : pumps)
        pump.read_no_more_than_there_is();
    return deliver_until([](const Pump &pump) { return pump.idle(); });
}

Expected<void> Pipes::deliver_until(bool (*enough)(const Pump &)) {
    if (pumps.empty())
        return {};
    pumps.front().close(); // input
    for (std::vector<pollfd> none; !std::ranges::all_of(pumps, enough);)
        if (!pump_and_poll(pumps, none, -1))
            return std::unexpected(errno_error("deliver", "the program's output"));
    return {};
}

} // namespace singularity::spank
