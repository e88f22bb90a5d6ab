// SPDX-License-Identifier: GPL-2.0-or-later
#include "engine/workers.hpp"

#include <algorithm>

#include <sched.h>

namespace singularity::softgpu {

namespace {

unsigned usable_threads() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof(set), &set) != 0)
        return 1;
    return std::max(1U, static_cast<unsigned>(CPU_COUNT(&set)));
}

} // namespace

Workers::Impl::Impl(unsigned threads) : size(threads) {
    for (unsigned i = 1; i < size; ++i)
        helpers.emplace_back([this] { help(); });
}

Workers::Impl::~Impl() {
    {
        const std::scoped_lock guard(lock);
        ending = true;
    }
    wake.notify_all();
    helpers.clear(); // joins
}

void Workers::Impl::help() {
    std::unique_lock guard(lock);
    for (;;) {
        wake.wait(guard, [this] { return ending || !jobs.empty(); });
        if (ending)
            return;
        Job *job = jobs.front();
        ++job->helpers;
        if (--job->wanted == 0)
            jobs.pop_front();
        guard.unlock();
        job->work();
        guard.lock();
        if (--job->helpers == 0)
            job->idle.notify_all();
    }
}

void Workers::Impl::run(unsigned threads, const std::function<void()> &work) {
    Job job{work, std::min(threads, size) - 1, 0, {}};
    if (job.wanted > 0) {
        {
            const std::scoped_lock guard(lock);
            jobs.push_back(&job);
        }
        wake.notify_all();
    }
    work();
    std::unique_lock guard(lock);
    std::erase(jobs, &job); // helpers that did not come are not needed any more
    job.idle.wait(guard, [&] { return job.helpers == 0; });
}

Workers::Workers(unsigned threads)
    : impl_(std::make_unique<Impl>(threads == 0 ? usable_threads() : threads)) {}
Workers::~Workers() = default;
unsigned Workers::size() const { return impl_->size; }

} // namespace singularity::softgpu
