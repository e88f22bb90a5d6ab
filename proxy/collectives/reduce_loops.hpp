// SPDX-License-Identifier: GPL-2.0-or-later
// The loops of reductions, for one instruction set: included by one source file for each, inside of a
// namespace of its own, as are the elements.
#include "proxy/collectives/elements.hpp"

template <class T, class Operation>
void combine(void *into, const void *with, std::size_t count) {
    using Storage = typename T::Storage;
    auto *__restrict__ to = static_cast<Storage *>(into);
    const auto *__restrict__ from = static_cast<const Storage *>(with);
    for (std::size_t index = 0; index < count; ++index)
        to[index] = Operation::template of<T>(to[index], from[index]);
}

template <class T>
void scale(void *values, const void *scalar, std::size_t count) {
    using Storage = typename T::Storage;
    auto *__restrict__ to = static_cast<Storage *>(values);
    const auto factor = *static_cast<const Storage *>(scalar);
    for (std::size_t index = 0; index < count; ++index)
        to[index] = Product::of<T>(factor, to[index]);
}

// Floating-point averages are scaled beforehand.
template <class T>
void divide(void *values, std::uint32_t divisor, std::size_t count) {
    if constexpr (!T::kFloats) {
        using Storage = typename T::Storage;
        auto *to = static_cast<Storage *>(values);
        for (std::size_t index = 0; index < count; ++index)
            to[index] = divided<T>(to[index], divisor);
    }
}

template <class T>
void invert(void *scalar, std::uint32_t divisor) {
    auto *to = static_cast<typename T::Storage *>(scalar);
    if constexpr (T::kFloats)
        *to = T::store(static_cast<typename T::Math>(1.0 / divisor));
    else
        *to = 1;
}

template <class T>
constexpr Loops loops_of() {
    return {.combine = {&combine<T, Sum>, &combine<T, Product>, &combine<T, Largest>, &combine<T, Smallest>},
            .scale = &scale<T>,
            .divide = &divide<T>,
            .invert = &invert<T>,
            .size = sizeof(typename T::Storage),
            .floats = T::kFloats};
}

template <class Types>
struct Table;
template <class... Types>
struct Table<std::tuple<Types...>> {
    static constexpr Loops kLoops[] = {loops_of<Types>()...};
};
