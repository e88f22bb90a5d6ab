// SPDX-License-Identifier: GPL-2.0-or-later
#include "driver/conditional.hpp"

#include "driver/context.hpp"

#include <map>
#include <mutex>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

struct Conditionals {
    std::mutex mutex;
    std::map<std::pair<std::uint64_t, std::uint64_t>, std::weak_ptr<Conditional>>
        all; // by context and number
};

Conditionals &conditionals() {
    static auto &instance = *new Conditionals; // outlives every thread
    return instance;
}

} // namespace

Conditional::~Conditional() {
    const std::scoped_lock lock(conditionals().mutex);
    conditionals().all.erase({context_, number_});
}

std::shared_ptr<Conditional> make_conditional(const Context &context, std::uint32_t value) {
    const std::scoped_lock lock(conditionals().mutex);
    auto &all = conditionals().all;
    std::uint64_t number = 1;
    for (auto at = all.lower_bound({context.id(), 1});
         at != all.end() && at->first == std::pair(context.id(), number); ++at)
        ++number;
    auto made = std::make_shared<Conditional>(context.id(), number, value);
    all[{context.id(), number}] = made;
    return made;
}

std::shared_ptr<Conditional> conditional_of(const Context &context, std::uint64_t number) {
    const std::scoped_lock lock(conditionals().mutex);
    const auto found = conditionals().all.find({context.id(), number});
    return found == conditionals().all.end() ? nullptr : found->second.lock();
}

} // namespace singularity::softgpu::driver
