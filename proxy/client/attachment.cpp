// SPDX-License-Identifier: GPL-2.0-or-later
#include "attachment.hpp"

#include "barrier.hpp"
#include "common/unique_fd.hpp"
#include "log.hpp"
#include "memory.hpp"
#include "process.hpp"
#include "proxy/protocol/memory.hpp"
#include "threads.hpp"

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

namespace singularity::client {

namespace {

constexpr const char *kVariable = "SINGULARITY_PROXY_ATTACH_TIMEOUT";
constexpr std::chrono::seconds kDefaultTimeout{1800};
constexpr std::chrono::milliseconds kBetweenTries{30};
constexpr std::chrono::seconds kHandshake{5};
constexpr std::chrono::seconds kAttachmentSend{10};
// A process that was stored for a month has not waited for a month.
constexpr std::chrono::seconds kLongestStep{1};

// --- Undivided operations

struct Divisions {
    std::mutex lock;
    std::condition_variable changed;
    unsigned inside = 0;
    unsigned paused = 0;                    // sessions
    std::map<Context *, unsigned> launches; // counted in `inside`
};

std::atomic<bool> launches_apart = false;

Divisions &divisions() {
    static auto &instance = *std::make_unique<Divisions>().release(); // see process()
    return instance;
}

thread_local unsigned depth = 0;

bool begin_pause(const Deadline &deadline) {
    auto &all = divisions();
    std::unique_lock lock(all.lock);
    ++all.paused;
    if (all.changed.wait_until(lock, deadline.when(), [&] { return all.inside == 0; }))
        return true;
    --all.paused;
    all.changed.notify_all();
    return false;
}

void end_pause() {
    auto &all = divisions();
    const std::scoped_lock lock(all.lock);
    --all.paused;
    all.changed.notify_all();
}

// --- The thread

struct Event {
    enum class Kind : std::uint8_t { pause, resume, detach } kind{};
    Session *session = nullptr;
    std::uint64_t ticket = 0;
    Deadline deadline = Deadline::after({});
};

// One session that waits for a daemon.
struct Waiting {
    std::chrono::milliseconds left{};
    Deadline::Clock::time_point looked;
    std::string said; // why not yet; logged when it changes
};

class Attachment {
  public:
    void add(const Event &event) {
        {
            const std::scoped_lock lock(lock_);
            events_.push_back(event);
            if (!std::exchange(started_, true))
                start_thread("cuda-attach", [this] { run(); });
        }
        changed_.notify_one();
    }

    // The daemon is gone: what it has paused waits no longer for its word.
    void over(Session &session) {
        {
            const std::scoped_lock lock(lock_);
            if (!started_)
                return;
        }
        add({.kind = Event::Kind::resume, .session = &session});
    }

  private:
    [[noreturn]] void run() {
        for (;;) {
            std::optional<Event> event;
            {
                std::unique_lock lock(lock_);
                const auto any = [this] { return !events_.empty(); };
                if (waiting_.empty())
                    changed_.wait(lock, any);
                else
                    static_cast<void>(changed_.wait_for(lock, kBetweenTries, any));
                if (!events_.empty()) {
                    event = events_.front();
                    events_.pop_front();
                }
            }
            if (event)
                handle(*event);
            std::erase_if(waiting_, [this](auto &entry) { return settled(*entry.first, entry.second); });
        }
    }

    void handle(const Event &event) {
        switch (event.kind) {
        case Event::Kind::pause:
            return stop(event);
        case Event::Kind::resume:
            return go_on(*event.session);
        case Event::Kind::detach:
            return let_go(*event.session);
        }
    }

    void stop(const Event &event) {
        auto &session = *event.session;
        channel::Paused said;
        said.pid = getpid();
        const auto refuse = [&](std::string_view why) {
            std::ranges::copy(why.substr(0, said.problem.size() - 1), said.problem.begin());
        };
        UniqueFd ranges;
        if (!paused_[&session]) {
            if (!begin_pause(event.deadline)) {
                refuse(
                    "a graph that copies between devices, or a thread that registers host memory or ends a "
                    "context, does not come to its end");
            } else {
                paused_[&session] = true;
                said.head = session.end().close_gate();
            }
        } else {
            said.head = session.end().close_gate();
        }
        if (said.problem[0] == '\0') {
            const auto used = device_memory_of(session);
            ranges = UniqueFd(memfd_create("cuda-device-memory", MFD_CLOEXEC));
            const auto size = static_cast<ssize_t>(used.size() * sizeof(channel::AddressRange));
            if (!ranges || write(ranges.get(), used.data(), static_cast<std::size_t>(size)) != size)
                refuse(errno_error("list", "its device memory").message());
            said.ranges = used.size();
        }
        if (said.problem[0] != '\0')
            go_on(session);
        const int descriptor = ranges.get();
        const bool good = said.problem[0] == '\0';
        // A daemon that is gone has no use for the answer, and the watcher says so to everybody.
        if (auto sent =
                session.end().link().send(channel::PacketType::paused, event.ticket, channel::body_of(said),
                                          {&descriptor, good ? 1U : 0U}, Deadline::after(kAttachmentSend));
            !sent)
            kLog.debug("{}", sent.error().message());
    }

