// SPDX-License-Identifier: GPL-2.0-or-later
#include "slabs.hpp"

#include "device_memory.hpp"
#include "digest_kernel.hpp"
#include "log.hpp"

#include <algorithm>
#include <bit>
#include <cerrno>
#include <chrono>
#include <iterator>
#include <utility>

namespace singularity::proxyd {

namespace {

// A stream for as long as something is done in it. The context's own may wait for what is still to come.
class OwnStream {
  public:
    explicit OwnStream(const driver_api::Backend &driver) : driver_(driver) {
        if (driver.cuStreamCreate != nullptr && driver.cuStreamDestroy_v2 != nullptr)
            result_ = driver.cuStreamCreate(&stream_, CU_STREAM_NON_BLOCKING);
    }
    OwnStream(const OwnStream &) = delete;
    OwnStream &operator=(const OwnStream &) = delete;
    OwnStream(OwnStream &&) = delete;
    OwnStream &operator=(OwnStream &&) = delete;
    ~OwnStream() {
        if (result_ == CUDA_SUCCESS)
            static_cast<void>(driver_.cuStreamDestroy_v2(stream_)); // what is in it has ended
    }
    [[nodiscard]] CUresult result() const { return result_; }
    [[nodiscard]] CUstream get() const { return stream_; }

