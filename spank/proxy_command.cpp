// SPDX-License-Identifier: GPL-2.0-or-later
#include "proxy_command.hpp"

#include "proxy/launcher/run.hpp"

#include <cstdlib>
#include <iostream>
#include <memory>

#include <CLI/CLI.hpp>

namespace singularity::spank {

namespace {

constexpr unsigned kMostDevices = 64;

constexpr const char *kProxyRunHelp =
    "run a program through device proxies of its own: the smallest way to use them, without Slurm.\n"
    "The program is unchanged; whatever it loads as libcuda.so.1, libnvidia-ml.so.1 or libnccl.so.2 is "
    "the proxy's client.\n"
    "The exit status is the program's, 128 + N if signal N ended it, 1 if it could not be started.";

int run_program(const launcher::RunOptions &options) {
    const auto status = launcher::run(options);
    if (!status) {
        std::cerr << "singularityctl: " << status.error().message() << '\n';
        return EXIT_FAILURE;
    }
    return *status;
}

} // namespace

void add_proxy_command(CLI::App &app, int &status) {
    CLI::App *proxy = app.add_subcommand("proxy", "device proxies");
    proxy->require_subcommand(1);
    CLI::App *command = proxy->add_subcommand("run", kProxyRunHelp);
    const auto options = std::make_shared<launcher::RunOptions>();
    command->add_option("--devices", options->devices, "how many devices, one proxy each")
        ->check(CLI::Range(1U, kMostDevices))
        ->capture_default_str();
    command->add_option(
        "--backend", options->backend,
        "what the proxies run on: a driver library by path, or 'software', the software GPU; without "
        "it NVIDIA's driver where there is one, else the software GPU");
    command
        ->add_option(
            "--proxyd-option", options->proxyd_arguments,
            "passed to each singularity-proxyd, e.g. --proxyd-option=--ring-size=4M; may be repeated")
        ->allow_extra_args(false); // what follows is not the proxies': -- would end only this
    command->add_flag("--stats", options->statistics,
                      "print one line about the calls on stderr when the program has ended");
    command->add_option("PROGRAM", options->command, "the program and its arguments, after --")->required();
    command->callback([options, &status] { status = run_program(*options); });
}

} // namespace singularity::spank
