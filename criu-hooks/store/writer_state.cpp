// SPDX-License-Identifier: GPL-2.0-or-later
#include "writer_state.hpp"

#include "chunk_file.hpp"
#include "common/text.hpp"
#include "directory.hpp"
#include "log.hpp"
#include "manifest_file.hpp"
#include "reach.hpp"

#include <algorithm>
#include <cerrno>
#include <ctime>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>

namespace singularity::store {
namespace {

constexpr const char *kWrite = "write checkpoint";
// Temporary files that wait to be made durable: more than a few share each commit of the file system's
// journal.
constexpr std::size_t kMostWritten = 64;

std::string name_of(const ImageAddress &address) {
    return address.device.empty()
               ? fmt::format("{} of virtual node {}", quote(address.name), quote(address.node))
               : fmt::format("{} of device {} of virtual node {}", quote(address.name), quote(address.device),
                             quote(address.node));
}

template <class T>
T &find_or_add(std::vector<T> &items, const std::string &name) {
    const auto found = std::ranges::find(items, name, &T::name);
    if (found != items.end())
        return *found;
    items.push_back({});
    items.back().name = name;
    return items.back();
}

Expected<void> add_images(std::vector<Image> &images, std::vector<Image> more) {
    for (Image &image : more) {
        if (std::ranges::find(images, image.name, &Image::name) != images.end())
            return failure(kWrite, "", fmt::format("image {} is there twice", quote(image.name)), EEXIST);
        images.push_back(std::move(image));
    }
    return {};
}

} // namespace

Expected<void> merge_nodes(std::vector<VirtualNode> &nodes, std::vector<VirtualNode> more) {
    for (VirtualNode &from : more) {
        VirtualNode &node = find_or_add(nodes, from.name);
        std::ranges::move(from.attributes, std::back_inserter(node.attributes));
        if (auto added = add_images(node.images, std::move(from.images)); !added)
            return added;
        for (Device &device_from : from.devices) {
            Device &device = find_or_add(node.devices, device_from.name);
            std::ranges::move(device_from.attributes, std::back_inserter(device.attributes));
            if (auto added = add_images(device.images, std::move(device_from.images)); !added)
                return added;
        }
    }
    return {};
}

WriterState::WriterState(std::shared_ptr<StoreState> store, std::shared_ptr<UserSpace> space, Request request,
                         std::string id, std::unique_ptr<Lease> lease, Account others)
    : store_(std::move(store)), space_(std::move(space)), request_(std::move(request)), id_(std::move(id)),
      prefix_(fmt::format("{}.{}", id_, random_name())), time_(std::time(nullptr)), lease_(std::move(lease)),
      others_(std::move(others)), others_bytes_(others_.bytes()), publisher_([this] { publish_all(); }) {}

WriterState::~WriterState() { abort(); }

void WriterState::abort() {
    {
        std::unique_lock lock(mutex_);
        if (!error_)
            error_ = Error{kWrite, id_, "it was given up", ECANCELED};
        failed_ = true;
        changed_.notify_all();
        changed_.wait(lock, [this] { return unfinished_ == 0; });
        ending_ = true;
    }
    changed_.notify_all();
    if (publisher_.joinable())
        publisher_.join();
    lease_.reset();
}

Progress WriterState::progress() const { return {given_, zeros_, reused_, added_, stored_}; }

void WriterState::fail(Error error) {
    {
        const std::lock_guard lock(mutex_);
        if (!error_)
            error_ = std::move(error);
        failed_ = true;
    }
    changed_.notify_all();
}

// Notifies with the lock held: the destructor may be waiting for this and then there is nothing to notify.
void WriterState::done_one() {
    const std::lock_guard lock(mutex_);
    --unfinished_;
    changed_.notify_all();
}

Expected<OpenImage *> WriterState::add_image(const ImageAddress &address) {
    const std::lock_guard lock(mutex_);
    const bool there = std::ranges::any_of(images_, [&address](const auto &image) {
        return image->address.node == address.node && image->address.device == address.device &&
               image->address.name == address.name;
    });
    if (there)
        return failure(kWrite, id_, "image " + name_of(address) + " is there already", EEXIST);
    images_.push_back(std::make_unique<OpenImage>(OpenImage{address, {}, false}));
    return images_.back().get();
}

Expected<void> WriterState::describe(const std::string &node, const std::string &device,
                                     const Attributes &attributes) {
    VirtualNode described{node, {}, {}, {}};
    if (device.empty())
        described.attributes = attributes;
    else
        described.devices.push_back({device, attributes, {}});
    const std::lock_guard lock(mutex_);
    return merge_nodes(described_, {std::move(described)});
}

Expected<void> WriterState::add_part(std::span<const std::byte> part) {
    auto nodes = decode_nodes(part);
    if (!nodes)
        return propagate(nodes);
    const std::lock_guard lock(mutex_);
    return merge_nodes(parts_, *std::move(nodes));
}

Expected<Chunk *> WriterState::next_chunk(OpenImage &image, std::size_t size) {
    const std::lock_guard lock(mutex_);
    if (error_)
        return std::unexpected(*error_);
    if (++chunks_ > kMostChunks)
        return failure(kWrite, id_, fmt::format("it has more than {} chunks on this host", kMostChunks),
                       EFBIG);
    image.chunks.push_back({{}, static_cast<std::uint32_t>(size), 0});
    given_ += size;
    return &image.chunks.back();
}

Expected<void> WriterState::add_zeros(OpenImage &image, std::uint64_t size) {
    for (std::uint64_t left = size; left > 0;) {
        const auto part = static_cast<std::size_t>(std::min<std::uint64_t>(left, kChunkSize));
        if (auto chunk = next_chunk(image, part); !chunk)
            return propagate(chunk);
        zeros_ += part;
        left -= part;
    }
    return {};
}

Expected<void> WriterState::add_chunk(OpenImage &image, std::vector<std::byte> content) {
    auto chunk = next_chunk(image, content.size());
    if (!chunk) {
        pool().give_buffer(std::move(content));
        return propagate(chunk);
    }
    {
        const std::lock_guard lock(mutex_);
        ++unfinished_;
    }
    // std::function wants to be copied.
    auto shared = std::make_shared<std::vector<std::byte>>(std::move(content));
    // This object waits for all its tasks before it ends.
    pool().submit([this, shared, at = *chunk](Scratch &scratch) {
        auto processed = failed_ ? Expected<void>{} : process(*shared, *at, scratch);
        pool().give_buffer(std::move(*shared));
        if (!processed)
            fail(std::move(processed.error()));
        done_one();
    });
    return {};
}

// Counts a chunk that this checkpoint has not named before.
Expected<void> WriterState::know(const Hash &hash, std::uint32_t stored, bool added, std::size_t size) {
    const std::lock_guard lock(mutex_);
    known_[hash.prefix()].stored = stored;
    shards_.set(UserSpace::shard_number(hash));
    (added ? added_ : reused_) += size;
    stored_ += added ? stored : 0;
    if (store_->options.quota == 0 || others_.contains(hash))
        return {};
    charged_ += stored;
    if (others_bytes_ + charged_ > store_->options.quota)
        return std::unexpected(quota_error(others_bytes_, charged_));
    return {};
}

Error WriterState::quota_error(std::uint64_t used, std::uint64_t needed) const {
    // Who only joined was told no name.
    const std::string who = request_.user.empty()
                                ? fmt::format("uid {}", request_.uid)
                                : fmt::format("user {} (uid {})", quote(request_.user), request_.uid);
    return {
        kWrite, id_,
        fmt::format("{} may keep {} bytes ({}) in the checkpoint store and has {} there in {} checkpoints; "
                    "this one adds {} or more. Remove some (singularityctl store ls --user {}, then "
                    "singularityctl store rm), or raise store.quota_gib in singularity.yaml",
                    who, store_->options.quota, byte_count(store_->options.quota), byte_count(used),
                    others_.checkpoints(), byte_count(needed), request_.uid),
        EDQUOT};
}

Expected<void> WriterState::process(std::span<const std::byte> content, Chunk &chunk, Scratch &scratch) {
    if (is_zero(content)) {
        zeros_ += content.size();
        return {};
    }
    const Hash hash = hash_of(content);
    chunk.hash = hash;
    {
        const std::lock_guard lock(mutex_);
        auto &known = known_[hash.prefix()];
        if (known.size != 0 && known.hash == hash) {
            reused_ += content.size();
            return {}; // perhaps still on its way; if that fails, so does everything
        }
        if (known.size != 0)
            return failure(
                kWrite, id_,
                fmt::format("the chunks {} and {} begin with the same 64 bits, which never happens by "
                            "chance",
                            known.hash.hex(), hash.hex()));
        known = Chunk{hash, static_cast<std::uint32_t>(content.size()), 0};
    }
    const auto stored = find_stored(*space_, hash, content.size());
    if (!stored)
        return std::unexpected(stored.error());
    if (const std::optional<std::uint32_t> &size = *stored)
        return know(hash, *size, false, content.size());
    return write(content, hash, scratch);
}

Expected<void> WriterState::write(std::span<const std::byte> content, const Hash &hash, Scratch &scratch) {
    const auto encoded = encode_chunk(content, store_->options.compression_level, scratch);
    if (!encoded)
        return std::unexpected(encoded.error());
    if (auto known = know(hash, encoded->stored(), true, content.size()); !known)
        return known;
    {
        // Behind a slow disk the threads wait here, and the callers for them.
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [this] { return written_.size() < kMostWritten || failed_; });
        if (failed_)
            return {};
    }
    const std::string name = fmt::format("{}.{}", prefix_, temporaries_++);
    const std::string path = space_->temporary.path_of(name);
    auto file = space_->temporary.create_file(name);
    if (!file)
        return propagate(file);
    auto written = write_all(*file, encoded->header, 0, path);
    if (written)
        written = write_all(*file, encoded->payload, kChunkHeader, path);
    if (!written) {
        (void)space_->temporary.remove(name); // gc does it otherwise
        return written;
    }
    // Only a start, so that fdatasync finds less to wait for; it reports any error.
    (void)::sync_file_range(file->get(), 0, 0, SYNC_FILE_RANGE_WRITE);
    {
        const std::lock_guard lock(mutex_);
        ++unfinished_;
        written_.push_back({*std::move(file), name, hash, encoded->stored()});
    }
    changed_.notify_all();
    return {};
}

