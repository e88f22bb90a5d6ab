// SPDX-License-Identifier: GPL-2.0-or-later
// Slurm's commands in the nodes that a step has on this host (../commands): the sockets on which stand-ins
// ask for them, the wrappers that serve these, and how both come to rest while the step is saved.
#pragma once

#include "agent/node/live_node.hpp"
#include "agent/node/node_socket.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "common/unique_fd.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

namespace singularity::agent {

class Doors {
  public:
    // For what the commands are to rest. Each is let go by itself.
    enum class For : std::uint8_t { save, check };
    using Then = std::function<void(const Expected<void> &)>;
    // Who serves one: a value that nobody else has until he has left.
    struct Wrapper {
        const void *who = nullptr;
        std::function<bool()> left;
    };

    struct Patience {
        std::chrono::milliseconds rest{std::chrono::seconds(30)};  // longer than wrappers wait for a command
        std::chrono::milliseconds last{std::chrono::seconds(330)}; // than they wait for a step to be saved
    };
    // step: its name, for messages.
    explicit Doors(std::string step) : Doors(std::move(step), Patience()) {}
    Doors(std::string step, Patience patience) : step_(std::move(step)), patience_(patience) {}

    // A socket that listens, for this wrapper, who comes to rest with the others from now on. `paths`: where
    // it is found in directories of the step's nodes; at least one. The one that the wrapper had before is
    // closed. EAGAIN: not while the commands rest.
    [[nodiscard]] Expected<int> open(Wrapper wrapper, const std::vector<std::filesystem::path> &paths,
                                     const SocketOwner &owner);
    // This wrapper hears when its commands are to rest, at once if they are to already.
    // steps_too: steps that run may be saved with their script, and go on.
    void watch(const void *who, bool steps_too, const Responder &responder);
    // This wrapper's rest, or, with what stands in the way, do not; it hears when they need no longer.
    void rest_of(const void *who, const CommandsRest &rest, const Responder &responder);

    // From now on nobody finds a socket. `then` is told when all commands rest, or which does not
    // (SaveError::kWaits; kStepRuns: but for a save with which the step ends), or that nobody wants it any
    // more (ECANCELED). ends: the step ends with this save; who waits for another step goes on with that,
    // once it is saved. A wrapper that does not answer in time is not waited for: who looks at the processes
    // finds each stand-in that has a connection. But one that may save steps, which run on, has to say which
    // images of them its own names: without that word nothing is saved (kStepRuns).
    void rest(For what, Then then, bool ends = false);
    // They rest later than others do: steps that they wait for are saved before.
    void wait_longer();
    // They go on when nobody else needs their rest.
    void let_go(For what);

    // Who has left, and who is late.
    void look();
    [[nodiscard]] const std::optional<Deadline> &until() const { return until_; }

  private:
    struct Keeper {
        Wrapper wrapper;
        UniqueFd socket;
        std::optional<Responder> watcher;
        std::optional<Responder> resting;
        bool steps_too = false; // may be told to save: see watch
    };
    [[nodiscard]] Keeper *find(const void *who);
    [[nodiscard]] SaveBegins begins(const Keeper &keeper) const {
        return {.ends = ends_, .saves = keeper.steps_too && wanted_by_.contains(For::save)};
    }
    static void close(Keeper &keeper);
    [[nodiscard]] bool all_rest() const;
    [[nodiscard]] bool names_steps() const;
    void settle(const Expected<void> &outcome);
    void go_on();

    std::string step_;
    Patience patience_;
    std::vector<Keeper> keepers_;
    std::set<For> wanted_by_;
    std::vector<std::pair<For, Then>> waiting_;
    std::optional<Deadline> until_; // they wait
    bool ends_ = false;
};

} // namespace singularity::agent
