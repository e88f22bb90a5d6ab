// SPDX-License-Identifier: GPL-2.0-or-later
#include "daemon.hpp"

#include "common/proc.hpp"
#include "log.hpp"
#include "proxy/control/connection.hpp"

#include <algorithm>
#include <array>
#include <csignal>
#include <string_view>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

namespace singularity::proxyd {

namespace {

constexpr std::chrono::seconds kToSayHello{10};
constexpr std::chrono::milliseconds kToTellClient{200};
constexpr std::chrono::seconds kToHearOfFailure{5}; // for all who come meanwhile
constexpr std::chrono::milliseconds kToGiveBack{1000};
constexpr std::chrono::milliseconds kToEnd{3000};
constexpr int kClockMilliseconds = 100; // between looks, while there is a clock to look at
constexpr std::size_t kMostGuests = 256;

// Whether there is no process of this number below a /proc, or only what is left of one.
bool has_ended(int processes, std::int32_t pid) {
    if (pid <= 0)
        return false; // it has not said who it is
    const UniqueFd file(openat(processes, fmt::format("{}/stat", pid).c_str(), O_RDONLY | O_CLOEXEC));
    if (!file)
        return errno == ENOENT;
    std::array<char, 512> text{};
    const auto size = read(file.get(), text.data(), text.size());
    if (size <= 0)
        return size < 0 && errno == ESRCH;
    const auto columns = proc::stat_columns({text.data(), static_cast<std::size_t>(size)});
    return !columns.empty() && (columns[0] == "Z" || columns[0] == "X");
}

} // namespace

Daemon::Daemon(const Options &options, LateDevice &device, DeviceOutput *output, Listener listener,
               WindowArea windows)
    : options_(options), device_(device), output_(output), listener_(std::move(listener)),
      windows_(std::move(windows)), epoll_(epoll_create1(EPOLL_CLOEXEC)),
      closed_(std::make_shared<UniqueFd>(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK))),
      last_client_(std::chrono::steady_clock::now()) {
    sigset_t ends{};
    sigemptyset(&ends);
    sigaddset(&ends, SIGTERM);
    sigaddset(&ends, SIGINT);
    signals_ = UniqueFd(signalfd(-1, &ends, SFD_CLOEXEC | SFD_NONBLOCK));
}

Expected<void> Daemon::watch(int fd) {
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
        return std::unexpected(errno_error("watch", fmt::format("descriptor {}", fd)));
    return {};
}

Expected<void> Daemon::serve() {
    if (!epoll_ || !signals_ || !*closed_)
        return failure("serve", "clients", "no descriptors for epoll, signals and events are left", EMFILE);
    for (const int fd : {listener_.fd(), signals_.get(), closed_->get()})
        if (auto watched = watch(fd); !watched)
            return watched;
    for (;;) {
        std::array<epoll_event, 64> events{};
        const bool clocks =
            !ending_.empty() || !guests_.empty() || failed_until_ || options_.idle_exit.count() != 0;
        const int count = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()),
                                     clocks ? kClockMilliseconds : -1);
        if (count < 0 && errno != EINTR)
            return std::unexpected(errno_error("wait for", "clients"));
        for (int index = 0; index < count; ++index) {
            const int fd = events[static_cast<std::size_t>(index)].data.fd;
            if (fd == signals_.get()) {
                signalfd_siginfo signal{};
                if (read(fd, &signal, sizeof(signal)) == sizeof(signal)) {
                    kLog.info("ending on signal {}", signal.ssi_signo);
                    return {};
                }
            } else if (fd == listener_.fd()) {
                accept_some();
            } else if (fd == closed_->get()) {
                reap();
            } else if (guests_.contains(fd)) {
                hear_guest(fd);
            } else {
                hear_session(fd);
            }
        }
        look_at_clocks();
        if (const auto error = device_.get() == nullptr ? device_.failed() : std::nullopt) {
            if (!failed_until_)
                failed_until_ = Deadline::after(kToHearOfFailure);
            // Also those that have only woken it, and come again to be greeted.
            if (failed_until_->expired())
                return std::unexpected(*error);
        }
        if (options_.idle_exit.count() != 0 && sessions_.empty() && ending_.empty() && guests_.empty() &&
            std::chrono::steady_clock::now() - last_client_ > options_.idle_exit) {
            kLog.info("ending: no client for {} seconds", options_.idle_exit.count());
            return {};
        }
    }
}

