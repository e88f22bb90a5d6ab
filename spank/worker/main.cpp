// SPDX-License-Identifier: GPL-2.0-or-later
// singularity-worker: one checkpoint, restore, recovery or check of one virtual node, for the node agent. The
// agent does not wait for anything; this process does nothing else. Descriptor 3 is its socket to the agent.
#include "agent_link.hpp"
#include "common/config.hpp"
#include "common/guarded_main.hpp"
#include "criu-hooks/store/configured.hpp"
#include "jobs.hpp"
#include "log.hpp"

#include <chrono>
#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

namespace singularity::worker {

Expected<store::Store> open_store(std::string_view directory, bool create) {
    auto settings = config::load_or_default(config::default_path());
    if (!settings)
        return propagate(settings);
    auto chosen = config::chosen_store(settings->store, directory);
    if (!chosen)
        return propagate(chosen);
    auto options = store::configured(settings->store);
    options.create = create;
    return store::Store::open(*chosen, options);
}

Expected<std::vector<std::filesystem::path>> store_directories() {
    auto settings = config::load_or_default(config::default_path());
    if (!settings)
        return propagate(settings);
    return config::all_stores(settings->store);
}

Expected<Mark> Mark::make(const node::Room &room, const Deadline &deadline) {
    return make(room.mark(), "the virtual node", deadline);
}

Expected<Mark> Mark::make(const std::filesystem::path &path, const std::string &whose,
                          const Deadline &deadline) {
    auto file = open_file(path, O_RDWR | O_CREAT | O_NOFOLLOW);
    if (!file)
        return propagate(file);
    if (auto locked = wait_until([&] { return flock(file->get(), LOCK_EX | LOCK_NB) == 0; }, deadline,
                                 "another worker at " + whose);
        !locked)
        return propagate(locked);
    return Mark(path, std::move(*file));
}

Expected<void> Mark::remove() {
    if (unlink(path_.c_str()) != 0 && errno != ENOENT)
        return std::unexpected(errno_error("remove", path_.native()));
    return {};
}

} // namespace singularity::worker

namespace {

using namespace singularity;
using namespace std::chrono_literals;

constexpr auto kJobPatience = 30s;

Expected<worker::Outcome> work(worker::AgentLink &agent) {
    auto packet = agent.receive(Deadline::after(kJobPatience));
    if (!packet)
        return propagate(packet);
    if (const auto job = node::decode<agent::WorkSave>(packet->bytes))
        return job->part_of.empty() ? worker::save(*job, agent) : worker::save_part(*job, agent);
    if (const auto job = node::decode<agent::WorkSaveJob>(packet->bytes))
        return worker::save_job(*job, agent);
    if (const auto job = node::decode<agent::WorkSettleJob>(packet->bytes))
        return worker::settle_job(*job, agent);
    if (const auto job = node::decode<agent::WorkKeepEnd>(packet->bytes))
        return worker::keep_end(*job);
    if (const auto job = node::decode<agent::WorkForget>(packet->bytes))
        return worker::forget(*job);
    if (const auto job = node::decode<agent::WorkRestore>(packet->bytes))
        return worker::restore(*job, agent);
    if (const auto job = node::decode<agent::WorkRecover>(packet->bytes))
        return worker::recover(*job, agent);
    if (const auto job = node::decode<agent::WorkCheck>(packet->bytes))
        return worker::check(*job, agent);
    return failure("understand", "the agent", "it asks for what this worker does not know", EPROTO);
}

int run(int /*argc*/, char ** /*argv*/) {
    static_cast<void>(std::signal(SIGPIPE, SIG_IGN));
    if (fcntl(agent::kWorkerSocket, F_SETFD, FD_CLOEXEC) != 0) {
        worker::kLog.error("singularity-worker is started by singularityd, with its socket as descriptor 3");
        return EXIT_FAILURE;
    }
    node::widen(agent::kWorkerSocket);
    worker::AgentLink link(agent::kWorkerSocket);
    auto outcome = work(link);
    if (!outcome) {
        worker::kLog.error("{}", outcome.error().message());
        return EXIT_FAILURE;
    }
    const auto told = [&]() -> Expected<void> {
        if (outcome->told)
            return {};
        if (outcome->report)
            return link.tell(agent::WorkFinished{.report = *outcome->report});
        const auto &error = outcome->report.error();
        return link.tell(agent::WorkFailed{
            .error = {.doing = error.doing, .on = error.on, .why = error.why, .code = error.code},
            .lost = outcome->lost});
    }();
    if (!told)
        worker::kLog.error("{}", told.error().message());
    return outcome->report && told ? EXIT_SUCCESS : EXIT_FAILURE;
}

} // namespace

int main(int argc, char **argv) { return guarded_main(run, argc, argv); }
