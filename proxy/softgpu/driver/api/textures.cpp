// SPDX-License-Identifier: GPL-2.0-or-later
// Texture and surface objects.
#include "driver/api/entry.hpp"
#include "driver/texture.hpp"

#include <utility>

namespace singularity::softgpu::driver {

namespace {

template <class Work>
CUresult with_texture(CUtexObject number, Work &&work) {
    return with_context([&](Context &context) {
        const auto object = context.textures().texture(number);
        return object ? std::forward<Work>(work)(*object) : CUDA_ERROR_INVALID_VALUE;
    });
}

} // namespace

} // namespace singularity::softgpu::driver

using namespace singularity::softgpu::driver;

extern "C" {

CUresult cuTexObjectCreate(CUtexObject *pTexObject, const CUDA_RESOURCE_DESC *pResDesc,
                           const CUDA_TEXTURE_DESC *pTexDesc, const CUDA_RESOURCE_VIEW_DESC *pResViewDesc) {
    return with_context([&](Context &context) {
        if (pTexObject == nullptr || pResDesc == nullptr || pTexDesc == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        auto object = make_texture(*pResDesc, *pTexDesc, pResViewDesc);
        if (!object)
            return object.error();
        *pTexObject = context.textures().add(*std::move(object));
        return CUDA_SUCCESS;
    });
}
CUresult cuTexObjectDestroy(CUtexObject texObject) {
    return with_context([&](Context &context) {
        return context.textures().remove_texture(texObject) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}
CUresult cuTexObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUtexObject texObject) {
    return with_texture(texObject,
                        [&](const TextureObject &object) { return give(pResDesc, object.resource); });
}
CUresult cuTexObjectGetTextureDesc(CUDA_TEXTURE_DESC *pTexDesc, CUtexObject texObject) {
    return with_texture(texObject,
                        [&](const TextureObject &object) { return give(pTexDesc, object.texture); });
}
CUresult cuTexObjectGetResourceViewDesc(CUDA_RESOURCE_VIEW_DESC *pResViewDesc, CUtexObject texObject) {
    return with_texture(texObject, [&](const TextureObject &object) {
        return object.view ? give(pResViewDesc, *object.view) : CUDA_ERROR_INVALID_VALUE;
    });
}

CUresult cuSurfObjectCreate(CUsurfObject *pSurfObject, const CUDA_RESOURCE_DESC *pResDesc) {
    return with_context([&](Context &context) {
        if (pSurfObject == nullptr || pResDesc == nullptr)
            return CUDA_ERROR_INVALID_VALUE;
        auto object = make_surface(*pResDesc);
        if (!object)
            return object.error();
        *pSurfObject = context.textures().add(*std::move(object));
        return CUDA_SUCCESS;
    });
}
CUresult cuSurfObjectDestroy(CUsurfObject surfObject) {
    return with_context([&](Context &context) {
        return context.textures().remove_surface(surfObject) ? CUDA_SUCCESS : CUDA_ERROR_INVALID_VALUE;
    });
}
CUresult cuSurfObjectGetResourceDesc(CUDA_RESOURCE_DESC *pResDesc, CUsurfObject surfObject) {
    return with_context([&](Context &context) {
        const auto object = context.textures().surface(surfObject);
        return object ? give(pResDesc, object->resource) : CUDA_ERROR_INVALID_VALUE;
    });
}

} // extern "C"