void Daemon::accept_some() {
    // Those that have hung up meanwhile make room.
    constexpr int kAtATime = 64;
    for (int count = 0; count < kAtATime; ++count) {
        auto connection = listener_.accept();
        if (!connection) {
            kLog.error("{}", connection.error().message());
            return;
        }
        if (!*connection)
            return;
        auto link = channel::Link::adopt(std::move((*connection)->socket));
        if (!link) {
            kLog.error("{}", link.error().message());
            continue;
        }
        const auto peer = (*connection)->peer;
        if (peer.uid != options_.user && peer.uid != 0) {
            kLog.warning("pid {} of uid {} is not served: this daemon is uid {}'s", peer.pid, peer.uid,
                         options_.user);
            const auto refusal =
                refuse(channel::RefusalReason::not_permitted, "this device proxy serves another user");
            if (auto sent = link->send_struct(channel::PacketType::refusal, 0, *refusal,
                                              Deadline::after(kToTellClient));
                !sent)
                kLog.debug("{}", sent.error().message());
            continue;
        }
        // Also for those that only connect, to have it when they come to it.
        need_device();
        // Connections that say nothing hold a descriptor each.
        if (guests_.size() >= kMostGuests) {
            kLog.warning("pid {} is not served: {} connections wait for their hello", peer.pid,
                         guests_.size());
            continue;
        }
        const int fd = link->fd();
        if (auto watched = watch(fd); !watched) {
            kLog.error("{}", watched.error().message());
            continue;
        }
        guests_.emplace(fd,
                        Guest{.link = std::move(*link), .peer = peer, .until = Deadline::after(kToSayHello)});
    }
}

std::optional<channel::Refusal> Daemon::refuse(channel::RefusalReason reason, std::string_view text) const {
    channel::Refusal refusal;
    refusal.reason = std::to_underlying(reason);
    refusal.area = windows_.area();
    std::ranges::copy(text.substr(0, refusal.text.size() - 1), refusal.text.begin());
    return refusal;
}

std::optional<channel::Refusal> Daemon::refuse_without_device() const {
    using channel::RefusalReason;
    if (const auto error = device_.failed())
        return refuse(RefusalReason::failed, "it has no device: " + error->message());
    // They were about to be moved when they were heard, and may come again.
    return refuse(RefusalReason::moved, "its clients were to be moved");
}

void Daemon::tell_refusal(Guest &guest, const channel::Refusal &refusal) {
    if (auto sent =
            guest.link.send_struct(channel::PacketType::refusal, 0, refusal, Deadline::after(kToTellClient));
        !sent)
        kLog.debug("{}", sent.error().message());
}

void Daemon::hear_guest(int fd) {
    const std::scoped_lock hearing(hearing_);
    auto &guest = guests_.at(fd);
    {
        const std::scoped_lock lock(lock_);
        if (guests_wait()) {
            if (proxy_control::has_hung_up(fd)) { // it wanted to wake us, or has given up
                guests_.erase(fd);
                return;
            }
            // Not read and not watched until hear_held().
            guest.held = epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) == 0;
            return;
        }
    }
    auto packet = guest.link.receive();
    if (packet && !*packet)
        return;
    bool leaves = true;
    if (!packet) {
        // Hanging up without a hello is how one asks whether a daemon lives.
        if (packet.error().code != ECONNRESET)
            kLog.warning("pid {} uid {}: {}", guest.peer.pid, guest.peer.uid, packet.error().message());
    } else {
        answer(guest, **packet, leaves);
    }
    if (leaves)
        guests_.erase(fd);
}

