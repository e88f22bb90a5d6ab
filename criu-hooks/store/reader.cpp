// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/store/reader.hpp"

#include "chunk_file.hpp"
#include "common/text.hpp"
#include "reader_state.hpp"

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <list>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace singularity::store {

// One chunk on its way from the disk.
struct Fetched {
    std::size_t number = 0;
    std::vector<std::byte> content;
    Expected<void> result;
    bool done = false;
};

class ImageState {
  public:
    ImageState(std::shared_ptr<CheckpointState> checkpoint, const Image *image);
    ImageState(const ImageState &) = delete;
    ImageState &operator=(const ImageState &) = delete;
    ImageState(ImageState &&) = delete;
    ImageState &operator=(ImageState &&) = delete;
    ~ImageState();

    [[nodiscard]] std::uint64_t size() const { return starts_.back(); }
    [[nodiscard]] Expected<std::size_t> read(std::span<std::byte> out);
    [[nodiscard]] Expected<void> read_at(std::uint64_t offset, std::span<std::byte> out);

  private:
    static constexpr std::size_t kKept = 4;

    [[nodiscard]] const Chunk &chunk(std::size_t number) const { return image_->chunks[number]; }
    [[nodiscard]] Error error_at(Error error, std::size_t number) const;
    void fetch_ahead();
    [[nodiscard]] Expected<const std::vector<std::byte> *> front();
    [[nodiscard]] Expected<void> read_part(std::size_t number, std::size_t from, std::span<std::byte> out);

    std::shared_ptr<CheckpointState> checkpoint_;
    const Image *image_;                // of the checkpoint's manifest
    std::vector<std::uint64_t> starts_; // of each chunk; behind them the size of the image

    // Reading forward
    std::size_t next_ = 0;  // to be fetched
    std::size_t chunk_ = 0; // to be read
    std::size_t at_ = 0;    // in that chunk
    std::deque<std::shared_ptr<Fetched>> ahead_;
    std::mutex mutex_;
    std::condition_variable changed_;
    std::size_t unfinished_ = 0; // of ahead_

    // Reading anywhere
    std::mutex kept_mutex_;
    std::list<Fetched> kept_; // the last used first
    Scratch scratch_;
};

ImageState::ImageState(std::shared_ptr<CheckpointState> checkpoint, const Image *image)
    : checkpoint_(std::move(checkpoint)), image_(image) {
    starts_.reserve(image->chunks.size() + 1);
    std::uint64_t at = 0;
    for (const Chunk &chunk : image->chunks) {
        starts_.push_back(at);
        at += chunk.size;
    }
    starts_.push_back(at);
}

// The tasks use this object.
ImageState::~ImageState() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return unfinished_ == 0; });
}

Error ImageState::error_at(Error error, std::size_t number) const {
    return checkpoint_->with_way_out(std::move(error), chunk(number).hash);
}

void ImageState::fetch_ahead() {
    const std::size_t most = checkpoint_->pool().threads() + std::size_t{2};
    for (; ahead_.size() < most && next_ < image_->chunks.size(); ++next_) {
        auto fetched = std::make_shared<Fetched>();
        fetched->number = next_;
        ahead_.push_back(fetched);
        if (chunk(next_).stored == 0) {
            fetched->done = true;
            continue;
        }
        fetched->content = checkpoint_->pool().take_buffer(chunk(next_).size);
        {
            const std::lock_guard lock(mutex_);
            ++unfinished_;
        }
        checkpoint_->pool().submit([this, fetched](Scratch &scratch) {
            auto result = read_chunk(checkpoint_->space(), chunk(fetched->number), fetched->content, scratch);
            const std::lock_guard lock(mutex_);
            fetched->result = std::move(result);
            fetched->done = true;
            --unfinished_;
            changed_.notify_all();
        });
    }
}

// The content of the chunk to be read; empty for zeros.
Expected<const std::vector<std::byte> *> ImageState::front() {
    fetch_ahead();
    Fetched &fetched = *ahead_.front();
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&fetched] { return fetched.done; });
    if (!fetched.result)
        return std::unexpected(error_at(fetched.result.error(), fetched.number));
    return &fetched.content;
}

