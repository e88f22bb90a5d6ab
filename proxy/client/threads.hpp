// SPDX-License-Identifier: GPL-2.0-or-later
// Threads of the client's own.
#pragma once

#include <csignal>
#include <thread>
#include <utility>

#include <pthread.h>

namespace singularity::client {

// The program's signals are for the program's threads.
template <class Body>
void start_thread(const char *name, Body body) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    std::thread thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name);
    thread.detach();
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

} // namespace singularity::client
