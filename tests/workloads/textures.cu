// SPDX-License-Identifier: GPL-2.0-or-later
// Arrays, textures and surfaces: linear, pitched, 1D, 2D, 3D, in layers, with faces and with levels; nearest
// and linear, clamped, wrapped, mirrored and with a border. All objects are there from the first round to the
// last, and each round changes what is in an array, so that whatever is lost on the way is missed.
// Coordinates are such that the weights between texels are exact. Argument: number of rounds.
#include "workload.cuh"

#include <algorithm>

namespace {

constexpr int kWidth = 24;
constexpr int kHeight = 12;
constexpr int kDepth = 6;
constexpr int kSide = 8; // of faces and of the largest level
constexpr int kFaces = 6;
constexpr int kCount = 4096; // places that are looked at in a round

struct Objects {
    cudaTextureObject_t linear, pitched, border, clamped, wrapped, mirrored, volume, layers, lines, faces,
        levels, bytes;
    cudaSurfaceObject_t plane, space;
};

// Sixteenths: from a little before a texture to a little behind it.
__host__ __device__ float place(int i, int factor, int size) {
    return static_cast<float>((i * factor) % (16 * (size + 6))) / 16 - 3;
}

__global__ void look(Objects t, float *out, int round) {
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    if (i >= kCount)
        return;
    const float x = place(i + round, 7, kWidth);
    const float y = place(i, 11, kHeight);
    const float z = place(i, 5, kDepth);
    float *to = out + i * 16;
    to[0] = static_cast<float>(tex1Dfetch<int>(t.linear, i % (kWidth + 9) - 4));
    const float4 colour = tex2D<float4>(t.pitched, x / 32, y / 16);
    to[1] = colour.x + 2 * colour.y + 4 * colour.z + 8 * colour.w;
    to[2] = tex2D<float>(t.border, x, y);
    to[3] = tex2D<float>(t.clamped, x, y);
    to[4] = tex2D<float>(t.wrapped, x / 8, y / 4);
    to[5] = tex2D<float>(t.mirrored, x / 8, y / 4);
    to[6] = tex3D<float>(t.volume, x, y, z);
    to[7] = tex2DLayered<float>(t.layers, x, y, i % (kDepth + 2) - 1);
    to[8] = tex1DLayered<float>(t.lines, x, i % kDepth);
    to[9] = texCubemap<float>(t.faces, x - 9, y - 4, z - 2);
    to[10] = tex2DLod<float>(t.levels, x / 16, y / 16, static_cast<float>(i % 40) / 8);
    const short4 four = tex2D<short4>(t.bytes, x, y);
    to[11] = static_cast<float>(four.x + 2 * four.y + 4 * four.z + 8 * four.w);
    const float4 around = tex2Dgather<float4>(t.clamped, x + 0.5F, y + 0.5F, 0);
    to[12] = around.x + 3 * around.y + 5 * around.z + 7 * around.w;
    to[13] = static_cast<float>(
        surf2Dread<int>(t.plane, static_cast<int>(x) * 4, static_cast<int>(y), cudaBoundaryModeZero));
    to[14] = static_cast<float>(
        surf2Dread<int>(t.plane, static_cast<int>(x) * 4, static_cast<int>(y), cudaBoundaryModeClamp));
    to[15] = surf3Dread<float2>(t.space, i % kWidth * 8, i % kHeight, i % kDepth).y;
}

__global__ void change(Objects t, int round) {
    const int x = static_cast<int>(threadIdx.x);
    const int y = static_cast<int>(blockIdx.x);
    const int before = surf2Dread<int>(t.plane, x * 4, y);
    surf2Dwrite(before * 3 + x + round, t.plane, x * 4, y);
    surf2Dwrite(-1, t.plane, (x + kWidth) * 4, y, cudaBoundaryModeZero); // is nowhere
    for (int z = 0; z < kDepth; ++z) {
        float2 pair;
        surf3Dread(&pair, t.space, x * 8, y, z);
        surf3Dwrite(make_float2(pair.y, pair.x + static_cast<float>(x + y + z)), t.space, x * 8, y, z);
    }
}

// --- The same on the host.

using Plane = std::vector<float>;

int folded(int at, int size, cudaTextureAddressMode mode) {
    const auto around = [&](int period) { return (at % period + period) % period; };
    switch (mode) {
    case cudaAddressModeWrap:
        return around(size);
    case cudaAddressModeMirror:
        return around(2 * size) < size ? around(2 * size) : 2 * size - 1 - around(2 * size);
    case cudaAddressModeBorder:
        return at < 0 || at >= size ? -1 : at;
    default:
        return std::clamp(at, 0, size - 1);
    }
}

template <class At>
double nearest(At at, double x, double y) {
    return at(static_cast<int>(std::floor(x)), static_cast<int>(std::floor(y)));
}

template <class At>
double between(At at, double x, double y) {
    const double left = std::floor(x - 0.5);
    const double top = std::floor(y - 0.5);
    const double a = x - 0.5 - left;
    const double b = y - 0.5 - top;
    const int i = static_cast<int>(left);
    const int j = static_cast<int>(top);
    return (1 - a) * (1 - b) * at(i, j) + a * (1 - b) * at(i + 1, j) + (1 - a) * b * at(i, j + 1) +
           a * b * at(i + 1, j + 1);
}

// A texel of a plane of `width` times `height`.
auto texels(const float *plane, int width, int height, cudaTextureAddressMode mode) {
    return [=](int x, int y) -> double {
        x = folded(x, width, mode);
        y = folded(y, height, mode);
        return x < 0 || y < 0 ? 0 : plane[y * width + x];
    };
}

double face_at(const Plane &faces, double x, double y, double z) {
    const double ax = std::fabs(x);
    const double ay = std::fabs(y);
    const double az = std::fabs(z);
    int face = 0;
    double major = 0;
    double s = 0;
    double t = 0;
    if (ax >= ay && ax >= az) {
        face = x < 0 ? 1 : 0;
        major = ax;
        s = x < 0 ? z : -z;
        t = -y;
    } else if (ay >= az) {
        face = y < 0 ? 3 : 2;
        major = ay;
        s = x;
        t = y < 0 ? -z : z;
    } else {
        face = z < 0 ? 5 : 4;
        major = az;
        s = z < 0 ? -x : x;
        t = -y;
    }
    if (major == 0)
        return -1; // no direction: not compared
    return nearest(texels(&faces[face * kSide * kSide], kSide, kSide, cudaAddressModeClamp),
                   (s / major + 1) / 2 * kSide, (t / major + 1) / 2 * kSide);
}

cudaTextureDesc sampled(cudaTextureAddressMode mode, cudaTextureFilterMode filter, bool normalized,
                        cudaTextureReadMode read = cudaReadModeElementType) {
    cudaTextureDesc texture{};
    std::fill_n(texture.addressMode, 3, mode);
    texture.filterMode = filter;
    texture.readMode = read;
    texture.normalizedCoords = normalized ? 1 : 0;
    texture.mipmapFilterMode = cudaFilterModePoint;
    texture.maxMipmapLevelClamp = 16;
    return texture;
}

cudaTextureObject_t texture_of(const cudaResourceDesc &resource, const cudaTextureDesc &how) {
    cudaTextureObject_t object = 0;
    CHECK(cudaCreateTextureObject(&object, &resource, &how, nullptr));
    return object;
}

cudaResourceDesc resource_of(cudaArray_t array) {
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeArray;
    resource.res.array.array = array;
    return resource;
}

cudaArray_t array_of(const cudaChannelFormatDesc &format, cudaExtent extent, unsigned flags, const void *from,
                     std::size_t texel) {
    cudaArray_t array = nullptr;
    CHECK(cudaMalloc3DArray(&array, &format, extent, flags));
    cudaMemcpy3DParms copy{};
    copy.srcPtr = make_cudaPitchedPtr(const_cast<void *>(from), extent.width * texel, extent.width,
                                      std::max<std::size_t>(extent.height, 1));
    copy.dstArray = array;
    copy.extent = make_cudaExtent(extent.width, std::max<std::size_t>(extent.height, 1),
                                  std::max<std::size_t>(extent.depth, 1));
    copy.kind = cudaMemcpyHostToDevice;
    CHECK(cudaMemcpy3D(&copy));
    return array;
}

// Small numbers: means of them are exact.
Plane numbers(workload::Random &random, std::size_t count) {
    Plane out(count);
    for (auto &one : out)
        one = static_cast<float>(random.below(1024));
    return out;
}

} // namespace