void Daemon::answer(Guest &guest, const channel::Packet &packet, bool &leaves) {
    if (packet.type == channel::PacketType::identify)
        return identify(guest);
    if (packet.type == channel::PacketType::attach) {
        const auto back = channel::struct_of<channel::Attach>(packet);
        if (!back || !packet.descriptors.empty()) {
            kLog.warning("pid {} uid {}: broke a rule: an attach of {} bytes", guest.peer.pid, guest.peer.uid,
                         packet.body.size());
            return;
        }
        if (const auto refusal = attach(guest, *back))
            tell_refusal(guest, *refusal);
        return;
    }
    const auto hello = channel::struct_of<channel::Hello>(packet);
    if (packet.type != channel::PacketType::hello || !hello || !packet.descriptors.empty()) {
        kLog.warning("pid {} uid {}: broke a rule: packet {} of {} bytes is no hello", guest.peer.pid,
                     guest.peer.uid, std::to_underlying(packet.type), packet.body.size());
        return;
    }
    const auto refusal = open_session(guest, *hello);
    if (!refusal)
        return;
    kLog.debug("pid {} uid {}: refused: {}", guest.peer.pid, guest.peer.uid, refusal->text.data());
    guest.until = Deadline::after(kToSayHello);
    if (auto sent =
            guest.link.send_struct(channel::PacketType::refusal, 0, *refusal, Deadline::after(kToTellClient));
        !sent)
        kLog.debug("{}", sent.error().message());
    else
        leaves = false;
}

std::optional<channel::Refusal> Daemon::open_session(Guest &guest, const channel::Hello &hello) {
    using channel::RefusalReason;
    if (hello.version != channel::kProtocolVersion)
        return refuse(RefusalReason::version,
                      fmt::format("the client's library speaks version {}, this device proxy version {}: "
                                  "both must come from one installation",
                                  hello.version, channel::kProtocolVersion));
    if (sessions_.size() + ending_.size() >= options_.max_clients)
        return refuse(
            RefusalReason::no_room,
            fmt::format("this device proxy serves at most {} clients (--max-clients)", options_.max_clients));
    // No session begins while images are saved.
    const std::scoped_lock lock(lock_);
    if (moved_)
        return refuse(RefusalReason::moved, "its clients have been saved for another device proxy");
    const auto *const device = device_.get();
    if (device == nullptr)
        return refuse_without_device();
    if (!has_slice(windows_.area().window_size, hello.devices, hello.client.ordinal))
        return refuse(RefusalReason::failed,
                      fmt::format("a window of {} GiB has no slice for device {} of {} (--window-size)",
                                  windows_.area().window_size >> 30, hello.client.ordinal, hello.devices));
    const auto window = windows_.take(hello.window, hello.client.process, hello.device);
    if (!window) {
        switch (window.error()) {
        case WindowRefusal::invalid:
            return refuse(RefusalReason::window_invalid,
                          "this is no window of this device proxy (--window-area, --window-size)");
        case WindowRefusal::taken:
            return refuse(RefusalReason::window_taken, "another client has this window");
        case WindowRefusal::none_left:
            return refuse(RefusalReason::no_room, "all windows are taken (--window-area, --window-size)");
        }
    }
    const auto fail = [&](const Error &error) {
        windows_.give_back(*window);
        kLog.error("no session for pid {}: {}", guest.peer.pid, error.message());
        return refuse(RefusalReason::failed, error.message());
    };
    auto end = channel::ServerEnd::create(options_.geometry);
    if (!end)
        return fail(end.error());
    channel::Welcome welcome;
    welcome.session = next_number_++;
    welcome.geometry = options_.geometry;
    welcome.window = *window;
    welcome.area = windows_.area();
    welcome.device = device->back_end->identity();
    const int segment = (*end)->segment_fd();
    if (auto sent = guest.link.send(channel::PacketType::welcome, 0, channel::body_of(welcome), {&segment, 1},
                                    Deadline::after(kToTellClient));
        !sent)
        return fail(sent.error());
    const int fd = guest.link.fd();
    auto session = std::make_shared<Session>(
        place_for(
            welcome.session, guest.peer,
            {.client = hello.client, .devices = hello.devices, .device = hello.device, .window = *window}),
        *device->back_end, output_, std::move(*end), std::move(guest.link), tell_closed());
    session->communicators().use(device->collectives);
    session->take_turns(device->residency, device->contents);
    session->start();
    sessions_.emplace(fd, std::move(session));
    return std::nullopt;
}