void WriterState::publish_all() {
    std::unique_lock lock(mutex_);
    for (;;) {
        changed_.wait(lock, [this] { return ending_ || !written_.empty(); });
        if (written_.empty())
            return;
        std::deque<Temporary> batch;
        batch.swap(written_);
        const std::size_t size = batch.size();
        lock.unlock();
        changed_.notify_all();
        auto published = failed_ ? Expected<void>{} : publish(batch);
        if (!published)
            fail(std::move(published.error()));
        discard(batch);
        batch.clear();
        lock.lock();
        unfinished_ -= size;
        changed_.notify_all();
    }
}

// Leaves in the batch what did not get its name.
Expected<void> WriterState::publish(std::deque<Temporary> &batch) {
    for (const Temporary &temporary : batch)
        if (auto synced = sync_data(temporary.file, space_->temporary.path_of(temporary.name)); !synced)
            return synced;
    for (; !batch.empty(); batch.pop_front()) {
        Temporary &temporary = batch.front();
        // NFS reports some errors only here.
        if (auto closed = temporary.file.close(); !closed)
            return closed;
        const auto shard = space_->shard(temporary.hash);
        if (!shard)
            return std::unexpected(shard.error());
        auto renamed = space_->temporary.rename(temporary.name, **shard, temporary.hash.hex());
        if (!renamed)
            return propagate(renamed);
        if (!*renamed)
            return failure(kWrite, id_,
                           "its temporary files are gone: garbage collection took this writer for dead",
                           ESTALE);
    }
    return {};
}

