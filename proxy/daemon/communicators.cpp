// SPDX-License-Identifier: GPL-2.0-or-later
#include "communicators.hpp"

#include "collective_mover.hpp"
#include "digest_kernel.hpp"
#include "log.hpp"
#include "nccl_link.hpp"
#include "object_table.hpp"
#include "parked_streams.hpp"
#include "proxy/collectives/operation.hpp"
#include "proxy/collectives/reduce.hpp"
#include "reduction_kernels.hpp"
#include "wait_words.hpp"

#include <algorithm>
#include <set>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {

constexpr std::size_t kMostCommunicators = 1024;
// A thread of a collective stops when the copies that it has begun have ended.
constexpr std::chrono::seconds kToStop{10};
// Operations of one group, over all its messages.
constexpr std::size_t kMostInGroup = std::size_t{1} << 17;

} // namespace

Communicators::~Communicators() = default;

// Without the lock, which the daemon's main thread takes: a driver may take its time.
std::shared_ptr<WaitWords> Communicators::words_of(std::uint64_t context) {
    {
        const std::scoped_lock lock(lock_);
        if (const auto known = words_.find(context); known != words_.end() && known->second != nullptr)
            return known->second;
    }
    if (!session_.objects().real(driver_api::kHandleContext, context))
        return nullptr;
    auto made = WaitWords::make(session_.driver());
    const std::scoped_lock lock(lock_);
    auto &words = words_[context];
    if (words == nullptr)
        words = std::move(made);
    return words;
}

// Once for each context, with its first communicator: nothing in it waits for a collective yet. Without the
// lock: a driver may take its time to compile them.
std::shared_ptr<const ReductionKernels> Communicators::kernels_of(std::uint64_t context) {
    if (parts_.device == nullptr || !session_.objects().real(driver_api::kHandleContext, context))
        return nullptr;
    const std::scoped_lock lock(kernels_lock_);
    const auto [known, fresh] = kernels_.try_emplace(context);
    if (fresh) {
        if (auto loaded = ReductionKernels::load(session_.driver()))
            known->second = std::move(*loaded);
        else
            kLog.warning("{}: collectives go through memory of the host: {}", session_.who(),
                         loaded.error().message());
    }
    return known->second;
}

// Once for each context, as kernels_of(). Without it nothing is known of what memory contains. Without the
// lock: whoever moves memory asks for it, and must not wait for a driver that compiles.
void Communicators::load_digest(std::uint64_t context) {
    if (!session_.objects().real(driver_api::kHandleContext, context))
        return;
    {
        const std::scoped_lock lock(digests_lock_);
        if (digests_.contains(context))
            return;
    }
    auto loaded = DigestKernel::load(session_.driver());
    if (!loaded)
        kLog.warning("{}: what ranks have in common is moved as often as they have it: {}", session_.who(),
                     loaded.error().message());
    const std::scoped_lock lock(digests_lock_);
    digests_.try_emplace(context, loaded ? std::move(*loaded) : nullptr);
}

std::shared_ptr<const DigestKernel> Communicators::digest_in(std::uint64_t context) {
    const std::scoped_lock lock(digests_lock_);
    const auto known = digests_.find(context);
    return known == digests_.end() ? nullptr : known->second;
}

Communicators::Prepared Communicators::prepare(std::uint64_t context) {
    if (parts_.engine == nullptr)
        return {};
    load_digest(context);
    return {.kernels = kernels_of(context), .words = words_of(context)};
}

