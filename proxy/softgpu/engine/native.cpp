// SPDX-License-Identifier: GPL-2.0-or-later
// When native code is made, by whom, and how it is entered.
#include "engine/native.hpp"

#include "engine/block.hpp"

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <mutex>
#include <thread>

#include <dlfcn.h>
#include <fmt/core.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

namespace singularity::softgpu {

namespace engine {

namespace {

// How often an operation is executed before native code is made for it.
constexpr std::uint32_t kHot = 300;
// Entries with other values than it was made for, before it is made anew; how often at most.
constexpr std::uint32_t kDiffers = 8;
constexpr std::uint8_t kMostMade = 3;
constexpr std::uint64_t kMostBytes = std::uint64_t{256} << 20U; // of native code in a process
constexpr int kNice = 5;                                        // of the thread that compiles
constexpr std::size_t kMostQueued = 4096;

bool has_range(Context *context, const Op *op, std::uint64_t first, std::uint64_t last, const Range *&found) {
    found = last < first ? nullptr : find_range(*context, *op, first, last);
    return found != nullptr;
}

const Range *host_find_range(Context *context, const Op *op, std::uint64_t first, std::uint64_t last) {
    const Range *found = nullptr;
    return has_range(context, op, first, last, found) ? found : nullptr;
}

bool host_resolve(Context *context, const Op *op, std::uint32_t mask, const std::uint64_t *addresses,
                  std::uint64_t *hosts, std::uint64_t bytes, bool write) {
    try {
        std::uint64_t any = 0;
        for (unsigned lane = 0; lane < kLanes; ++lane)
            if ((mask & (1U << lane)) != 0)
                any = hosts[lane] = reinterpret_cast<std::uintptr_t>(
                    resolve_address(*context, *op, lane, addresses[lane], bytes, bytes, write));
        for (unsigned lane = 0; lane < kLanes; ++lane)
            if ((mask & (1U << lane)) == 0)
                hosts[lane] = any;
        return true;
    } catch (const LaneFault &) {
        return false; // the interpreter says which
    } catch (const std::bad_alloc &) {
        return false;
    }
}

template <class M, class R>
void copy_lanes(std::uint32_t mask, const std::uint64_t *hosts, std::byte *values, NativeAccess how) {
    for (unsigned lane = 0; lane < kLanes; ++lane) {
        if ((mask & (1U << lane)) == 0)
            continue;
        auto *at = reinterpret_cast<M *>(hosts[lane]); // NOLINT: an address of this process
        for (unsigned k = 0; k < how.count; ++k) {
            R *value = reinterpret_cast<R *>(values) + std::size_t{k} * kLanes + lane;
            if (how.write)
                at[k] = static_cast<M>(*value);
            else
                *value = static_cast<R>(at[k]);
        }
    }
}

bool host_access(Context *context, const Op *op, std::uint32_t mask, const std::uint64_t *addresses,
                 std::byte *values, NativeAccess how) {
    std::array<std::uint64_t, kLanes> hosts{};
    if (!host_resolve(context, op, mask, addresses, hosts.data(), std::uint64_t{how.part} * how.count,
                      how.write))
        return false;
    switch (how.part * 2 + (how.is_signed ? 1 : 0)) {
    case 2:
        copy_lanes<std::uint8_t, std::uint32_t>(mask, hosts.data(), values, how);
        break;
    case 3:
        copy_lanes<std::int8_t, std::uint32_t>(mask, hosts.data(), values, how);
        break;
    case 4:
        copy_lanes<std::uint16_t, std::uint32_t>(mask, hosts.data(), values, how);
        break;
    case 5:
        copy_lanes<std::int16_t, std::uint32_t>(mask, hosts.data(), values, how);
        break;
    case 8:
        copy_lanes<std::uint32_t, std::uint32_t>(mask, hosts.data(), values, how);
        break;
    default:
        copy_lanes<std::uint64_t, std::uint64_t>(mask, hosts.data(), values, how);
        break;
    }
    return true;
}

bool host_meets(Context *context, const Op *op) {
    const Group &group = *context->group;
    if (group.split < 0)
        return false;
    const Split &split = context->warp->split_at(group.split);
    return split.meeting == op && split.frame == context->frame && split.callee == nullptr;
}

constexpr NativeHost kHost{host_find_range, host_resolve, host_access, host_meets};

struct Queued {
    NativeCode *native = nullptr;
    std::uint32_t site = 0;
    unsigned variant = 0;
    NativeJob job;
};

class NativeCompiler {
  public:
    static NativeCompiler &instance() {
        static auto &the = *new NativeCompiler; // outlives every thread
        return the;
    }