int main(int argc, char **argv) {
    const int rounds = static_cast<int>(workload::size_argument(argc, argv, 40, 10000));
    workload::Report report;
    workload::Random random(31);
    Objects t{};

    // Memory. What is in front of the texture and behind it is not of it.
    std::vector<int> row(kWidth);
    for (auto &one : row)
        one = static_cast<int>(random.below(2000)) - 1000;
    workload::Buffer<int> linear(row);
    cudaResourceDesc resource{};
    resource.resType = cudaResourceTypeLinear;
    resource.res.linear.devPtr = linear.data();
    resource.res.linear.desc = cudaCreateChannelDesc<int>();
    resource.res.linear.sizeInBytes = kWidth * sizeof(int);
    // The first to go: the numbers of those behind it are not the first ones.
    const auto early = texture_of(resource, sampled(cudaAddressModeClamp, cudaFilterModePoint, false));
    t.linear = texture_of(resource, sampled(cudaAddressModeClamp, cudaFilterModePoint, false));

    std::vector<uchar4> colours(32 * 16);
    for (auto &one : colours)
        one = make_uchar4(random.below(2) * 255, random.below(2) * 255, random.below(2) * 255,
                          random.below(2) * 255);
    uchar4 *pitched = nullptr;
    std::size_t pitch = 0;
    CHECK(cudaMallocPitch(reinterpret_cast<void **>(&pitched), &pitch, 32 * sizeof(uchar4), 16));
    CHECK(cudaMemcpy2D(pitched, pitch, colours.data(), 32 * sizeof(uchar4), 32 * sizeof(uchar4), 16,
                       cudaMemcpyHostToDevice));
    resource = {};
    resource.resType = cudaResourceTypePitch2D;
    resource.res.pitch2D = {pitched, cudaCreateChannelDesc<uchar4>(), 32, 16, pitch};
    t.pitched = texture_of(
        resource, sampled(cudaAddressModeClamp, cudaFilterModeLinear, true, cudaReadModeNormalizedFloat));
    CHECK(cudaDestroyTextureObject(early));

    // A plane, read in several ways.
    const Plane plane = numbers(random, kWidth * kHeight);
    const auto floats = cudaCreateChannelDesc<float>();
    cudaArray_t flat = nullptr;
    CHECK(cudaMallocArray(&flat, &floats, kWidth, kHeight, cudaArrayTextureGather));
    CHECK(cudaMemcpy2DToArray(flat, 0, 0, plane.data(), kWidth * sizeof(float), kWidth * sizeof(float),
                              kHeight, cudaMemcpyHostToDevice));
    t.border = texture_of(resource_of(flat), sampled(cudaAddressModeBorder, cudaFilterModeLinear, false));
    t.clamped = texture_of(resource_of(flat), sampled(cudaAddressModeClamp, cudaFilterModeLinear, false));
    Plane squares(plane.begin(), plane.begin() + 8 * 4);
    cudaArray_t small = array_of(floats, make_cudaExtent(8, 4, 0), 0, squares.data(), sizeof(float));
    t.wrapped = texture_of(resource_of(small), sampled(cudaAddressModeWrap, cudaFilterModeLinear, true));
    t.mirrored = texture_of(resource_of(small), sampled(cudaAddressModeMirror, cudaFilterModePoint, true));

    const Plane space = numbers(random, kWidth * kHeight * kDepth);
    const cudaExtent cuboid = make_cudaExtent(kWidth, kHeight, kDepth);
    cudaArray_t volume = array_of(floats, cuboid, 0, space.data(), sizeof(float));
    t.volume = texture_of(resource_of(volume), sampled(cudaAddressModeBorder, cudaFilterModeLinear, false));
    cudaArray_t layers = array_of(floats, cuboid, cudaArrayLayered, space.data(), sizeof(float));
    t.layers = texture_of(resource_of(layers), sampled(cudaAddressModeClamp, cudaFilterModeLinear, false));
    cudaArray_t lines =
        array_of(floats, make_cudaExtent(kWidth, 0, kDepth), cudaArrayLayered, space.data(), sizeof(float));
    t.lines = texture_of(resource_of(lines), sampled(cudaAddressModeClamp, cudaFilterModePoint, false));
    const Plane sides = numbers(random, kSide * kSide * kFaces);
    cudaArray_t cube = array_of(floats, make_cudaExtent(kSide, kSide, kFaces), cudaArrayCubemap, sides.data(),
                                sizeof(float));
    t.faces = texture_of(resource_of(cube), sampled(cudaAddressModeClamp, cudaFilterModePoint, true));
    std::vector<short4> shorts(kWidth * kHeight);
    for (auto &one : shorts)
        one = make_short4(static_cast<short>(random.below(100) - 50), static_cast<short>(random.below(100)),
                          -7, static_cast<short>(random.below(9)));
    cudaArray_t texels_of_four =
        array_of(cudaCreateChannelDesc<short4>(), make_cudaExtent(kWidth, kHeight, 0), 0, shorts.data(),
                 sizeof(short4));
    t.bytes =
        texture_of(resource_of(texels_of_four), sampled(cudaAddressModeBorder, cudaFilterModePoint, false));

    // Levels, from 8x8 to 1x1.
    cudaMipmappedArray_t mipmap = nullptr;
    CHECK(cudaMallocMipmappedArray(&mipmap, &floats, make_cudaExtent(kSide, kSide, 0), 4));
    std::vector<Plane> levels;
    for (int level = 0; level < 4; ++level) {
        const int side = kSide >> level;
        levels.push_back(numbers(random, static_cast<std::size_t>(side) * side));
        cudaArray_t one = nullptr;
        CHECK(cudaGetMipmappedArrayLevel(&one, mipmap, level));
        CHECK(cudaMemcpy2DToArray(one, 0, 0, levels.back().data(), side * sizeof(float), side * sizeof(float),
                                  side, cudaMemcpyHostToDevice));
    }
    resource = {};
    resource.resType = cudaResourceTypeMipmappedArray;
    resource.res.mipmap.mipmap = mipmap;
    t.levels = texture_of(resource, sampled(cudaAddressModeClamp, cudaFilterModePoint, true));

    // What kernels write to.
    std::vector<int> cells(kWidth * kHeight);
    for (auto &one : cells)
        one = static_cast<int>(random.below(100));
    const auto store = cudaArraySurfaceLoadStore;
    cudaArray_t written = array_of(cudaCreateChannelDesc<int>(), make_cudaExtent(kWidth, kHeight, 0), store,
                                   cells.data(), sizeof(int));
    std::vector<float2> pairs(kWidth * kHeight * kDepth);
    for (auto &one : pairs)
        one = make_float2(static_cast<float>(random.below(64)), static_cast<float>(random.below(64)));
    cudaArray_t spacious =
        array_of(cudaCreateChannelDesc<float2>(), cuboid, store, pairs.data(), sizeof(float2));
    resource = resource_of(written);
    CHECK(cudaCreateSurfaceObject(&t.plane, &resource));
    resource = resource_of(spacious);
    CHECK(cudaCreateSurfaceObject(&t.space, &resource));

    cudaChannelFormatDesc format{};
    cudaExtent extent{};
    unsigned flags = 0;
    CHECK(cudaArrayGetInfo(&format, &extent, &flags, spacious));
    report.expect(format.x == 32 && format.y == 32 && format.z == 0 &&
                      format.f == cudaChannelFormatKindFloat && extent.width == kWidth &&
                      extent.height == kHeight && extent.depth == kDepth &&
                      flags == cudaArraySurfaceLoadStore,
                  "an array says what it was made as");

    workload::Buffer<float> out(static_cast<std::size_t>(kCount) * 16);
    static const char *const names[16] = {
        "linear memory", "pitched memory", "border",           "clamped",
        "wrapped",       "mirrored",       "volume",           "layers",
        "lines",         "faces",          "levels",           "four channels",
        "gathered",      "surface, zero",  "surface, clamped", "surface of a volume"};
    std::vector<int> wrong(16);
    for (int round = 0; round < rounds; ++round) {
        change<<<kHeight, kWidth>>>(t, round);
        CHECK_LAUNCH();
        look<<<kCount / 128, 128>>>(t, out.data(), round);
        CHECK_LAUNCH();
        for (int y = 0; y < kHeight; ++y)
            for (int x = 0; x < kWidth; ++x) {
                int &cell = cells[y * kWidth + x];
                cell = static_cast<int>(static_cast<unsigned>(cell) * 3U + static_cast<unsigned>(x + round));
                for (int z = 0; z < kDepth; ++z) {
                    float2 &pair = pairs[(z * kHeight + y) * kWidth + x];
                    pair = make_float2(pair.y, pair.x + static_cast<float>(x + y + z));
                }
            }
        const auto seen = out.read();
        const auto flat_clamped = texels(plane.data(), kWidth, kHeight, cudaAddressModeClamp);
        for (int i = 0; i < kCount; ++i) {
            const double x = place(i + round, 7, kWidth);
            const double y = place(i, 11, kHeight);
            const double z = place(i, 5, kDepth);
            double is[16];
            const int at = i % (kWidth + 9) - 4;
            is[0] = at < 0 || at >= kWidth ? 0 : row[at];
            is[1] = between(
                [&](int u, int v) {
                    const uchar4 &one = colours[std::clamp(v, 0, 15) * 32 + std::clamp(u, 0, 31)];
                    return (one.x + 2 * one.y + 4 * one.z + 8 * one.w) / 255.0;
                },
                x, y);
            is[2] = between(texels(plane.data(), kWidth, kHeight, cudaAddressModeBorder), x, y);
            is[3] = between(flat_clamped, x, y);
            is[4] = between(texels(squares.data(), 8, 4, cudaAddressModeWrap), x, y);
            is[5] = nearest(texels(squares.data(), 8, 4, cudaAddressModeMirror), x, y);
            const double behind = std::floor(z - 0.5);
            const double c = z - 0.5 - behind;
            const auto slice = [&](int s) {
                return s < 0 || s >= kDepth ? 0.0
                                            : between(texels(&space[s * kWidth * kHeight], kWidth, kHeight,
                                                             cudaAddressModeBorder),
                                                      x, y);
            };
            is[6] = (1 - c) * slice(static_cast<int>(behind)) + c * slice(static_cast<int>(behind) + 1);
            const int layer = std::clamp(i % (kDepth + 2) - 1, 0, kDepth - 1);
            is[7] = between(texels(&space[layer * kWidth * kHeight], kWidth, kHeight, cudaAddressModeClamp),
                            x, y);
            is[8] = nearest(texels(&space[i % kDepth * kWidth], kWidth, 1, cudaAddressModeClamp), x, 0);
            is[9] = face_at(sides, x - 9, y - 4, z - 2);
            const int level = std::min(static_cast<int>(std::floor(i % 40 / 8.0 + 0.5)), 3);
            const int side = kSide >> level;
            is[10] = nearest(texels(levels[level].data(), side, side, cudaAddressModeClamp), x / 16 * side,
                             y / 16 * side);
            const int u = static_cast<int>(std::floor(x));
            const int v = static_cast<int>(std::floor(y));
            const bool in = u >= 0 && u < kWidth && v >= 0 && v < kHeight;
            const short4 four = in ? shorts[v * kWidth + u] : make_short4(0, 0, 0, 0);
            is[11] = four.x + 2 * four.y + 4 * four.z + 8 * four.w;
            is[12] = flat_clamped(u, v + 1) + 3 * flat_clamped(u + 1, v + 1) + 5 * flat_clamped(u + 1, v) +
                     7 * flat_clamped(u, v);
            const int p = static_cast<int>(x);
            const int q = static_cast<int>(y);
            const int cell = cells[std::clamp(q, 0, kHeight - 1) * kWidth + std::clamp(p, 0, kWidth - 1)];
            is[13] = p < 0 || p >= kWidth || q < 0 || q >= kHeight ? 0 : static_cast<float>(cell);
            is[14] = static_cast<float>(cell);
            is[15] = pairs[(i % kDepth * kHeight + i % kHeight) * kWidth + i % kWidth].y;
            for (int k = 0; k < 16; ++k) {
                const double got = seen[i * 16 + k];
                const double off = k == 1                ? 1e-5
                                   : k == 9 && is[9] < 0 ? 1e9
                                                         : 0; // parts of 255 are not exact
                wrong[k] += std::fabs(got - is[k]) <= off ? 0 : 1;
            }
        }
    }
    for (int k = 0; k < 16; ++k)
        report.expect(wrong[k] == 0, names[k]);

    // And back.
    Plane back(plane.size());
    CHECK(cudaMemcpy2DFromArray(back.data(), kWidth * sizeof(float), flat, 0, 0, kWidth * sizeof(float),
                                kHeight, cudaMemcpyDeviceToHost));
    report.equal("copied back", back, plane);
    cudaArray_t other = nullptr;
    CHECK(cudaMallocArray(&other, &floats, kWidth, kHeight));
    CHECK(cudaMemcpy2DArrayToArray(other, 4 * sizeof(float), 2, flat, 0, 0, 8 * sizeof(float), 5,
                                   cudaMemcpyDeviceToDevice));
    workload::Buffer<float> part(8 * 5);
    CHECK(cudaMemcpy2DFromArrayAsync(part.data(), 8 * sizeof(float), other, 4 * sizeof(float), 2,
                                     8 * sizeof(float), 5, cudaMemcpyDeviceToDevice));
    Plane corner;
    for (int y = 0; y < 5; ++y)
        corner.insert(corner.end(), &plane[y * kWidth], &plane[y * kWidth + 8]);
    report.equal("from array to array", part.read(), corner);
    report.expect(cudaMemcpy2DToArray(other, 0, kHeight - 1, plane.data(), 16, 16, 2,
                                      cudaMemcpyHostToDevice) == cudaErrorInvalidValue,
                  "a copy behind the last row is refused");

    for (const auto object : {t.linear, t.pitched, t.border, t.clamped, t.wrapped, t.mirrored, t.volume,
                              t.layers, t.lines, t.faces, t.levels, t.bytes})
        CHECK(cudaDestroyTextureObject(object));
    CHECK(cudaDestroySurfaceObject(t.plane));
    CHECK(cudaDestroySurfaceObject(t.space));
    for (const auto array :
         {flat, small, volume, layers, lines, cube, texels_of_four, written, spacious, other})
        CHECK(cudaFreeArray(array));
    CHECK(cudaFreeMipmappedArray(mipmap));
    CHECK(cudaFree(pitched));
    return report.finish();
}
