// SPDX-License-Identifier: GPL-2.0-or-later
// All jobs of this agent: those that it coordinates, and those that have nodes on its host.
#pragma once

#include "common/config.hpp"
#include "common/deadline.hpp"
#include "common/error.hpp"
#include "job.hpp"
#include "member.hpp"
#include "own_questions.hpp"
#include "peers/peers.hpp"

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <poll.h>

namespace singularity::agent {

struct JobKeeperOptions {
    Libraries libraries;
    std::filesystem::path place; // jobs/ and members/ are made in it
    std::string host;            // our own name
    Config::Agents agents;
    Config::Network network;
    std::chrono::milliseconds check_after{}; // as in Job::Setting
    TellSlurm tell_slurm;
};

class JobKeeper : private HostAsker {
  public:
    // nodes: outlives it.
    [[nodiscard]] static Expected<std::unique_ptr<JobKeeper>> open(const JobKeeperOptions &options,
                                                                   NodeKeeper &nodes);
    JobKeeper(const JobKeeper &) = delete;
    JobKeeper &operator=(const JobKeeper &) = delete;
    JobKeeper(JobKeeper &&) = delete;
    JobKeeper &operator=(JobKeeper &&) = delete;
    ~JobKeeper() override = default;

    // The names of those of an earlier agent.
    [[nodiscard]] Expected<void> look_for_earlier();
    // Finds them again, once their nodes have been. Who cannot be for the moment waits for the next call. The
    // answer: the jobs that this call has found.
    [[nodiscard]] std::vector<std::shared_ptr<Job>> adopt_waiting();
    [[nodiscard]] std::size_t waiting() const { return waiting_members_.size() + waiting_jobs_.size(); }
    [[nodiscard]] bool job_waits(const std::string &name) const {
        return waiting_jobs_.contains(name) || waiting_members_.contains(name);
    }

    struct JobRequest {
        RunJob request;
        std::uint32_t uid = 0;
        std::uint32_t gid = 0;
        std::vector<std::uint32_t> groups;
        std::string cgroups;
        // Of a step of Slurm's, whose ranks bring their programs. That of the request is only what is
        // compared when it is begun again.
        std::string step;                  // or empty
        std::vector<std::uint32_t> places; // as JoinStep has them
        std::string name;                  // of the job of a step
        std::uint32_t ranks = 0;
        std::string cluster;
        std::uint32_t restarts = 0;
        std::string identity;
        bool of_script = false;
        bool until_srun = false; // as JoinStep has it
        bool one_host = false;   // its job has, in Slurm
        std::string elastic;
        std::string gpus; // as JobRecord has it
        std::string store;
        bool goes_on = false; // with its script, from a checkpoint that this names; perhaps in the same run
    };
    [[nodiscard]] Expected<std::shared_ptr<Job>> run(JobRequest asked);

    // job_restore.cpp. A job as it was when it was saved, and where it is to run: the directory for what goes
    // with it. Then either begin() or give_up() is called with the same record.
    struct Restoring {
        peers::wire::JobRecord record;
        std::filesystem::path directory;
    };
    struct RestorePlan {
        const Restore *request = nullptr;
        const WorkFoundJob *found = nullptr;
        std::string cgroups; // of who asks
        std::uint32_t uid = 0;
        // Whether who asks may have a node of this user, group and groups.
        std::function<Expected<void>(const node::Spec &)> may_make;
    };
    [[nodiscard]] Expected<Restoring> prepare_restore(const RestorePlan &plan);
    // A step that is begun again. ESTALE: what was found is not of this step; it begins anew.
    [[nodiscard]] Expected<Restoring> prepare_restore(const JobRequest &step, const WorkFoundJob &found);
    [[nodiscard]] Expected<std::shared_ptr<Job>> begin(peers::wire::JobRecord record);
    void give_up(const std::string &name);
    // All of these agents; then hears their answers, in the same order.
    void ask_each(const std::vector<std::string> &hosts, const peers::wire::Envelope &request,
                  std::chrono::milliseconds patience,
                  std::function<void(const std::vector<Expected<peers::wire::Envelope>> &)> then);
    // Whether this host has a part of the job.
    [[nodiscard]] bool is_member(const std::string &name) const {
        return members_.contains(name) || waiting_members_.contains(name);
    }
    // Null if there is none.
    [[nodiscard]] std::shared_ptr<Job> find(const std::string &name) const;
    [[nodiscard]] const std::map<std::string, std::shared_ptr<Job>> &all() const { return jobs_; }

    void watch(std::vector<pollfd> &fds) const;
    [[nodiscard]] std::optional<Deadline> next_deadline() const;
    void handle();

  private:
    JobKeeper(const JobKeeperOptions &options, NodeKeeper &nodes);
    void ask(const std::string &host, peers::wire::Envelope request, std::chrono::milliseconds patience,
             peers::Peers::OnReply on_reply) override;
    [[nodiscard]] std::optional<peers::Peers::Addresses> addresses(const std::string &host) const override;
    void run_again(Rerun rerun) override { nodes_->run_again(std::move(rerun)); }
    void script_saved(const StepKey &key) override { nodes_->script_saved(key); }
    void forget_image(const StepKey &key, std::string image) override {
        nodes_->forget_image(key, std::move(image));
    }
    [[nodiscard]] const std::string &own_host() const override { return member_setting_.host; }
    // What the agent of a host asks of this one, for jobs that it coordinates.
    void serve(const std::string &coordinator, peers::wire::Envelope request,
               const peers::Peers::Answer &answer);
    void replace(const std::shared_ptr<Member> &member, const std::string &coordinator,
                 peers::wire::Envelope request, const peers::Peers::Answer &answer);
    // Steps of a batch script's that are coordinated here.
    void save_steps(const peers::wire::SaveSteps &request, const peers::Peers::Answer &answer) const;
    // What waits for the tasks of a step of Slurm's.
    void serve_parked();
    [[nodiscard]] std::uint32_t free_number() const;
    [[nodiscard]] std::uint32_t free_number_of(const JobRequest &asked) const;
    // What is left here of the job of that name goes.
    [[nodiscard]] Expected<void> replace_ended(const std::string &name);
    [[nodiscard]] Expected<Restoring> restoring(peers::wire::JobRecord record,
                                                const WorkFoundJob &found) const;
    [[nodiscard]] Expected<void> room_for_one_more(std::uint32_t uid) const;
    // For those of a job that is to be.
    [[nodiscard]] static Expected<void> room_for_ranks(const peers::wire::JobRecord &record);

    NodeKeeper *nodes_;
    Job::Setting job_setting_;
    MemberSetting member_setting_;
    std::unique_ptr<peers::Peers> peers_;
    std::map<std::string, std::shared_ptr<Job>> jobs_;
    std::map<std::string, std::shared_ptr<Member>> members_;
    std::set<std::string> waiting_jobs_; // of an earlier agent, and not found again yet
    std::set<std::string> waiting_members_;
    struct Parked {
        std::string coordinator;
        peers::wire::Envelope request;
        peers::Peers::Answer answer;
        Deadline until;
    };
    std::vector<Parked> parked_;
    std::vector<std::function<void()>> later_; // answers of our own to ourselves
    OwnQuestions own_questions_;
};

} // namespace singularity::agent
