// SPDX-License-Identifier: GPL-2.0-or-later
// Loads and stores. An access is first made into host addresses, checked all at once where that can be done:
// 32 lanes in one range of memory, one right after the other or all at one place. What does not fit goes lane
// by lane through resolve_general, which also says which lane is at fault.
#include "engine/lanes.hpp"

namespace singularity::softgpu::engine::SINGULARITY_LANES {

namespace {

using std::int16_t;
using std::int8_t;
using std::uint16_t;
using std::uint32_t;
using std::uint64_t;
using std::uint8_t;

// Addresses of all lanes; lanes that do not execute get the one of a lane that does, so that a load may read
// for all.
[[gnu::always_inline]] inline void addresses(const Context &context, const Op &op, uint64_t (&out)[kLanes]) {
    const uint32_t mask = context.mask;
    const unsigned first = static_cast<unsigned>(__builtin_ctz(mask));
    if (op.base == Base::row64) {
        const uint64_t *base = row<uint64_t>(context, op.o[5]);
        if (mask == kAllLanes) {
            for (unsigned i = 0; i < kLanes; ++i)
                out[i] = base[i] + op.immediate;
        } else {
            const uint64_t other = base[first];
            for (unsigned i = 0; i < kLanes; ++i)
                out[i] = ((mask & (1U << i)) != 0 ? base[i] : other) + op.immediate;
        }
    } else if (op.base == Base::row32) {
        const uint32_t *base = row<uint32_t>(context, op.o[5]);
        const uint32_t other = base[first];
        const auto offset = static_cast<uint32_t>(op.immediate);
        for (unsigned i = 0; i < kLanes; ++i)
            out[i] = ((mask & (1U << i)) != 0 ? base[i] : other) + offset;
    } else {
        for (unsigned i = 0; i < kLanes; ++i)
            out[i] = op.immediate;
    }
}

template <Place P>
[[gnu::always_inline]] inline void resolve(Context &context, const Op &op, uint32_t bytes, bool write,
                                           Access &access) {
    if constexpr (P == Place::global || P == Place::shared) {
        uint64_t address[kLanes];
        addresses(context, op, address);
        uint64_t lowest = address[0];
        uint64_t highest = address[0];
        uint64_t low_bits = 0;
        uint64_t not_contiguous = 0;
        const uint64_t start = address[0];
        for (unsigned i = 0; i < kLanes; ++i) {
            low_bits |= address[i];
            not_contiguous |= address[i] ^ (start + uint64_t{i} * bytes);
        }
        const bool contiguous = not_contiguous == 0;
        if (contiguous) {
            highest = start + uint64_t{kLanes - 1} * bytes;
        } else {
            for (unsigned i = 0; i < kLanes; ++i) {
                lowest = address[i] < lowest ? address[i] : lowest;
                highest = address[i] > highest ? address[i] : highest;
            }
        }
        const uint64_t last = highest + bytes - 1;
        if ((low_bits & (bytes - 1)) == 0 && last >= highest) [[likely]] {
            if constexpr (P == Place::global) {
                const Range *range = find_range(context, op, lowest, last);
                if (range != nullptr && (!write || range->writable)) [[likely]] {
                    for (unsigned i = 0; i < kLanes; ++i)
                        access.at[i] =
                            reinterpret_cast<std::byte *>(address[i]); // NOLINT: an address of this process
                    access.contiguous = contiguous;
                    access.uniform = lowest == highest;
                    return;
                }
            } else if (last < context.shared_size) [[likely]] {
                for (unsigned i = 0; i < kLanes; ++i)
                    access.at[i] = context.shared + address[i];
                access.contiguous = contiguous;
                access.uniform = lowest == highest;
                return;
            }
        }
    }
    resolve_general(context, op, bytes, write, access);
}

template <class M>
[[gnu::always_inline]] inline Container<M> extended(M value) {
    if constexpr (sizeof(M) < 4 && std::is_signed_v<M>)
        return static_cast<uint32_t>(static_cast<std::int32_t>(value));
    else
        return static_cast<Container<M>>(value);
}

template <class M, Place P>
void load(Context &context, const Op &op) {
    using C = Container<M>;
    Access access;
    resolve<P>(context, op, sizeof(M), false, access);
    if (access.contiguous) {
        const M *from = reinterpret_cast<const M *>(access.at[0]);
        each<C>(context, op.o[0], [=](unsigned i) { return extended<M>(from[i]); });
        return;
    }
    if (access.uniform) {
        const C value = extended<M>(*reinterpret_cast<const M *>(access.at[0]));
        each<C>(context, op.o[0], [=](unsigned) { return value; });
        return;
    }
    each<C>(context, op.o[0],
            [&](unsigned i) { return extended<M>(*reinterpret_cast<const M *>(access.at[i])); });
}

template <class M, Place P>
void load_tuple(Context &context, const Op &op) {
    using C = Container<M>;
    Access access;
    resolve<P>(context, op, static_cast<uint32_t>(sizeof(M) * op.count), false, access);
    const Ref *destinations = &context.code->extra[op.extra];
    for (unsigned k = 0; k < op.count; ++k) {
        if (destinations[k] == kAbsent)
            continue;
        C values[kLanes];
        for (unsigned i = 0; i < kLanes; ++i)
            values[i] = extended<M>(reinterpret_cast<const M *>(access.at[i])[k]);
        each<C>(context, destinations[k], [&](unsigned i) { return values[i]; });
    }
}

template <class M, Place P>
void store(Context &context, const Op &op) {
    using C = Container<M>;
    Access access;
    resolve<P>(context, op, sizeof(M), true, access);
    const C *values = row<C>(context, op.o[1]);
    if (access.contiguous && context.mask == kAllLanes) {
        M *to = reinterpret_cast<M *>(access.at[0]);
#pragma GCC ivdep
        for (unsigned i = 0; i < kLanes; ++i)
            to[i] = static_cast<M>(values[i]);
        return;
    }
    // In the order of lanes: of several that write one place the last one stays.
    for (unsigned i = 0; i < kLanes; ++i)
        if ((context.mask & (1U << i)) != 0)
            *reinterpret_cast<M *>(access.at[i]) = static_cast<M>(values[i]);
}

template <class M, Place P>
void store_tuple(Context &context, const Op &op) {
    using C = Container<M>;
    Access access;
    resolve<P>(context, op, static_cast<uint32_t>(sizeof(M) * op.count), true, access);
    const Ref *sources = &context.code->extra[op.extra];
    const C *values[8];
    for (unsigned k = 0; k < op.count; ++k)
        values[k] = row<C>(context, sources[k]);
    for (unsigned i = 0; i < kLanes; ++i)
        if ((context.mask & (1U << i)) != 0)
            for (unsigned k = 0; k < op.count; ++k)
                reinterpret_cast<M *>(access.at[i])[k] = static_cast<M>(values[k][i]);
}

// The parameters of a kernel are the same for every lane, and were checked when the code was made.
template <class M>
void load_parameter(Context &context, const Op &op) {
    const Ref *destinations = op.count > 1 ? &context.code->extra[op.extra] : &op.o[0];
    for (unsigned k = 0; k < op.count; ++k) {
        if (destinations[k] == kAbsent)
            continue;
        M value;
        __builtin_memcpy(&value, context.parameters + op.immediate + k * sizeof(M), sizeof(M));
        const Container<M> bits = extended<M>(value);
        each<Container<M>>(context, destinations[k], [=](unsigned) { return bits; });
    }
}

using Wide = Unsigned128;
void load_wide(Context &context, const Op &op) {
    Access access;
    resolve_general(context, op, static_cast<uint32_t>(sizeof(Wide) * op.count), false, access);
    const Ref *destinations = op.count > 1 ? &context.code->extra[op.extra] : &op.o[0];
    for (unsigned k = 0; k < op.count; ++k)
        for (unsigned i = 0; i < kLanes; ++i)
            if ((context.mask & (1U << i)) != 0 && destinations[k] != kAbsent)
                __builtin_memcpy(row<Wide>(context, destinations[k]) + i, access.at[i] + k * sizeof(Wide),
                                 sizeof(Wide));
}
void store_wide(Context &context, const Op &op) {
    Access access;
    resolve_general(context, op, static_cast<uint32_t>(sizeof(Wide) * op.count), true, access);
    const Ref *sources = op.count > 1 ? &context.code->extra[op.extra] : &op.o[1];
    for (unsigned k = 0; k < op.count; ++k)
        for (unsigned i = 0; i < kLanes; ++i)
            if ((context.mask & (1U << i)) != 0)
                __builtin_memcpy(access.at[i] + k * sizeof(Wide), row<Wide>(context, sources[k]) + i,
                                 sizeof(Wide));
}

template <class M>
Handler load_at(const Op &op) {
    const bool tuple = op.count > 1;
    switch (op.place) {
    case Place::parameter:
        if (op.base == Base::none)
            return load_parameter<M>;
        return nullptr;
    case Place::global:
        return tuple ? load_tuple<M, Place::global> : load<M, Place::global>;
    case Place::shared:
        return tuple ? load_tuple<M, Place::shared> : load<M, Place::shared>;
    default:
        return tuple ? load_tuple<M, Place::generic> : load<M, Place::generic>;
    }
}
template <class M>
Handler store_at(const Op &op) {
    const bool tuple = op.count > 1;
    switch (op.place) {
    case Place::parameter:
        return nullptr;
    case Place::global:
        return tuple ? store_tuple<M, Place::global> : store<M, Place::global>;
    case Place::shared:
        return tuple ? store_tuple<M, Place::shared> : store<M, Place::shared>;
    default:
        return tuple ? store_tuple<M, Place::generic> : store<M, Place::generic>;
    }
}

} // namespace

Handler select_load(Type type, const Op &op);
Handler select_load(Type type, const Op &op) {
    const bool is_signed = ptx::is_signed(type);
    switch (ptx::type_size(type)) {
    case 1:
        return is_signed ? load_at<int8_t>(op) : load_at<uint8_t>(op);
    case 2:
        return is_signed ? load_at<int16_t>(op) : load_at<uint16_t>(op);
    case 4:
        return load_at<uint32_t>(op);
    case 8:
        return load_at<uint64_t>(op);
    case 16:
        return op.place == Place::parameter ? nullptr : load_wide;
    default:
        return nullptr;
    }
}

Handler select_store(Type type, const Op &op);
Handler select_store(Type type, const Op &op) {
    switch (ptx::type_size(type)) {
    case 1:
        return store_at<uint8_t>(op);
    case 2:
        return store_at<uint16_t>(op);
    case 4:
        return store_at<uint32_t>(op);
    case 8:
        return store_at<uint64_t>(op);
    case 16:
        return store_wide;
    default:
        return nullptr;
    }
}

} // namespace singularity::softgpu::engine::SINGULARITY_LANES