SessionPlace Daemon::place_for(unsigned number, const Peer &peer, const ClientPlace &client) const {
    SessionPlace place;
    static_cast<ClientPlace &>(place) = client;
    place.number = number;
    place.peer = peer;
    place.window_size = windows_.area().window_size;
    return place;
}

std::function<void()> Daemon::tell_closed() const {
    return [event = closed_] {
        const std::uint64_t one = 1;
        if (write(event->get(), &one, sizeof(one)) != sizeof(one))
            kLog.error("{}", errno_error("tell", "a session's end").message());
    };
}

std::optional<channel::Refusal> Daemon::attach(Guest &guest, const channel::Attach &attach) {
    using channel::RefusalReason;
    if (attach.version != channel::kProtocolVersion)
        return refuse(RefusalReason::version,
                      fmt::format("the client's library speaks version {}, this device proxy version {}: "
                                  "both must come from one installation",
                                  attach.version, channel::kProtocolVersion));
    const std::scoped_lock lock(lock_);
    const auto found = waiting_.find(attach.client);
    if (found == waiting_.end())
        return refuse(RefusalReason::not_here,
                      "this client has left nothing here, and no image of it was restored");
    if (moved_)
        return refuse(RefusalReason::moved, "its clients have been saved for another device proxy");
    const auto &session = found->second.session;
    if (found->second.whole) {
        // The one that it has left is half of memory that it does not share any more.
        auto end = channel::ServerEnd::create(session->channel().geometry());
        if (!end)
            return refuse(RefusalReason::failed, end.error().message());
        session->renew(std::move(*end));
    }
    channel::Welcome welcome;
    welcome.whole = found->second.whole ? 1 : 0;
    welcome.session = session->place().number;
    welcome.geometry = session->channel().geometry();
    welcome.window = session->place().window;
    welcome.area = windows_.area();
    welcome.device = session->back_end().identity();
    const int segment = session->channel().segment_fd();
    guest.link.count_from(attach.packets);
    if (auto sent = guest.link.send(channel::PacketType::welcome, 0, channel::body_of(welcome), {&segment, 1},
                                    Deadline::after(kToTellClient));
        !sent) {
        kLog.warning("pid {} cannot attach: {}", guest.peer.pid, sent.error().message());
        return std::nullopt;
    }
    const int fd = guest.link.fd();
    session->adopt(std::move(guest.link), guest.peer);
    session->start();
    sessions_.emplace(fd, session);
    waiting_.erase(found);
    return std::nullopt;
}

std::vector<std::shared_ptr<Session>> Daemon::hold() {
    const std::scoped_lock lock(hearing_, lock_);
    ++holds_;
    std::vector<std::shared_ptr<Session>> held;
    held.reserve(sessions_.size());
    for (const auto &[fd, session] : sessions_)
        held.push_back(session);
    return held;
}

std::vector<std::shared_ptr<Session>> Daemon::all() {
    const std::scoped_lock lock(lock_);
    std::vector<std::shared_ptr<Session>> all;
    all.reserve(sessions_.size());
    for (const auto &[fd, session] : sessions_)
        all.push_back(session);
    return all;
}

void Daemon::release() {
    {
        const std::scoped_lock lock(lock_);
        --holds_;
    }
    tell_closed()(); // wakes the main thread
}

void Daemon::set_moved(bool moved) {
    const std::scoped_lock lock(lock_);
    moved_ = moved;
}

// Where its clients are another proxy's they hear that at once, or they would be saved with a socket.
bool Daemon::guests_wait() const {
    return holds_ != 0 || (!moved_ && device_.get() == nullptr && !device_.failed());
}

