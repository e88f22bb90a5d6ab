// SPDX-License-Identifier: GPL-2.0-or-later
#include "lease.hpp"

#include "directory.hpp"
#include "log.hpp"

#include <algorithm>
#include <cerrno>
#include <utility>

#include <fcntl.h>
#include <fmt/chrono.h>
#include <fmt/format.h>
#include <sys/stat.h>

namespace singularity::store {
namespace {

// Of the timeout, between two renewals: several may fail or be late.
constexpr int kRenewals = 20;

} // namespace

Expected<std::unique_ptr<Lease>> Lease::take(std::shared_ptr<UserSpace> space, std::string name,
                                             std::chrono::milliseconds timeout) {
    auto file = space->pending.create_file(name);
    if (!file)
        return propagate(file);
    return std::unique_ptr<Lease>(new Lease(std::move(space), std::move(name), *std::move(file), timeout));
}

Lease::Lease(std::shared_ptr<UserSpace> space, std::string name, UniqueFd file,
             std::chrono::milliseconds timeout)
    : space_(std::move(space)), name_(std::move(name)), file_(std::move(file)), timeout_(timeout),
      renewing_([this] { renew(); }) {}

Lease::~Lease() {
    {
        const std::lock_guard lock(mutex_);
        ending_ = true;
    }
    changed_.notify_all();
    renewing_.join();
    if (published_)
        return;
    if (const auto removed = space_->pending.remove(name_); !removed)
        kLog.warning("{}; garbage collection will, when the lease has expired", removed.error().message());
}

void Lease::renew() {
    const auto interval = std::max(timeout_ / kRenewals, std::chrono::milliseconds(1));
    std::unique_lock lock(mutex_);
    while (!changed_.wait_for(lock, interval, [this] { return ending_; })) {
        // Null: the server's clock, with which garbage collection compares. The file may have been removed by
        // it meanwhile (ESTALE on NFS); publish() finds that out.
        if (::futimens(file_.get(), nullptr) != 0 && errno != ESTALE)
            kLog.warning("{}", errno_error("renew", path()).message());
    }
}

Expected<void> Lease::publish() {
    auto renamed = space_->pending.rename(name_, space_->checkpoints, name_);
    if (!renamed)
        return propagate(renamed);
    if (!*renamed)
        return failure("commit checkpoint", name_,
                       fmt::format("its lease is gone: nothing was heard of this writer for {}, so garbage "
                                   "collection took it for dead",
                                   std::chrono::duration_cast<std::chrono::seconds>(timeout_)),
                       ESTALE);
    published_ = true;
    return {};
}

} // namespace singularity::store
