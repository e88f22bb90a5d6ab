// SPDX-License-Identifier: GPL-2.0-or-later
#include "device.hpp"

#include "proxy/collectives/reduce.hpp"

#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

namespace singularity::test {

namespace {

class FakeMemory final : public collectives::DeviceMemory {
  public:
    FakeMemory(FakeDevice &device, std::size_t size) : device_(device), bytes_(size + kLine, kNobodys) {
        ++device_.memories;
    }
    ~FakeMemory() override { --device_.memories; }
    FakeMemory(const FakeMemory &) = delete;
    FakeMemory &operator=(const FakeMemory &) = delete;
    FakeMemory(FakeMemory &&) = delete;
    FakeMemory &operator=(FakeMemory &&) = delete;
    [[nodiscard]] std::uint64_t address() const override {
        return (std::bit_cast<std::uint64_t>(bytes_.data()) + kLine - 1) / kLine * kLine;
    }

  private:
    static constexpr std::size_t kLine = 64;
    static constexpr std::byte kNobodys{0xEE};
    FakeDevice &device_;
    std::vector<std::byte> bytes_;
};

std::byte *at(std::uint64_t address) { return std::bit_cast<std::byte *>(address); }

} // namespace

Expected<std::shared_ptr<const collectives::DeviceMemory>> FakeDevice::stage(std::size_t size) {
    ++asked;
    if (!has_memory_)
        return failure("have", "memory of the test's device", "it has none", ENOMEM);
    return std::make_shared<FakeMemory>(*this, size);
}

void DelayedMover::begin(std::function<bool()> work) {
    work_.push_back(std::move(work));
    ++begun_;
}

Expected<void> DelayedMover::copy(std::function<void()> work) {
    begin([work = std::move(work)] {
        work();
        return true;
    });
    return {};
}

void DelayedMover::do_one() {
    if (!work_.front()())
        return;
    work_.pop_front();
    ++done_;
}

Expected<bool> DelayedMover::passed(std::uint64_t mark) {
    if (done_ < mark)
        do_one();
    return done_ >= mark;
}

Expected<void> DelayedMover::wait(std::uint64_t mark) {
    while (done_ < mark)
        do_one();
    return {};
}

Expected<void> DelayedMover::fetch(std::uint64_t from, std::span<std::byte> to) {
    return copy([from, to] { std::memcpy(to.data(), at(from), to.size()); });
}

Expected<void> DelayedMover::deliver(std::span<const std::byte> from, std::uint64_t to) {
    return copy([from, to] { std::memcpy(at(to), from.data(), from.size()); });
}

Expected<void> DelayedMover::fetch(std::uint64_t from, std::uint64_t to, std::size_t size) {
    ++device_->copies;
    return copy([from, to, size] { std::memcpy(at(to), at(from), size); });
}

Expected<void> DelayedMover::deliver(std::uint64_t from, std::uint64_t to, std::size_t size) {
    return fetch(from, to, size);
}

Expected<void> DelayedMover::scale(std::uint32_t type, std::uint64_t values,
                                   const collectives::Scalar &scalar, std::uint64_t count) {
    return copy([=] { collectives::scale(type, at(values), scalar, count); });
}

Expected<void> DelayedMover::reduce(const collectives::DeviceReduction &reduction) {
    ++device_->reductions;
    return copy([reduction] {
        constexpr std::uint32_t kAverage = 4;
        std::vector<const std::byte *> operands;
        for (std::uint32_t member = 0; member < reduction.members; ++member)
            operands.push_back(at(reduction.operands + (member * reduction.stride)));
        const bool divides = reduction.divisor == reduction.members;
        collectives::reduce(reduction.type, divides ? kAverage : reduction.step, operands,
                            at(reduction.result), reduction.count);
    });
}

} // namespace singularity::test