void Daemon::need_device() {
    if (device_.get() != nullptr)
        return;
    {
        const std::scoped_lock lock(lock_);
        if (moved_)
            return;
    }
    device_.open_beside(tell_closed()); // wakes the main thread
}

void Daemon::hear_held() {
    if (std::ranges::any_of(guests_, [](const auto &entry) { return entry.second.held; }))
        need_device();
    {
        const std::scoped_lock lock(lock_);
        if (guests_wait())
            return;
    }
    for (auto &[fd, guest] : guests_)
        if (std::exchange(guest.held, false)) {
            guest.until = Deadline::after(kToSayHello);
            if (auto watched = watch(fd); !watched)
                kLog.error("{}", watched.error().message());
        }
}

Expected<std::shared_ptr<Session>> Daemon::make(const ClientPlace &place, const channel::Geometry &geometry) {
    const auto &client = place.client;
    auto device = device_.open();
    if (!device)
        return propagate(device);
    auto end = channel::ServerEnd::create(geometry);
    if (!end)
        return propagate(end);
    // A socket without another side, until the client is back.
    int sockets[2] = {-1, -1};
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, sockets) != 0)
        return std::unexpected(errno_error("make", "a socket"));
    const UniqueFd other(sockets[1]);
    auto link = channel::Link::adopt(UniqueFd(sockets[0]));
    if (!link)
        return propagate(link);
    const std::scoped_lock lock(lock_);
    if (sessions_.size() + waiting_.size() >= options_.max_clients)
        return failure(
            "restore", "a session",
            fmt::format("this device proxy serves at most {} clients (--max-clients)", options_.max_clients));
    if (waiting_.contains(client))
        return failure("restore", "a session", "an image of this client was restored here already");
    if (std::ranges::any_of(sessions_,
                            [&](const auto &entry) { return entry.second->place().client == client; }))
        return failure("restore", "a session",
                       fmt::format("this client has its session here, and its window {:#x}", place.window));
    if (!windows_.share(place.window, client.process))
        return failure(
            "restore", "a session",
            fmt::format("its window {:#x} is another client's or none of this device proxy (--window-area)",
                        place.window));
    auto session = std::make_shared<Session>(place_for(next_number_++, {}, place), *(*device)->back_end,
                                             output_, std::move(*end), std::move(*link), tell_closed());
    session->communicators().use((*device)->collectives);
    session->take_turns((*device)->residency, (*device)->contents);
    return session;
}

void Daemon::expect(const Restored &restored) {
    const std::scoped_lock lock(lock_);
    waiting_.emplace(restored.client, Awaited{.session = restored.session, .pid = restored.pid});
}

void Daemon::drop(const std::shared_ptr<Session> &session) {
    session->give_back();
    const std::scoped_lock lock(lock_);
    windows_.give_back(session->place().window);
}

std::size_t Daemon::expected(int processes) {
    std::vector<std::shared_ptr<Session>> gone;
    std::size_t left = 0;
    {
        const std::scoped_lock lock(lock_);
        if (processes != -1)
            std::erase_if(waiting_, [&](const auto &entry) {
                if (!has_ended(processes, entry.second.pid))
                    return false;
                gone.push_back(entry.second.session);
                return true;
            });
        left = waiting_.size();
    }
    for (const auto &session : gone) {
        kLog.info("{}: its process has ended", session->who());
        drop(session);
    }
    return left;
}

void Daemon::identify(Guest &guest) {
    const auto *const device = device_.get();
    if (device == nullptr)
        return tell_refusal(guest, *refuse_without_device());
    channel::Identity identity;
    identity.device = device->back_end->identity();
    // The driver tells free memory to a context only; what sessions have on the device is known here.
    const auto used = device->residency->taken();
    identity.free_memory = identity.device.total_memory - std::min(used, identity.device.total_memory);
    if (auto sent = guest.link.send_struct(channel::PacketType::identity, 0, identity,
                                           Deadline::after(kToTellClient));
        !sent)
        kLog.debug("{}", sent.error().message());
}

