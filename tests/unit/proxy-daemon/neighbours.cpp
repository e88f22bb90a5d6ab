// SPDX-License-Identifier: GPL-2.0-or-later
// Device proxies that share a device: what they have is counted together, one at a time is served, and none
// of them waits for one that has died, whenever that was. Proxies are objects in this process, each with a
// descriptor and locks of its own, or processes of this test's.
#include "neighbours.hpp"

#include "cmocka.hpp"
#include "common/log.hpp"
#include "counted_tenant.hpp"
#include "residency.hpp"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdint>
#include <cstdlib>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <thread>
#include <utility>
#include <vector>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace singularity;
using namespace singularity::proxyd;

#ifdef __SANITIZE_THREAD__
// A child that dies has threads of its own. For the sanitizer, which has one, no fork is that of one thread.
extern "C" [[gnu::visibility("default")]] const char *__tsan_default_options() { return "die_after_fork=0"; }
#endif

namespace {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

constexpr Neighbours::Device kGpu{1, 2, 3};
constexpr Neighbours::Device kOtherGpu{1, 2, 4};
constexpr std::uint64_t kDevice = 100;

UniqueFd new_file(off_t size = Neighbours::kBytes, int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) {
    UniqueFd file(memfd_create("neighbours", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    assert_true(file && ftruncate(file.get(), size) == 0 && fcntl(file.get(), F_ADD_SEALS, seals) == 0);
    return file;
}

std::unique_ptr<Neighbours> neighbour(const UniqueFd &file, const Neighbours::Device &device = kGpu,
                                      Neighbours::Hook hook = {}) {
    auto out = Neighbours::open(file.get(), device, std::move(hook));
    assert_true(out.has_value());
    return std::move(*out);
}

void files_that_are_not_the_agents_are_refused(void ** /*state*/) {
    assert_false(Neighbours::open(new_file(4096).get(), kGpu).has_value());
    assert_false(Neighbours::open(new_file(Neighbours::kBytes, 0).get(), kGpu).has_value());
    assert_false(Neighbours::open(new_file().get(), Neighbours::Device{}).has_value());
    assert_false(Neighbours::open(-1, kGpu).has_value());
}

void memory_is_counted_together(void ** /*state*/) {
    const auto file = new_file();
    auto first = neighbour(file);
    auto second = neighbour(file);
    auto elsewhere = neighbour(file, kOtherGpu);
    assert_true(first->any() && second->any() && !elsewhere->any());
    assert_true(first->take(60, kDevice));
    assert_int_equal(second->taken(), 60);
    assert_false(second->take(41, kDevice));
    assert_true(second->take(40, kDevice));
    assert_true(elsewhere->take(100, kDevice));
    first->give_back(10);
    assert_true(second->take(10, kDevice));
    assert_false(first->take(UINT64_MAX, kDevice));
    // Who ends has nothing any more, and who comes in its place begins with nothing.
    second.reset();
    assert_int_equal(first->taken(), 0);
    second = neighbour(file);
    assert_int_equal(first->taken(), 0);
    assert_true(first->take(50, kDevice));
}

void who_asks_first_is_served_first(void ** /*state*/) {
    const auto file = new_file();
    std::vector<std::unique_ptr<Neighbours>> all;
    for (int number = 0; number < 3; ++number) {
        all.push_back(neighbour(file));
        all.back()->queue();
    }
    assert_true(all[0]->is_first() && !all[1]->is_first() && !all[2]->is_first());
    all[0]->leave_queue();
    assert_true(!all[0]->is_first() && all[1]->is_first() && !all[2]->is_first());
    all[0]->queue();
    all[1].reset(); // it has died while it was served
    assert_true(all[2]->is_first() && !all[0]->is_first());
    all[2].reset();
    assert_true(all[0]->is_first());
}

// One asks, the others answer as they are told to.
void everybody_is_asked_in_turn(void ** /*state*/) {
    using Answer = Neighbours::Answer;
    using Step = Neighbours::Sweep::Step;
    const auto file = new_file();
    auto asks = neighbour(file);
    std::vector<std::unique_ptr<Neighbours>> others;
    for (int number = 0; number < 3; ++number) {
        others.push_back(neighbour(file));
        assert_true(others.back()->take(10, kDevice));
    }
    others[1]->queue();
    asks->queue();
    // Only who is served may ask.
    Neighbours::Sweep early(*asks);
    assert_true(early.step() == Step::waits);
    for (const auto &one : others)
        assert_false(one->question().has_value());
    others[1]->leave_queue();
    Neighbours::Sweep sweep(*asks);
    const auto who_is_asked = [&] {
        std::optional<std::size_t> out;
        for (std::size_t at = 0; at < others.size(); ++at)
            if (others[at] != nullptr && others[at]->question()) {
                assert_false(out.has_value());
                out = at;
            }
        assert_true(out.has_value());
        return *out;
    };
    const auto say = [&](Answer what) {
        assert_true(sweep.step() == Step::waits);
        const auto who = who_is_asked();
        others[who]->answer(*others[who]->question(), what);
        assert_false(others[who]->question().has_value());
        return who;
    };
    const auto giver = say(Answer::gave);
    assert_true(sweep.step() == Step::gave);
    assert_int_equal(say(Answer::stuck), giver); // who gives is asked for more
    const auto next = say(Answer::later);
    assert_true(next != giver && sweep.stuck());
    assert_true(sweep.step() == Step::waits);
    const auto last = who_is_asked();
    assert_true(last != giver && last != next);
    others[last].reset(); // it dies instead of an answer
    assert_true(sweep.step() == Step::over && sweep.stuck() && !sweep.nobody());
    for (int times = 0; times < 3; ++times) {
        assert_false(sweep.nobody());
        static_cast<void>(say(Answer::nothing));
        static_cast<void>(say(Answer::nothing));
        assert_true(sweep.step() == Step::over && !sweep.stuck());
    }
    assert_true(sweep.nobody());
    // An answer to another question is none.
    assert_true(sweep.step() == Step::waits);
    const auto who = who_is_asked();
    others[who]->answer(*others[who]->question() ^ (1U << 20), Answer::gave);
    assert_true(sweep.step() == Step::waits);
}

// --- every order of every change of the file, and a death in front of each

struct Died {};

// A thread that stops in front of each change.
class Actor {
  public:
    Actor(const UniqueFd &file, std::function<void(Neighbours &)> does) {
        neighbours_ = neighbour(file, kGpu, [this] { pause(); });
        thread_ = std::thread([this, does = std::move(does)] {
            armed_ = true;
            try {
                does(*neighbours_);
            } catch (const Died &) {
                armed_ = false;
                neighbours_.reset();
            }
            armed_ = false;
            const std::scoped_lock lock(lock_);
            state_ = State::done;
            changed_.notify_all();
        });
        wait();
    }
    ~Actor() {
        while (!done())
            step();
        thread_.join();
    }
    Actor(const Actor &) = delete;
    Actor &operator=(const Actor &) = delete;
    Actor(Actor &&) = delete;
    Actor &operator=(Actor &&) = delete;
    // Up to the next change, or its end.
    void step(bool die = false) {
        {
            const std::scoped_lock lock(lock_);
            dies_ = die;
            state_ = State::runs;
            changed_.notify_all();
        }
        wait();
    }
    bool done() {
        const std::scoped_lock lock(lock_);
        return state_ == State::done;
    }
    Neighbours *neighbours() { return neighbours_.get(); }

  private:
    enum class State : std::uint8_t { runs, stands, done };
    void pause() {
        if (!armed_)
            return;
        std::unique_lock lock(lock_);
        state_ = State::stands;
        changed_.notify_all();
        changed_.wait(lock, [this] { return state_ == State::runs; });
        if (dies_)
            throw Died{};
    }
    void wait() {
        std::unique_lock lock(lock_);
        changed_.wait(lock, [this] { return state_ != State::runs; });
    }

    std::mutex lock_;
    std::condition_variable changed_;
    State state_ = State::runs;
    bool dies_ = false;
    std::atomic<bool> armed_ = false;
    std::unique_ptr<Neighbours> neighbours_;
    std::thread thread_;
};

// Runs `does` twice, beside each other, in every order, and once more for each point at which the first may
// die. look: after each step; finish: after the last one.
struct Both {
    std::array<std::unique_ptr<Actor>, 2> actors;
};
void in_every_order(const std::array<std::function<void(Neighbours &)>, 2> &does,
                    const std::function<void()> &begin, const std::function<void(Both &)> &look,
                    const std::function<void(Both &)> &finish) {
    constexpr unsigned kNever = 1000;
    unsigned orders = 0;
    for (unsigned dies_at = kNever;; dies_at = dies_at == kNever ? 0 : dies_at + 1) {
        bool died = false;
        std::vector<bool> order; // who goes first where both can: the second if it says so
        for (bool more = true; more;) {
            const auto file = new_file();
            begin();
            Both both;
            for (std::size_t who = 0; who < 2; ++who)
                both.actors.at(who) = std::make_unique<Actor>(file, does.at(who));
            std::size_t choices = 0;
            for (unsigned steps = 0;;) {
                const bool first = !both.actors[0]->done();
                const bool second = !both.actors[1]->done();
                if (!first && !second)
                    break;
                bool takes_second = second;
                if (first && second) {
                    if (choices == order.size())
                        order.push_back(false);
                    takes_second = order[choices++];
                }
                if (takes_second) {
                    both.actors[1]->step();
                } else {
                    both.actors[0]->step(steps == dies_at);
                    died = died || steps == dies_at;
                    ++steps;
                }
                look(both);
            }
            finish(both);
            ++orders;
            order.resize(choices);
            while (!order.empty() && order.back())
                order.pop_back();
            more = !order.empty();
            if (more)
                order.back() = true;
        }
        if (dies_at != kNever && !died)
            break;
    }
    assert_true(orders > 100);
}

void never_more_than_there_is(void ** /*state*/) {
    std::array<std::atomic<std::uint64_t>, 2> has{};
    const auto works = [&](std::size_t who) {
        return [&has, who](Neighbours &neighbours) {
            if (neighbours.take(60, kDevice)) {
                has.at(who) = 60;
                neighbours.give_back(60);
                has.at(who) = 0;
            }
            if (neighbours.take(50, kDevice))
                has.at(who) = 50;
        };
    };
    in_every_order(
        {works(0), works(1)}, [&] { has[0] = has[1] = 0; },
        [&](Both &both) {
            const auto first = both.actors[0]->neighbours() == nullptr ? 0 : has[0].load();
            assert_true(first + has[1] <= kDevice);
        },
        [&](Both &both) {
            const auto first = both.actors[0]->neighbours() == nullptr ? 0 : has[0].load();
            auto *const second = both.actors[1]->neighbours();
            assert_int_equal(second->taken(), first);
            assert_true(second->take(kDevice - first - has[1], kDevice));
        });
}

void one_at_a_time_is_served(void ** /*state*/) {
    std::array<std::atomic<bool>, 2> served{};
    const auto works = [&](std::size_t who) {
        return [&served, who](Neighbours &neighbours) {
            neighbours.queue();
            served.at(who) = neighbours.is_first();
            neighbours.set_moving({}); // something comes in between
            served.at(who) = served.at(who) || neighbours.is_first();
            neighbours.leave_queue();
            served.at(who) = false;
        };
    };
    in_every_order(
        {works(0), works(1)}, [&] { served[0] = served[1] = false; },
        [&](Both &both) { assert_false(both.actors[0]->neighbours() != nullptr && served[0] && served[1]); },
        [&](Both &both) {
            auto *const second = both.actors[1]->neighbours();
            second->queue();
            assert_true(second->is_first());
        });
}

// --- with sessions

Residency::Rules rules() { return {.device_bytes = kDevice, .quantum = 50ms, .idle = 1ms, .patience = 20ms}; }

std::shared_ptr<Residency> proxy(const UniqueFd &file, Neighbours::Hook hook = {}) {
    auto out = std::make_shared<Residency>(rules());
    out->use_neighbours(neighbour(file, kGpu, std::move(hook)));
    return out;
}

void what_fits_stays(void ** /*state*/) {
    const auto file = new_file();
    const auto here = proxy(file);
    const auto there = proxy(file);
    const auto first = Counted::make(here, 48);
    const auto second = Counted::make(there, 48);
    for (const auto &one : {first, second}) {
        assert_int_equal(one->begin(), CUDA_SUCCESS);
        one->gate.leave();
    }
    for (int index = 0; index < 100; ++index)
        for (const auto &one : {first, second}) {
            assert_true(one->gate.enter());
            one->gate.leave();
        }
    assert_int_equal(here->counts().moved + there->counts().moved, 0);
    assert_int_equal(here->taken(), 96);
    assert_int_equal(there->taken(), 96);
}

void who_is_idle_elsewhere_leaves(void ** /*state*/) {
    const auto file = new_file();
    const auto here = proxy(file);
    const auto there = proxy(file);
    const auto first = Counted::make(here, 60);
    const auto second = Counted::make(there, 60);
    assert_int_equal(first->begin(), CUDA_SUCCESS);
    first->gate.leave();
    assert_int_equal(second->begin(), CUDA_SUCCESS);
    assert_int_equal(second->on_device(), 60);
    assert_int_equal(first->on_device(), 40); // only as much as was needed
    assert_true(here->crowded() && there->crowded());
    assert_false(first->gate.enter());
    second->gate.leave();
    assert_int_equal(first->enter(), CUDA_SUCCESS);
    assert_true(first->complete());
    first->gate.leave();
    assert_int_equal(here->counts().moved, 20);
    assert_int_equal(there->counts().moved, 20);
    assert_int_equal(here->counts().on_host + there->counts().on_host, 0);
    // A session of a proxy that comes later knows it from the beginning.
    const auto later = proxy(file);
    const auto third = Counted::make(later, 10);
    assert_true(later->crowded());
}

void nobody_leaves_while_it_works_elsewhere(void ** /*state*/) {
    const auto file = new_file();
    auto long_turns = rules();
    long_turns.quantum = 1h;
    const auto here = std::make_shared<Residency>(long_turns);
    here->use_neighbours(neighbour(file));
    const auto there = proxy(file);
    const auto first = Counted::make(here, 60);
    const auto second = Counted::make(there, 60);
    assert_int_equal(first->begin(), CUDA_SUCCESS);
    first->works = true;
    std::atomic<bool> met = false;
    std::thread asks([&] {
        assert_int_equal(second->begin(), CUDA_SUCCESS);
        met = true;
        second->gate.leave();
    });
    std::this_thread::sleep_for(50ms);
    assert_false(met);
    first->gate.leave();
    std::this_thread::sleep_for(50ms);
    assert_false(met);
    assert_true(first->complete());
    first->works = false;
    assert_true(in_time([&] { return met.load(); }));
    asks.join();
    assert_int_equal(first->violations, 0);
    assert_int_equal(second->lent(), 0);
}

// Who has to go on works in memory of the host: the other's work waits for it, or its proxy stands still.
void memory_of_the_host_has_to_do(void ** /*state*/) {
    const auto file = new_file();
    const auto here = proxy(file);
    const auto there = proxy(file);
    const auto waits = Counted::make(here, 60);
    assert_int_equal(waits->begin(), CUDA_SUCCESS);
    waits->gate.leave();
    waits->works = true;
    waits->stuck = true;
    const auto needed = Counted::make(there, 60);
    assert_int_equal(needed->begin(), CUDA_SUCCESS);
    assert_int_equal(needed->lent(), 20);
    assert_int_equal(waits->on_device(), 60);
    assert_int_equal(there->counts().on_host, 1);
    needed->gate.leave();
}

void a_neighbour_that_stands_still_is_not_waited_for(void ** /*state*/) {
    const auto file = new_file();
    const auto stands = neighbour(file); // answers nothing
    assert_true(stands->take(60, kDevice));
    const auto there = proxy(file);
    const auto needed = Counted::make(there, 60);
    assert_int_equal(needed->begin(), CUDA_SUCCESS);
    assert_int_equal(needed->lent(), 20);
    needed->gate.leave();
    // Nor one that has asked before and ends.
    auto asks = neighbour(file);
    asks->queue();
    std::atomic<bool> met = false;
    const auto second = Counted::make(there, 30);
    std::thread thread([&] {
        assert_int_equal(second->begin(), CUDA_SUCCESS);
        met = true;
    });
    std::this_thread::sleep_for(20ms);
    assert_false(met);
    asks.reset();
    assert_true(in_time([&] { return met.load(); }));
    thread.join();
}

// It has asked, has been served or not, and stands still ever since.
void the_first_of_all_is_not_waited_for_without_end(void ** /*state*/) {
    const auto file = new_file();
    const auto stands = neighbour(file);
    stands->queue();
    auto impatient = rules();
    impatient.longest = 100ms;
    const auto here = std::make_shared<Residency>(impatient);
    here->use_neighbours(neighbour(file));
    const auto one = Counted::make(here, 60);
    const auto begin = Clock::now();
    assert_int_equal(one->begin(), CUDA_SUCCESS);
    assert_true(Clock::now() - begin >= 200ms);
    assert_int_equal(one->on_device(), 60);
    one->gate.leave();
}

void more_than_all_can_give_is_refused(void ** /*state*/) {
    const auto file = new_file();
    const auto here = proxy(file);
    const auto there = proxy(file);
    const auto one = Counted::make(here, 10);
    const auto other = Counted::make(there, 10);
    assert_int_equal(other->begin(), CUDA_SUCCESS);
    other->gate.leave();
    assert_int_equal(here->ask(one->gate, [](bool) { return CUDA_ERROR_OUT_OF_MEMORY; }),
                     CUDA_ERROR_OUT_OF_MEMORY);
    assert_int_equal(other->on_device(), 0);
}

void whoever_is_inside_has_everything(void ** /*state*/) {
    const auto file = new_file();
    std::vector<std::shared_ptr<Residency>> proxies;
    for (int number = 0; number < 3; ++number)
        proxies.push_back(proxy(file));
    std::vector<std::shared_ptr<Counted>> all;
    for (const std::uint64_t wants : {90, 60, 50, 40, 30, 20})
        all.push_back(Counted::make(proxies[all.size() % proxies.size()], wants, 10));
    std::atomic<unsigned> wrong = 0;
    std::vector<std::thread> threads;
    threads.reserve(all.size());
    for (const auto &one : all)
        threads.emplace_back([&wrong, one] { use(one, 60, wrong); });
    for (auto &thread : threads)
        thread.join();
    assert_int_equal(wrong, 0);
    std::uint64_t moved = 0;
    for (const auto &one : all)
        assert_int_equal(one->violations, 0);
    for (const auto &one : proxies)
        moved += one->counts().moved;
    assert_true(moved != 0);
}

// --- processes

// A proxy that ends, without a word, in front of its number-th change of the file; 0: it does not.
[[noreturn]] void live_and_die(const UniqueFd &file, unsigned number) {
    std::atomic<unsigned> changes = 0;
    std::atomic<unsigned> wrong = 0;
    const auto here = proxy(file, [&] {
        if (++changes == number)
            raise(SIGKILL);
    });
    const auto one = Counted::make(here, 60, 20);
    use(one, 4, wrong);
    std::this_thread::sleep_for(5ms);
    use(one, 4, wrong);
    _exit(wrong == 0 ? EXIT_SUCCESS : EXIT_FAILURE);
}

void a_proxy_may_die_at_any_point(void ** /*state*/) {
    unsigned died = 0;
    for (unsigned number = 1;; ++number) {
        const auto file = new_file();
        const pid_t child = fork(); // there are no threads now
        assert_true(child >= 0);
        if (child == 0)
            live_and_die(file, number);
        int status = 0;
        {
            const auto here = proxy(file);
            const auto one = Counted::make(here, 60, 20);
            std::atomic<unsigned> wrong = 0;
            std::atomic<bool> ended = false;
            std::thread uses([&] {
                while (!ended)
                    use(one, 2, wrong);
            });
            assert_int_equal(waitpid(child, &status, 0), child);
            ended = true;
            uses.join();
            assert_int_equal(wrong, 0);
            assert_int_equal(one->violations, 0);
            // And now all of the device is there for who is left.
            const auto second = Counted::make(here, 30, 10);
            assert_int_equal(second->begin(), CUDA_SUCCESS);
            assert_int_equal(second->lent(), 0);
            assert_int_equal(here->taken(), second->on_device() + one->on_device());
            second->gate.leave();
        }
        if (WIFEXITED(status)) {
            assert_int_equal(WEXITSTATUS(status), EXIT_SUCCESS);
            break;
        }
        assert_int_equal(WTERMSIG(status), SIGKILL);
        ++died;
    }
    assert_true(died > 30);
}

// Whatever another process of the user writes there: nothing breaks but the job's own turns.
void what_is_read_is_checked(void ** /*state*/) {
    const auto file = new_file();
    void *const memory = mmap(nullptr, Neighbours::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    assert_true(memory != MAP_FAILED);
    auto *const words = static_cast<std::uint64_t *>(memory);
    constexpr std::size_t kWords = Neighbours::kBytes / sizeof(std::uint64_t);
    std::mt19937_64 chance(4711); // NOLINT(bugprone-random-generator-seed): the same each time
    std::atomic<bool> stop = false;
    std::vector<std::shared_ptr<Residency>> proxies;
    for (int number = 0; number < 2; ++number)
        proxies.push_back(proxy(file));
    std::thread writes([&] {
        while (!stop)
            for (int times = 0; times < 64; ++times) {
                // Mostly what somebody looks at.
                const auto at = chance() % (times % 2 == 0 ? 80 : kWords);
                const std::array values{std::uint64_t{0}, UINT64_MAX, chance(), chance() % 8};
                std::atomic_ref(words[at]).store(values.at(chance() % values.size()));
            }
    });
    std::vector<std::shared_ptr<Counted>> all;
    for (const std::uint64_t wants : {60, 60})
        all.push_back(Counted::make(proxies[all.size()], wants, 20));
    std::vector<std::thread> threads;
    threads.reserve(all.size());
    for (const auto &one : all)
        threads.emplace_back([one] {
            std::atomic<unsigned> wrong = 0; // memory may be refused
            use(one, 20, wrong);
        });
    std::this_thread::sleep_for(500ms);
    stop = true;
    writes.join();
    // As after the death of who has done it.
    std::fill_n(words, kWords, 0);
    for (auto &thread : threads)
        thread.join();
    for (const auto &one : all)
        assert_int_equal(one->violations, 0);
    all.clear();
    proxies.clear();
    munmap(memory, Neighbours::kBytes);
}

} // namespace

int main() {
    log::set_level(log::Level::kWarning); // each of many proxies would say that it takes turns
    const CMUnitTest tests[] = {
        cmocka_unit_test(files_that_are_not_the_agents_are_refused),
        cmocka_unit_test(memory_is_counted_together),
        cmocka_unit_test(who_asks_first_is_served_first),
        cmocka_unit_test(everybody_is_asked_in_turn),
        cmocka_unit_test(never_more_than_there_is),
        cmocka_unit_test(one_at_a_time_is_served),
        cmocka_unit_test(what_fits_stays),
        cmocka_unit_test(who_is_idle_elsewhere_leaves),
        cmocka_unit_test(nobody_leaves_while_it_works_elsewhere),
        cmocka_unit_test(memory_of_the_host_has_to_do),
        cmocka_unit_test(a_neighbour_that_stands_still_is_not_waited_for),
        cmocka_unit_test(the_first_of_all_is_not_waited_for_without_end),
        cmocka_unit_test(more_than_all_can_give_is_refused),
        cmocka_unit_test(whoever_is_inside_has_everything),
        cmocka_unit_test(a_proxy_may_die_at_any_point),
        cmocka_unit_test(what_is_read_is_checked),
    };
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
