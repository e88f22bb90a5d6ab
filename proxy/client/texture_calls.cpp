// SPDX-License-Identifier: GPL-2.0-or-later
// Texture and surface objects. Kernels are given the driver's own number of one, so that number is what the
// program has; what it was made of is kept here.
#include "log.hpp"
#include "memory.hpp"
#include "proxy/protocol/graph.hpp"

#include <map>
#include <mutex>
#include <optional>
#include <utility>

using namespace singularity;
using namespace singularity::client;

namespace {

struct Made {
    std::uint64_t handle = 0;
    Context *context = nullptr;
    std::uint64_t context_id = 0;
    CUDA_RESOURCE_DESC resource{};
    CUDA_TEXTURE_DESC texture{};
    std::optional<CUDA_RESOURCE_VIEW_DESC> view;
};

// By context and the driver's number: a driver may number those of each context by themselves.
using Numbered = std::map<std::pair<std::uint64_t, std::uint64_t>, Made>;

struct All {
    std::mutex lock;
    Numbered textures;
    Numbered surfaces;
};

All &all() {
    static auto &instance = *std::make_unique<All>().release(); // see process()
    return instance;
}

CUresult resource_of(const CUDA_RESOURCE_DESC *resource, protocol::Resource &out) {
    if (resource == nullptr || resource->flags != 0)
        return CUDA_ERROR_INVALID_VALUE;
    out.type = static_cast<std::uint32_t>(resource->resType);
    switch (resource->resType) {
    case CU_RESOURCE_TYPE_ARRAY:
        out.object = std::bit_cast<std::uint64_t>(resource->res.array.hArray);
        return find_object(driver_api::kHandleArray, out.object) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                                            : CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_MIPMAPPED_ARRAY:
        out.object = std::bit_cast<std::uint64_t>(resource->res.mipmap.hMipmappedArray);
        return find_object(driver_api::kHandleMipmap, out.object) == nullptr ? CUDA_ERROR_INVALID_VALUE
                                                                             : CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_LINEAR:
        out.object = resource->res.linear.devPtr;
        out.format = static_cast<std::uint32_t>(resource->res.linear.format);
        out.channels = resource->res.linear.numChannels;
        out.size = resource->res.linear.sizeInBytes;
        return CUDA_SUCCESS;
    case CU_RESOURCE_TYPE_PITCH2D:
        out.object = resource->res.pitch2D.devPtr;
        out.format = static_cast<std::uint32_t>(resource->res.pitch2D.format);
        out.channels = resource->res.pitch2D.numChannels;
        out.width = resource->res.pitch2D.width;
        out.height = resource->res.pitch2D.height;
        out.pitch = resource->res.pitch2D.pitchInBytes;
        return CUDA_SUCCESS;
    default:
        return CUDA_ERROR_INVALID_VALUE;
    }
}

template <class Fixed>
CUresult create(const protocol::Message<Fixed> &message, Context &context, Made made, Numbered All::*kept,
                unsigned long long &out) {
    std::uint64_t value = 0;
    const auto result = ask(Route{.session = context.session, .context = &context}, message, 0,
                            [&](const auto &reply) { value = reply.fixed.value; });
    if (result != CUDA_SUCCESS)
        return result;
    if (value == 0) {
        kLog.error("the device proxy does not say the number of a texture or surface");
        return CUDA_ERROR_NOT_SUPPORTED;
    }
    made.context = &context;
    made.context_id = context.id;
    const std::scoped_lock lock(all().lock);
    (all().*kept)[{context.id.load(), value}] = made;
    out = value;
    return CUDA_SUCCESS;
}

// Of the current context.
CUresult find(Numbered All::*kept, std::uint64_t value, Made &made) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    const std::scoped_lock lock(all().lock);
    const auto found = (all().*kept).find({context->id.load(), value});
    if (found == (all().*kept).end() || found->second.context_id != found->second.context->id)
        return CUDA_ERROR_INVALID_VALUE;
    made = found->second;
    return CUDA_SUCCESS;
}

void forget(Numbered All::*kept, const Made &made, std::uint64_t value) {
    const std::scoped_lock lock(all().lock);
    (all().*kept).erase({made.context_id, value});
}

