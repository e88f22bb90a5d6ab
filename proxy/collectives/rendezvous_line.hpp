// SPDX-License-Identifier: GPL-2.0-or-later
// The connection to the rendezvous: made in the background when it is needed first, and again after it was
// lost.
#pragma once

#include "frames.hpp"
#include "proof.hpp"
#include "socket.hpp"
#include "threads.hpp"

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

namespace singularity::collectives {

class RendezvousLine {
  public:
    class Listener {
      public:
        Listener() = default;
        Listener(const Listener &) = delete;
        Listener &operator=(const Listener &) = delete;
        Listener(Listener &&) = delete;
        Listener &operator=(Listener &&) = delete;
        virtual ~Listener() = default;
        // owners: for each rank an index into processes; checked.
        virtual void complete(const CompleteReply &reply, std::span<const std::uint32_t> owners,
                              std::span<const ProcessInfo> processes) = 0;
        virtual void refused(std::uint64_t ticket, const std::string &text) = 0;
        virtual void rendezvous_lost(const std::string &why) = 0;
    };

    RendezvousLine(Address address, const JobKey &key, const ProcessInfo &me, Listener &listener)
        : address_(std::move(address)), key_(key), me_(me), listener_(listener) {}
    RendezvousLine(const RendezvousLine &) = delete;
    RendezvousLine &operator=(const RendezvousLine &) = delete;
    RendezvousLine(RendezvousLine &&) = delete;
    RendezvousLine &operator=(RendezvousLine &&) = delete;
    ~RendezvousLine();

    // Return at once.
    void join(const JoinRequest &request) { say(Word::join, request); }
    void forget(std::uint64_t ticket) { say(Word::forget, {.ticket = ticket}); }

  private:
    void say(Word word, const JoinRequest &request);
    void run();
    [[nodiscard]] Expected<Socket> connect();
    [[nodiscard]] Expected<void> hear();
    [[nodiscard]] Expected<void> send_all();

    Address address_;
    JobKey key_;
    ProcessInfo me_;
    Listener &listener_;
    std::mutex lock_;
    bool stopping_ = false;
    bool running_ = false;
    bool connected_ = false;
    Socket socket_;
    std::vector<std::pair<Word, JoinRequest>> to_say_;
    Threads threads_;
};

} // namespace singularity::collectives
