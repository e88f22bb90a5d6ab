// SPDX-License-Identifier: GPL-2.0-or-later
#include "pinned_file.hpp"

#include <algorithm>
#include <utility>

#include <sys/stat.h>

namespace singularity::proxyd {

namespace {
constexpr std::uint64_t kAtOnce = std::uint64_t{64} << 20; // between two looks at who waits
} // namespace

Expected<std::unique_ptr<PinnedFile>> PinnedFile::make(UniqueFd file, const driver_api::Backend &driver,
                                                       std::uint64_t most) {
    auto mapped = image::MappedFile::make(file.get(), most);
    if (!mapped)
        return propagate(mapped);
    return std::unique_ptr<PinnedFile>(new PinnedFile(std::move(file), driver, std::move(*mapped)));
}

PinnedFile::PinnedFile(UniqueFd fd, const driver_api::Backend &driver, image::MappedFile file)
    : fd_(std::move(fd)), driver_(driver), file_(std::move(file)) {}

PinnedFile::~PinnedFile() {
    // Of a context that is gone: its registrations have ended with it.
    for (auto *const pin : pins_)
        static_cast<void>(driver_.cuMemHostUnregister(pin));
}

Expected<void> PinnedFile::reserve(std::uint64_t bytes, const image::GoOn &go_on) {
    while (file_.memory().size() < bytes) {
        if (auto wanted = go_on(file_.memory().size()); !wanted)
            return wanted;
        if (auto grown = file_.grow(std::min(bytes - file_.memory().size(), kAtOnce)); !grown)
            return grown;
        pin(file_.memory().subspan(pinned_to_));
        pinned_to_ = file_.memory().size();
    }
    return {};
}

// Where the driver cannot, it copies through memory of its own: slower, not wrong.
void PinnedFile::pin(std::span<std::byte> part) {
    if (driver_.cuMemHostRegister_v2 != nullptr && driver_.cuMemHostUnregister != nullptr &&
        driver_.cuMemHostRegister_v2(part.data(), part.size(), CU_MEMHOSTREGISTER_PORTABLE) == CUDA_SUCCESS)
        pins_.push_back(part.data());
}

bool PinnedFile::is(const UniqueFd &file) const {
    struct stat mine{};
    struct stat other{};
    return fstat(fd_.get(), &mine) == 0 && fstat(file.get(), &other) == 0 && mine.st_dev == other.st_dev &&
           mine.st_ino == other.st_ino;
}

} // namespace singularity::proxyd