    void configure(const CompilerOptions &options) {
        const std::scoped_lock guard(lock_);
        mode_ = options.mode;
        path_ = options.library;
        report_ = options.report;
    }
    [[nodiscard]] CompilerMode mode() const { return mode_.load(std::memory_order_relaxed); }

    CompilerStatistics statistics() {
        const std::scoped_lock guard(lock_);
        CompilerStatistics copy = statistics_;
        copy.idle = queue_.empty() && busy_ == nullptr;
        return copy;
    }

    // By the thread that executes the operation; never waits, unless everything is to be compiled at once.
    void ask(NativeCode &native, std::uint32_t site, unsigned variant, NativeJob job) {
        if (mode() == CompilerMode::compiler) {
            const std::scoped_lock guard(lock_, compiling_);
            NativeSite &its = native.sites[site];
            if (its.state[variant] == NativeState::idle)
                make({&native, site, variant, generalized(its, variant, std::move(job))});
            return;
        }
        const std::unique_lock guard(lock_, std::try_to_lock);
        NativeSite &its = native.sites[site];
        if (!guard.owns_lock() || stopped_ || its.state[variant] != NativeState::idle ||
            queue_.size() >= kMostQueued || getpid() != process_)
            return;
        // Here and not in the background, though it takes a tenth of a second, once: a process that ends
        // meanwhile would take from LLVM what has not been registered yet.
        if (!tried_)
            load();
        if (library_ == nullptr) {
            its.state[variant] = NativeState::done;
            return;
        }
        if (!started_)
            start_thread();
        if (!started_)
            return;
        its.state[variant] = NativeState::queued;
        queue_.push_back({&native, site, variant, generalized(its, variant, std::move(job))});
        wake_.notify_one();
    }

    void forget(NativeCode &native) {
        if (getpid() != process_)
            return; // of a fork's child: nobody compiles here
        std::unique_lock guard(lock_);
        std::erase_if(queue_, [&](const Queued &each) { return each.native == &native; });
        idle_.wait(guard, [&] { return busy_ != &native; });
        if (native.handles.empty() || stopped_)
            return;
        guard.unlock();
        const std::scoped_lock compiling(compiling_);
        for (void *handle : native.handles)
            library_->release(handle);
    }

  private:
    NativeCompiler() : process_(getpid()) {}

    // What differed once is taken to differ always; the last attempt takes nothing for granted.
    static NativeJob generalized(const NativeSite &site, unsigned variant, NativeJob job) {
        if (site.made[variant] != 0)
            for (std::size_t i = 0; i < job.rows.size(); ++i) {
                const NativeRow &before = site.rows[variant][i];
                NativeRow &now = job.rows[i];
                now.uniform = now.uniform && before.uniform;
                if (now.pattern != before.pattern || now.stride != before.stride)
                    now.pattern = NativePattern::irregular;
                if (site.made[variant] + 1 >= kMostMade)
                    now = {};
            }
        return job;
    }

    void start_thread() {
        sigset_t all;
        sigset_t before;
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before); // signals are the program's
        try {
            std::thread([this] { work(); }).detach();
            started_ = true;
        } catch (const std::system_error &) {
            statistics_.problem = "no thread to compile with";
        }
        pthread_sigmask(SIG_SETMASK, &before, nullptr);
    }

    void work() {
        pthread_setname_np(pthread_self(), "softgpu-compile");
        setpriority(PRIO_PROCESS, static_cast<id_t>(gettid()),
                    kNice); // of the thread: those that run kernels come first
        std::unique_lock guard(lock_);
        for (;;) {
            wake_.wait(guard, [&] { return !queue_.empty(); });
            Queued next = std::move(queue_.front());
            queue_.pop_front();
            busy_ = next.native;
            guard.unlock();
            {
                const std::scoped_lock compiling(compiling_);
                guard.lock();
                const bool can = load();
                guard.unlock();
                NativeCompiled made;
                if (can)
                    made = library_->compile(next.job);
                guard.lock();
                publish(next, made);
            }
            busy_ = nullptr;
            idle_.notify_all();
        }
    }

    // With both locks.
    void make(const Queued &one) {
        NativeCompiled made;
        if (load())
            made = library_->compile(one.job);
        publish(one, made);
    }

