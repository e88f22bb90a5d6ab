// SPDX-License-Identifier: GPL-2.0-or-later
#include "job_command.hpp"

#include "streams/program.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string_view>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h> // join, since fmt 11
#include <poll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace singularity::spank {

namespace {

using agent::Client;

constexpr std::chrono::seconds kJobRejoinPatience{30}; // for an agent that is being restarted
constexpr std::size_t kLineLimit = std::size_t{64} << 10;

// A job that runs in the foreground, and the connection to the agent that coordinates it.
class Follower {
  public:
    Follower(Client client, const RunJobOptions &options, std::string job,
             std::vector<std::uint64_t> read = {})
        : client_(std::move(client)), socket_(options.socket), job_(std::move(job)),
          output_(options.label, std::move(read)) {}

    Expected<agent::JobNews> follow(const UniqueFd &signals) {
        if (auto asked = ask(); !asked)
            return propagate(asked);
        for (;;) {
            std::array<pollfd, 2> fds{{{.fd = client_.fd(), .events = POLLIN, .revents = 0},
                                       {.fd = signals.get(), .events = POLLIN, .revents = 0}}};
            if (poll(fds.data(), fds.size(), -1) < 0 && errno != EINTR)
                return std::unexpected(errno_error("wait for", job_));
            forward(signals);
            auto news = client_.take<agent::JobNews>(asked_);
            if (!news && news.error().code != EPIPE)
                return propagate(news);
            if (!news) {
                if (auto again = rejoin(); !again)
                    return propagate(again);
                continue;
            }
            if (!*news)
                continue;
            for (const auto &line : (*news)->reply.told)
                std::cerr << "singularityctl: " << line << '\n';
            told_ += static_cast<std::uint32_t>((*news)->reply.told.size());
            output_.print((*news)->reply.output);
            if ((*news)->reply.ended) {
                output_.finish();
                return std::move((*news)->reply);
            }
            if (auto asked = ask(); !asked && asked.error().code != EPIPE)
                return propagate(asked);
        }
    }

    Expected<void> destroy() {
        auto done = client_.call<agent::Done>(agent::DestroyJob{.job = job_});
        return done ? Expected<void>() : propagate(done);
    }

  private:
    Expected<void> ask() {
        auto token =
            client_.send(agent::FollowJob{.job = job_, .read = output_.read(), .wait = true, .told = told_});
        if (!token)
            return propagate(token);
        asked_ = *token;
        return {};
    }

    // The agent has gone; jobs outlive it. Another will come.
    Expected<void> rejoin() {
        Expected<void> outcome;
        auto reached = wait_until(
            [&] {
                auto client = Client::connect(socket_);
                if (!client)
                    return false;
                client_ = std::move(*client);
                auto tied = client_.call<agent::Done>(agent::TieJob{.job = job_});
                if (!tied && tied.error().code == EPIPE)
                    return false;
                outcome = tied ? ask() : propagate(tied);
                return true;
            },
            Deadline::after(kJobRejoinPatience), "another node agent");
        return reached ? outcome : reached;
    }

    void forward(const UniqueFd &signals) {
        signalfd_siginfo info{};
        while (read(signals.get(), &info, sizeof(info)) == sizeof(info)) {
            if (info.ssi_signo == SIGWINCH)
                continue;
            // One that comes before the ranks run has nobody to go to but the job: it ends.
            auto sent = client_.call<agent::Done>(
                agent::SignalJob{.job = job_, .number = static_cast<std::int32_t>(info.ssi_signo)});
            if (!sent && sent.error().code == EAGAIN)
                sent = client_.call<agent::Done>(agent::DestroyJob{.job = job_});
            if (!sent)
                std::cerr << "singularityctl: " << sent.error().message() << '\n';
        }
    }

    Client client_;
    std::filesystem::path socket_;
    std::string job_;
    RankOutput output_;
    std::uint32_t asked_ = 0;
    std::uint32_t told_ = 0; // lines
};

// To its end, and the end of what is left of it.
Expected<int> accompany(Follower follower, const UniqueFd &signals, const std::string &job) {
    auto news = follower.follow(signals);
    if (!news)
        return propagate(news);
    if (auto destroyed = follower.destroy(); !destroyed && destroyed.error().code != ENOENT)
        std::cerr << "singularityctl: " << destroyed.error().message() << '\n';
    if (!news->trouble.empty())
        std::cerr << fmt::format("singularityctl: the job {} has ended: {}\n", job, news->trouble);
    return news->status;
}

} // namespace