// The generated message with our handle in place of the driver's number.
template <class Request, class Decode>
CUresult destroy(Request &request, const Made &made, Decode decode) {
    const Route route{.session = made.context->session, .context = made.context};
    const Encoded encoded([&](std::span<std::byte> storage) { return encode(request, storage); });
    const Exchange exchange(route, encoded.bytes(), kReplyOverhead);
    if (exchange.failure() != CUDA_SUCCESS)
        return exchange.failure();
    const auto reply = decode(exchange.reply());
    if (!reply)
        return broken(route, reply.error());
    note_result(made.context, static_cast<CUresult>(reply->driver_result));
    return static_cast<CUresult>(reply->driver_result);
}

} // namespace

extern "C" {

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                           const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (pTexObject == nullptr || pTexDesc == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    Made made;
    made.handle = new_handle(driver_api::kHandleTexture);
    protocol::Message<protocol::CreateTexture> message{.fixed = {.texture = made.handle}};
    if (const auto bad = resource_of(pResDesc, message.fixed.resource); bad != CUDA_SUCCESS)
        return bad;
    made.resource = *pResDesc;
    made.texture = *pTexDesc;
    message.buffers[0] = {.bytes = std::as_bytes(std::span(pTexDesc, 1)), .present = true};
    if (pResViewDesc != nullptr) {
        made.view = *pResViewDesc;
        message.buffers[1] = {.bytes = std::as_bytes(std::span(pResViewDesc, 1)), .present = true};
    }
    return create(message, *context, made, &All::textures, *pTexObject);
}

CUresult cuTexObjectDestroy(CUtexObject texObject) {
    Made made;
    if (const auto bad = find(&All::textures, texObject, made); bad != CUDA_SUCCESS)
        return bad;
    driver_api::TexObjectDestroyRequest request;
    request.texObject = made.handle;
    const auto result = destroy(request, made, [&](std::span<const std::byte> bytes) {
        return driver_api::decode_TexObjectDestroyReply(request, bytes);
    });
    if (result == CUDA_SUCCESS)
        forget(&All::textures, made, texObject);
    return result;
}

CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject) {
    Made made;
    if (const auto bad = find(&All::textures, texObject, made); bad != CUDA_SUCCESS)
        return bad;
    if (pResDesc == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *pResDesc = made.resource;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject) {
    Made made;
    if (const auto bad = find(&All::textures, texObject, made); bad != CUDA_SUCCESS)
        return bad;
    if (pTexDesc == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *pTexDesc = made.texture;
    return CUDA_SUCCESS;
}

CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc, CUtexObject texObject) {
    Made made;
    if (const auto bad = find(&All::textures, texObject, made); bad != CUDA_SUCCESS)
        return bad;
    if (pResViewDesc == nullptr || !made.view)
        return CUDA_ERROR_INVALID_VALUE;
    *pResViewDesc = *made.view;
    return CUDA_SUCCESS;
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc) {
    Context *context = nullptr;
    if (const auto bad = need_context(context); bad != CUDA_SUCCESS)
        return bad;
    if (pSurfObject == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    Made made;
    made.handle = new_handle(driver_api::kHandleSurface);
    protocol::Message<protocol::CreateSurface> message{.fixed = {.surface = made.handle}};
    if (const auto bad = resource_of(pResDesc, message.fixed.resource); bad != CUDA_SUCCESS)
        return bad;
    if (pResDesc->resType != CU_RESOURCE_TYPE_ARRAY)
        return CUDA_ERROR_INVALID_VALUE;
    made.resource = *pResDesc;
    return create(message, *context, made, &All::surfaces, *pSurfObject);
}

CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
    Made made;
    if (const auto bad = find(&All::surfaces, surfObject, made); bad != CUDA_SUCCESS)
        return bad;
    driver_api::SurfObjectDestroyRequest request;
    request.surfObject = made.handle;
    const auto result = destroy(request, made, [&](std::span<const std::byte> bytes) {
        return driver_api::decode_SurfObjectDestroyReply(request, bytes);
    });
    if (result == CUDA_SUCCESS)
        forget(&All::surfaces, made, surfObject);
    return result;
}

CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject) {
    Made made;
    if (const auto bad = find(&All::surfaces, surfObject, made); bad != CUDA_SUCCESS)
        return bad;
    if (pResDesc == nullptr)
        return CUDA_ERROR_INVALID_VALUE;
    *pResDesc = made.resource;
    return CUDA_SUCCESS;
}

} // extern "C"
