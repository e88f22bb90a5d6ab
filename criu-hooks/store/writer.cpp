// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/store/writer.hpp"

#include "writer_state.hpp"

#include <algorithm>
#include <cstdint>
#include <utility>

namespace singularity::store {

ImageWriter::ImageWriter(std::shared_ptr<WriterState> state, OpenImage *image)
    : state_(std::move(state)), image_(image) {}
ImageWriter::ImageWriter(ImageWriter &&) noexcept = default;
ImageWriter &ImageWriter::operator=(ImageWriter &&) noexcept = default;
ImageWriter::~ImageWriter() = default;

Expected<void> ImageWriter::submit() {
    if (filling_.empty())
        return {};
    return state_->add_chunk(*image_, std::exchange(filling_, {}));
}

Expected<void> ImageWriter::append(std::span<const std::byte> data) {
    while (!data.empty()) {
        if (filling_.capacity() == 0)
            filling_ = state_->pool().take_buffer();
        const std::size_t part = std::min(data.size(), kChunkSize - filling_.size());
        filling_.insert(filling_.end(), data.begin(), data.begin() + static_cast<std::ptrdiff_t>(part));
        data = data.subspan(part);
        if (filling_.size() < kChunkSize)
            continue;
        if (auto submitted = submit(); !submitted)
            return submitted;
    }
    return {};
}

Expected<void> ImageWriter::append_zeros(std::uint64_t size) {
    // Up to the end of the chunk that is being filled, so that chunks begin where they would if the zeros
    // were appended as bytes.
    if (!filling_.empty()) {
        const auto part =
            static_cast<std::size_t>(std::min<std::uint64_t>(size, kChunkSize - filling_.size()));
        filling_.resize(filling_.size() + part);
        size -= part;
        if (filling_.size() == kChunkSize)
            if (auto submitted = submit(); !submitted)
                return submitted;
    }
    const std::uint64_t whole = size / kChunkSize * kChunkSize;
    if (auto added = state_->add_zeros(*image_, whole); !added)
        return added;
    if (size > whole) {
        filling_ = state_->pool().take_buffer();
        filling_.resize(static_cast<std::size_t>(size - whole));
    }
    return {};
}

Expected<void> ImageWriter::boundary() { return submit(); }

Expected<void> ImageWriter::finish() {
    auto submitted = submit();
    if (submitted)
        image_->finished = true;
    return submitted;
}

Writer::Writer(std::shared_ptr<WriterState> state) : state_(std::move(state)) {}
Writer::Writer(Writer &&) noexcept = default;
Writer &Writer::operator=(Writer &&other) noexcept {
    if (this != &other) {
        abort();
        state_ = std::move(other.state_);
    }
    return *this;
}
Writer::~Writer() { abort(); }

void Writer::abort() {
    if (state_)
        state_->abort();
}

const std::string &Writer::id() const { return state_->id(); }

Expected<ImageWriter> Writer::image(const ImageAddress &address) {
    auto image = state_->add_image(address);
    if (!image)
        return propagate(image);
    return ImageWriter(state_, *image);
}

Expected<void> Writer::describe(const std::string &node, const std::string &device,
                                const Attributes &attributes) {
    return state_->describe(node, device, attributes);
}

Progress Writer::progress() const { return state_->progress(); }

Expected<Manifest> Writer::commit() {
    auto manifest = state_->commit();
    state_->abort(); // what is left when it has become a checkpoint: threads
    return manifest;
}

Expected<std::vector<std::byte>> Writer::finish_part() {
    auto part = state_->finish_part();
    state_->abort();
    return part;
}

Expected<void> Writer::add_part(std::span<const std::byte> part) { return state_->add_part(part); }

Expected<std::string> Writer::leave_part() {
    auto name = state_->leave_part();
    state_->abort();
    return name;
}

Expected<void> Writer::take_part(const std::string &name) { return state_->take_part(name); }

} // namespace singularity::store
