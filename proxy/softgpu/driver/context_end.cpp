// SPDX-License-Identifier: GPL-2.0-or-later
// The end of a context: what it has of everything goes. Nothing includes this, so it may know all of them.
#include "driver/array.hpp"
#include "driver/context.hpp"
#include "driver/event.hpp"
#include "driver/graph.hpp"
#include "driver/module.hpp"
#include "driver/pool.hpp"

#include <chrono>
#include <utility>

namespace singularity::softgpu::driver {

namespace {

using namespace std::chrono_literals;

// cuCtxDestroy returns within a second whatever runs.
constexpr auto kPatience = 800ms;

// All of a table's objects that belong to the context, taken out of it.
template <class Table>
auto take_all(Table &table, const Context &context) {
    auto objects = table.all([&](const auto &object) { return object.belongs_to(context); });
    for (const auto &object : objects)
        table.take(object->handle);
    return objects;
}

} // namespace

void Context::end() {
    const auto deadline = Clock::now() + kPatience;
    active = false;
    cancelled.store(true, std::memory_order_release);
    const auto mine = streams();
    for (const auto &stream : mine)
        stream->wake();
    for (const auto &stream : mine)
        (void)stream->wait_idle(
            deadline); // who is still at work holds what it needs, and ends when it looks up
    flush_print();
    end_captures(*this);
    for (const auto &stream : mine)
        driver::streams().take(stream->handle);
    (void)take_all(events(), *this);
    (void)take_all(functions(), *this);
    textures_.clear();
    (void)take_all(mipmapped_arrays(), *this);
    (void)take_all(arrays(), *this);
    for (const auto &module : take_all(modules(), *this))
        module->unload();
    forget_in_libraries(*this);
    for (const Allocation &allocation : memory_map().remove_owned_by(id_))
        if (allocation.kind == MemoryKind::pool)
            if (const auto pool = pools().find(allocation.pool))
                pool->free_now(allocation.address);
    for (const auto &other : contexts().all([](const Context &) { return true; })) {
        other->remove_peer(id_);
        other->drop_ranges();
    }
    drop_ranges();
    {
        const std::scoped_lock lock(submission_mutex_);
        streams_.clear();
        per_thread_.clear();
        legacy_.reset();
    }
}

} // namespace singularity::softgpu::driver