// With the lock held.
CUresult Communicators::add(const Descriptor &descriptor, Prepared prepared, std::string &text,
                            std::shared_ptr<One> &one) {
    const auto number = descriptor.number;
    const auto context = descriptor.context;
    auto place = descriptor.place;
    reap();
    if (parts_.engine == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    if (all_.contains(number)) {
        text = fmt::format("communicator {} is there already", number);
        return CUDA_ERROR_INVALID_VALUE;
    }
    if (all_.size() + left_.size() >= kMostCommunicators)
        return CUDA_ERROR_OUT_OF_MEMORY;
    if (!session_.objects().real(driver_api::kHandleContext, context))
        return CUDA_ERROR_INVALID_CONTEXT;
    one = std::make_shared<One>();
    one->id = ++last_id_;
    one->number = number;
    one->context = context;
    place.device = prepared.kernels == nullptr ? nullptr : parts_.device;
    if (prepared.kernels != nullptr && parts_.nccl != nullptr)
        one->link = std::make_shared<NcclLink>(session_, parts_.nccl);
    one->kernels = std::move(prepared.kernels);
    one->words = std::move(prepared.words);
    if (one->words == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    const auto word = one->words->take();
    if (!word)
        return CUDA_ERROR_OUT_OF_MEMORY;
    one->word = word->index;
    one->base = word->value - static_cast<std::uint32_t>(descriptor.place.completed);
    const auto say = [words = one->words, index = one->word, base = one->base, backlog = backlog_,
                      id = one->id](std::uint64_t group) {
        words->set(index, base + static_cast<std::uint32_t>(group));
        backlog->completed(id, group);
    };
    collectives::MemberEvents events;
    events.completed = say;
    events.released = [this, say, number, who = session_.who()](std::uint64_t issued, bool aborted) {
        say(issued);
        if (aborted)
            return;
        kLog.warning("{}: communicator {} has failed and nobody has aborted it: its streams go on", who,
                     number);
        session_.note(CUDA_ERROR_LAUNCH_FAILED);
    };
    auto joined = parts_.engine->join(place, std::move(events));
    if (!joined) {
        one->words->give_back(one->word);
        kLog.warning("{}: {}", session_.who(), joined.error().message());
        return CUDA_ERROR_INVALID_VALUE;
    }
    one->member = std::move(*joined);
    all_.emplace(number, one);
    any_ = true;
    return CUDA_SUCCESS;
}

CUresult Communicators::join(std::uint64_t number, std::uint64_t context,
                             const collectives::MemberPlace &place, std::string &text) {
    auto prepared = prepare(context);
    const std::scoped_lock lock(lock_);
    std::shared_ptr<One> one;
    const auto result =
        add({.number = number, .context = context, .place = place}, std::move(prepared), text, one);
    if (result == CUDA_SUCCESS)
        start(one);
    return result;
}

CUresult Communicators::restore(const Descriptor &descriptor, std::string &text) {
    auto prepared = prepare(descriptor.context);
    const std::scoped_lock lock(lock_);
    std::shared_ptr<One> one;
    return add(descriptor, std::move(prepared), text, one);
}

std::string Communicators::unfinished(bool &soon) {
    const std::scoped_lock lock(lock_);
    const auto text_of = [&](const One &one) -> std::string {
        const auto state = one.member->state();
        const auto &place = one.member->place();
        const auto name = fmt::format("communicator {} (rank {} of {})", one.number, place.rank, place.size);
        soon = state.phase != protocol::CommunicatorPhase::failed;
        if (!soon)
            return fmt::format("{} has failed, and the program has not destroyed it: {}", name,
                               state.failure.text);
        if (state.completed != state.issued || !one.part.empty())
            return fmt::format("{} has carried out {} of {} groups of collectives that were issued", name,
                               state.completed, state.issued);
        return {};
    };
    for (const auto &[number, one] : all_)
        if (auto text = text_of(*one); !text.empty())
            return text;
    for (const auto &one : left_)
        if (!one->member->over())
            if (auto text = text_of(*one); !text.empty())
                return text;
    return {};
}

std::vector<Communicators::Descriptor> Communicators::descriptors() {
    const std::scoped_lock lock(lock_);
    std::vector<Descriptor> out;
    for (const auto &[number, one] : all_) {
        auto place = one->member->place();
        place.completed = one->member->state().completed;
        out.push_back({.number = number, .context = one->context, .place = place});
    }
    return out;
}

std::shared_ptr<collectives::Member> Communicators::find(std::uint64_t number) {
    const std::scoped_lock lock(lock_);
    const auto found = all_.find(number);
    return found == all_.end() ? nullptr : found->second->member;
}

const char *Communicators::not_reached(const protocol::CollectiveOperation &operation, const One &one) {
    const auto &place = one.member->place();
    if (const char *why = collectives::wrong(operation, place.rank, place.size); why != nullptr)
        return why;
    const auto extent = collectives::extent(operation, place.rank, place.size);
    if (extent.input != 0 && !session_.reaches(operation.input, extent.input))
        return "its input is not the program's memory";
    if (extent.output != 0 && !session_.reaches(operation.output, extent.output))
        return "its output is not the program's memory";
    if (operation.scalar_address != 0 &&
        !session_.reaches(operation.scalar_address, collectives::element_size(operation.type)))
        return "its scalar is not the program's memory";
    return nullptr;
}

CUresult Communicators::issue(const protocol::IssueCollectives &request, CUstream stream,
                              std::span<const protocol::CollectiveOperation> operations, std::string &text) {
    std::shared_ptr<One> one;
    {
        const std::scoped_lock lock(lock_);
        if (const auto found = all_.find(request.communicator); found != all_.end())
            one = found->second;
    }
    if (one == nullptr)
        return CUDA_ERROR_INVALID_HANDLE;
    auto &member = *one->member;
    // The abort has overtaken it: it is counted, and nothing of it is wanted.
    if (one->aborted) {
        if (request.more == 0)
            static_cast<void>(member.issue({}));
        return CUDA_SUCCESS;
    }
    if (request.group != member.state().issued + 1) {
        text = fmt::format("group {} of communicator {} comes out of turn", request.group, one->number);
        return CUDA_ERROR_INVALID_VALUE;
    }
    std::unique_lock lock(lock_); // an image may be asked for
    if (!one->part.empty() && one->part_stream != request.stream) {
        text = "a group's parts are for different streams";
        return CUDA_ERROR_INVALID_VALUE;
    }
    // What the client's library has checked: whoever comes here past it fails for all.
    const auto give_up = [&](CUresult result, const std::string &why) {
        if (lock)
            lock.unlock();
        kLog.warning("{}: communicator {}: {}", session_.who(), one->number, why);
        member.abort("has issued what cannot be carried out: " + why);
        return result;
    };
    lock.unlock();
    if (session_.capturing(stream))
        return give_up(CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, "a stream that is being captured");
    for (const auto &operation : operations)
        if (const char *why = not_reached(operation, *one); why != nullptr)
            return give_up(CUDA_ERROR_INVALID_VALUE, why);
    lock.lock();
    if (one->part.size() + operations.size() > kMostInGroup)
        return give_up(CUDA_ERROR_INVALID_VALUE, "too many operations in one group");
    one->part.insert(one->part.end(), operations.begin(), operations.end());
    one->part_stream = request.stream;
    if (request.more != 0)
        return CUDA_SUCCESS;
    auto whole = std::exchange(one->part, {});
    lock.unlock();
    backlog_->issued(one->id, request.group);
    if (!member.issue(std::move(whole))) {
        backlog_->completed(one->id, request.group);
        return one->aborted ? CUDA_SUCCESS : CUDA_ERROR_LAUNCH_FAILED;
    }
    // Its input is there. A stream that no other waits for by itself waits on the device; behind another one
    // nothing is put before the group is complete.
    if (session_.settled() && !member.linked()) {
        const bool alone = is_alone(stream);
        const auto result =
            alone ? one->words->wait(stream, one->word, one->base + static_cast<std::uint32_t>(request.group))
                  : CUDA_SUCCESS;
        if (result != CUDA_SUCCESS) {
            member.abort("cannot use its stream");
            return result;
        }
        session_.parked().add({.stream = request.stream,
                               .communicator = one->number,
                               .member = one->id,
                               .group = request.group,
                               .alone = alone});
        member.begin(request.group);
        return CUDA_SUCCESS;
    }
    auto *const ticket = ticket_for(one->member, request.group);
    auto result = session_.driver().cuLaunchHostFunc(stream, &Communicators::input_is_there, ticket);
    if (result != CUDA_SUCCESS)
        drop(ticket);
    else
        result = one->words->wait(stream, one->word, one->base + static_cast<std::uint32_t>(request.group));
    if (result != CUDA_SUCCESS)
        member.abort("cannot use its stream");
    return result;
}

bool Communicators::is_alone(CUstream stream) const {
    unsigned flags = 0;
    return session_.driver().cuStreamGetFlags != nullptr &&
           session_.driver().cuStreamGetFlags(stream, &flags) == CUDA_SUCCESS &&
           (flags & CU_STREAM_NON_BLOCKING) != 0;
}

bool Communicators::several_of_one() {
    const std::scoped_lock lock(lock_);
    std::set<collectives::Key> keys;
    return std::ranges::any_of(
        all_, [&](const auto &entry) { return !keys.insert(entry.second->member->place().key).second; });
}

void Communicators::abort(std::uint64_t number) {
    std::shared_ptr<One> one;
    {
        const std::scoped_lock lock(lock_);
        if (const auto found = all_.find(number); found != all_.end())
            one = found->second;
    }
    if (one == nullptr)
        return;
    one->aborted = true;
    one->member->abort("has aborted the communicator");
}

CUresult Communicators::leave(std::uint64_t number, bool abort) {
    std::shared_ptr<One> one;
    {
        const std::scoped_lock lock(lock_);
        const auto found = all_.find(number);
        if (found == all_.end())
            return CUDA_ERROR_INVALID_HANDLE;
        one = found->second;
        all_.erase(found);
        left_.push_back(one);
    }
    parts_.engine->forget(*one->member);
    if (!abort) {
        one->member->leave();
        return CUDA_SUCCESS;
    }
    one->member->abort("has aborted the communicator");
    // What the program gives back next must not be copied to any more.
    std::unique_lock lock(lock_);
    const auto deadline = Deadline::after(kToStop);
    auto waited = wait_until(lock, ended_, [&] { return !one->running; }, deadline, "an aborted collective");
    if (waited)
        return CUDA_SUCCESS;
    kLog.error("{}: {}", session_.who(), waited.error().message());
    return CUDA_ERROR_TIMEOUT;
}

// --- what streams call

Communicators::Ticket *Communicators::ticket_for(const std::shared_ptr<collectives::Member> &member,
                                                 std::uint64_t group) {
    auto ticket = std::make_unique<Ticket>(Ticket{.owner = this, .member = member, .group = group});
    auto *const address = ticket.get();
    const std::scoped_lock lock(tickets_lock_);
    tickets_.emplace(address, std::move(ticket));
    return address;
}

void Communicators::drop(Ticket *ticket) {
    const std::scoped_lock lock(tickets_lock_);
    tickets_.erase(ticket);
}

void CUDA_CB Communicators::input_is_there(void *ticket) {
    auto *const mine = static_cast<Ticket *>(ticket);
    if (const auto member = mine->member.lock())
        member->begin(mine->group);
    mine->owner->drop(mine);
}

// --- threads

// With the lock held.
void Communicators::start(const std::shared_ptr<One> &one) {
    if (one->running || one->member->over())
        return;
    one->running = session_.run_beside([this, one] {
        session_.begin_thread();
        session_.make_current_for(one->context);
        {
            CollectiveMover mover(session_, one->kernels, one->link);
            one->member->run(mover);
            const auto &done = mover.done();
            kLog.debug(
                "{}: communicator {}: {} reductions on the device, {} bytes moved within it, {} to and "
                "from memory of the host",
                session_.who(), one->number, done.reductions, done.on_device, done.through_host);
            if (one->link != nullptr)
                kLog.debug("{}: communicator {}: {} bytes sent to other devices", session_.who(), one->number,
                           one->link->sent());
        }
        // In its context.
        if (one->member->over())
            one->link = nullptr;
        const std::scoped_lock lock(lock_);
        one->running = false;
        ended_.notify_all();
    });
    if (!one->running)
        one->member->fail({.remote = false, .text = "its session has no threads"});
}

void Communicators::reap() {
    std::erase_if(left_, [](const auto &one) {
        if (one->running || !one->member->over())
            return false;
        one->words->give_back(one->word);
        return true;
    });
}

void Communicators::resume() {
    const std::scoped_lock lock(lock_);
    for (const auto &[number, one] : all_)
        start(one);
    for (const auto &one : left_)
        start(one);
}

void Communicators::suspend() {
    const std::scoped_lock lock(lock_);
    for (const auto &[number, one] : all_)
        if (one->running)
            one->member->suspend();
    for (const auto &one : left_)
        if (one->running)
            one->member->suspend();
}

void Communicators::abort_all(const std::string &why) {
    std::vector<std::shared_ptr<One>> all;
    {
        const std::scoped_lock lock(lock_);
        for (const auto &[number, one] : all_)
            all.push_back(one);
        all.insert(all.end(), left_.begin(), left_.end());
    }
    for (const auto &one : all) {
        parts_.engine->forget(*one->member);
        one->member->abort(why);
    }
}

void Communicators::end_those_of(std::uint64_t context, const Deadline &deadline) {
    std::vector<std::shared_ptr<One>> ending;
    {
        const std::scoped_lock lock(lock_);
        for (const auto &[number, one] : all_)
            if (one->context == context)
                ending.push_back(one);
        for (const auto &one : left_)
            if (one->context == context)
                ending.push_back(one);
    }
    for (const auto &one : ending) {
        parts_.engine->forget(*one->member);
        one->member->abort("has destroyed its context");
    }
    std::vector<std::shared_ptr<NcclLink>> links; // go in their context, and without the lock
    std::unique_lock lock(lock_);
    if (auto waited = wait_until(
            lock, ended_, [&] { return std::ranges::none_of(ending, &One::running); }, deadline,
            "collectives of a context that is destroyed");
        !waited)
        kLog.error("{}: {}", session_.who(), waited.error().message());
    if (const auto words = words_.extract(context); !words.empty() && words.mapped() != nullptr)
        words.mapped()->forget();
    for (const auto &one : ending)
        if (!one->running)
            links.push_back(std::move(one->link));
    const std::scoped_lock kernels(kernels_lock_);
    kernels_.erase(context);
    const std::scoped_lock digests(digests_lock_);
    digests_.erase(context);
}

void Communicators::forget_words() {
    std::vector<std::shared_ptr<NcclLink>> links; // as above
    const std::scoped_lock lock(lock_);
    for (const auto &[number, one] : all_)
        if (!one->running)
            links.push_back(std::move(one->link));
    for (const auto &one : left_)
        if (!one->running)
            links.push_back(std::move(one->link));
    for (const auto &[context, words] : words_)
        if (words != nullptr)
            words->forget();
    words_.clear();
    const std::scoped_lock kernels(kernels_lock_);
    kernels_.clear();
    const std::scoped_lock digests(digests_lock_);
    digests_.clear();
}

} // namespace singularity::proxyd
