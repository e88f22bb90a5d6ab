// SPDX-License-Identifier: GPL-2.0-or-later
#include "ranks.hpp"

#include <atomic>

#include <fmt/format.h>

namespace singularity::test {

namespace {

std::string host_of(Placement placement, std::uint32_t rank) {
    switch (placement) {
    case Placement::one_host:
        return "host";
    case Placement::hosts:
        return fmt::format("host{}", rank);
    default:
        return fmt::format("host{}", rank % 2);
    }
}

collectives::Key fresh_key() {
    static std::atomic<std::uint64_t> next = 1;
    return {next++, 2};
}

} // namespace

std::string name_of(Placement placement) {
    static constexpr const char *kNames[] = {"one process", "one device", "one host",
                                             "a host each", "two hosts",  "linked devices"};
    return kNames[static_cast<std::size_t>(placement)];
}

Job::Job() {
    options_.key = need(collectives::make_job_key());
    rendezvous_ = need(collectives::Rendezvous::start("unix:@", options_.key));
    options_.rendezvous = rendezvous_->address();
    options_.address = "tcp:127.0.0.1:0";
}

std::shared_ptr<collectives::Engine> Job::engine(const std::string &host, bool links) const {
    auto options = options_;
    options.links = links;
    options.host = host;
    return need(collectives::Engine::start(options));
}

Ranks::Ranks(const Job &job, std::uint32_t size, Placement placement)
    : devices_(size, placement == Placement::one_device ? std::make_shared<FakeDevice>() : nullptr),
      links_(size) {
    if (placement == Placement::linked)
        for (std::uint32_t rank = 0; rank < size; ++rank) {
            devices_[rank] = std::make_shared<FakeDevice>();
            links_[rank] = std::make_shared<TestLink>(rank);
        }
    join(job, placement);
}

Ranks::Ranks(const Job &job, const std::vector<std::shared_ptr<FakeDevice>> &devices)
    : devices_(devices), links_(devices.size()) {
    join(job, Placement::one_process);
}

Ranks::Ranks(const Job &job, const std::vector<std::shared_ptr<TestLink>> &links) : links_(links) {
    for (std::size_t rank = 0; rank < links.size(); ++rank)
        devices_.push_back(std::make_shared<FakeDevice>());
    join(job, Placement::linked);
}

void Ranks::join(const Job &job, Placement placement) {
    const auto key = fresh_key();
    const auto size = static_cast<std::uint32_t>(devices_.size());
    for (std::uint32_t rank = 0; rank < size; ++rank) {
        if (placement == Placement::one_process || placement == Placement::one_device)
            engines_.push_back(rank == 0 ? need(collectives::Engine::start({})) : engines_[0]);
        else if (placement == Placement::mixed && rank >= 4)
            engines_.push_back(engines_[rank % 4]);
        else
            engines_.push_back(job.engine(host_of(placement, rank), placement == Placement::linked));
        members_.push_back(need(engines_[rank]->join(
            {.key = key, .rank = rank, .size = size, .completed = 0, .device = devices_[rank]}, {})));
        start(rank);
    }
    for (const auto &member : members_)
        if (const auto state = member->wait(0, soon()); state.phase != protocol::CommunicatorPhase::ready)
            fail(fmt::format("{}: rank {} of {} is not ready: {}", name_of(placement), member->place().rank,
                             size, state.failure.text));
}

void Ranks::start(std::uint32_t rank) {
    threads_.emplace_back([member = members_[rank], device = devices_[rank], link = links_[rank]] {
        collectives::HostMover simple;
        DelayedMover delayed(device, link);
        member->run(device == nullptr ? static_cast<collectives::Mover &>(simple) : delayed);
    });
}

void Ranks::begin_again() {
    for (const auto &member : members_)
        member->suspend();
    for (auto &thread : threads_)
        thread.join();
    threads_.clear();
    for (std::uint32_t rank = 0; rank < size(); ++rank)
        start(rank);
}

void Ranks::leave() {
    for (const auto &member : members_)
        member->leave();
    for (auto &thread : threads_)
        thread.join();
    threads_.clear();
}

Ranks::~Ranks() { leave(); }

std::uint64_t Ranks::issue(std::uint32_t rank, std::vector<protocol::CollectiveOperation> operations) {
    auto &one = member(rank);
    if (!one.issue(std::move(operations)))
        fail(fmt::format("rank {} takes nothing any more", rank));
    const auto group = one.state().issued;
    one.begin(group);
    return group;
}

void Ranks::carry_out(const std::vector<std::vector<protocol::CollectiveOperation>> &groups) {
    std::vector<std::uint64_t> numbers;
    for (std::uint32_t rank = 0; rank < size(); ++rank)
        numbers.push_back(issue(rank, groups[rank]));
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
        const auto state = member(rank).wait(numbers[rank], soon());
        if (state.phase != protocol::CommunicatorPhase::ready || state.completed < numbers[rank])
            fail(fmt::format("rank {} of {} does not complete group {}: {}", rank, size(), numbers[rank],
                             state.failure.text));
    }
}

void Ranks::exchange(std::uint64_t group) {
    std::vector<std::shared_ptr<collectives::Member::Exchange>> exchanges;
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
        const auto mine = std::byte(rank + 1);
        exchanges.push_back(need(member(rank).exchange(group, std::span(&mine, 1))));
    }
    for (std::uint32_t rank = 0; rank < size(); ++rank) {
        assert_true(member(rank).finish(*exchanges[rank], soon()).has_value());
        for (std::uint32_t from = 0; from < size(); ++from)
            assert_int_equal(std::to_integer<unsigned>(exchanges[rank]->all[from]), from + 1);
    }
}

void Ranks::lose_engine(std::uint32_t rank) {
    member(rank).abort("is killed by the test");
    engines_[rank].reset();
}

} // namespace singularity::test