    void go_on(Session &session) {
        if (!std::exchange(paused_[&session], false))
            return;
        session.end().open_gate();
        end_pause();
    }

    void let_go(Session &session) {
        // Nothing is asked for that was not paused.
        if (!paused_[&session])
            return;
        if (auto sent = session.end().link().send(channel::PacketType::detached, 0, {}, {},
                                                  Deadline::after(kAttachmentSend));
            !sent)
            kLog.debug("{}", sent.error().message());
        if (auto done = detach(session); !done)
            return give_up(session, done.error().message());
        kLog.debug("detached from {}", session.socket());
        waiting_[&session] = {.left = patience().span, .looked = Deadline::Clock::now(), .said = {}};
    }

    static Expected<void> detach(Session &session) {
        const std::scoped_lock lock(session.link_lock);
        session.set_linked(false);
        return session.end().detach();
    }

    void give_up(Session &session, std::string_view why) {
        kLog.error("the device proxy at {}: {}; CUDA calls fail from now on", session.socket(), why);
        session.end().mark_dead();
        if (std::exchange(paused_[&session], false))
            end_pause();
    }

    // Whether a detached session waits no more.
    bool settled(Session &session, Waiting &waiting) {
        auto attached = attach(session);
        if (attached) {
            gate().open(); // the cut has been made
            go_on(session);
            kLog.debug("attached to {}", session.socket());
            return true;
        }
        const auto now = Deadline::Clock::now();
        waiting.left -= std::chrono::duration_cast<std::chrono::milliseconds>(
            std::min<Deadline::Clock::duration>(now - waiting.looked, kLongestStep));
        waiting.looked = now;
        if (auto text = attached.error().message(); text != waiting.said) {
            kLog.debug("waiting for a device proxy at {}: {}", session.socket(), text);
            waiting.said = std::move(text);
        }
        if (waiting.left > std::chrono::milliseconds::zero())
            return false;
        give_up(session, fmt::format("no image of this process was restored there in time ({}): {}",
                                     kVariable, waiting.said));
        return true;
    }

    static Expected<void> attach(Session &session) {
        // Where nothing listens not even a socket is made: a process that is being stored has none.
        if (access(session.socket().c_str(), F_OK) != 0)
            return std::unexpected(errno_error("attach to", session.socket()));
        auto link = channel::Link::connect(session.socket(), Deadline::after(kHandshake));
        if (!link)
            return propagate(link);
        const channel::Attach wish{
            .client = {.process = process().key, .ordinal = static_cast<std::uint64_t>(session.ordinal())},
            .packets = session.packets()};
        auto answer = channel::say_attach(*link, wish, Deadline::after(kHandshake));
        if (!answer)
            return propagate(answer);
        const auto refuse = [&](std::string why) {
            return failure("attach to", session.socket(), std::move(why), EPROTO);
        };
        if (answer->refusal)
            return refuse(answer->refusal->text.data());
        const auto &welcome = *answer->welcome;
        const auto &whole = process().window.whole;
        if (welcome.geometry != session.end().geometry() || welcome.window != whole.address ||
            welcome.area.window_size != whole.size)
            return refuse("its window or its channel is not the one that the image was saved with");
        auto segment = channel::Segment::map(answer->segment.get(), welcome.geometry);
        if (!segment)
            return propagate(segment);
        if (auto done = session.end().attach(std::move(*segment), std::move(*link)); !done)
            return done;
        session.count_packet(); // the Welcome
        // From here on the watcher listens; a hang-up is told to what waits below.
        session.set_attaching(welcome.whole == 0);
        session.set_linked(true);
        if (welcome.whole != 0)
            return {};
        const auto result = make_the_rest(session);
        {
            const std::scoped_lock lock(session.link_lock);
            if (result == CUDA_SUCCESS && session.linked()) {
                session.set_attaching(false);
                return {};
            }
        }
        auto detached = detach(session);
        session.set_attaching(false);
        if (!detached)
            return detached;
        // The daemon has given up what it had of the session: only another one can have it.
        kLog.error(
            "the device proxy at {}: CUresult {} while memory and graphs of this process are made anew; "
            "waiting for another one",
            session.socket(), static_cast<int>(result));
        return refuse("its image could not be restored as a whole");
    }

