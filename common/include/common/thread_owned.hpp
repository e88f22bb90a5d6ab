// SPDX-License-Identifier: GPL-2.0-or-later
// What a thread has, for libraries that a program still calls while it ends.
#pragma once

#include <memory>

#include <pthread.h>

namespace singularity {

// One T for each thread, made by its first use. It outlives the destructors of all thread_local variables,
// which may use it; on the thread that calls exit(3) it also outlives the handlers of atexit(3) and the
// destructors of static variables. A thread_local T would be gone before them, and they would work on what
// was freed. T's destructor runs at the end of every other thread.
template <class T>
class ThreadOwned {
  public:
    static T &mine() {
        if (mine_ == nullptr) [[unlikely]]
            make();
        return *mine_;
    }

  private:
    static void make() {
        static const pthread_key_t kKey = [] {
            pthread_key_t key{};
            // Without a key (a program has used all of them) what a thread has is not freed at its end.
            return pthread_key_create(&key, &end) == 0 ? key : pthread_key_t{~0U};
        }();
        mine_ = std::make_unique<T>().release();
        static_cast<void>(pthread_setspecific(kKey, mine_));
    }
    static void end(void *owned) {
        mine_ = nullptr; // destructors of other keys may use it again: the next round ends that one
        const std::unique_ptr<T> last(static_cast<T *>(owned));
    }

    static inline thread_local T *mine_ = nullptr;
};

} // namespace singularity
