// SPDX-License-Identifier: GPL-2.0-or-later
// The inside of an engine: members that wait for others, communicators whose members have come, connections
// to other processes.
#pragma once

#include "connection.hpp"
#include "early.hpp"
#include "frames.hpp"
#include "group.hpp"
#include "matcher.hpp"
#include "proof.hpp"
#include "proxy/collectives/engine_options.hpp"
#include "proxy/collectives/member.hpp"
#include "rendezvous_line.hpp"
#include "socket.hpp"
#include "threads.hpp"
#include "unproved.hpp"

#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace singularity::collectives {

class Core final : public Receiver, public RendezvousLine::Listener {
  public:
    explicit Core(EngineOptions options) : options_(std::move(options)) {}
    Core(const Core &) = delete;
    Core &operator=(const Core &) = delete;
    Core(Core &&) = delete;
    Core &operator=(Core &&) = delete;
    ~Core() override;
    [[nodiscard]] Expected<void> start();

    [[nodiscard]] Expected<std::shared_ptr<Member>> join(const MemberPlace &place, MemberEvents events);
    void forget(const Member &member);

    // --- from the rendezvous
    void complete(const CompleteReply &reply, std::span<const std::uint32_t> owners,
                  std::span<const ProcessInfo> processes) override;
    void refused(std::uint64_t ticket, const std::string &text) override;
    void rendezvous_lost(const std::string &why) override;

    // --- from connections
    void here(const ProcessId &from, Instance instance) override;
    void area(const ProcessId &from, Instance instance, std::uint32_t rank, UniqueFd memory) override;
    [[nodiscard]] Kept kept(const ProcessId &from, Instance instance, std::uint32_t rank) override;
    void failed(const ProcessId &from, Instance instance, const std::string &text) override;
    void lost(const ProcessId &from, const std::string &why) override;

  private:
    // A communicator whose members have joined.
    struct Record {
        Instance instance = 0;
        Shape shape;
        std::vector<ProcessId> owners;                // by rank
        std::map<ProcessId, ProcessInfo> others;      // processes
        std::vector<Group::Place> places;             // by rank
        std::set<ProcessId> missing;                  // that do not know it yet
        std::set<std::uint32_t> missing_areas;        // of ranks beside
        std::vector<std::shared_ptr<Member>> members; // here, until it is ready
        std::vector<std::shared_ptr<Area>> distant;   // by rank; nullptr: it is not
        std::weak_ptr<Group> group;
        bool ready = false; // it has had a group
        bool over = false;  // failed before it was ready: processes that connect later are told
        std::string why;
        std::optional<Deadline> told_until;
    };
    // With the lock held, all of these.
    [[nodiscard]] bool beside(const ProcessInfo &process) const;
    [[nodiscard]] Expected<void> begin(Record &record, std::span<const std::shared_ptr<Member>> members);
    void reach(const ProcessInfo &process);
    void introduce(Record &record, const ProcessId &process);
    void take_early(Record &record);
    void take_area(Record &record, const ProcessId &from, std::uint32_t rank, UniqueFd memory);
    [[nodiscard]] static std::shared_ptr<Device> device_of(const Record &record);
    [[nodiscard]] bool may_link(const Record &record) const;
    void finish(Record &record);
    void fail(Record &record, const Failure &failure, bool tell);
    void tell_others(const Record &record, const std::string &text);
    void prune();

    void tell_failed(Instance instance, const std::string &text);
    void listen();
    void greet(Socket socket, bool distant);
    void call(const ProcessInfo &process);
    void adopt(Socket socket, const ProcessId &process, bool distant);
    void watch(Instance instance);

    EngineOptions options_;
    ProcessInfo me_;
    UniqueFd stop_;
    std::vector<ListeningSocket> listeners_;
    std::unique_ptr<RendezvousLine> line_;

    Unproved unproved_;

    std::mutex lock_;
    std::condition_variable changed_;
    bool stopping_ = false;
    std::uint64_t next_ticket_ = 1;
    std::map<std::uint64_t, std::shared_ptr<Member>> joining_; // by ticket
    Matcher matcher_{1};                                       // without a rendezvous
    std::map<Instance, Record> records_;
    std::map<ProcessId, std::shared_ptr<Connection>> connections_;
    std::set<ProcessId> calling_;
    Early early_;
    Threads threads_;
};

} // namespace singularity::collectives
