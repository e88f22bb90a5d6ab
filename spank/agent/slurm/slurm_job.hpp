// SPDX-License-Identifier: GPL-2.0-or-later
// What Slurm is doing with a job. slurmctld is asked by a process of its own (../slurm), which may take its
// time.
#pragma once

#include "agent/limits/share.hpp"
#include "agent/worker/paths.hpp"
#include "common/error.hpp"
#include "peers/subprocess.hpp"

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace singularity::agent {

struct SlurmJob {
    enum class Fate : std::uint8_t {
        stays,
        requeued,
        preempted, // its grace time runs
        timeout,
        terminated, // failed by SIGTERM
        ended,
    };
    bool known = false; // slurmctld has a record of it
    Fate fate = Fate::ended;
    bool completing = false; // some of its processes may still be there
    bool batch = false;
    bool may_requeue = false;
    std::uint32_t restarts = 0; // counted when it waits again
    std::string batch_host;
};
// As singularity-slurm prints it.
[[nodiscard]] Expected<SlurmJob> parse_slurm_job(std::string_view text);
// Whether its steps are to go on later, where it is run again.
[[nodiscard]] bool goes_on_later(const SlurmJob &job);

inline constexpr const char *kAnswerComment = "answer"; // of singularity-slurm's commands

// A job of Slurm's, and whose it must be: of another's, slurmctld is told nothing, and nothing is heard.
struct OwnedJob {
    std::uint32_t id = 0;
    std::uint32_t uid = 0;
    // What singularity-slurm is told.
    [[nodiscard]] std::vector<std::string> command(std::string name) const;
};

// One question or request. Without I/O that blocks: what has come is taken when fd() is readable.
class SlurmRequest {
  public:
    [[nodiscard]] static Expected<SlurmRequest> about(const Libraries &libraries, const OwnedJob &job);
    [[nodiscard]] static Expected<SlurmRequest> requeue(const Libraries &libraries, const OwnedJob &job);
    // The same, and it waits until somebody releases it.
    [[nodiscard]] static Expected<SlurmRequest> hold(const Libraries &libraries, const OwnedJob &job,
                                                     const std::string &why);
    // Of a job that waits, what else would be later.
    [[nodiscard]] static Expected<SlurmRequest> begin(const Libraries &libraries, const OwnedJob &job);

    // What else singularity-slurm can be told (--help).
    [[nodiscard]] static Expected<SlurmRequest> send(const Libraries &libraries,
                                                     std::vector<std::string> words);

    [[nodiscard]] int fd() const { return subprocess_.fd(); }
    [[nodiscard]] const Deadline &deadline() const { return subprocess_.deadline(); }
    // Nothing: there is no answer yet. An error is told once.
    [[nodiscard]] Expected<std::optional<std::string>> take();

  private:
    explicit SlurmRequest(peers::Subprocess subprocess) : subprocess_(std::move(subprocess)) {}
    // On behalf of the job's owner, whose share of Budget::questions it takes.
    [[nodiscard]] static Expected<SlurmRequest> send_for(const Libraries &libraries, const OwnedJob &job,
                                                         std::vector<std::string> words);
    peers::Subprocess subprocess_;
    Share share_;
};

// singularity-slurm is run with this command and these words some time, after all that was told before about
// jobs of this user.
using TellSlurm =
    std::function<void(const OwnedJob &job, std::string command, std::vector<std::string> words)>;

// 4711 of "4711.0"; an error: it is none.
[[nodiscard]] Expected<std::uint32_t> job_of_step(std::string_view step);

} // namespace singularity::agent