void WriterState::discard(std::deque<Temporary> &batch) {
    for (const Temporary &temporary : batch)
        if (const auto removed = space_->temporary.remove(temporary.name); !removed)
            kLog.warning("{}; garbage collection will", removed.error().message());
}

Expected<void> WriterState::drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return unfinished_ == 0; });
    if (error_)
        return std::unexpected(*error_);
    return {};
}

// Also where another writer has put a chunk, which may not have come to this yet.
Expected<void> WriterState::make_chunks_durable() {
    for (std::size_t number = 0; number < kShards; ++number) {
        if (!shards_.test(number))
            continue;
        const auto shard = space_->existing_shard(number);
        if (!shard)
            return std::unexpected(shard.error());
        if (*shard == nullptr)
            return failure(kWrite, id_, "a directory of chunks is gone", ENOENT);
        if (auto synced = (*shard)->sync(); !synced)
            return synced;
    }
    if (auto synced = space_->sync_shards(); !synced)
        return synced;
    return {};
}

Expected<std::vector<VirtualNode>> WriterState::collect() {
    const std::lock_guard lock(mutex_);
    std::vector<VirtualNode> nodes = described_;
    for (; !images_.empty(); images_.pop_front()) {
        OpenImage &open = *images_.front();
        if (!open.finished)
            return failure(kWrite, id_, "image " + name_of(open.address) + " was not finished", EBUSY);
        Image image{open.address.name, {}};
        image.chunks.reserve(open.chunks.size());
        for (; !open.chunks.empty(); open.chunks.pop_front()) {
            Chunk &chunk = image.chunks.emplace_back(open.chunks.front());
            if (chunk.hash != Hash{})
                chunk.stored = known_.at(chunk.hash.prefix()).stored;
        }
        VirtualNode &node = find_or_add(nodes, open.address.node);
        auto &images =
            open.address.device.empty() ? node.images : find_or_add(node.devices, open.address.device).images;
        images.push_back(std::move(image));
    }
    return nodes;
}

