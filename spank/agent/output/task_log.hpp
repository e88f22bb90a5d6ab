// SPDX-License-Identifier: GPL-2.0-or-later
// The output of a detached task or of a device proxy, from its pipe into a file. Either into two files of
// limited size: the newest output is never lost. Or, for who reads all of it, into a spool: when it is full
// the task waits. Where the user has no more room (kept_output.hpp), both are small.
#pragma once

#include "common/error.hpp"
#include "common/unique_fd.hpp"
#include "spool.hpp"

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string_view>

namespace singularity::agent {

class TaskLog {
  public:
    enum class Keep : std::uint8_t { newest, newest_of_proxy, unread };
    // Appends to what is there, of which only the end stays if the user has too much. The pipe becomes the
    // log's. It does not wait (O_NONBLOCK).
    [[nodiscard]] static Expected<TaskLog> open(std::filesystem::path path, UniqueFd pipe, Keep keep,
                                                std::uint32_t uid);
    // Removes the files of one that nobody asks for any more.
    [[nodiscard]] static Expected<void> remove(const std::filesystem::path &path);
    [[nodiscard]] static std::filesystem::path older(const std::filesystem::path &path) {
        return path.native() + ".old";
    }

    // -1 when everybody who could write has ended, and while it is full.
    [[nodiscard]] int fd() const { return full() ? -1 : pipe_.get(); }
    // Nothing is in the pipe, and more may never come.
    [[nodiscard]] bool drained() const;
    // With Keep::unread.
    [[nodiscard]] std::optional<Spool> &spool() { return spool_; }
    // Takes what the pipe holds now, a bounded part of it if there is much.
    [[nodiscard]] Expected<void> drain();

  private:
    // State directories lie in memory.
    static constexpr std::uint64_t kFileLimit = std::uint64_t{4} << 20;
    static constexpr std::uint64_t kProxyFileLimit = std::uint64_t{64} << 10;

    TaskLog(std::filesystem::path path, UniqueFd file, std::uint64_t limit, UniqueFd pipe, std::uint32_t uid)
        : path_(std::move(path)), file_(std::move(file)), limit_(limit), pipe_(std::move(pipe)), kept_(uid) {}
    TaskLog(Spool spool, UniqueFd pipe) : pipe_(std::move(pipe)), spool_(std::move(spool)) {}
    [[nodiscard]] bool full() const { return spool_ && room(*spool_) == 0; }
    [[nodiscard]] std::uint64_t room(const Spool &spool) const;
    [[nodiscard]] Expected<void> find_sizes();
    [[nodiscard]] Expected<void> shrink();
    [[nodiscard]] Expected<void> keep(std::string_view text);
    [[nodiscard]] Expected<void> begin_file();
    [[nodiscard]] Expected<void> shorten_older();
    [[nodiscard]] Expected<void> drop_older();
    [[nodiscard]] Expected<void> write_all(std::string_view text);
    void set_kept() { kept_.set(older_size_ + size_); }

    std::filesystem::path path_;
    UniqueFd file_;
    std::uint64_t size_ = 0;
    std::uint64_t older_size_ = 0;
    std::uint64_t limit_ = kFileLimit; // of the file, of which there are two, or of the spool
    UniqueFd pipe_;
    KeptOutput kept_; // of the two files
    bool told_ = false;
    std::optional<Spool> spool_;
};

// A description of our own of a pipe that a user's process has lent, for TaskLog. Whoever else holds the lent
// one may empty it between poll(2) and read(2), which must not wait then. Nothing but a pipe is taken: behind
// any other file may be a file system of the user's own, which answers when it likes.
[[nodiscard]] Expected<UniqueFd> open_lent_pipe(int lent);

} // namespace singularity::agent
