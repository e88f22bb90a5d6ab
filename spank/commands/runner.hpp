// SPDX-License-Identifier: GPL-2.0-or-later
// Runs Slurm's commands outside of a virtual node, for stand-ins within it. A part of a poll loop: `watch`
// and `next_deadline` say what to wait for, `work` does all that can be done without waiting.
//
// Runner and stand-ins belong to one user. The runner is no barrier between them: it gives a stand-in nothing
// that the runner's own user has not, and serves nobody else.
#pragma once

#include "command_messages.hpp"
#include "common/deadline.hpp"
#include "common/unique_fd.hpp"
#include "real_command.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <poll.h>
#include <sys/types.h>

namespace singularity::commands {

// Connections at a time that have not been answered finally; each takes up to three descriptors. One more is
// refused in words.
inline constexpr std::size_t kConnectionLimit = 256;
// Beyond those: connections that have been answered and have not hung up yet. Whoever connects when there are
// as many waits.
inline constexpr std::size_t kAnsweredLimit = 64;

// Commands that end when their step does.
inline constexpr std::array<std::string_view, 2> kStepCommands{"srun", "sattach"};

// What becomes of steps that are begun here.
enum class StepsAre : std::uint8_t {
    unknown,   // yet: who asks is to come again
    with_rank, // they go on with the rank that has begun them
    apart,     // they are nothing of its
};

[[nodiscard]] bool ends_with_its_step(const std::string &path);

struct Setting {
    std::vector<std::filesystem::path> commands; // these paths, exactly, and no others
    // Makes of an environment in the node one outside of it; may be empty.
    std::function<void(std::vector<std::string> &environment)> adapt;
    // The same for a command that may go on (kGoesOn), as `Run` has it. Empty: none goes on.
    std::function<void(std::vector<std::string> &environment, const Run &run)> number;
    // How one of kStepCommands that is asked for now begins. Empty: as one that may go on.
    std::function<StepsAre()> steps_are;
    std::size_t connections = kConnectionLimit;
};

// What a step goes on from.
struct SavedStep {
    std::string checkpoint;
    std::vector<std::uint64_t>
        read; // by each rank of its input, since the command was begun (or kReadsNone); empty: not known
};

class Runner {
  public:
    explicit Runner(Setting setting) : setting_(std::move(setting)) {}
    Runner(const Runner &) = delete;
    Runner &operator=(const Runner &) = delete;
    Runner(Runner &&) = delete;
    Runner &operator=(Runner &&) = delete;
    // Kills what runs, and waits for nothing.
    ~Runner() { hang_up_all(); }

    // Serves who connects to this socket: SOCK_SEQPACKET, listening, non-blocking. Ends a pause.
    void open(UniqueFd listening);

