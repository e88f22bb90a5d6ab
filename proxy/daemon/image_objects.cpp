// SPDX-License-Identifier: GPL-2.0-or-later
#include "image_objects.hpp"

#include "driver_api/messages.hpp"
#include "proxy/protocol/all.hpp"

#include <span>

namespace singularity::proxyd {

std::optional<std::uint64_t> numbered_object(const JournalEntry &entry) {
    if (entry.calls.size() != 1)
        return std::nullopt;
    const std::span<const std::byte> message = entry.calls.front().message;
    switch (static_cast<protocol::Id>(protocol::peek_id(message))) {
    case protocol::Id::create_texture:
        if (const auto request = protocol::decode_request<protocol::CreateTexture>(message))
            return request->fixed.texture;
        return std::nullopt;
    case protocol::Id::create_surface:
        if (const auto request = protocol::decode_request<protocol::CreateSurface>(message))
            return request->fixed.surface;
        return std::nullopt;
    default:
        return std::nullopt;
    }
}

std::optional<std::pair<std::uint64_t, std::uint64_t>> memory_of_texture(const JournalEntry &entry) {
    const auto request = protocol::decode_request<protocol::CreateTexture>(entry.calls.front().message);
    if (!request)
        return std::nullopt;
    const auto &resource = request->fixed.resource;
    if (resource.type == CU_RESOURCE_TYPE_LINEAR)
        return std::pair(resource.object, resource.size);
    if (resource.type == CU_RESOURCE_TYPE_PITCH2D && resource.height != 0) // checked when it was made
        return std::pair(resource.object, resource.pitch * (resource.height - 1) + resource.width);
    return std::nullopt;
}

std::optional<std::uint64_t> own_array(const JournalEntry &entry) {
    using driver_api::ApiId;
    if (entry.calls.size() != 1)
        return std::nullopt;
    const std::span<const std::byte> message = entry.calls.front().message;
    switch (static_cast<ApiId>(protocol::peek_id(message))) {
    case ApiId::kArrayCreateV2:
        if (const auto request = driver_api::decode_ArrayCreateV2Request(message))
            return request->pHandle;
        return std::nullopt;
    case ApiId::kArray3DCreateV2:
        if (const auto request = driver_api::decode_Array3DCreateV2Request(message))
            return request->pHandle;
        return std::nullopt;
    default:
        return std::nullopt;
    }
}

} // namespace singularity::proxyd
