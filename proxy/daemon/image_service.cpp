// SPDX-License-Identifier: GPL-2.0-or-later
#include "image_service.hpp"

#include "log.hpp"
#include "proxy/control/connection.hpp"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

namespace singularity::proxyd {

namespace {

using proxy_control::Afterwards;
using proxy_control::Answer;
using proxy_control::AnswerKind;
using proxy_control::Operation;
using proxy_control::Request;

constexpr std::chrono::seconds kToAsk{10};
constexpr std::chrono::seconds kToAnswer{10};
constexpr std::chrono::seconds kToTell{5};
constexpr std::chrono::milliseconds kBetweenTries{10}; // for a capture to end
constexpr std::chrono::milliseconds kBetweenNews{200};
constexpr std::chrono::milliseconds kClientsLook{20};
// A day: sums of what callers say do not overflow a clock.
constexpr std::uint64_t kLongest = 86'400'000;

std::chrono::milliseconds span_of(std::uint64_t milliseconds) {
    return std::chrono::milliseconds(std::min(milliseconds, kLongest));
}

std::uint64_t microseconds_since(Deadline::Clock::time_point begin) {
    return static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(Deadline::Clock::now() - begin).count());
}

void resume(Session &session) {
    // Where it cannot be told the session is over, which its client sees.
    if (auto sent = session.link().send(channel::PacketType::resume, 0, {}, {}, Deadline::after(kToTell));
        !sent && !session.ending())
        session.end(fmt::format("it cannot be told to go on: {}", sent.error().message()), false);
}

// No session begins while this lives.
class Holding {
  public:
    explicit Holding(SessionKeeper &keeper) : keeper_(keeper), sessions_(keeper.hold()) {}
    ~Holding() { keeper_.release(); }
    Holding(const Holding &) = delete;
    Holding &operator=(const Holding &) = delete;
    Holding(Holding &&) = delete;
    Holding &operator=(Holding &&) = delete;
    [[nodiscard]] std::vector<std::shared_ptr<Session>> sessions() const { return sessions_; }

  private:
    SessionKeeper &keeper_;
    std::vector<std::shared_ptr<Session>> sessions_;
};

} // namespace

ImageService::ImageService(Listener listener, SessionKeeper &keeper, LateDevice &device,
                           std::uint64_t window_size)
    : listener_(std::move(listener)), keeper_(keeper), device_(device), window_size_(window_size),
      barriers_(keeper), stop_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    thread_ = std::thread([this] { run(); });
}

ImageService::~ImageService() {
    stopping_.store(true);
    const std::uint64_t one = 1;
    if (::write(stop_.get(), &one, sizeof(one)) != sizeof(one))
        kLog.error("{}", errno_error("stop", "the control socket").message());
    thread_.join();
}

void ImageService::run() {
    while (!stopping_.load()) {
        std::array<pollfd, 2> waiting{{{.fd = listener_.fd(), .events = POLLIN, .revents = 0},
                                       {.fd = stop_.get(), .events = POLLIN, .revents = 0}}};
        if (poll(waiting.data(), waiting.size(), -1) < 0 && errno != EINTR)
            return;
        auto connection = listener_.accept();
        if (!connection) {
            kLog.error("{}", connection.error().message());
            continue;
        }
        if (*connection)
            serve(**connection);
    }
}

void ImageService::serve(Listener::Connection &connection) {
    const auto &peer = connection.peer;
    if (peer.uid != 0 && peer.uid != geteuid()) {
        kLog.warning("pid {} of uid {} may not ask for device images: root and uid {} may", peer.pid,
                     peer.uid, geteuid());
        return;
    }
    Job job{.socket = connection.socket.get(),
            .descriptor = {},
            .file = nullptr,
            .request = {},
            .deadline = Deadline::after(kToAsk),
            .begin = Deadline::Clock::now(),
            .told = Deadline::Clock::now()};
    if (auto got = proxy_control::receive_packet(
            job.socket, std::as_writable_bytes(std::span(&job.request, 1)), &job.descriptor, job.deadline);
        !got) {
        // Whether somebody listens is asked by connecting and hanging up.
        if (got.error().code != ECONNRESET)
            kLog.warning("pid {}: {}", peer.pid, got.error().message());
        return;
    }
    job.deadline = Deadline::after(span_of(job.request.within));
    job.begin = Deadline::Clock::now();
    if (job.request.version == proxy_control::kVersion &&
        job.request.operation == std::to_underlying(Operation::barrier)) {
        if (auto begun = barriers_.begin(std::move(connection.socket)); !begun)
            kLog.warning("pid {}: {}", peer.pid, begun.error().message());
        return;
    }
    auto answer = carry_out(job);
    if (!answer) {
        kLog.error("for pid {}: {}", peer.pid, answer.error().message());
        Answer failed{.kind = std::to_underlying(AnswerKind::failed)};
        const auto text = answer.error().message();
        std::ranges::copy(text.substr(0, failed.text.size() - 1), failed.text.begin());
        answer = failed;
    }
    if (auto sent = proxy_control::send_packet(job.socket, std::as_bytes(std::span(&*answer, 1)), -1,
                                               Deadline::after(kToAnswer));
        !sent)
        kLog.warning("pid {} does not take the answer: {}", peer.pid, sent.error().message());
}

