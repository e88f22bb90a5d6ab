// SPDX-License-Identifier: GPL-2.0-or-later
#include "journal_rules.hpp"

#include "proxy/driver-api/api.hpp"
#include "proxy/protocol/all.hpp"

#include <array>
#include <utility>

namespace singularity::proxyd {

namespace {

using driver_api::ApiClass;
using driver_api::ApiId;
using protocol::Id;

constexpr std::size_t kMessages = std::to_underlying(Id::end) - std::to_underlying(Id::first);

struct JournalRules {
    std::array<JournalRule, driver_api::kApiCount> calls{};
    std::array<JournalRule, kMessages> messages{};
};

// Where parameters lie: behind the header, 8 bytes each unless both are narrower.
constexpr std::uint16_t kFirst = sizeof(driver_api::MessageHeader);
constexpr std::uint16_t kSecond = kFirst + 8;

JournalRules make_rules() {
    JournalRules rules;
    for (std::size_t id = 0; id < driver_api::kApiCount; ++id) {
        const auto api_class = driver_api::api_info(static_cast<ApiId>(id)).api_class;
        if (api_class == ApiClass::create)
            rules.calls[id].effect = Effect::makes;
        else if (api_class == ApiClass::destroy)
            rules.calls[id].effect = Effect::ends;
    }
    const auto call = [&](ApiId id, JournalRule rule) { rules.calls[static_cast<std::size_t>(id)] = rule; };
    const auto message = [&](Id id, JournalRule rule) {
        rules.messages[std::to_underlying(id) - std::to_underlying(Id::first)] = rule;
    };
    const auto changes = [](std::uint16_t at, std::uint16_t size) {
        return JournalRule{.effect = Effect::changes, .key_at = at, .key_size = size};
    };

    call(ApiId::kCtxSetLimit, changes(kFirst, 4));
    for (const auto id : {ApiId::kCtxSetFlags, ApiId::kCtxSetCacheConfig, ApiId::kCtxSetSharedMemConfig})
        call(id, changes(kFirst, 0));
    call(ApiId::kFuncSetAttribute, changes(kSecond, 4));
    for (const auto id :
         {ApiId::kFuncSetCacheConfig, ApiId::kFuncSetSharedMemConfig, ApiId::kKernelSetCacheConfig})
        call(id, changes(kFirst, 0));
    call(ApiId::kKernelSetAttribute, changes(kFirst, 4));
    call(ApiId::kStreamCopyAttributes, {.effect = Effect::adds});
    call(ApiId::kMemPoolSetAccess, {.effect = Effect::adds});
    call(ApiId::kMemMap, {.effect = Effect::makes});
    call(ApiId::kMemUnmap, {.effect = Effect::ends});

    call(ApiId::kGraphDestroyNode, {.effect = Effect::adds});
    for (const auto id :
         {ApiId::kGraphAddDependencies, ApiId::kGraphAddDependenciesV2, ApiId::kGraphRemoveDependencies,
          ApiId::kGraphRemoveDependenciesV2, ApiId::kGraphKernelNodeCopyAttributes})
        call(id, {.effect = Effect::adds});
    for (const auto id : {ApiId::kGraphMemsetNodeSetParams, ApiId::kGraphEventRecordNodeSetEvent,
                          ApiId::kGraphEventWaitNodeSetEvent})
        call(id, changes(kFirst, 8));
    for (const auto id : {ApiId::kGraphExecMemsetNodeSetParams, ApiId::kGraphExecChildGraphNodeSetParams,
                          ApiId::kGraphExecEventRecordNodeSetEvent, ApiId::kGraphExecEventWaitNodeSetEvent,
                          ApiId::kGraphNodeSetEnabled})
        call(id, changes(kFirst, 16));
    call(ApiId::kGraphExecUpdate, {.effect = Effect::updates});
    for (const auto id :
         {ApiId::kModuleEnumerateFunctions, ApiId::kLibraryEnumerateKernels, ApiId::kGraphGetNodes,
          ApiId::kGraphGetRootNodes, ApiId::kGraphGetEdges, ApiId::kGraphGetEdgesV2,
          ApiId::kGraphNodeGetDependencies, ApiId::kGraphNodeGetDependenciesV2,
          ApiId::kGraphNodeGetDependentNodes, ApiId::kGraphNodeGetDependentNodesV2,
          ApiId::kGraphEventRecordNodeGetEvent, ApiId::kGraphEventWaitNodeGetEvent})
        call(id, {.effect = Effect::names});
    for (const auto id :
         {ApiId::kStreamBeginCapture, ApiId::kStreamBeginCaptureV2, ApiId::kStreamBeginCaptureToGraph})
        call(id, {.effect = Effect::capture_begins});
    call(ApiId::kStreamEndCapture, {.effect = Effect::capture_ends});

    for (const auto id : {Id::create_context, Id::reserve_address, Id::retain_allocation, Id::load_module,
                          Id::load_library, Id::create_link, Id::add_node, Id::instantiate_graph,
                          Id::instantiate_parts, Id::create_texture, Id::create_surface, Id::open_event})
        message(id, {.effect = Effect::makes});
    for (const auto id : {Id::destroy_context, Id::free_address})
        message(id, {.effect = Effect::ends});
    for (const auto id : {Id::add_link_data, Id::complete_link, Id::share_event})
        message(id, {.effect = Effect::adds});
    for (const auto id : {Id::function_owner, Id::get_node, Id::capture_info})
        message(id, {.effect = Effect::names});
    message(Id::set_stream_attribute, changes(kFirst, 12));
    message(Id::set_node, changes(kFirst, 16));
    message(Id::set_node_attribute, changes(kFirst, 12));
    message(Id::update_graph_exec, {.effect = Effect::updates});
    return rules;
}

} // namespace

const JournalRule &journal_rule(std::uint32_t id) {
    static const JournalRules kRules = make_rules();
    static constexpr JournalRule kNone{};
    if (id < driver_api::kApiCount)
        return kRules.calls[id];
    const auto index = id - std::to_underlying(Id::first);
    return index < kMessages ? kRules.messages[index] : kNone;
}

} // namespace singularity::proxyd