    void publish(const Queued &one, const NativeCompiled &made) {
        NativeSite &site = one.native->sites[one.site];
        if (made.handle != nullptr)
            one.native->handles.push_back(made.handle);
        statistics_.bytes += made.bytes;
        if (made.run != nullptr) {
            ++statistics_.compiled;
            site.rows[one.variant] = one.job.rows;
            ++site.made[one.variant];
            site.run[one.variant].store(made.run, std::memory_order_release);
        } else {
            ++statistics_.left;
        }
        site.state[one.variant].store(NativeState::done, std::memory_order_release);
        if (made.handle != nullptr)
            stop_at_end();
    }

    // The library's own data goes when the process ends: nothing is compiled from here on.
    void stop() {
        if (getpid() != process_)
            return;
        std::unique_lock guard(lock_);
        stopped_ = true;
        queue_.clear();
        idle_.wait(guard, [&] { return busy_ == nullptr; });
    }

    // Registered after what the library has registered, and so called before that; what it makes while it
    // compiles it registers too.
    static void stop_at_end() {
        if (std::atexit([] { instance().stop(); }) != 0)
            instance().stopped_ = true;
    }

    bool load() {
        if (stopped_)
            return false;
        if (library_ != nullptr)
            return statistics_.bytes < kMostBytes;
        if (tried_)
            return false;
        tried_ = true;
        const bool loaded = load_library();
        if (!loaded && report_)
            report_(statistics_.problem);
        return loaded;
    }

    bool load_library() {
        // RTLD_LOCAL: the program may have an LLVM of its own.
        void *handle = dlopen(path_.c_str(), RTLD_NOW | RTLD_LOCAL);
        if (handle == nullptr) {
            const char *why = dlerror(); // NOLINT(concurrency-mt-unsafe): the text is the thread's own
            statistics_.problem =
                fmt::format("kernels are interpreted: {}", why == nullptr ? path_.c_str() : why);
            return false;
        }
        const auto entry = reinterpret_cast<NativeEntry>(dlsym(handle, kNativeEntry)); // NOLINT
        const NativeLibrary *library = entry == nullptr ? nullptr : entry();
        if (library == nullptr || library->version != kNativeVersion || library->op_size != sizeof(Op) ||
            library->context_size != sizeof(Context)) {
            statistics_.problem = fmt::format("kernels are interpreted: {} is of another version", path_);
            return false;
        }
        if (std::string problem = library->start(kHost); !problem.empty()) {
            statistics_.problem = "kernels are interpreted: " + problem;
            return false;
        }
        library_ = library;
        stop_at_end();
        return true;
    }

