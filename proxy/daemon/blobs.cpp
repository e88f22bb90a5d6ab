// SPDX-License-Identifier: GPL-2.0-or-later
#include "blobs.hpp"

#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace singularity::proxyd {

namespace {
std::unexpected<Error> broken(std::uint64_t number, std::string why) {
    return failure("take", fmt::format("blob {}", number), std::move(why), EPROTO);
}
} // namespace

Expected<void> Blobs::begin(std::uint64_t number, std::uint64_t size) {
    const std::scoped_lock lock(lock_);
    if (blobs_.size() >= kMostBlobs)
        return broken(number, fmt::format("{} blobs are there already", kMostBlobs));
    auto blob = std::make_shared<Blob>();
    blob->size = size;
    if (!blobs_.emplace(number, std::move(blob)).second)
        return broken(number, "the number is taken");
    return {};
}

Expected<void> Blobs::append(std::uint64_t number, std::uint64_t offset, std::span<const std::byte> data) {
    const std::scoped_lock lock(lock_);
    const auto found = blobs_.find(number);
    if (found == blobs_.end())
        return broken(number, "it was not announced");
    auto &blob = *found->second;
    if (blob.dropped_data)
        return {};
    if (offset != blob.bytes.size() || data.size() > blob.size - offset)
        return broken(number, fmt::format("{} bytes at {}; {} of {} are there", data.size(), offset,
                                          blob.bytes.size(), blob.size));
    if (data.size() > kMostBlobBytes - held_) {
        held_ -= blob.bytes.size();
        blob.dropped_data = true;
        blob.bytes = {};
        return {};
    }
    blob.bytes.insert(blob.bytes.end(), data.begin(), data.end());
    held_ += data.size();
    if (blob.bytes.size() == blob.size)
        blob.bytes.push_back(std::byte{0});
    return {};
}

Expected<void> Blobs::drop(std::uint64_t number) {
    const std::scoped_lock lock(lock_);
    const auto found = blobs_.find(number);
    if (found == blobs_.end())
        return broken(number, "it is not there to be dropped");
    const auto &blob = *found->second;
    held_ -= blob.complete() ? blob.size : blob.bytes.size();
    blobs_.erase(found);
    return {};
}

Expected<bool> Blobs::put(std::uint64_t number, std::span<const std::byte> data) {
    if (auto begun = begin(number, data.size()); !begun)
        return propagate(begun);
    if (auto done = append(number, 0, data); !done)
        return propagate(done);
    return find(number) != nullptr;
}

std::shared_ptr<const Blob> Blobs::find(std::uint64_t number) {
    const std::scoped_lock lock(lock_);
    const auto found = blobs_.find(number);
    return found != blobs_.end() && found->second->complete() ? found->second : nullptr;
}

std::vector<std::pair<std::uint64_t, std::shared_ptr<const Blob>>> Blobs::all() {
    const std::scoped_lock lock(lock_);
    return {blobs_.begin(), blobs_.end()};
}

} // namespace singularity::proxyd
