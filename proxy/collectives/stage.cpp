// SPDX-License-Identifier: GPL-2.0-or-later
#include "stage.hpp"

#include "task.hpp"

#include <vector>

namespace singularity::collectives {

namespace {

class HostStage final : public Stage {
  public:
    explicit HostStage(const Desk &desk) : group_(desk.group), mover_(desk.mover), rank_(desk.rank) {}
    [[nodiscard]] bool on_device() const override { return false; }
    [[nodiscard]] Expected<void> fetch(std::uint64_t from, std::size_t at, std::size_t size) override {
        return mover_.fetch(from, group_.area(rank_).bytes(at, size));
    }
    [[nodiscard]] Expected<void> deliver(std::uint32_t member, std::size_t at, std::size_t size,
                                         std::uint64_t to) override {
        return mover_.deliver(group_.area(member).bytes(at, size), to);
    }
    [[nodiscard]] Expected<void> scale(std::uint32_t type, std::size_t at, const Scalar &scalar,
                                       std::uint64_t count) override {
        collectives::scale(type, group_.area(rank_).bytes(at, 0).data(), scalar, count);
        return {};
    }
    [[nodiscard]] Expected<void> reduce(std::uint32_t type, std::uint32_t reduction, std::size_t at,
                                        std::size_t result, std::uint64_t count) override {
        operands_.clear();
        for (std::uint32_t member = 0; member < group_.size(); ++member)
            operands_.push_back(group_.area(member).bytes(at, 0).data());
        collectives::reduce(type, reduction, operands_, group_.area(rank_).bytes(result, 0).data(), count);
        return {};
    }

  private:
    Group &group_;
    Mover &mover_;
    std::uint32_t rank_;
    std::vector<const std::byte *> operands_;
};

class DeviceStage final : public Stage {
  public:
    DeviceStage(const Desk &desk, Group::Part part, DeviceWork &device)
        : group_(desk.group), device_(device), rank_(desk.rank), part_(part) {}
    [[nodiscard]] bool on_device() const override { return true; }
    [[nodiscard]] Expected<void> fetch(std::uint64_t from, std::size_t at, std::size_t size) override {
        return device_.fetch(from, place(rank_, at), size);
    }
    [[nodiscard]] Expected<void> deliver(std::uint32_t member, std::size_t at, std::size_t size,
                                         std::uint64_t to) override {
        return device_.deliver(place(member, at), to, size);
    }
    [[nodiscard]] Expected<void> scale(std::uint32_t type, std::size_t at, const Scalar &scalar,
                                       std::uint64_t count) override {
        return device_.scale(type, place(rank_, at), scalar, count);
    }
    [[nodiscard]] Expected<void> reduce(std::uint32_t type, std::uint32_t reduction, std::size_t at,
                                        std::size_t result, std::uint64_t count) override {
        const bool divides = adjustment(type, reduction) == Adjustment::divide_result;
        return device_.reduce({.type = type,
                               .step = step_of(reduction),
                               .operands = place(0, at),
                               .stride = group_.device_stride(part_),
                               .members = group_.size(),
                               .divisor = divides ? group_.size() : 0,
                               .result = place(rank_, result),
                               .count = count});
    }

  private:
    [[nodiscard]] std::uint64_t place(std::uint32_t rank, std::size_t at) const {
        return group_.device_address(part_, rank, at);
    }

    Group &group_;
    DeviceWork &device_;
    std::uint32_t rank_;
    Group::Part part_;
};

} // namespace

std::unique_ptr<Stage> Stage::make(const Desk &desk, Group::Part part) {
    if (desk.on_device && desk.group.staged_on_device(part))
        return std::make_unique<DeviceStage>(desk, part, *desk.mover.on_device());
    return std::make_unique<HostStage>(desk);
}

} // namespace singularity::collectives
