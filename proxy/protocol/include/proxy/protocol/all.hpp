// SPDX-License-Identifier: GPL-2.0-or-later
// Every hand-written message, in the order of its id: for dispatch tables and for tests that go through all.
#pragma once

#include "proxy/protocol/code.hpp"
#include "proxy/protocol/collective.hpp"
#include "proxy/protocol/graph.hpp"
#include "proxy/protocol/memory.hpp"

#include <utility>

namespace singularity::protocol {

using AllMessages =
    std::tuple<CreateContext, DestroyContext, MapSlab, UnmapSlab, ReserveAddress, FreeAddress, MapHostMemory,
               UnmapHostMemory, MemoryInfo, RetainAllocation, ShareSlab, EndExport, OpenSlab, WriteMemory,
               ReadMemory, CopyMemory, WriteBox, ReadBox, CopyBox, BeginBlob, BlobData, DropBlob, ReadBlob,
               LoadModule, LoadLibrary, CreateLink, AddLinkData, CompleteLink, FunctionLayout, FunctionName,
               FunctionOwner, LaunchKernel, LaunchHostFunction, OccupancyOfClusters, ProcessorPlaces,
               GetStreamAttribute, SetStreamAttribute, CaptureInfo, ShareEvent, OpenEvent, AddNode, SetNode,
               GetNode, GetNodeAttribute, SetNodeAttribute, InstantiateGraph, UpdateGraphExec, PrintGraph,
               CreateTexture, CreateSurface, FinishRestore, JoinCommunicator, CommunicatorState,
               IssueCollectives, ExchangeWithMembers, LeaveCommunicator, InstantiateParts>;

inline constexpr std::size_t kMessageCount = std::tuple_size_v<AllMessages>;
static_assert(kMessageCount == std::to_underlying(Id::end) - std::to_underlying(Id::first));

template <class Function, std::size_t... Index>
void for_each_message(Function &&function, std::index_sequence<Index...> /*indices*/) {
    (function.template operator()<std::tuple_element_t<Index, AllMessages>>(), ...);
}
// Calls function.operator()<Fixed>() for each.
template <class Function>
void for_each_message(Function &&function) {
    for_each_message(std::forward<Function>(function), std::make_index_sequence<kMessageCount>());
}

namespace detail {
template <std::size_t... Index>
consteval bool in_order(std::index_sequence<Index...> /*indices*/) {
    return ((std::to_underlying(std::tuple_element_t<Index, AllMessages>::kId) ==
             std::to_underlying(Id::first) + Index) &&
            ...);
}
static_assert(in_order(std::make_index_sequence<kMessageCount>()));
} // namespace detail

} // namespace singularity::protocol