  private:
    const driver_api::Backend &driver_;
    CUstream stream_ = nullptr;
    CUresult result_ = CUDA_ERROR_NOT_SUPPORTED;
};

} // namespace

// What somebody else has left there may only become a chunk that is filled as a whole.
CUresult Slabs::make(std::uint64_t address, Chunk &chunk, bool on_host) {
    if (!on_host && chunk.host != nullptr && contents_ != nullptr)
        if (const auto left = contents_->take(chunk.size, std::nullopt)) {
            const auto result = map_left(back_end_, address, chunk.size, *left);
            if (result == CUDA_SUCCESS)
                on_device_.fetch_add(chunk.size);
            else
                residency_->give_back(chunk.size);
            return result;
        }
    auto result = make_new(address, chunk, on_host);
    // What others have left is of another size. What is asked for anew comes after all has been brought in,
    // and so after nothing is left.
    if (result == CUDA_ERROR_OUT_OF_MEMORY && !on_host && chunk.host != nullptr && release_left()) {
        enter_(chunk.context);
        result = make_new(address, chunk, on_host);
    }
    return result;
}

CUresult Slabs::make_new(std::uint64_t address, Chunk &chunk, bool on_host) {
    if (!on_host && residency_ != nullptr && !residency_->take(chunk.size, chunk.host != nullptr))
        return CUDA_ERROR_OUT_OF_MEMORY;
    const auto result = map_memory(back_end_, address, chunk.size, on_host);
    if (result != CUDA_SUCCESS) {
        if (!on_host && residency_ != nullptr)
            residency_->give_back(chunk.size);
        return result;
    }
    chunk.lent = on_host;
    if (!on_host)
        on_device_.fetch_add(chunk.size);
    return CUDA_SUCCESS;
}

// Whether there was any. Without a context: within one the driver may wait for all of its work, parked
// streams among it.
bool Slabs::release_left() {
    if (contents_ == nullptr)
        return false;
    enter_(0);
    const auto bytes = contents_->release();
    residency_->give_back(bytes);
    return bytes != 0;
}

void Slabs::drop(std::uint64_t address, Chunk &chunk) {
    if (chunk.host != nullptr) {
        chunk.host.reset();
        return;
    }
    if (const auto result = back_end_.driver().cuMemUnmap(address, chunk.size); result != CUDA_SUCCESS)
        kLog.warning("cuMemUnmap of a slab: {}", result_name(back_end_.driver(), result));
    if (chunk.shared != nullptr && chunk.made)
        chunk.shared->remove_all();
    const bool is_shared = std::exchange(chunk.shared, nullptr) != nullptr;
    if (std::exchange(chunk.lent, false) || !chunk.counted)
        return;
    if (!is_shared)
        on_device_.fetch_sub(chunk.size);
    if (residency_ != nullptr)
        residency_->give_back(chunk.size);
}

CUresult Slabs::map(std::uint64_t address, std::uint64_t size, std::uint64_t context, bool on_host) {
    const std::scoped_lock lock(lock_);
    if (closed_)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    for (std::uint64_t at = 0; at < size; at += kChunk) {
        Chunk chunk;
        chunk.size = std::min(kChunk, size - at);
        chunk.context = context;
        if (const auto result = make(address + at, chunk, on_host); result != CUDA_SUCCESS) {
            for (std::uint64_t made = 0; made < at; made += kChunk) {
                const auto known = chunks_.find(address + made);
                drop(known->first, known->second);
                chunks_.erase(known);
            }
            return result;
        }
        chunks_.emplace(address + at, std::move(chunk));
    }
    bytes_.fetch_add(size);
    return CUDA_SUCCESS;
}

CUresult Slabs::share(std::uint64_t address, std::uint64_t size, const SharedSlab::Key &key,
                      std::uint32_t device, std::shared_ptr<SharedSlab> &slab) {
    const auto &driver = back_end_.driver();
    const std::scoped_lock lock(lock_);
    const auto first = chunks_.find(address);
    if (closed_ || first == chunks_.end())
        return CUDA_ERROR_INVALID_VALUE;
    if (first->second.shared != nullptr) {
        slab = first->second.shared;
        return slab->size() == size && first->second.made ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    }
    if (driver.cuMemRetainAllocationHandle == nullptr)
        return CUDA_ERROR_NOT_SUPPORTED;
    std::vector<SharedSlab::Part> parts;
    auto result = CUDA_SUCCESS;
    auto end = first;
    std::uint64_t at = address;
    for (; result == CUDA_SUCCESS && at != address + size; at += end->second.size, ++end) {
        if (end == chunks_.end() || end->first != at || end->second.host != nullptr ||
            end->second.size > address + size - at) {
            result = CUDA_ERROR_INVALID_VALUE;
            break;
        }
        SharedSlab::Part part{.size = end->second.size};
        result = driver.cuMemRetainAllocationHandle(&part.memory, std::bit_cast<void *>(at));
        if (result == CUDA_SUCCESS)
            parts.push_back(part);
    }
    const bool named = key != SharedSlab::Key{};
    slab = std::make_shared<SharedSlab>(back_end_, named ? key : SharedSlabs::new_key(), device,
                                        std::move(parts));
    if (result != CUDA_SUCCESS)
        return result; // and the handles go
    for (auto chunk = first; chunk != end; ++chunk) {
        chunk->second.shared = slab;
        chunk->second.made = true;
        if (!chunk->second.lent)
            on_device_.fetch_sub(chunk->second.size); // it would not become free
    }
    SharedSlabs::all().add(slab);
    return CUDA_SUCCESS;
}

CUresult Slabs::open(std::uint64_t address, std::uint64_t size, std::uint64_t context,
                     const std::shared_ptr<SharedSlab> &slab) {
    const std::scoped_lock lock(lock_);
    if (closed_)
        return CUDA_ERROR_CONTEXT_IS_DESTROYED;
    if (slab->size() != size)
        return CUDA_ERROR_INVALID_VALUE;
    enter_(context);
    auto result = CUDA_SUCCESS;
    std::uint64_t at = address;
    for (const auto &part : slab->parts()) {
        if (result = map_there(back_end_, at, part.size, part.memory); result != CUDA_SUCCESS)
            break;
        Chunk chunk;
        chunk.size = part.size;
        chunk.context = context;
        chunk.shared = slab;
        chunk.counted = false;
        chunks_.emplace(at, std::move(chunk));
        at += part.size;
    }
    if (result == CUDA_SUCCESS) {
        bytes_.fetch_add(size);
        return result;
    }
    for (auto chunk = chunks_.find(address); chunk != chunks_.end() && chunk->first < at;) {
        drop(chunk->first, chunk->second);
        chunk = chunks_.erase(chunk);
    }
    return result;
}

Slabs::Shared Slabs::shared_at(std::uint64_t address) {
    const std::scoped_lock lock(lock_);
    const auto chunk = chunks_.find(address);
    return chunk == chunks_.end() ? Shared{}
                                  : Shared{.slab = chunk->second.shared, .made = chunk->second.made};
}

void Slabs::set_made(std::uint64_t address, std::uint64_t size, bool made) {
    const std::scoped_lock lock(lock_);
    for (auto chunk = chunks_.find(address); chunk != chunks_.end() && chunk->first - address < size; ++chunk)
        chunk->second.made = made;
}

// Without the lock: the driver may wait for work that waits for a collective, which uses what is here.
void Slabs::unmap(std::uint64_t address, std::uint64_t size) {
    Chunks gone;
    {
        const std::scoped_lock lock(lock_);
        for (auto at = chunks_.lower_bound(address); at != chunks_.end() && at->first - address < size;)
            gone.insert(chunks_.extract(at++));
    }
    for (auto &[at, chunk] : gone) {
        drop(at, chunk);
        bytes_.fetch_sub(chunk.size);
    }
}

void Slabs::drop_all() {
    unmap(0, UINT64_MAX);
    static_cast<void>(release_left());
}

void Slabs::close() {
    const std::scoped_lock lock(lock_);
    closed_ = true;
}

void Slabs::keep(std::uint64_t context, bool stays) {
    const std::scoped_lock lock(lock_);
    for (auto &[address, chunk] : chunks_)
        if (chunk.context == context)
            chunk.stays = stays;
}

CUresult Slabs::copy(std::uint64_t address, const Chunk &chunk, HostCopy &host, bool in) {
    const auto &driver = back_end_.driver();
    const auto begin = Contents::Clock::now();
    enter_(chunk.context);
    const OwnStream stream(driver);
    auto result = stream.result();
    if (result != CUDA_SUCCESS)
        return result;
    auto *const bytes = host.bytes().data();
    result = in ? driver.cuMemcpyHtoDAsync_v2(address, bytes, chunk.size, stream.get())
                : driver.cuMemcpyDtoHAsync_v2(bytes, address, chunk.size, stream.get());
    if (result == CUDA_SUCCESS)
        result = driver.cuStreamSynchronize(stream.get());
    if (result == CUDA_SUCCESS && contents_ != nullptr)
        contents_->copied(chunk.size, Contents::Clock::now() - begin);
    return result;
}

// Of a chunk on the device, which nobody's work touches. Nothing: it is not worth the time, or cannot be.
std::optional<Digest> Slabs::look_at(std::uint64_t address, const Chunk &chunk) {
    if (contents_ == nullptr || chunk.lent || !contents_->looks())
        return std::nullopt;
    const auto kernel = kernel_(chunk.context);
    if (kernel == nullptr)
        return std::nullopt;
    const auto begin = Contents::Clock::now();
    enter_(chunk.context);
    const OwnStream stream(back_end_.driver());
    Digest digest;
    if (stream.result() != CUDA_SUCCESS ||
        kernel->digest(stream.get(), address, chunk.size, digest) != CUDA_SUCCESS)
        return std::nullopt; // what is wrong shows when it is copied
    contents_->looked(chunk.size, Contents::Clock::now() - begin);
    return digest;
}

// Of the chunk there is a copy: its memory stays for who needs the same, or any, until there is no room for
// it. Without a context: within one the driver may wait for all of its work, parked streams among it.
void Slabs::leave(std::uint64_t address, Chunk &chunk) {
    const auto &driver = back_end_.driver();
    enter_(0);
    CUmemGenericAllocationHandle memory{};
    if (contents_ == nullptr || chunk.lent || driver.cuMemRetainAllocationHandle == nullptr ||
        driver.cuMemRetainAllocationHandle(&memory, std::bit_cast<void *>(address)) != CUDA_SUCCESS)
        return drop(address, chunk);
    on_device_.fetch_sub(chunk.size);
    if (const auto result = driver.cuMemUnmap(address, chunk.size); result != CUDA_SUCCESS) {
        kLog.warning("cuMemUnmap of a slab: {}", result_name(driver, result));
        static_cast<void>(driver.cuMemRelease(memory)); // it is still ours, and so nobody else's
        residency_->give_back(chunk.size);
        return;
    }
    contents_->leave({.memory = memory, .size = chunk.size, .content = chunk.content});
}

CUresult Slabs::take_out(std::uint64_t address, Chunk &chunk) {
    const auto content = look_at(address, chunk);
    auto host = content ? contents_->copy_of(*content, chunk.size) : nullptr;
    if (host != nullptr) {
        contents_->spared(chunk.size);
    } else {
        host = HostCopy::make(chunk.size);
        if (host == nullptr)
            return CUDA_ERROR_OUT_OF_MEMORY;
        if (const auto result = copy(address, chunk, *host, false); result != CUDA_SUCCESS)
            return result;
        if (content)
            contents_->add(*content, host);
    }
    chunk.content = content;
    leave(address, chunk);
    chunk.host = std::move(host);
    return CUDA_SUCCESS;
}

CUresult Slabs::put_in(std::uint64_t address, Chunk &chunk, bool on_host) {
    enter_(chunk.context); // whoever was looked at before may have none any more
    if (const auto result = make(address, chunk, on_host); result != CUDA_SUCCESS)
        return result;
    const auto kept = std::exchange(chunk.host, nullptr);
    if (const auto result = copy(address, chunk, *kept, true); result != CUDA_SUCCESS) {
        drop(address, chunk);
        chunk.host = kept;
        return result;
    }
    chunk.content.reset(); // it may change from now on
    return CUDA_SUCCESS;
}

// What others have left with the very content that a chunk of ours has.
CUresult Slabs::take_what_is_there() {
    for (auto &[address, chunk] : chunks_) {
        if (chunk.host == nullptr || chunk.stays || !chunk.content)
            continue;
        const auto left = contents_->take(chunk.size, chunk.content);
        if (!left)
            continue;
        enter_(chunk.context);
        if (const auto result = map_left(back_end_, address, chunk.size, *left); result != CUDA_SUCCESS) {
            residency_->give_back(chunk.size);
            return result;
        }
        on_device_.fetch_add(chunk.size);
        contents_->spared(chunk.size);
        chunk.host.reset();
        chunk.content.reset();
    }
    return CUDA_SUCCESS;
}

// What was lent memory of the host goes to the device by way of a copy: its addresses are the same.
CUresult Slabs::bring_in(bool on_host, const std::function<bool()> &is_quiet) {
    const std::scoped_lock lock(lock_);
    const bool some_lent = std::ranges::any_of(chunks_, [](const auto &entry) { return entry.second.lent; });
    const bool takes_back = some_lent && !on_host && is_quiet();
    if (contents_ != nullptr && !closed_)
        if (const auto result = take_what_is_there(); result != CUDA_SUCCESS)
            return result;
    for (auto &[address, chunk] : chunks_) {
        if (closed_ || chunk.stays || chunk.shared != nullptr)
            continue;
        if (chunk.lent && takes_back) {
            const auto fits = [&] {
                return residency_ == nullptr ||
                       residency_->taken() + chunk.size <= residency_->device_bytes();
            };
            if (!fits() && (!release_left() || !fits()))
                return CUDA_ERROR_OUT_OF_MEMORY;
            if (const auto result = take_out(address, chunk); result != CUDA_SUCCESS)
                return result;
        }
        if (chunk.host == nullptr)
            continue;
        auto result = put_in(address, chunk, false);
        if (result == CUDA_ERROR_OUT_OF_MEMORY && on_host)
            result = put_in(address, chunk, true);
        if (result != CUDA_SUCCESS)
            return result;
    }
    static_cast<void>(release_left());
    if (contents_ != nullptr) {
        constexpr unsigned kOfMebibyte = 20;
        const auto counts = contents_->counts();
        const auto milliseconds = [](Contents::Clock::duration took) {
            return std::chrono::duration_cast<std::chrono::milliseconds>(took).count();
        };
        kLog.debug("of what has moved so far {} MiB were copied in {} ms and {} MiB were there already; the "
                   "content of {} "
                   "MiB was found out in {} ms",
                   counts.copied >> kOfMebibyte, milliseconds(counts.copying), counts.spared >> kOfMebibyte,
                   counts.looked >> kOfMebibyte, milliseconds(counts.looking));
    }
    return CUDA_SUCCESS;
}

CUresult Slabs::send_out() {
    const std::scoped_lock lock(lock_);
    for (auto &[address, chunk] : chunks_)
        if (chunk.host == nullptr && !chunk.lent && !chunk.stays && chunk.shared == nullptr && !closed_)
            return take_out(address, chunk);
    return CUDA_SUCCESS;
}

// Others may have the copy, too, or find it.
bool Slabs::make_own(Chunk &chunk) {
    if (chunk.content)
        contents_->forget(*chunk.content, *chunk.host);
    if (chunk.host.use_count() != 1) {
        auto own = HostCopy::make(chunk.size);
        if (own == nullptr)
            return false;
        std::ranges::copy(chunk.host->bytes(), own->bytes().begin());
        chunk.host = std::move(own);
    }
    chunk.content.reset();
    return true;
}

Expected<void> Slabs::use(std::uint64_t address, std::uint64_t size, Use how,
                          const std::function<Expected<void>(const Piece &)> &what) {
    const std::scoped_lock lock(lock_);
    for (std::uint64_t done = 0; done < size;) {
        Piece piece{.address = address + done, .host = nullptr, .offset = done, .size = size - done};
        auto chunk = chunks_.upper_bound(piece.address);
        if (chunk != chunks_.end()) // up to where it begins it is no slab's
            piece.size = std::min(piece.size, chunk->first - piece.address);
        if (chunk != chunks_.begin()) {
            chunk = std::prev(chunk);
            const auto at = piece.address - chunk->first;
            if (at < chunk->second.size) {
                piece.size = std::min(piece.size, chunk->second.size - at);
                if (chunk->second.host != nullptr && how == Use::writes && !make_own(chunk->second))
                    return failure("write", "memory of a rank that is not on the device",
                                   "there is no memory of the host for it", ENOMEM);
                if (chunk->second.host != nullptr)
                    piece.host = chunk->second.host->bytes().data() + at;
            }
        }
        if (auto used = what(piece); !used)
            return used;
        done += piece.size;
    }
    return {};
}

} // namespace singularity::proxyd