Expected<Answer> ImageService::carry_out(Job &job) {
    const auto refuse = [](std::string why) {
        return failure("take", "a request on the control socket", std::move(why), EPROTO);
    };
    const auto &request = job.request;
    if (request.version != proxy_control::kVersion)
        return refuse(fmt::format("it is of version {}; this device proxy speaks version {}", request.version,
                                  proxy_control::kVersion));
    const auto operation = static_cast<Operation>(request.operation);
    const bool needs_descriptor =
        operation == Operation::save || operation == Operation::restore || operation == Operation::prepare;
    if (needs_descriptor && !job.descriptor)
        return refuse("it comes without a descriptor");
    if (request.afterwards >= std::to_underlying(Afterwards::end))
        return refuse(fmt::format("there is no {} to do afterwards", request.afterwards));
    auto answer = [&]() -> Expected<Answer> {
        try {
            switch (operation) {
            case Operation::prepare:
                return prepare(job);
            case Operation::save:
                return save(job);
            case Operation::restore:
                return restore(job);
            case Operation::await_attached:
                return await_attached(job);
            case Operation::resume:
                return bring_back();
            case Operation::barrier: // has a connection of its own
            case Operation::end:
                break;
            }
        } catch (const std::exception &error) {
            return failure("carry out", "a request on the control socket", error.what(), ENOMEM);
        }
        return refuse(fmt::format("there is no operation {}", request.operation));
    }();
    if (answer) {
        answer->kind = std::to_underlying(AnswerKind::done);
        answer->total_us = microseconds_since(job.begin);
    }
    return answer;
}

Expected<void> ImageService::go_on(Job &job, std::uint64_t bytes) const {
    if (stopping_.load())
        return failure("go on with", "a device image", "the device proxy ends", ECANCELED);
    if (job.deadline.expired())
        return std::unexpected(timeout_error(job.deadline, "the device image"));
    if (proxy_control::has_hung_up(job.socket))
        return failure("go on with", "a device image", "whoever asked for it has hung up", ECANCELED);
    const auto now = Deadline::Clock::now();
    if (now - job.told < kBetweenNews)
        return {};
    job.told = now;
    const Answer news{.kind = std::to_underlying(AnswerKind::progress), .bytes = bytes};
    return proxy_control::send_packet(job.socket, std::as_bytes(std::span(&news, 1)), -1,
                                      Deadline::after(kToTell));
}

