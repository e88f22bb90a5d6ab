// SPDX-License-Identifier: GPL-2.0-or-later
#include "criu-hooks/store/writer.hpp"

#include "common/text.hpp"
#include "criu-hooks/store/store.hpp"
#include "writer_state.hpp"

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <ctime>
#include <utility>

#include <fmt/chrono.h>
#include <fmt/format.h>

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

namespace {

// Sorts by time, also within a second, and nobody else has it.
std::string new_id() {
    constexpr std::int64_t kSecond = 1'000'000;
    const auto now = std::chrono::duration_cast<std::chrono::microseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
    return fmt::format("{:%Y%m%dT%H%M%S}{:06}-{}", fmt::gmtime(static_cast<std::time_t>(now / kSecond)),
                       now % kSecond, random_name());
}

// Nobody asks for it where there is no quota.
Expected<Account> others_of(const StoreState &store, const UserSpace &space) {
    return store.options.quota == 0 ? Expected<Account>(Account()) : Account::open(space);
}

} // namespace

Expected<Writer> Store::begin(const Request &request) const {
    if (!request.parent.empty() && !is_id(request.parent))
        return failure("begin a checkpoint", "", quote(request.parent) + " is no id of its parent", EINVAL);
    auto space = state_->space(request.uid, Missing::kCreate);
    if (!space)
        return propagate(space);
    std::string id = new_id();
    // Before anything is looked for in the store.
    auto lease = Lease::take(*space, id, state_->options.lease_timeout);
    if (!lease)
        return propagate(lease);
    auto others = others_of(*state_, **space);
    if (!others)
        return propagate(others);
    return Writer(std::make_shared<WriterState>(state_, *std::move(space), request, std::move(id),
                                                *std::move(lease), *std::move(others)));
}

Expected<Writer> Store::join(uid_t uid, const std::string &id) const {
    if (!is_id(id))
        return failure("join checkpoint", quote(id), "that is no id of one", EINVAL);
    auto space = state_->space(uid, Missing::kRefuse);
    if (!space)
        return propagate(space);
    if (auto lease = (*space)->pending.status(id); !lease)
        return failure("join checkpoint", id, "nobody is writing it: " + lease.error().message(), ESTALE);
    auto others = others_of(*state_, **space);
    if (!others)
        return propagate(others);
    Request request;
    request.uid = uid;
    return Writer(std::make_shared<WriterState>(state_, *std::move(space), std::move(request), id, nullptr,
                                                *std::move(others)));
}

} // namespace singularity::store