void Daemon::hear_session(int fd) {
    const auto found = sessions_.find(fd);
    if (found == sessions_.end())
        return;
    auto session = found->second;
    // Some at a time: other sessions want to be heard as well.
    constexpr int kPacketsAtATime = 16;
    const auto heard_out = [&] {
        return session->ending() || session->presence() == Session::Presence::leaving ||
               session->presence() == Session::Presence::left;
    };
    for (int packets = 0; packets < kPacketsAtATime && !heard_out(); ++packets) {
        auto packet = session->link().receive();
        if (!packet) {
            const bool hung_up = packet.error().code == ECONNRESET;
            session->end(hung_up ? "the client has hung up" : packet.error().message(),
                         packet.error().code == EPROTO);
            break;
        }
        if (!*packet)
            return;
        if (auto taken = session->deliver(std::move(**packet)); !taken)
            session->end(taken.error().message(), true);
    }
    if (!heard_out())
        return;
    // Its descriptor stays open until the last thread has left the session; nothing more is read from it.
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr) != 0)
        kLog.error("{}", errno_error("stop watching", session->who()).message());
    {
        const std::scoped_lock lock(lock_);
        sessions_.erase(found);
    }
    if (session->ending())
        ending_.push_back({.session = std::move(session), .by = Deadline::after(kToGiveBack)});
    else
        leaving_.push_back(std::move(session));
}

// Sessions whose clients have detached: those without threads are awaited.
void Daemon::see_off() {
    const std::scoped_lock lock(lock_);
    std::erase_if(leaving_, [this](const std::shared_ptr<Session> &session) {
        if (!session->ending() && session->presence() != Session::Presence::left)
            return false;
        if (!session->ending() &&
            !waiting_
                 .emplace(session->place().client,
                          Awaited{.session = session, .pid = session->said().pid, .whole = true})
                 .second)
            session->end("another client has said that it is this one", true);
        if (session->ending())
            ending_.push_back({.session = session, .by = Deadline::after(kToGiveBack)});
        else
            session->set_presence(Session::Presence::awaited);
        return true;
    });
}

void Daemon::reap() {
    // It only wakes up; what it counts does not matter.
    std::uint64_t count = 0;
    if (read(closed_->get(), &count, sizeof(count)) < 0 && errno != EAGAIN)
        kLog.error("{}", errno_error("read", "the event of closed sessions").message());
    hear_held();
    see_off();
    const std::scoped_lock lock(lock_);
    std::erase_if(ending_, [this](const Ending &ending) {
        if (!ending.session->closed())
            return false;
        windows_.give_back(ending.session->place().window);
        return true;
    });
    last_client_ = std::chrono::steady_clock::now();
}

void Daemon::look_at_clocks() {
    for (auto &ending : ending_)
        if (!ending.session->closed() && ending.by.expired() && !std::exchange(ending.told, true))
            kLog.error("{}: the driver has not given back all that it had within {} ms",
                       ending.session->who(), kToGiveBack.count());
    std::erase_if(guests_,
                  [](const auto &entry) { return !entry.second.held && entry.second.until.expired(); });
    if (!sessions_.empty() || !leaving_.empty() || expected(-1) != 0)
        last_client_ = std::chrono::steady_clock::now();
}

bool Daemon::end_sessions() {
    guests_.clear();
    for (auto &[client, awaited] : std::exchange(waiting_, {}))
        awaited.session->give_back();
    auto all = std::exchange(leaving_, {});
    for (auto &[fd, session] : std::exchange(sessions_, {}))
        all.push_back(std::move(session));
    for (auto &session : all) {
        session->end("the device proxy ends", false);
        ending_.push_back({.session = std::move(session), .by = Deadline::after(kToGiveBack)});
    }
    const auto all_closed = [this] {
        look_at_clocks();
        return std::ranges::all_of(ending_, [](const Ending &ending) { return ending.session->closed(); });
    };
    return wait_until(all_closed, Deadline::after(kToEnd), "sessions").has_value();
}

} // namespace singularity::proxyd
