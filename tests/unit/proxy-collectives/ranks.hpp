// SPDX-License-Identifier: GPL-2.0-or-later
// Ranks of one communicator in this process: as members of one engine, or each with an engine of its own,
// which is what a process is to the others.
#pragma once

#include "cmocka.hpp"
#include "device.hpp"
#include "need.hpp"
#include "proxy/collectives/engine.hpp"
#include "proxy/collectives/rendezvous.hpp"

#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

namespace singularity::test {

enum class Placement : std::uint8_t {
    one_process,
    one_device, // of one process
    one_host,   // a process for each
    hosts,      // a host for each
    mixed,      // two hosts with two processes each
    linked,     // on two hosts, a process and a device for each
};
inline constexpr std::array kPlacements{Placement::one_process, Placement::one_device, Placement::one_host,
                                        Placement::hosts,       Placement::mixed,      Placement::linked};
[[nodiscard]] std::string name_of(Placement placement);

// A rendezvous and a key, as an agent would have them.
class Job {
  public:
    Job();
    [[nodiscard]] std::shared_ptr<collectives::Engine> engine(const std::string &host,
                                                              bool links = false) const;
    [[nodiscard]] const collectives::EngineOptions &options() const { return options_; }

  private:
    std::unique_ptr<collectives::Rendezvous> rendezvous_;
    collectives::EngineOptions options_;
};

class Ranks {
  public:
    // All are ready.
    Ranks(const Job &job, std::uint32_t size, Placement placement);
    // In one process, each on a device; nullptr: on none.
    Ranks(const Job &job, const std::vector<std::shared_ptr<FakeDevice>> &devices);
    // On two hosts, each in a process and with a link of its own.
    Ranks(const Job &job, const std::vector<std::shared_ptr<TestLink>> &links);
    Ranks(const Ranks &) = delete;
    Ranks &operator=(const Ranks &) = delete;
    Ranks(Ranks &&) = delete;
    Ranks &operator=(Ranks &&) = delete;
    ~Ranks();

    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(members_.size()); }
    [[nodiscard]] collectives::Member &member(std::uint32_t rank) { return *members_[rank]; }
    // That they share; nullptr: another placement.
    [[nodiscard]] FakeDevice *device() { return devices_.front().get(); }
    [[nodiscard]] FakeDevice &device(std::uint32_t rank) { return *devices_[rank]; }
    // A group for each rank, by rank; returns when all are complete.
    void carry_out(const std::vector<std::vector<protocol::CollectiveOperation>> &groups);
    // As that group each gives its number, and gets those of all.
    void exchange(std::uint64_t group);
    // Its number. Returns at once.
    std::uint64_t issue(std::uint32_t rank, std::vector<protocol::CollectiveOperation> operations);
    // Their threads end, and others go on with other movers.
    void begin_again();
    // Its process goes without a word.
    void lose_engine(std::uint32_t rank);
    // All of them, in order; returns when they have.
    void leave();

  private:
    void join(const Job &job, Placement placement);
    void start(std::uint32_t rank);

    std::vector<std::shared_ptr<FakeDevice>> devices_;          // by rank
    std::vector<std::shared_ptr<TestLink>> links_;              // by rank
    std::vector<std::shared_ptr<collectives::Engine>> engines_; // by rank
    std::vector<std::shared_ptr<collectives::Member>> members_;
    std::vector<std::thread> threads_;
};

[[nodiscard]] inline Deadline soon() { return Deadline::after(std::chrono::seconds(30)); }

} // namespace singularity::test