Expected<std::vector<ImageService::Held>>
ImageService::quiesce(Job &job, const std::vector<std::shared_ptr<Session>> &sessions) {
    const auto by = Deadline::after(
        std::min(span_of(job.request.quiesce),
                 std::chrono::duration_cast<std::chrono::milliseconds>(job.deadline.remaining())));
    for (;;) {
        std::vector<Held> held;
        std::vector<std::pair<std::shared_ptr<Session>, std::uint64_t>> asked;
        const channel::Pause pause{.within = static_cast<std::uint64_t>(by.span().count())};
        for (const auto &session : sessions) {
            if (session->ending())
                continue;
            const auto ticket = session->pause().ask();
            if (auto sent = session->link().send_struct(channel::PacketType::pause, ticket, pause, by); sent)
                asked.emplace_back(session, ticket);
        }
        std::optional<Error> failed;
        std::optional<Obstacle> in_the_way;
        for (auto &[session, ticket] : asked) {
            auto client = session->pause().wait(by);
            if (!client) {
                // Who has ended is nobody's concern any more.
                if (!session->ending() && !failed)
                    failed = Error{"stop", session->who(), client.error().message(), client.error().code};
                continue;
            }
            if (client->said.problem[0] != '\0' && !failed)
                failed = Error{"stop", session->who(), client->said.problem.data(), EBUSY};
            held.push_back({.session = session, .client = std::move(*client)});
        }
        const auto step = [&](auto what) {
            for (auto &one : held)
                if (auto done = what(one); !done && !failed && !one.session->ending())
                    failed = done.error();
        };
        if (!failed)
            step([&](Held &one) { return settle(*one.session, one.client, by); });
        if (!failed)
            for (auto &one : held)
                if (auto found = obstacle(*one.session); found && !in_the_way) {
                    in_the_way = found;
                    in_the_way->what = one.session->who() + ": " + found->what;
                }
        if (!failed && !in_the_way)
            step([&](Held &one) { return drain(*one.session, by); });
        std::erase_if(held, [](const Held &one) { return one.session->ending(); });
        if (!failed && !in_the_way)
            return held;
        // Also those that have not answered: their answer may be on its way.
        for (const auto &[session, ticket] : asked)
            if (!session->ending())
                resume(*session);
        if (failed)
            return std::unexpected(std::move(*failed));
        if (!in_the_way->soon || by.expired())
            return failure("save", "device images", in_the_way->what, in_the_way->soon ? EBUSY : ENOTSUP);
        if (auto wanted = go_on(job, 0); !wanted)
            return propagate(wanted);
        std::this_thread::sleep_for(kBetweenTries);
    }
}

Expected<void> ImageService::write(Job &job, std::vector<Held> &held, Answer &answer) const {
    const auto wanted = [&](std::uint64_t bytes) { return go_on(job, bytes); };
    auto writer = job.file ? image::Writer(job.file->file(), wanted)
                           : image::Writer(job.descriptor.get(), job.deadline, wanted);
    if (auto done = writer.put(image::RecordType::stream,
                               image::StreamRecord{.clients = static_cast<std::uint32_t>(held.size())});
        !done)
        return done;
    for (auto &one : held) {
        auto saved = save_session(*one.session, one.client, writer);
        if (!saved)
            return propagate(saved);
        if (one.session->ending())
            return failure("save", one.session->who(), "its client has ended in the middle", ECONNRESET);
        answer.calls += saved->calls;
        answer.memory_bytes += saved->memory_bytes;
        answer.content_bytes += saved->content_bytes;
        answer.code_bytes += saved->code_bytes;
    }
    if (auto done = writer.put(image::RecordType::end, image::EndRecord{.records = writer.records() + 1});
        !done)
        return done;
    if (auto done = writer.flush(); !done)
        return done;
    answer.clients = held.size();
    answer.bytes = writer.bytes();
    if (const auto *const device = device_.get())
        answer.device_bytes = device->back_end->identity().total_memory;
    return {};
}

// After an error those that have detached may come back.
Expected<void> ImageService::detach(const std::vector<Held> &held, const Deadline &deadline) {
    keeper_.set_moved(true); // from the first that has let go
    for (const auto &one : held) {
        one.session->may_leave(one.client.said);
        if (auto sent =
                one.session->link().send(channel::PacketType::detach, 0, {}, {}, Deadline::after(kToTell));
            !sent && !one.session->ending())
            one.session->end(fmt::format("it cannot be told to detach: {}", sent.error().message()), false);
    }
    const auto is_away = [](const Held &one) {
        return one.session->presence() == Session::Presence::awaited || one.session->closed();
    };
    auto waited = wait_until([&] { return std::ranges::all_of(held, is_away); }, deadline,
                             "the clients to detach", kClientsLook);
    if (!waited)
        keeper_.set_moved(false);
    return waited;
}

Expected<void> ImageService::open_file_of(Job &job) {
    job.file = std::exchange(prepared_, nullptr);
    if (job.file && job.file->is(job.descriptor))
        return {};
    job.file.reset();
    const auto *const device = device_.get();
    if (device == nullptr || !image::MappedFile::fits(job.descriptor.get()))
        return {};
    // Addresses only: all that a device can hold, and what else an image has.
    constexpr std::uint64_t kBesides = std::uint64_t{64} << 30;
    UniqueFd file(fcntl(job.descriptor.get(), F_DUPFD_CLOEXEC, 0));
    if (!file)
        return std::unexpected(errno_error("use", "the device image's file"));
    const auto &back_end = *device->back_end;
    auto made =
        PinnedFile::make(std::move(file), back_end.driver(), back_end.identity().total_memory + kBesides);
    if (!made)
        return propagate(made);
    job.file = std::move(*made);
    return {};
}

