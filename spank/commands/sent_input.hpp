// SPDX-License-Identifier: GPL-2.0-or-later
// Input on its way from a stand-in to its command, through a pipe. What the command's step has not read when
// it is saved is sent again: the stand-in keeps the last of what it has sent, more than can be under way in
// srun, in slurmstepd and in what connects them. Nothing but the C and C++ libraries.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include <poll.h>
#include <sys/types.h>

namespace singularity::commands {

// srun and slurmstepd hold 1 MiB each at most (STDIO_MAX_FREE_BUF messages), and Linux as much as tcp_wmem
// and tcp_rmem allow, 10 MiB. What is kept is checked against what was read, not believed to be enough.
inline constexpr std::size_t kInputKept = std::size_t{32} << 20U;

class SentInput {
  public:
    explicit SentInput(std::size_t kept = kInputKept) : least_(kept) {}
    SentInput(const SentInput &) = delete;
    SentInput &operator=(const SentInput &) = delete;
    SentInput(SentInput &&) = delete;
    SentInput &operator=(SentInput &&) = delete;
    ~SentInput();

    // A new pipe for a command. Its end for reading, the caller's; -1: errno says why.
    [[nodiscard]] int open();
    // What poll(2) has to wait for, when `from`, a pipe, is what is read.
    [[nodiscard]] pollfd wish(int from) const;
    // All that can be done without waiting. before: told what will be the first byte that is kept; where it
    // returns false nothing is read for now.
    void work(int from, const std::function<bool(std::uint64_t first)> &before);

    // The command has ended. The next stream begins with this byte of the last one, or with the first that is
    // kept.
    void begin_at(std::uint64_t byte);

  private:
    [[nodiscard]] bool all_sent() const { return next_ - first_ == kept_.size(); }
    [[nodiscard]] ssize_t take(int from, char *to, std::size_t size);
    void read_more(int from, const std::function<bool(std::uint64_t first)> &before);
    void close();

    std::size_t least_;
    int to_ = -1;
    std::array<int, 2> through_{-1, -1}; // a pipe of its own
    std::string kept_;
    std::uint64_t first_ = 0; // byte of the stream: of what is kept
    std::uint64_t next_ = 0;  // to be sent
    bool ended_ = false;      // nothing more comes
};

} // namespace singularity::commands
