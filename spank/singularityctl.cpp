// SPDX-License-Identifier: GPL-2.0-or-later
// The command line for users and administrators.
#include "common/config.hpp"
#include "common/guarded_main.hpp"
#include "doctor_command.hpp"
#include "image_command.hpp"
#include "node_command.hpp"
#include "slurm_command.hpp"
#ifdef SINGULARITY_WITH_PROXY
#include "proxy_command.hpp"
#endif
#ifdef SINGULARITY_WITH_STORE
#include "store_command.hpp"
#endif

#include <cstdlib>
#include <filesystem>
#include <iostream>

#include <CLI/CLI.hpp>

namespace {

int check_config(const std::filesystem::path &path) {
    const auto settings = singularity::config::load(path);
    if (!settings) {
        std::cerr << "singularityctl: " << settings.error().message() << '\n';
        return EXIT_FAILURE;
    }
    std::cout << singularity::config::to_yaml(*settings);
    return EXIT_SUCCESS;
}

int run(int argc, char **argv) {
    CLI::App app("slurm-singularity: elastic, preemptible, movable GPU jobs under Slurm");
    app.set_version_flag("--version", SINGULARITY_VERSION);
    app.require_subcommand(1);

    std::filesystem::path path = singularity::config::default_path();
    CLI::App *config = app.add_subcommand("config", "the configuration file, singularity.yaml");
    config->require_subcommand(1);
    CLI::App *check = config->add_subcommand(
        "check", "check a configuration file and print every setting that is in force with it");
    check->add_option("FILE", path, "the file")->capture_default_str();

    int status = EXIT_SUCCESS;
    check->callback([&] { status = check_config(path); });
    singularity::spank::add_node_commands(app, status);
    singularity::spank::add_image_commands(app, status);
    singularity::spank::add_slurm_commands(app, status);
    singularity::spank::add_doctor_command(app, status);
#ifdef SINGULARITY_WITH_PROXY
    singularity::spank::add_proxy_command(app, status);
#endif
#ifdef SINGULARITY_WITH_STORE
    singularity::spank::add_store_command(app, status);
#endif

    CLI11_PARSE(app, argc, argv);
    return status;
}

} // namespace

int main(int argc, char **argv) { return singularity::guarded_main(run, argc, argv); }