    static CUresult make_the_rest(Session &session) {
        const channel::ClientEnd::PassGate own;
        if (const auto result = share_host_memory_again(session); result != CUDA_SUCCESS)
            return result;
        return ask(Route{.session = &session, .context = nullptr},
                   protocol::Message<protocol::FinishRestore>{});
    }

    std::mutex lock_;
    std::condition_variable changed_;
    std::deque<Event> events_;
    bool started_ = false;
    // The thread's own.
    std::map<Session *, bool> paused_;
    std::map<Session *, Waiting> waiting_;
};

Attachment &attachment() {
    static auto &instance = *std::make_unique<Attachment>().release(); // see process()
    return instance;
}

} // namespace

Patience patience() {
    const char *const text = std::getenv(kVariable);
    if (text == nullptr || *text == '\0')
        return {.span = kDefaultTimeout};
    unsigned seconds = 0;
    const auto *const end = text + std::strlen(text);
    if (const auto [at, error] = std::from_chars(text, end, seconds); error != std::errc() || at != end) {
        kLog.warning("{} is '{}'; a number of seconds was expected, {} are used", kVariable, text,
                     kDefaultTimeout.count());
        return {.span = kDefaultTimeout};
    }
    return {.span = std::chrono::seconds(seconds), .asked_for = true};
}

Undivided::Undivided() {
    if (depth++ != 0)
        return;
    auto &all = divisions();
    std::unique_lock lock(all.lock);
    all.changed.wait(lock, [&] { return all.paused == 0; });
    ++all.inside;
    pass_.emplace();
}

Undivided::~Undivided() {
    if (--depth != 0)
        return;
    pass_.reset();
    auto &all = divisions();
    const std::scoped_lock lock(all.lock);
    --all.inside;
    all.changed.notify_all();
}

void expect_launches_apart() { launches_apart.store(true); }

bool any_launch_apart() { return launches_apart.load(std::memory_order_relaxed); }

void begin_launch_apart(Context &context) {
    auto &all = divisions();
    std::unique_lock lock(all.lock);
    if (depth == 0)
        all.changed.wait(lock, [&] { return all.paused == 0; });
    ++all.inside;
    ++all.launches[&context];
}

void end_launch_apart(Context &context) {
    auto &all = divisions();
    const std::scoped_lock lock(all.lock);
    const auto found = all.launches.find(&context);
    if (found == all.launches.end())
        return;
    if (--found->second == 0)
        all.launches.erase(found);
    --all.inside;
    all.changed.notify_all();
}

void forget_launches_apart(Context &context) {
    auto &all = divisions();
    const std::scoped_lock lock(all.lock);
    const auto found = all.launches.find(&context);
    if (found == all.launches.end())
        return;
    all.inside -= found->second;
    all.launches.erase(found);
    all.changed.notify_all();
}

void pause_arrived(Session &session, std::uint64_t ticket, const channel::Packet &packet) {
    const auto pause = channel::struct_of<channel::Pause>(packet);
    if (!pause)
        return kLog.error("{}", pause.error().message());
    constexpr std::uint64_t kDay = 86'400'000;
    attachment().add({.kind = Event::Kind::pause,
                      .session = &session,
                      .ticket = ticket,
                      .deadline = Deadline::after(std::chrono::milliseconds(std::min(pause->within, kDay)))});
}

void resume_arrived(Session &session) {
    attachment().add({.kind = Event::Kind::resume, .session = &session});
}

void detach_arrived(Session &session) {
    attachment().add({.kind = Event::Kind::detach, .session = &session});
}

bool hung_up(Session &session) {
    if (!session.attaching()) {
        attachment().over(session);
        return true;
    }
    session.set_linked(false);
    session.end().lose_link();
    return false;
}

} // namespace singularity::client