    const pid_t process_;
    std::mutex compiling_; // the library is used; taken before lock_
    std::mutex lock_;
    std::condition_variable wake_;
    std::condition_variable idle_;
    std::deque<Queued> queue_;
    const NativeCode *busy_ = nullptr;
    std::atomic<CompilerMode> mode_{CompilerMode::interpreter};
    std::string path_;
    std::function<void(const std::string &)> report_;
    const NativeLibrary *library_ = nullptr;
    bool tried_ = false;
    bool stopped_ = false;
    bool started_ = false;
    CompilerStatistics statistics_;
};

template <class T>
NativeRow seen(const T *lanes, std::uint32_t mask) {
    const auto first = static_cast<unsigned>(std::countr_zero(mask));
    NativeRow row{.uniform = true};
    for (unsigned i = 0; i < kLanes; ++i)
        row.uniform &= (mask & (1U << i)) == 0 || lanes[i] == lanes[first];
    if (mask != kAllLanes)
        return row;
    const T stride = lanes[1] - lanes[0];
    bool same = true;
    for (unsigned i = 0; i < kLanes; ++i)
        same &= lanes[i] == static_cast<T>(lanes[i / 16 * 16] + i % 16 * stride);
    if (same) {
        row.pattern = stride == 0 ? NativePattern::halves_uniform : NativePattern::halves_contiguous;
        row.stride = stride;
    }
    return row;
}

std::vector<NativeRow> rows_seen(const Context &context) {
    std::vector<NativeRow> rows;
    for (const RowOfFrame &each : context.code->row_list) {
        NativeRow its;
        if (each.width == 0) {
            const std::uint32_t bits = predicate(context, each.ref) & context.mask;
            its.uniform = bits == 0 || bits == context.mask;
        } else if (each.width == 4) {
            its = seen(row<std::uint32_t>(context, each.ref), context.mask);
        } else if (each.width == 8) {
            its = seen(row<std::uint64_t>(context, each.ref), context.mask);
        }
        rows.push_back(its);
    }
    return rows;
}

void ask_for(Context &context, NativeCode &native, std::uint32_t at, unsigned variant, const Op &op) {
    NativeJob job;
    job.code = context.code;
    job.head = static_cast<std::uint32_t>(&op - context.ops);
    job.full = variant != 0;
    job.rows = rows_seen(context);
    NativeCompiler::instance().ask(native, at, variant, std::move(job));
}

void native_head(Context &context, const Op &op) {
    NativeCode &native = *context.code->native;
    const std::uint32_t at = native.site_of[static_cast<std::uint32_t>(&op - context.ops)];
    NativeSite &site = native.sites[at];
    const unsigned variant = context.mask == kAllLanes ? 1 : 0;
    NativeRun run = site.run[variant].load(std::memory_order_acquire);
    if (run == nullptr) {
        const NativeState state = site.state[variant].load(std::memory_order_relaxed);
        if (state == NativeState::idle) {
            const bool now = NativeCompiler::instance().mode() == CompilerMode::compiler;
            if (now || site.count.fetch_add(1, std::memory_order_relaxed) >= kHot)
                ask_for(context, native, at, variant, op);
            if (now)
                run = site.run[variant].load(std::memory_order_acquire);
        }
    }
    if (run != nullptr) {
        const std::int64_t budget = context.budget;
        const NativeEnd end = run(&context);
        if (end == NativeEnd::moved) [[likely]]
            return;
        context.budget = budget;
        context.next = &op + 1;
        if (end == NativeEnd::differs && site.made[variant] < kMostMade &&
            site.differs[variant].fetch_add(1, std::memory_order_relaxed) == kDiffers) {
            site.differs[variant].store(0, std::memory_order_relaxed);
            site.state[variant].store(NativeState::idle, std::memory_order_relaxed);
            ask_for(context, native, at, variant, op);
        }
    }
    site.original(context, op);
}

} // namespace

void NativeCodeEnd::operator()(NativeCode *native) const {
    NativeCompiler::instance().forget(*native);
    delete native; // NOLINT(cppcoreguidelines-owning-memory): of a unique_ptr
}

void native_sites(Code &code) {
    if (NativeCompiler::instance().mode() == CompilerMode::interpreter)
        return;
    std::vector<bool> head(code.ops.size() + 1, false);
    head[0] = true;
    for (std::size_t i = 0; i < code.ops.size(); ++i) {
        const Op &op = code.ops[i];
        switch (code.kinds[i]) {
        case OpKind::branch:
            head[op.target] = true;
            break;
        case OpKind::branch_if:
            head[op.target] = head[i + 1] = true;
            break;
        case OpKind::branch_table:
            for (std::uint64_t k = 0; k < op.immediate; ++k)
                head[code.extra[op.extra + k]] = true;
            break;
        case OpKind::meet:
        case OpKind::other:
            head[i + 1] = true;
            break;
        default:
            break;
        }
    }
    std::unique_ptr<NativeCode, NativeCodeEnd> native(new NativeCode);
    native->code = &code;
    native->site_of.assign(code.ops.size(), ptx::kNone);
    std::uint32_t count = 0;
    const auto begins = [&](std::size_t i) {
        const OpKind kind = code.kinds[i];
        const bool alone = kind == OpKind::other || kind == OpKind::end || kind == OpKind::branch_table ||
                           kind == OpKind::meet || kind == OpKind::nothing;
        return head[i] && !alone && (i == 0 || code.kinds[i - 1] != OpKind::guard);
    };
    for (std::size_t i = 0; i < code.ops.size(); ++i)
        if (begins(i))
            native->site_of[i] = count++;
    native->sites =
        std::make_unique<NativeSite[]>(count); // NOLINT(modernize-avoid-c-arrays): atomics do not move
    for (std::size_t i = 0; i < code.ops.size(); ++i)
        if (native->site_of[i] != ptx::kNone)
            native->sites[native->site_of[i]].original = std::exchange(code.ops[i].run, native_head);
    code.native = std::move(native);
}

} // namespace engine

std::optional<CompilerMode> compiler_mode(std::string_view name) {
    constexpr std::pair<std::string_view, CompilerMode> kModes[] = {
        {"interpreter", CompilerMode::interpreter},
        {"compiler", CompilerMode::compiler},
        {"both", CompilerMode::both}};
    const auto *found = std::ranges::find(kModes, name, &std::pair<std::string_view, CompilerMode>::first);
    return found == std::ranges::end(kModes) ? std::nullopt : std::optional(found->second);
}

void set_compiler(const CompilerOptions &options) { engine::NativeCompiler::instance().configure(options); }

CompilerStatistics compiler_statistics() { return engine::NativeCompiler::instance().statistics(); }

} // namespace singularity::softgpu
