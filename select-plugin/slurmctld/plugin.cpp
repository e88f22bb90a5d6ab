// SPDX-License-Identifier: GPL-2.0-or-later
#include "plugin.hpp"

#include "common/config.hpp"
#include "log.hpp"
#include "shield.hpp"
#include "slurm_controller.hpp"
#include "verification.hpp"

#include <chrono>
#include <exception>
#include <memory>
#include <string>

#include <dlfcn.h>

namespace singularity {

namespace {

constexpr int kSuccess = 0; // SLURM_SUCCESS
constexpr int kError = -1;  // SLURM_ERROR

// slurmctld's way down does not wait longer for the thread; a request to itself that is on its way then may
// take MessageTimeout.
constexpr std::chrono::milliseconds kMostForStop = std::chrono::seconds(2);

// What the thread of the select plugin does: finds out whether it has anything to do, then verifies.
class VerificationThread {
  public:
    VerificationThread(Shared &shared, const host::Slurmctld &slurmctld)
        : shared_(shared), slurmctld_(slurmctld) {}

    std::optional<std::chrono::milliseconds> step() noexcept {
        try {
            if (!verification_)
                prepare();
            return verification_ ? verification_->step() : std::nullopt;
        } catch (const std::exception &exception) {
            only_forward(exception.what());
            return std::nullopt;
        }
    }

  private:
    void only_forward(std::string_view why) {
        if (shared_.withdraw())
            kLog.error("only forwarding: {}", why);
    }

    // Without a verification afterwards nothing will ever be verified, and the log says why.
    void prepare() {
        const auto config = config::load_or_default(config::default_path());
        if (!config) {
            only_forward(config.error().message());
            return;
        }
        log::set_level(config->log_level);
        if (!config->slurmctld.decide) {
            if (shared_.withdraw())
                kLog.info("only forwarding: slurmctld.decide is false in {}",
                          config::default_path().string());
            return;
        }
        if constexpr (!records::kHasTable) {
            if (shared_.withdraw())
                kLog.info(
                    "only forwarding: where things lie in slurmctld's records is not known for Slurm {}: {}; "
                    "make-table.py makes a table from Slurm's source",
                    records::kRelease, records::kWhyThisTable);
            return;
        }
        if (const auto usable = records::SafeReader::usable(); !usable) {
            only_forward(usable.error().message());
            return;
        }
        auto controller = SlurmController::make(slurmctld_);
        if (!controller) {
            only_forward(controller.error().message());
            return;
        }
        controller_ = std::move(*controller);
        verification_.emplace(shared_, *controller_,
                              static_cast<std::size_t>(config->slurmctld.verify_sample),
                              config->slurmctld.verify_interval);
    }

    Shared &shared_;
    host::Slurmctld slurmctld_;
    std::unique_ptr<Controller> controller_;
    std::optional<Verification> verification_;
};

// The select plugin's Shared, if slurmctld has loaded that plugin. It was installed beside this one.
Shared *find_shared() {
    Dl_info here{};
    if (dladdr(reinterpret_cast<const void *>(&find_shared), &here) == 0 || here.dli_fname == nullptr)
        return nullptr;
    std::string path(here.dli_fname);
    path.replace(path.find_last_of('/') + 1, std::string::npos, "select_cons_tres_singularity.so");
    void *const handle = dlopen(path.c_str(), RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr)
        return nullptr;
    auto *const shared = static_cast<Shared *>(dlsym(handle, "singularity_shared"));
    return shared != nullptr && shared->compatible() ? shared : nullptr;
}

} // namespace

int Plugin::load() noexcept {
    try {
        host::log_to_slurm();
        auto loader = host::find_plugin_loader();
        if (!loader) {
            kLog.error("{}", loader.error().message());
            return kError;
        }
        if (auto loaded = backing_.load(*loader, backing_type_, operations_); !loaded) {
            kLog.error("{}", loaded.error().message());
            return kError;
        }
        return kSuccess;
    } catch (const std::exception &exception) {
        kLog.error("cannot load {}: {}", backing_type_, exception.what());
        return kError;
    }
}

int Plugin::unload() noexcept {
    backing_.unload();
    return kSuccess;
}

int SelectPlugin::fini() noexcept {
    const auto deadline = Deadline::after(kMostForStop);
    verification_.stop(deadline);
    protection_.stop(deadline);
    return unload();
}

void SelectPlugin::only_forward(const Error &why) noexcept {
    if (shared_.withdraw())
        kLog.error("only forwarding: {}", why.message());
}

void SelectPlugin::start() noexcept {
    if (protection_.started())
        return;
    try {
        auto slurmctld = host::find_slurmctld();
        if (!slurmctld) {
            only_forward(slurmctld.error());
            return;
        }
        const auto &found = *slurmctld;
        if (!found || (found->test_config != nullptr && *found->test_config))
            return;
        const auto lists = host::find_lists();
        if (!lists) {
            only_forward(lists.error());
            return;
        }
        // Never destroyed: slurmctld's threads may ask it until the process is gone.
        auto &shield = *new Shield(*lists);
        shared_.install(&shield);
        auto reader = std::make_shared<ProtectionReader>(kProtectionFile, shield);
        auto thread = std::make_shared<VerificationThread>(shared_, *found);
        if (auto started = protection_.start("protection", ProtectionReader::kEvery,
                                             [reader] { return reader->step(); });
            !started) {
            only_forward(started.error());
            return;
        }
        if (auto started =
                verification_.start("singularity", Verification::kSoon, [thread] { return thread->step(); });
            !started)
            only_forward(started.error());
    } catch (const std::exception &exception) {
        if (shared_.withdraw())
            kLog.error("only forwarding: {}", exception.what());
    }
}

int PriorityPlugin::init() noexcept {
    if (load() != kSuccess)
        return kError;
    try {
        shared_ = find_shared();
        const auto slurmctld = host::find_slurmctld();
        if (shared_ == nullptr && slurmctld && *slurmctld)
            kLog.info("priority/singularity only forwards: SelectType is not select/cons_tres_singularity, "
                      "or its file is "
                      "of another version");
    } catch (const std::exception &exception) {
        kLog.error("priority/singularity only forwards: {}", exception.what());
    }
    return kSuccess;
}

} // namespace singularity
