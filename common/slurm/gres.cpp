// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/slurm/gres.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h> // join, since fmt 11

namespace singularity::slurm {

namespace {

std::vector<std::string_view> parts_of(std::string_view list) {
    std::vector<std::string_view> out;
    while (!list.empty()) {
        const auto part = list.substr(0, list.find(','));
        list.remove_prefix(part.size() == list.size() ? part.size() : part.size() + 1);
        out.push_back(part);
    }
    return out;
}

// The number behind the last colon, or equals sign; nothing: there is none. Without one it is 1: "gres/gpu".
struct Counted {
    std::string_view before; // with the sign
    std::uint32_t count = 0;
};
std::optional<Counted> counted(std::string_view part) {
    const auto sign = part.find_last_of(":=");
    if (sign == std::string_view::npos)
        return std::nullopt;
    Counted out{.before = part.substr(0, sign + 1), .count = 0};
    const auto number = part.substr(sign + 1);
    const auto [end, error] = std::from_chars(number.begin(), number.end(), out.count);
    return error == std::errc() && end == number.end() ? std::optional(out) : std::nullopt;
}

// Which they are, and on which sockets, as in "gpu:2(IDX:0,3)" and "gpu:4(S:0-1)", is no part of the list. Of
// GPUs that are only counted, as those of a node that has not registered yet, it is "gpu(CNT:8)".
std::string without_brackets(std::string_view gres) {
    constexpr std::string_view kCount = "(CNT:";
    std::string out;
    int depth = 0;
    while (!gres.empty()) {
        const char c = gres.front();
        if (depth == 0 && gres.starts_with(kCount)) {
            const auto end = std::min(gres.find(')'), gres.size());
            out += ':';
            out += gres.substr(kCount.size(), end - kCount.size());
            gres.remove_prefix(end);
            ++depth;
            continue;
        }
        if (c == '(')
            ++depth;
        else if (c == ')')
            --depth;
        else if (depth == 0)
            out += c;
        gres.remove_prefix(1);
    }
    return out;
}

bool is_of_gpus(std::string_view part) {
    constexpr std::array<std::string_view, 3> kNames{"gres/gpu", "gres:gpu", "gpu"};
    return std::ranges::any_of(kNames, [&](std::string_view name) {
        return part.starts_with(name) &&
               (part.size() == name.size() || part[name.size()] == ':' || part[name.size()] == '=');
    });
}

// Of the GPUs in "gres/gpu:a100:8", "gpu:a100" or "gpu:8"; empty: none is named.
std::string_view type_in(std::string_view part) {
    auto rest = part.substr(part.find("gpu") + 3);
    if (rest.empty())
        return {};
    rest.remove_prefix(1);
    const auto name = rest.substr(0, rest.find_first_of(":="));
    const bool is_count = name.find_first_not_of("0123456789") == std::string_view::npos;
    return is_count ? std::string_view() : name;
}

void add_types(std::vector<std::string> &types, std::string_view list) {
    for (const auto part : parts_of(list)) {
        const auto type = is_of_gpus(part) ? type_in(part) : std::string_view();
        if (!type.empty() && std::ranges::find(types, type) == types.end())
            types.emplace_back(type);
    }
}

bool asks_for_gpus(std::string_view list) { return std::ranges::any_of(parts_of(list), is_of_gpus); }

// The list with another number of GPUs. An error: of several types.
Expected<std::string> with_count(const std::string &list, std::uint32_t gpus) {
    std::vector<std::string> out;
    bool changed = false;
    for (const auto part : parts_of(list)) {
        if (!is_of_gpus(part)) {
            out.emplace_back(part);
            continue;
        }
        if (std::exchange(changed, true))
            return failure("resize", list, "it has GPUs of several types: use scontrol update", ENOTSUP);
        const auto found = counted(part);
        out.push_back(
            fmt::format("{}{}", found ? std::string(found->before) : fmt::format("{}:", part), gpus));
    }
    return fmt::format("{}", fmt::join(out, ","));
}

} // namespace

std::optional<std::uint32_t> gpus_of(std::string_view gres) {
    const auto list = without_brackets(gres);
    std::uint32_t out = 0;
    for (const auto part : parts_of(list)) {
        const auto found = counted(part);
        if (!found)
            return std::nullopt;
        if (part.starts_with("gpu:"))
            out += found->count;
    }
    return out;
}

std::vector<std::string> gpu_types_of(std::string_view gres) {
    std::vector<std::string> types;
    add_types(types, without_brackets(gres));
    return types;
}

std::vector<std::string> gpu_types_wished(const GpuWish &wish) {
    std::vector<std::string> types;
    for (const auto *const list : {&wish.per_job, &wish.per_node, &wish.per_socket, &wish.per_task})
        add_types(types, *list);
    return types;
}

std::uint32_t gpus_wished(const GpuWish &wish, std::uint32_t tasks) {
    const auto in = [](std::string_view list) {
        std::uint32_t out = 0;
        for (const auto part : parts_of(list))
            if (is_of_gpus(part))
                out += counted(part).value_or(Counted{.before = {}, .count = 1}).count;
        return out;
    };
    if (const auto gpus = in(wish.per_job))
        return gpus;
    if (const auto gpus = in(wish.per_node))
        return gpus * wish.nodes;
    return in(wish.per_task) * tasks;
}

Expected<GpuChange> with_gpus(const GpuWish &wish, std::uint32_t gpus) {
    const auto refused = [&](std::string_view why) {
        return failure("resize", "the job", fmt::format("to {} GPUs: {}", gpus, why), ENOTSUP);
    };
    if (asks_for_gpus(wish.per_socket))
        return refused("it was submitted with --gpus-per-socket: submit it with --gpus");
    GpuChange out;
    if (asks_for_gpus(wish.per_job)) {
        auto list = with_count(wish.per_job, gpus);
        if (!list)
            return propagate(list);
        out.per_job = std::move(*list);
        // Both would have to agree.
        if (asks_for_gpus(wish.per_node))
            return refused("it was submitted with --gpus and --gpus-per-node: leave out one of them");
        if (asks_for_gpus(wish.per_task))
            out.per_task.emplace();
        return out;
    }
    if (asks_for_gpus(wish.per_node)) {
        if (wish.nodes == 0 || gpus % wish.nodes != 0)
            return refused(fmt::format("it has {} nodes with as many GPUs on each: give a multiple of {}, or "
                                       "submit it with --gpus",
                                       wish.nodes, wish.nodes));
        auto list = with_count(wish.per_node, gpus / wish.nodes);
        if (!list)
            return propagate(list);
        out.per_node = std::move(*list);
        return out;
    }
    if (asks_for_gpus(wish.per_task)) {
        out.per_task.emplace();
        out.per_job =
            fmt::format("{}{}", wish.per_task.starts_with("gres:") ? "gres:gpu:" : "gres/gpu:", gpus);
        return out;
    }
    return refused("it was submitted without GPUs");
}

} // namespace singularity::slurm