Expected<Answer> ImageService::prepare(Job &job) {
    if (device_.get() == nullptr)
        return Answer{};
    if (auto opened = open_file_of(job); !opened)
        return propagate(opened);
    if (!job.file)
        return failure("prepare", "a device image",
                       "the descriptor is not of an empty file, open for reading and writing", EINVAL);
    Answer answer;
    const auto sessions = Holding(keeper_).sessions();
    for (const auto &session : sessions) {
        answer.memory_bytes += session->slab_bytes();
        for (const auto &[handle, size] : session->allocations())
            answer.memory_bytes += size;
        // Memory is registered from a context, any of them, and whatever others are just capturing.
        if (const auto contexts = session->objects().handles(driver_api::kHandleContext); !contexts.empty()) {
            session->prepare_thread();
            session->make_current_for(contexts.front().first);
        }
    }
    if (auto reserved =
            job.file->reserve(answer.memory_bytes, [&](std::uint64_t bytes) { return go_on(job, bytes); });
        !reserved)
        return propagate(reserved);
    prepared_ = std::move(job.file);
    return answer;
}

Expected<Answer> ImageService::save(Job &job) {
    if (auto opened = open_file_of(job); !opened)
        return propagate(opened);
    // What is theirs would be missing.
    if (const auto away = keeper_.expected(-1); away != 0)
        return failure("save", "device images", fmt::format("{} clients have not come back yet", away),
                       EBUSY);
    Holding holding(keeper_);
    const auto begin = Deadline::Clock::now();
    auto held = quiesce(job, holding.sessions());
    if (!held)
        return propagate(held);
    Answer answer;
    if (auto done = write(job, *held, answer); !done) {
        for (const auto &one : *held)
            if (!one.session->ending())
                resume(*one.session);
        return propagate(done);
    }
    if (static_cast<Afterwards>(job.request.afterwards) != Afterwards::run_on) {
        if (auto done = detach(*held, Deadline::after(span_of(job.request.quiesce))); !done)
            return propagate(done);
    } else {
        for (const auto &one : *held)
            resume(*one.session);
    }
    answer.pause_us = microseconds_since(begin);
    kLog.info("saved {} clients: {} bytes, {} of them content, in {} ms", answer.clients, answer.bytes,
              answer.content_bytes, answer.pause_us / 1000);
    return answer;
}

Expected<Answer> ImageService::restore(Job &job) {
    image::Reader reader(job.descriptor.get(), job.deadline,
                         [&](std::uint64_t bytes) { return go_on(job, bytes); });
    std::vector<Restored> restored;
    const auto make = [this](const ClientPlace &client, const channel::Geometry &geometry) {
        return keeper_.make(client, geometry);
    };
    const auto device = [this]() -> Expected<const BackEnd *> {
        auto opened = device_.open();
        return opened ? Expected<const BackEnd *>((*opened)->back_end.get()) : propagate(opened);
    };
    auto done = [&]() -> Expected<void> {
        try {
            return restore_sessions(reader, device, window_size_, make, restored);
        } catch (const std::exception &error) { // memory that is not there
            return failure("restore", "device images", error.what(), ENOMEM);
        }
    }();
    if (!done) {
        for (const auto &one : restored)
            keeper_.drop(one.session);
        return propagate(done);
    }
    Answer answer;
    answer.clients = restored.size();
    answer.bytes = reader.bytes();
    for (const auto &one : restored) {
        answer.content_bytes += one.content_bytes;
        answer.calls += one.session->journal().size();
        keeper_.expect(one);
        kLog.info("{}: restored (was pid {}), {} bytes of content; it waits for its client",
                  one.session->who(), one.pid, one.content_bytes);
    }
    return answer;
}

Answer ImageService::bring_back() {
    prepared_.reset(); // whoever wanted it is gone
    keeper_.set_moved(false);
    return {};
}

Expected<Answer> ImageService::await_attached(Job &job) {
    std::optional<Error> failed;
    const auto here = [&] {
        if (auto wanted = go_on(job, 0); !wanted)
            failed = wanted.error();
        return failed.has_value() || keeper_.expected(job.descriptor ? job.descriptor.get() : -1) == 0;
    };
    if (auto waited = wait_until(here, job.deadline, "clients to attach", kClientsLook); !waited)
        return propagate(waited);
    if (failed)
        return std::unexpected(std::move(*failed));
    return Answer{};
}

} // namespace singularity::proxyd
