// SPDX-License-Identifier: GPL-2.0-or-later
// The pipeline behind a writer: callers fill buffers, the store's threads hash, compress and write them as
// temporary files, one thread per writer makes those durable, many at once, and gives them their names.
#pragma once

#include "account.hpp"
#include "criu-hooks/store/request.hpp"
#include "lease.hpp"
#include "state.hpp"

#include <atomic>
#include <bitset>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

namespace singularity::store {

struct OpenImage {
    ImageAddress address;
    std::deque<Chunk> chunks; // references stay valid while it grows
    bool finished = false;
};

class WriterState {
  public:
    // Without a lease: one that joined another writer's checkpoint.
    WriterState(std::shared_ptr<StoreState> store, std::shared_ptr<UserSpace> space, Request request,
                std::string id, std::unique_ptr<Lease> lease, Account others);
    WriterState(const WriterState &) = delete;
    WriterState &operator=(const WriterState &) = delete;
    WriterState(WriterState &&) = delete;
    WriterState &operator=(WriterState &&) = delete;
    ~WriterState();

    [[nodiscard]] const std::string &id() const { return id_; }
    [[nodiscard]] Pool &pool() const { return store_->pool; }
    [[nodiscard]] Progress progress() const;

    [[nodiscard]] Expected<OpenImage *> add_image(const ImageAddress &address);
    [[nodiscard]] Expected<void> describe(const std::string &node, const std::string &device,
                                          const Attributes &attributes);
    [[nodiscard]] Expected<void> add_part(std::span<const std::byte> part);
    [[nodiscard]] Expected<std::string> leave_part();
    [[nodiscard]] Expected<void> take_part(const std::string &name);

    // The chunk that `content` is becomes the image's next. The buffer is the pipeline's then.
    [[nodiscard]] Expected<void> add_chunk(OpenImage &image, std::vector<std::byte> content);
    [[nodiscard]] Expected<void> add_zeros(OpenImage &image, std::uint64_t size);

    [[nodiscard]] Expected<Manifest> commit();
    [[nodiscard]] Expected<std::vector<std::byte>> finish_part();
    // What is on its way ends soon, and nothing more is taken.
    void abort();

  private:
    struct Temporary {
        UniqueFd file;
        std::string name;
        Hash hash;
        std::uint32_t stored = 0;
    };

    [[nodiscard]] Expected<Chunk *> next_chunk(OpenImage &image, std::size_t size);
    [[nodiscard]] Expected<void> process(std::span<const std::byte> content, Chunk &chunk, Scratch &scratch);
    [[nodiscard]] Expected<void> write(std::span<const std::byte> content, const Hash &hash,
                                       Scratch &scratch);
    [[nodiscard]] Expected<void> know(const Hash &hash, std::uint32_t stored, bool added, std::size_t size);
    void publish_all();
    [[nodiscard]] Expected<void> publish(std::deque<Temporary> &batch);
    void discard(std::deque<Temporary> &batch);
    void fail(Error error);
    void done_one();

    [[nodiscard]] Expected<void> drain();
    [[nodiscard]] Expected<void> make_chunks_durable();
    [[nodiscard]] Expected<std::vector<VirtualNode>> collect();
    [[nodiscard]] Expected<Manifest> make_manifest(std::vector<VirtualNode> nodes) const;
    [[nodiscard]] Expected<void> check_quota(const Manifest &manifest);
    [[nodiscard]] Error quota_error(std::uint64_t used, std::uint64_t needed) const;

    std::shared_ptr<StoreState> store_;
    std::shared_ptr<UserSpace> space_;
    Request request_;
    std::string id_;
    std::string prefix_; // of the names of temporary files
    std::int64_t time_;
    std::unique_ptr<Lease> lease_;
    Account others_; // the user's other checkpoints, if there is a quota
    std::uint64_t others_bytes_;

    std::atomic<std::uint64_t> given_{0};
    std::atomic<std::uint64_t> zeros_{0};
    std::atomic<std::uint64_t> reused_{0};
    std::atomic<std::uint64_t> added_{0};
    std::atomic<std::uint64_t> stored_{0};
    std::atomic<std::uint64_t> temporaries_{0};
    std::atomic<bool> failed_{false};

    mutable std::mutex mutex_;
    std::condition_variable changed_;
    std::deque<std::unique_ptr<OpenImage>> images_;
    std::vector<VirtualNode> described_;             // attributes alone
    std::vector<VirtualNode> parts_;                 // of other hosts
    std::unordered_map<std::uint64_t, Chunk> known_; // by prefix of the hash
    std::bitset<kShards> shards_;                    // in which chunks of this checkpoint lie
    std::uint64_t chunks_ = 0;                       // of all images
    std::uint64_t charged_ = 0;                      // bytes that the user's quota did not count before
    std::uint64_t unfinished_ = 0;                   // chunks on their way
    std::deque<Temporary> written_;                  // waiting for the publisher
    std::optional<Error> error_;
    bool ending_ = false;
    std::thread publisher_;
};

// Puts the images and attributes of `more` where they belong. Refuses an image that is there already.
[[nodiscard]] Expected<void> merge_nodes(std::vector<VirtualNode> &nodes, std::vector<VirtualNode> more);

} // namespace singularity::store