void RankOutput::print(const std::vector<agent::JobOutput> &output) {
    for (const auto &one : output) {
        if (one.rank >= read_.size())
            read_.resize(one.rank + 1);
        if (one.offset > read_[one.rank] && read_[one.rank] != 0)
            std::cerr << fmt::format("singularityctl: {} bytes of rank {} are no longer kept\n",
                                     one.offset - read_[one.rank], one.rank);
        read_[one.rank] = one.offset + one.text.size();
        if (!label_) {
            std::cout.write(one.text.data(), static_cast<std::streamsize>(one.text.size()));
            continue;
        }
        auto &line = begun_[one.rank];
        for (const char c : one.text) {
            line += c;
            if (c == '\n' || line.size() >= kLineLimit)
                std::cout << one.rank << ": " << std::exchange(line, {}) << (c == '\n' ? "" : "\n");
        }
    }
    std::cout.flush();
}

void RankOutput::finish() {
    for (const auto &[rank, line] : std::exchange(begun_, {}))
        if (!line.empty())
            std::cout << rank << ": " << line << '\n';
    std::cout.flush();
}

Expected<int> run_job(const RunJobOptions &options, std::uint32_t devices, const std::string &backend,
                      const std::vector<std::string> &command) {
    auto signals = readable_signals();
    if (!signals)
        return propagate(signals);
    auto program = describe_program(command);
    if (!program)
        return propagate(program);
    auto client = Client::connect(options.socket);
    if (!client)
        return propagate(client);
    auto made = client->call<agent::JobMade>(
        agent::RunJob{.hosts = options.hosts,
                      .ranks_per_node = options.ranks_per_node == 0 ? 1 : options.ranks_per_node,
                      .devices = devices,
                      .backend = backend,
                      .program = std::move(*program),
                      .tied = !options.detach,
                      .every = options.every,
                      .publish = options.publish});
    if (!made)
        return propagate(made);
    const auto job = made->reply.job;
    if (options.detach) {
        std::cout << job << '\n';
        return EXIT_SUCCESS;
    }
    return accompany(Follower(std::move(*client), options, job), *signals, job);
}

Expected<int> accompany_job(Client client, const RunJobOptions &options, const agent::Imaged &restored) {
    auto signals = readable_signals();
    if (!signals)
        return propagate(signals);
    const auto &job = restored.report.node;
    return accompany(Follower(std::move(client), options, job, restored.read), *signals, job);
}

Expected<void> show_job_log(Client &client, const std::string &job, std::int32_t only, bool label) {
    RankOutput output(label);
    for (;;) {
        auto news = client.call<agent::JobNews>(
            agent::FollowJob{.job = job, .read = output.read(), .only = only, .wait = false});
        if (!news)
            return propagate(news);
        if (news->reply.output.empty()) {
            output.finish();
            return {};
        }
        output.print(news->reply.output);
    }
}

Expected<void> list_jobs(Client &client) {
    auto jobs = client.call<agent::Jobs>(agent::ListJobs{});
    if (!jobs)
        return propagate(jobs);
    if (jobs->reply.jobs.empty())
        return {};
    fmt::print("\n{:<20} {:>7} {:<10} {:>9} {:<20} {}\n", "JOB", "UID", "STATE", "RANKS", "MADE", "HOSTS");
    for (const auto &line : jobs->reply.jobs) {
        const auto made = fmt::gmtime(static_cast<std::time_t>(line.made));
        fmt::print("{:<20} {:>7} {:<10} {:>9} {:%Y-%m-%dT%H:%M:%SZ} {}", line.job, line.uid, line.state,
                   fmt::format("{}/{}", line.ranks - line.ended, line.ranks), made,
                   fmt::join(line.hosts, ","));
        if (line.state == "ended")
            fmt::print(" exit {}", line.status);
        fmt::print("{}{}\n", line.trouble.empty() ? "" : ": ", line.trouble);
        for (const auto &told : line.told)
            fmt::print("  {}\n", told);
    }
    if (!jobs->reply.complete)
        std::cerr << "singularityctl: there are more jobs\n";
    return {};
}

} // namespace singularity::spank
