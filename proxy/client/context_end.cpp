// SPDX-License-Identifier: GPL-2.0-or-later
// The end of a context: what everybody keeps of it goes. Nothing includes this, so it may know all of them.
#include "attachment.hpp"
#include "context.hpp"
#include "graph_memory.hpp"
#include "memory.hpp"
#include "opened_memory.hpp"
#include "process.hpp"
#include "stream_memory.hpp"

namespace singularity::client {

void Context::ended() {
    alive = false;
    unshare_host_memory(*this);
    forget_freed(*this);
    forget_graph_memory(*this);
    forget_opened(*this);
    forget_device_memory(*this);
    memory.forget();
    slabs.forget();
    {
        const std::scoped_lock lock(streams_lock);
        idle_streams.clear();
    }
    {
        const std::scoped_lock lock(copy_stream_lock);
        copy_stream = 0;
    }
    forget_launches_apart(*this);
    auto &mine = process();
    for (unsigned kind = 1; kind <= driver_api::kHandleKinds; ++kind)
        if (kind != driver_api::kHandleContext)
            static_cast<void>(
                mine.table(kind).remove_if([this](const Object &object) { return object.context == this; }));
}

} // namespace singularity::client
