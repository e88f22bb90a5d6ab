// SPDX-License-Identifier: GPL-2.0-or-later
#include "doctor_command.hpp"

#include "agent/protocol/agent_messages.hpp"
#include "doctor/gather.hpp"
#include "doctor/report.hpp"

#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

namespace singularity::spank {

namespace {

constexpr const char *kHelp =
    "find out whether this node, and the cluster that it belongs to, is set up so that elastic jobs can be "
    "saved, requeued and moved.\n"
    "Prints a paragraph for each thing that is wrong, with what to write where. Run it on each node as root: "
    "for others it leaves out what only root can see, and says so. It changes no setting.\n"
    "The exit status is 0 if nothing was found, 1 if something was, 2 if a part could not be looked at.";

struct DoctorOptions {
    doctor::Where where;
    bool json = false;
};

int run(const DoctorOptions &options) {
    const auto diagnosis = doctor::diagnose(doctor::gather(options.where));
    std::cout << (options.json ? doctor::in_json(diagnosis) : doctor::in_words(diagnosis));
    return doctor::exit_status(diagnosis);
}

} // namespace

void add_doctor_command(CLI::App &app, int &status) {
    const auto options = std::make_shared<DoctorOptions>();
    options->where = {
        .socket = agent::kDefaultSocket, .staging = agent::kDefaultStaging, .version = SINGULARITY_VERSION};
    CLI::App *const command = app.add_subcommand("doctor", kHelp);
    command->add_option("--socket", options->where.socket, "the node agent's socket")
        ->envname("SINGULARITY_AGENT_SOCKET")
        ->capture_default_str();
    command
        ->add_option("--staging", options->where.staging,
                     "the staging directory, if singularityd has another")
        ->capture_default_str();
    command->add_flag("--json", options->json, "print the same as one line of JSON");
    command->callback([options, &status] { status = run(*options); });
}

} // namespace singularity::spank
