// SPDX-License-Identifier: GPL-2.0-or-later
#include "core.hpp"

#include "log.hpp"

#include <algorithm>
#include <array>
#include <utility>

#include <fmt/format.h>
#include <sys/eventfd.h>
#include <sys/random.h>
#include <unistd.h>

namespace singularity::collectives {

namespace {

// From the moment when all have joined until all processes know each other.
constexpr std::chrono::seconds kToMeet{30};
constexpr std::chrono::seconds kToSayLast{1};

Failure loss_of(const ProcessInfo &process, const std::string &why) {
    return {.remote = true,
            .text =
                fmt::format("the process on {} that has its rank is lost: {}", text_in(process.host), why)};
}

} // namespace

Expected<void> Core::start() {
    if (options_.rendezvous.empty())
        return {};
    auto rendezvous = Address::parse(options_.rendezvous);
    if (!rendezvous)
        return propagate(rendezvous);
    if (getrandom(me_.id.data(), sizeof(me_.id), 0) != sizeof(me_.id))
        return std::unexpected(errno_error("make", "random bytes"));
    if (options_.host.empty()) {
        std::array<char, 256> name{};
        if (gethostname(name.data(), name.size() - 1) != 0)
            return std::unexpected(errno_error("ask for", "the host's name"));
        options_.host = name.data();
    }
    me_.links = options_.links ? 1 : 0;
    stop_ = UniqueFd(eventfd(0, EFD_CLOEXEC));
    if (!stop_)
        return std::unexpected(errno_error("make", "an event"));
    std::vector<Address> wanted{{.unix_socket = true, .host = "@", .port = {}}};
    if (!options_.address.empty()) {
        auto address = Address::parse(options_.address);
        if (!address)
            return propagate(address);
        if (address->unix_socket)
            return failure("use", options_.address, "other hosts need tcp:HOST:PORT", EINVAL);
        wanted.push_back(*address);
    }
    for (const auto &address : wanted) {
        auto listener = ListeningSocket::open(address);
        if (!listener)
            return propagate(listener);
        listeners_.push_back(std::move(*listener));
    }
    if (!put_text(me_.host, options_.host) || !put_text(me_.beside, listeners_.front().address().text()) ||
        (listeners_.size() > 1 && !put_text(me_.distant, listeners_.back().address().text())))
        return failure("use", options_.host, "a name or an address is too long", ENAMETOOLONG);
    line_ = std::make_unique<RendezvousLine>(*rendezvous, options_.key, me_, *this);
    threads_.start([this] { listen(); });
    return {};
}

Core::~Core() {
    line_.reset();
    std::vector<std::shared_ptr<Connection>> connections;
    {
        std::unique_lock lock(lock_);
        stopping_ = true;
        for (const auto &[process, connection] : connections_) {
            connection->close(false);
            connections.push_back(connection);
        }
        changed_.notify_all();
        changed_.wait_for(lock, kToSayLast, [this] { return connections_.empty(); });
    }
    for (const auto &connection : connections)
        connection->close(true);
    unproved_.end();
    if (stop_) {
        // Its counter has room.
        static_cast<void>(eventfd_write(stop_.get(), 1));
    }
    threads_.wait();
}

// --- members

Expected<std::shared_ptr<Member>> Core::join(const MemberPlace &place, MemberEvents events) {
    auto member = std::make_shared<Member>(place, std::move(events));
    const std::scoped_lock lock(lock_);
    const auto ticket = next_ticket_++;
    if (line_ != nullptr) {
        if (place.size == 0 || place.size > kMostMembers || place.rank >= place.size)
            return failure("join", fmt::format("a communicator as rank {} of {}", place.rank, place.size),
                           fmt::format("it has from 1 to {} ranks", kMostMembers), EINVAL);
        joining_.emplace(ticket, member);
        line_->join({.ticket = ticket, .key = place.key, .rank = place.rank, .size = place.size});
        return member;
    }
    auto joined = matcher_.join(place.key, place.rank, place.size, {.process = 0, .ticket = ticket});
    if (!joined)
        return propagate(joined);
    joining_.emplace(ticket, member);
    if (!*joined)
        return member;
    std::vector<std::shared_ptr<Member>> members;
    for (const auto &seat : (*joined)->seats)
        members.push_back(std::move(joining_.extract(seat.ticket).mapped()));
    prune();
    auto &record = records_[(*joined)->instance];
    record.instance = (*joined)->instance;
    record.owners.resize(members.size(), me_.id);
    if (auto begun = begin(record, members); !begun)
        fail(record, {.remote = false, .text = begun.error().message()}, false);
    return member;
}

void Core::forget(const Member &member) {
    const std::scoped_lock lock(lock_);
    const auto found =
        std::ranges::find_if(joining_, [&](const auto &entry) { return entry.second.get() == &member; });
    if (found == joining_.end())
        return;
    if (line_ != nullptr)
        line_->forget(found->first);
    else
        matcher_.forget(0, found->first);
    joining_.erase(found);
}

void Core::refused(std::uint64_t ticket, const std::string &text) {
    const std::scoped_lock lock(lock_);
    if (const auto member = joining_.extract(ticket); !member.empty())
        member.mapped()->fail({.remote = false, .text = text});
}

void Core::rendezvous_lost(const std::string &why) {
    const std::scoped_lock lock(lock_);
    for (const auto &[ticket, member] : joining_)
        member->fail({.remote = true, .text = fmt::format("the job's rendezvous is lost: {}", why)});
    joining_.clear();
}

// --- communicators

bool Core::beside(const ProcessInfo &process) const { return text_in(process.host) == text_in(me_.host); }

void Core::complete(const CompleteReply &reply, std::span<const std::uint32_t> owners,
                    std::span<const ProcessInfo> processes) {
    const std::scoped_lock lock(lock_);
    std::vector<std::shared_ptr<Member>> members(owners.size());
    bool whole = true;
    for (std::uint32_t rank = 0; rank < owners.size(); ++rank) {
        if (processes[owners[rank]].id != me_.id)
            continue;
        const auto found = std::ranges::find_if(joining_, [&](const auto &entry) {
            const auto &place = entry.second->place();
            return place.key == reply.key && place.rank == rank && place.size == owners.size();
        });
        if (found == joining_.end()) {
            whole = false; // it was given up meanwhile
            continue;
        }
        members[rank] = std::move(found->second);
        joining_.erase(found);
    }
    prune();
    auto &record = records_[reply.instance];
    record.instance = reply.instance;
    for (const auto owner : owners) {
        record.owners.push_back(processes[owner].id);
        if (processes[owner].id != me_.id)
            record.others.emplace(processes[owner].id, processes[owner]);
    }
    for (const auto &[id, process] : record.others)
        reach(process);
    if (!whole)
        return fail(record, {.remote = true, .text = "a rank has left before all had come"}, true);
    if (auto begun = begin(record, members); !begun)
        return fail(record, {.remote = false, .text = begun.error().message()}, true);
    if (!record.members.empty() && !record.over)
        threads_.start([this, instance = reply.instance] { watch(instance); });
}

// members: by rank, nullptr where it is not here.
Expected<void> Core::begin(Record &record, std::span<const std::shared_ptr<Member>> members) {
    record.shape = Shape::of(static_cast<std::uint32_t>(members.size()));
    for (const auto &member : members)
        if (member != nullptr)
            record.members.push_back(member);
    for (std::uint32_t rank = 0; rank < members.size(); ++rank) {
        Group::Place place;
        const auto other = record.others.find(record.owners[rank]);
        if (other != record.others.end() && beside(other->second)) {
            place.where = Where::beside;
            record.missing_areas.insert(rank);
        } else {
            place.where = other == record.others.end() ? Where::here : Where::distant;
            auto made = Area::make(record.shape);
            if (!made)
                return propagate(made);
            place.area = std::move(*made);
        }
        record.distant.push_back(place.where == Where::distant ? place.area : nullptr);
        record.places.push_back(std::move(place));
    }
    for (const auto &[id, process] : record.others) {
        record.missing.insert(id);
        introduce(record, id);
    }
    take_early(record);
    finish(record);
    return {};
}

// Tells a process that the communicator is known here, if there is a connection already.
void Core::introduce(Record &record, const ProcessId &process) {
    const auto found = connections_.find(process);
    const auto info = record.others.find(process);
    if (found == connections_.end() || info == record.others.end() || record.places.empty())
        return;
    if (beside(info->second))
        for (std::uint32_t rank = 0; rank < record.places.size(); ++rank)
            if (record.places[rank].where == Where::here)
                found->second->show_area(record.instance, rank, record.places[rank].area);
    found->second->say_here(record.instance);
}

void Core::take_early(Record &record) {
    for (const auto &[id, process] : record.others) {
        auto said = early_.take(id, record.instance);
        for (auto &[rank, memory] : said.areas)
            take_area(record, id, rank, std::move(memory));
        if (said.here)
            record.missing.erase(id);
        if (said.failed)
            fail(record, {.remote = true, .text = *said.failed}, false);
        if (said.lost)
            fail(record, loss_of(process, *said.lost), true);
    }
}

void Core::take_area(Record &record, const ProcessId &from, std::uint32_t rank, UniqueFd memory) {
    if (rank >= record.places.size() || record.owners[rank] != from || !record.missing_areas.contains(rank))
        return;
    auto mapped = Area::map(record.shape, std::move(memory));
    if (!mapped)
        return fail(record, {.remote = true, .text = mapped.error().message()}, true);
    record.places[rank].area = std::move(*mapped);
    record.missing_areas.erase(rank);
}

// The device on which all members are; nullptr: there is none.
std::shared_ptr<Device> Core::device_of(const Record &record) {
    if (!record.others.empty())
        return nullptr;
    auto device = record.members.front()->place().device;
    const bool shared = std::ranges::all_of(
        record.members, [&](const auto &member) { return member->place().device == device; });
    return shared ? device : nullptr;
}

// A process has one device: two members of it cannot be linked.
bool Core::may_link(const Record &record) const {
    const std::set<ProcessId> processes(record.owners.begin(), record.owners.end());
    return options_.links && processes.size() > 1 && processes.size() == record.owners.size() &&
           std::ranges::all_of(record.others, [](const auto &other) { return other.second.links == 1; });
}

void Core::finish(Record &record) {
    if (record.over || !record.missing.empty() || !record.missing_areas.empty() || record.members.empty())
        return;
    for (std::uint32_t rank = 0; rank < record.places.size(); ++rank)
        if (record.places[rank].where == Where::distant) {
            const auto connection = connections_.find(record.owners[rank]);
            if (connection == connections_.end())
                return fail(record, {.remote = true, .text = "a connection was lost at once"}, true);
            record.places[rank].outlet = connection->second;
        }
    const auto group = std::make_shared<Group>(record.instance, std::move(record.places), device_of(record),
                                               may_link(record));
    group->on_failure(
        [this, instance = record.instance](const std::string &text) { tell_failed(instance, text); });
    record.group = group;
    record.ready = true;
    for (const auto &member : std::exchange(record.members, {}))
        member->ready(group);
    changed_.notify_all();
}

// A group that fails by itself tells through tell_failed(), which takes the lock.
void Core::fail(Record &record, const Failure &failure, bool tell) {
    if (const auto group = record.group.lock()) {
        if (group->failed())
            return;
        group->fail(failure, false);
    } else if (record.ready || std::exchange(record.over, true)) {
        return;
    } else {
        kLog.warning("a communicator of {} ranks does not come about: {}", record.owners.size(),
                     failure.text);
        for (const auto &member : std::exchange(record.members, {}))
            member->fail(failure);
        record.places.clear();
        record.distant.clear();
        record.why = failure.text;
        record.told_until = Deadline::after(kToMeet);
        changed_.notify_all();
    }
    if (tell)
        tell_others(record, failure.text);
}

void Core::tell_others(const Record &record, const std::string &text) {
    for (const auto &[id, process] : record.others)
        if (const auto found = connections_.find(id); found != connections_.end())
            found->second->say_failed(record.instance, text);
}

void Core::tell_failed(Instance instance, const std::string &text) {
    const std::scoped_lock lock(lock_);
    if (const auto record = records_.find(instance); record != records_.end())
        tell_others(record->second, text);
}

void Core::prune() {
    std::erase_if(records_, [](const auto &entry) {
        const auto &record = entry.second;
        if (record.over)
            return record.told_until->expired();
        return record.members.empty() && record.group.expired();
    });
}

void Core::watch(Instance instance) {
    const auto deadline = Deadline::after(kToMeet);
    std::unique_lock lock(lock_);
    const auto settled = [&] {
        const auto found = records_.find(instance);
        return stopping_ || found == records_.end() || found->second.over || found->second.members.empty();
    };
    if (changed_.wait_until(lock, deadline.when(), settled))
        return;
    auto &record = records_.at(instance);
    std::string whom;
    for (const auto &[id, process] : record.others)
        if (record.missing.contains(id))
            whom += fmt::format("{}{}", whom.empty() ? "" : ", ", text_in(process.host));
    fail(record,
         {.remote = true,
          .text = fmt::format("{} within {} s", timeout_error(deadline, "processes on " + whom).message(),
                              kToMeet.count())},
         true);
}

// --- what connections say

void Core::here(const ProcessId &from, Instance instance) {
    const std::scoped_lock lock(lock_);
    if (const auto found = records_.find(instance); found != records_.end()) {
        found->second.missing.erase(from);
        finish(found->second);
    } else {
        early_.here(from, instance);
    }
}

void Core::area(const ProcessId &from, Instance instance, std::uint32_t rank, UniqueFd memory) {
    const std::scoped_lock lock(lock_);
    const auto found = records_.find(instance);
    if (found == records_.end())
        return early_.area(from, instance, rank, std::move(memory));
    take_area(found->second, from, rank, std::move(memory));
    finish(found->second);
}

Receiver::Kept Core::kept(const ProcessId &from, Instance instance, std::uint32_t rank) {
    const std::scoped_lock lock(lock_);
    const auto found = records_.find(instance);
    if (found == records_.end())
        return {};
    auto &record = found->second;
    if (rank >= record.distant.size() || record.owners[rank] != from || record.over)
        return {};
    auto group = record.group.lock();
    if (record.ready && group == nullptr)
        record.distant.assign(record.distant.size(), nullptr); // everybody here has gone
    return {.area = record.distant[rank], .group = std::move(group)};
}

void Core::failed(const ProcessId &from, Instance instance, const std::string &text) {
    const std::scoped_lock lock(lock_);
    const auto found = records_.find(instance);
    if (found == records_.end())
        return early_.failed(from, instance, text);
    if (found->second.others.contains(from))
        fail(found->second, {.remote = true, .text = text}, false);
}

void Core::lost(const ProcessId &from, const std::string &why) {
    const std::scoped_lock lock(lock_);
    connections_.erase(from);
    calling_.erase(from);
    early_.lost(from, why);
    for (auto &[instance, record] : records_) {
        const auto other = record.others.find(from);
        if (other == record.others.end())
            continue;
        if (const auto group = record.group.lock()) {
            bool all_left = true;
            for (std::uint32_t rank = 0; rank < record.owners.size(); ++rank)
                all_left = all_left && (record.owners[rank] != from || group->read(rank, kLeft) != 0);
            if (all_left)
                continue;
        }
        fail(record, loss_of(other->second, why), true);
    }
    changed_.notify_all();
}

// --- connections

// Of two processes the one with the lower id calls. What has come of a call is known, in one step, when it is
// no longer calling: a communicator that begins in between would wait for a call that nobody makes.
void Core::reach(const ProcessInfo &process) {
    if (connections_.contains(process.id) || me_.id > process.id || !calling_.insert(process.id).second)
        return;
    threads_.start([this, process] { call(process); });
}

void Core::call(const ProcessInfo &process) {
    const auto deadline = Deadline::after(kToMeet / 3);
    const bool near = beside(process);
    const auto text = std::string(near ? text_in(process.beside) : text_in(process.distant));
    const auto connect = [&]() -> Expected<Socket> {
        if (text.empty())
            return failure("reach", fmt::format("a process on {}", text_in(process.host)),
                           "it was given no address for other hosts (--address)", EADDRNOTAVAIL);
        auto address = Address::parse(text);
        if (!address)
            return propagate(address);
        auto socket = Socket::connect(*address, deadline);
        if (!socket)
            return socket;
        if (auto proved = prove_as_caller(*socket, options_.key, Purpose::peers, deadline); !proved)
            return propagate(proved);
        if (auto sent = socket->send(std::as_bytes(std::span(me_.id)), deadline); !sent)
            return propagate(sent);
        return socket;
    };
    auto socket = connect();
    if (socket)
        adopt(std::move(*socket), process.id, !near);
    else
        lost(process.id, socket.error().message());
}

void Core::greet(Socket socket, bool distant) {
    const auto deadline = Deadline::after(kToMeet / 3);
    auto done = prove_as_listener(socket, options_.key, Purpose::peers, deadline);
    unproved_.remove(socket);
    ProcessId id{};
    if (done)
        done = socket.receive(std::as_writable_bytes(std::span(id)), deadline);
    if (!done) {
        if (done.error().code != ECONNRESET) // it has gone, or others needed its place
            kLog.warning("a connection is refused: {}", done.error().message());
        return;
    }
    adopt(std::move(socket), id, distant);
}

void Core::adopt(Socket socket, const ProcessId &process, bool distant) {
    const std::scoped_lock lock(lock_);
    calling_.erase(process);
    if (stopping_ || connections_.contains(process))
        return; // hangs up
    const auto connection = std::make_shared<Connection>(std::move(socket), process, distant, *this);
    connections_.emplace(process, connection);
    threads_.start([connection] { connection->read(); });
    threads_.start([connection] { connection->write_out(); });
    for (auto &[instance, record] : records_)
        if (!record.over)
            introduce(record, process);
        else if (record.others.contains(process))
            connection->say_failed(instance, record.why);
}

} // namespace singularity::collectives