    void watch(std::vector<pollfd> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const { return accept_again_at_; }
    void work();

    // For a checkpoint of the node. From now on connect(2) gives ECONNREFUSED; whoever has connected and has
    // not been read from yet is told to come again. Commands that run go on to their ends. Until `open`.
    void pause();
    // Nobody is connected and no command runs. A stand-in that has been answered is connected until it has
    // hung up.
    [[nodiscard]] bool at_rest() const { return served_.empty() && !(paused_ && listening_); }

    struct Running {
        std::string path;      // empty: nothing has been asked for
        pid_t stand_in = 0;    // as this process sees it; 0: it has hung up
        bool answered = false; // finally
        bool may_go_on = false;
        bool over = false;        // it has ended, and its stand-in has not been told
        std::uint32_t number = 0; // of one that may go on
        bool began_step = false;
        Input input = Input::nothing;
        std::uint64_t kept_from = 0; // of its input: what was before that cannot be sent again
    };
    // What keeps the runner from rest, for messages.
    [[nodiscard]] std::vector<Running> running() const;

    // Whether this child of the process is a command that only `work` may reap. For a process that reaps all
    // others: waitid(2) with WNOWAIT tells who has ended.
    [[nodiscard]] bool has_child(pid_t pid) const;

    // From now on, until `deliver`, stand-ins for kStepCommands are not told that these have ended, and stay
    // connected; none is begun. Signals to one that may go on wait: its step may be saved before they reach
    // it.
    void withhold() { withheld_ = true; }
    void deliver();
    // There are ends that somebody has not been told.
    [[nodiscard]] bool withholds() const;

    // There is a command that may go on and has failed without a step: in the last moments of its job's run
    // it has perhaps been refused one. It is not told before `deliver`.
    [[nodiscard]] bool is_in_doubt() const { return !withheld_ && withholds(); }

    // Of commands that may go on, whose ends are withheld: the numbers of those that have begun a step.
    [[nodiscard]] std::vector<std::uint32_t> untold_steps() const;
    // Their stand-ins are to come again: for these checkpoints of their steps, by number; or, where no step
    // has begun, as they came. One stays whose input is not known to be there from where its step goes on.
    // Those that come here hear of the ends that were withheld.
    void send_away(const std::map<std::uint32_t, SavedStep> &steps);

    // Of a step that is to be saved while all others run on: from now on its end is withheld, and signals
    // wait, until it is known what becomes of it.
    void hold_end(std::uint32_t number);
    // It has ended because it was saved: its stand-in is to come again, and the srun is begun again from
    // there. Until those have come, no other takes their room, for some seconds at most. False: its input is
    // not known to be there.
    [[nodiscard]] bool send_back(std::uint32_t number, const SavedStep &saved);
    // It runs on, or has ended by itself.
    void tell_end(std::uint32_t number);
    // What stand-ins that were sent back, and have not come again, go on from. One that was killed does not.
    [[nodiscard]] std::vector<std::string> awaited() const;

    // A step that goes on has run all the time for whoever signals it. Until it does again, signals wait: the
    // numbers of those for which some do.
    [[nodiscard]] std::vector<std::uint32_t> signalled_steps() const;
    void step_runs(std::uint32_t number);

    // Hangs up on everybody, kills what runs, and reaps it. A process that SIGKILL does not end within a few
    // seconds, in a system call that does not return, is left to Slurm.
    void end();

  private:
    // A connection, a command, or both.
    struct Served {
        UniqueFd socket; // closed: the stand-in has hung up
        pid_t stand_in = 0;
        std::string path;
        std::optional<RealCommand> command; // until it has been reaped
        std::optional<Ended> untold;        // its end, as long as ends are withheld
        std::uint32_t number = 0;           // of one that may go on
        Input input = Input::nothing;
        std::uint64_t kept_from = 0; // of the input
        bool began_step = false;
        bool end_held = false;             // as hold_end says
        bool awaits_step = false;          // the stand-in, for its input
        bool deaf = false;                 // nothing can come from the socket any more, as hear_the_last says
        bool goes_on = false;              // and its step does not run yet, as far as is known
        std::vector<std::int32_t> signals; // that have come while there was no step, or it was to end
        bool answered = false;             // finally: only the hang-up is waited for
    };

    void accept_all();
    [[nodiscard]] bool full() const;
    void admit(Served &one, bool allowed);
    void listen_to(Served &one);
    void take(Served &one, node::Packet &packet);
    void run(Served &one, Run &&run, const node::Descriptors &descriptors);
    [[nodiscard]] StepsAre steps_are() const;
    [[nodiscard]] bool is_to_come_again(Served &one, const Run &run);
    void forget_the_dead();
    [[nodiscard]] bool waits_for_others(std::uint32_t number) const;
    void signal(Served &one, int number);
    void signal_again(Served &one);
    static void hold(Served &one, int number);
    static void hear_the_last(Served &one);
    static bool has_its_input(const Served &one, const SavedStep &saved);
    void look_after(Served &one);
    void hear_of_step(Served &one, const RealCommand &command);
    void refuse(Served &one, const Refused &refusal);
    template <class Answer>
    void answer(Served &one, const Answer &what);
    static void hang_up(Served &one);
    void hang_up_all();

    Setting setting_;
    UniqueFd listening_;
    std::list<Served> served_;
    std::map<std::uint32_t, Ended> sent_away_; // by number
    struct Awaited {
        std::string checkpoint;
        UniqueFd stand_in; // its pidfd; nothing where it cannot be seen from here
    };
    std::map<std::uint32_t, Awaited> awaited_; // by number
    std::optional<Deadline> awaited_until_;
    std::optional<Deadline> accept_again_at_; // this process has no descriptors left for now
    bool paused_ = false;
    bool withheld_ = false;
};

} // namespace singularity::commands