Expected<std::size_t> ImageState::read(std::span<std::byte> out) {
    std::size_t done = 0;
    while (done < out.size() && chunk_ < image_->chunks.size()) {
        const auto content = front();
        if (!content)
            return std::unexpected(content.error());
        const std::size_t part = std::min(out.size() - done, std::size_t{chunk(chunk_).size} - at_);
        if ((*content)->empty())
            std::memset(out.data() + done, 0, part);
        else
            std::memcpy(out.data() + done, (*content)->data() + at_, part);
        done += part;
        at_ += part;
        if (at_ < chunk(chunk_).size)
            continue;
        if (ahead_.front()->content.capacity() != 0)
            checkpoint_->pool().give_buffer(std::move(ahead_.front()->content));
        ahead_.pop_front();
        ++chunk_;
        at_ = 0;
    }
    return done;
}

Expected<void> ImageState::read_part(std::size_t number, std::size_t from, std::span<std::byte> out) {
    if (chunk(number).stored == 0) {
        std::ranges::fill(out, std::byte{});
        return {};
    }
    const std::lock_guard lock(kept_mutex_);
    auto found = std::ranges::find(kept_, number, &Fetched::number);
    if (found == kept_.end() && out.size() == chunk(number).size) { // a whole chunk goes where it is wanted
        if (auto read = read_chunk(checkpoint_->space(), chunk(number), out, scratch_); !read)
            return std::unexpected(error_at(std::move(read.error()), number));
        return {};
    }
    if (found == kept_.end()) {
        Fetched fetched;
        if (kept_.size() == kKept) {
            fetched = std::move(kept_.back());
            kept_.pop_back();
        }
        fetched.number = number;
        fetched.content.resize(chunk(number).size);
        if (auto read = read_chunk(checkpoint_->space(), chunk(number), fetched.content, scratch_); !read)
            return std::unexpected(error_at(std::move(read.error()), number));
        kept_.push_front(std::move(fetched));
        found = kept_.begin();
    }
    kept_.splice(kept_.begin(), kept_, found);
    std::memcpy(out.data(), found->content.data() + from, out.size());
    return {};
}

Expected<void> ImageState::read_at(std::uint64_t offset, std::span<std::byte> out) {
    if (offset > size() || out.size() > size() - offset)
        return failure(
            "read image", quote(image_->name),
            fmt::format("it has {} bytes, and {} at {} were asked for", size(), out.size(), offset), EINVAL);
    auto number = static_cast<std::size_t>(std::ranges::upper_bound(starts_, offset) - starts_.begin()) - 1;
    for (; !out.empty(); ++number) {
        const auto from = static_cast<std::size_t>(offset - starts_[number]);
        const std::size_t part = std::min(out.size(), chunk(number).size - from);
        if (auto read = read_part(number, from, out.first(part)); !read)
            return read;
        out = out.subspan(part);
        offset += part;
    }
    return {};
}

ImageReader::ImageReader(std::unique_ptr<ImageState> state) : state_(std::move(state)) {}
ImageReader::ImageReader(ImageReader &&) noexcept = default;
ImageReader &ImageReader::operator=(ImageReader &&) noexcept = default;
ImageReader::~ImageReader() = default;

std::uint64_t ImageReader::size() const { return state_->size(); }
Expected<std::size_t> ImageReader::read(std::span<std::byte> out) { return state_->read(out); }
Expected<void> ImageReader::read_at(std::uint64_t offset, std::span<std::byte> out) const {
    return state_->read_at(offset, out);
}

Checkpoint::Checkpoint(std::shared_ptr<CheckpointState> state) : state_(std::move(state)) {}

const Manifest &Checkpoint::manifest() const { return state_->manifest(); }

Expected<ImageReader> Checkpoint::image(const ImageAddress &address) const {
    const Image *found = nullptr;
    for_each_image(manifest(), [&](const VirtualNode &node, const Device *device, const Image &image) {
        if (node.name == address.node &&
            (device == nullptr ? std::string() : device->name) == address.device &&
            image.name == address.name)
            found = &image;
    });
    if (found == nullptr)
        return failure("read image", quote(address.name),
                       fmt::format("checkpoint {} has none of that name for virtual node {}{}", manifest().id,
                                   quote(address.node),
                                   address.device.empty() ? "" : ", device " + quote(address.device)),
                       ENOENT);
    return ImageReader(std::make_unique<ImageState>(state_, found));
}

} // namespace singularity::store
