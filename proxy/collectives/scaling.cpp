// SPDX-License-Identifier: GPL-2.0-or-later
#include "scaling.hpp"

#include "patterns.hpp"

#include <cstring>
#include <span>
#include <utility>

namespace singularity::collectives {

Scaling::Scaling(const protocol::CollectiveOperation &operation, std::uint32_t members)
    : type_(operation.type) {
    if (!kPatterns[operation.kind].reduces ||
        adjustment(operation.type, operation.reduction) != Adjustment::scale_operands)
        return;
    needed_ = true;
    address_ = operation.reduction == protocol::kPremultipliedSum ? operation.scalar_address : 0;
    if (operation.reduction != protocol::kPremultipliedSum)
        scalar_ = inverse(operation.type, members);
    else if (address_ == 0)
        std::memcpy(scalar_.data(), &operation.scalar, sizeof(operation.scalar));
}

Expected<void> Scaling::get_ready(Mover &mover) {
    const auto address = std::exchange(address_, 0);
    if (address == 0)
        return {};
    if (auto fetched = mover.fetch(address, std::span(scalar_).first(element_size(type_))); !fetched)
        return fetched;
    auto mark = mover.mark();
    return mark ? mover.wait(*mark) : propagate(mark);
}

} // namespace singularity::collectives
