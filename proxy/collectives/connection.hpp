// SPDX-License-Identifier: GPL-2.0-or-later
// The one connection between two processes: what members write goes out behind each other, what comes in goes
// to where it belongs. A reader thread and a writer thread; nobody else waits.
#pragma once

#include "frames.hpp"
#include "group.hpp"
#include "socket.hpp"

#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>

namespace singularity::collectives {

// Who gets what arrives; from the reader's thread.
class Receiver {
  public:
    Receiver() = default;
    Receiver(const Receiver &) = delete;
    Receiver &operator=(const Receiver &) = delete;
    Receiver(Receiver &&) = delete;
    Receiver &operator=(Receiver &&) = delete;
    virtual ~Receiver() = default;
    virtual void here(const ProcessId &from, Instance instance) = 0;
    virtual void area(const ProcessId &from, Instance instance, std::uint32_t rank, UniqueFd memory) = 0;
    // Where what the rank writes is kept: it is the process's, and distant. Without an area there is none, or
    // no more. The group comes later: a peer may be ready before this process is.
    struct Kept {
        std::shared_ptr<Area> area;
        std::shared_ptr<Group> group;
    };
    [[nodiscard]] virtual Kept kept(const ProcessId &from, Instance instance, std::uint32_t rank) = 0;
    virtual void failed(const ProcessId &from, Instance instance, const std::string &text) = 0;
    // The last call.
    virtual void lost(const ProcessId &from, const std::string &why) = 0;
};

class Connection final : public Outlet {
  public:
    // distant: another host, which may go without a word.
    Connection(Socket socket, const ProcessId &peer, bool distant, Receiver &receiver)
        : socket_(std::move(socket)), peer_(peer), distant_(distant), receiver_(receiver) {}

    void write(Instance instance, std::uint32_t rank, const std::shared_ptr<Area> &area, std::size_t at,
               std::size_t size) override;
    void count(Instance instance, std::uint32_t rank, std::uint32_t counter, std::uint64_t value) override;
    void say_here(Instance instance);
    void show_area(Instance instance, std::uint32_t rank, const std::shared_ptr<Area> &area);
    void say_failed(Instance instance, std::string text);

    // Threads' functions. They return when the connection is closed or lost.
    void read();
    void write_out();
    // After what has been said; `at_once`: without it.
    void close(bool at_once);

  private:
    struct Frame {
        FrameHead head;
        std::shared_ptr<Area> area; // the one that is shown, or whose data follows
        std::string text;           // or what follows instead
    };
    void put(Frame frame);
    [[nodiscard]] Expected<void> receive(std::span<std::byte> bytes, UniqueFd *descriptor = nullptr);
    [[nodiscard]] Expected<void> read_one();
    [[nodiscard]] Expected<void> read_data(const FrameHead &head);
    [[nodiscard]] Expected<void> take_count(const FrameHead &head);
    [[nodiscard]] Expected<void> skip(std::uint64_t size);
    [[nodiscard]] Expected<void> send(std::deque<Frame> &frames);

    Socket socket_;
    ProcessId peer_;
    bool distant_;
    Receiver &receiver_;
    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<Frame> queue_;
    bool closing_ = false;
};

} // namespace singularity::collectives