Expected<Manifest> WriterState::make_manifest(std::vector<VirtualNode> nodes) const {
    Manifest manifest{id_,          request_.parent,     request_.job,    request_.uid,
                      request_.gid, request_.user,       request_.tier,   time_,
                      {},           request_.attributes, std::move(nodes)};
    Reach named;
    for_each_image(manifest, [&](const auto &, const auto *, const Image &image) {
        for (const Chunk &chunk : image.chunks) {
            manifest.sizes.content += chunk.size;
            if (chunk.stored == 0)
                manifest.sizes.zeros += chunk.size;
        }
    });
    named.add(manifest);
    manifest.sizes.stored = named.bytes();
    manifest.sizes.added = stored_;
    return manifest;
}

// Against what is there now: others may have committed since this writer began. Two that commit in the same
// moment may both pass; then the next one is refused.
Expected<void> WriterState::check_quota(const Manifest &manifest) {
    if (store_->options.quota == 0)
        return {};
    if (const auto now = others_.refresh(*space_); !now)
        return std::unexpected(now.error());
    const std::uint64_t used = others_.bytes();
    const std::uint64_t needed = others_.bytes_added_by(manifest);
    if (used + needed > store_->options.quota)
        return std::unexpected(quota_error(used, needed));
    return {};
}

Expected<Manifest> WriterState::commit() {
    if (!lease_)
        return failure("commit checkpoint", id_, "the writer that began it commits it; this one only joined",
                       EINVAL);
    if (auto drained = drain(); !drained)
        return propagate(drained);
    if (auto durable = make_chunks_durable(); !durable)
        return propagate(durable);
    auto nodes = collect();
    if (!nodes)
        return propagate(nodes);
    if (auto merged = merge_nodes(*nodes, std::move(parts_)); !merged)
        return propagate(merged);
    auto manifest = make_manifest(*std::move(nodes));
    if (!manifest)
        return manifest;
    if (auto allowed = check_quota(*manifest); !allowed)
        return propagate(allowed);
    if (auto written = write_manifest(lease_->file(), lease_->path(), *manifest); !written)
        return propagate(written);
    if (auto synced = sync_data(lease_->file(), lease_->path()); !synced)
        return propagate(synced);
    if (auto published = lease_->publish(); !published)
        return propagate(published);
    if (auto synced = space_->checkpoints.sync(); !synced)
        return propagate(synced);
    return manifest;
}

Expected<std::vector<std::byte>> WriterState::finish_part() {
    if (lease_)
        return failure(kWrite, id_, "only a writer that joined has parts to hand over", EINVAL);
    if (auto drained = drain(); !drained)
        return propagate(drained);
    if (auto durable = make_chunks_durable(); !durable)
        return propagate(durable);
    auto nodes = collect();
    if (!nodes)
        return propagate(nodes);
    auto part = encode_nodes(*nodes);
    if (part.empty())
        return failure(kWrite, id_, "a name or an attribute is too long", EINVAL);
    return part;
}

// Beside the chunks on their way, where a collection finds it if nobody takes it.
Expected<std::string> WriterState::leave_part() {
    auto part = finish_part();
    if (!part)
        return propagate(part);
    auto name = fmt::format("{}.part.{}", id_, random_name());
    if (auto left = publish_file(space_->temporary, space_->temporary, name, *part); !left)
        return propagate(left);
    return name;
}

Expected<void> WriterState::take_part(const std::string &name) {
    if (!name.starts_with(id_ + ".part."))
        return failure(kWrite, id_, fmt::format("{} is no part of it", quote(name)), EINVAL);
    auto file = space_->temporary.open_file(name);
    if (!file)
        return propagate(file);
    struct stat about{};
    if (fstat(file->get(), &about) != 0)
        return std::unexpected(errno_error("look at", space_->temporary.path_of(name)));
    std::vector<std::byte> part(static_cast<std::size_t>(about.st_size));
    auto size = read_all(*file, part, 0, space_->temporary.path_of(name));
    if (!size)
        return propagate(size);
    part.resize(*size);
    if (auto added = add_part(part); !added)
        return added;
    auto removed = space_->temporary.remove(name);
    return removed ? Expected<void>() : propagate(removed);
}

} // namespace singularity::store
