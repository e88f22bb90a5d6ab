// SPDX-License-Identifier: GPL-2.0-or-later
// The proxies of one run: one singularity-proxyd per device, with their sockets in a private directory.
#pragma once

#include "child.hpp"
#include "common/error.hpp"
#include "installation.hpp"
#include "proxy/collectives/rendezvous.hpp"
#include "run_directory.hpp"

#include <filesystem>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace singularity::launcher {

class Proxies {
  public:
    // All of them serve, or the error says which does not and why.
    // arguments: passed on to each singularity-proxyd.
    [[nodiscard]] static Expected<Proxies> start(const Installation &installation, const std::string &driver,
                                                 unsigned devices, const std::vector<std::string> &arguments);
    Proxies(Proxies &&) = default;
    Proxies &operator=(Proxies &&) = delete;
    Proxies(const Proxies &) = delete;
    Proxies &operator=(const Proxies &) = delete;
    // Asks them to end and waits.
    ~Proxies();

    [[nodiscard]] const std::filesystem::path &directory() const { return directory_.path(); }
    [[nodiscard]] std::string sockets() const; // for SINGULARITY_PROXY_SOCKETS
    [[nodiscard]] const std::vector<Child> &processes() const { return processes_; }

  private:
    explicit Proxies(RunDirectory directory) : directory_(std::move(directory)) {}
    [[nodiscard]] std::filesystem::path socket(std::size_t device) const;

    RunDirectory directory_;
    std::unique_ptr<collectives::Rendezvous> rendezvous_;
    std::vector<Child> processes_;
};

} // namespace singularity::launcher
