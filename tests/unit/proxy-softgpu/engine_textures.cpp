// SPDX-License-Identifier: GPL-2.0-or-later
// tex, tld4, txq, suq, suld, sust and sured: every form that is known, on images whose texels say where they
// are; and what ends a kernel. ptxas, where there is one, takes all that is written here.
#include "assembler.hpp"
#include "engine_fixture.hpp"

#include <algorithm>
#include <array>
#include <bit>
#include <cstdint>
#include <string>

namespace {

using namespace singularity::softgpu;
using namespace singularity::softgpu::test;

constexpr std::uint32_t kWidth = 8;
constexpr std::uint32_t kHeight = 8;
constexpr std::uint32_t kDepth = 12;
constexpr std::uint64_t kTexture = 5;
constexpr std::uint64_t kSurface = 6;

struct Geometry {
    const char *name;
    unsigned dimensions;
    bool layered;
    bool cube;
    const char *coordinates; // %x %y %z: of floats or integers; %l the layer
};
constexpr std::array<Geometry, 7> kGeometries{{{"1d", 1, false, false, "X"},
                                               {"2d", 2, false, false, "X, Y"},
                                               {"3d", 3, false, false, "X, Y, Z, Z"},
                                               {"a1d", 1, true, false, "%l, X"},
                                               {"a2d", 2, true, false, "%l, X, Y, Y"},
                                               {"cube", 2, false, true, "X, Y, Z, Z"},
                                               {"acube", 2, true, true, "%l, X, Y, Z"}}};

std::string spelled(const char *coordinates, const char *prefix) {
    std::string out;
    for (const char *at = coordinates; *at != '\0'; ++at)
        if (*at >= 'X' && *at <= 'Z')
            out += fmt::format("{}{}", prefix, static_cast<char>(*at - 'X' + 'x'));
        else
            out += *at;
    return out;
}

// Kernels k0, k1 ... with the parameters out, object, x, y, z, layer; each body leaves four results in
// %o0..3.
class Kernels {
  public:
    unsigned add(const std::string &body) {
        text_ += fmt::format(
            R"(.visible .entry k{}(.param .u64 out, .param .u64 object, .param .s32 px, .param .s32 py,
    .param .s32 pz, .param .s32 pl) {{
.reg .b64 %out, %object, %d<4>;
.reg .b32 %o<4>, %ix, %iy, %iz, %l, %v<4>;
.reg .f32 %fx, %fy, %fz, %half, %g<4>;
.reg .b16 %h<4>;
ld.param.u64 %out, [out]; ld.param.u64 %object, [object];
ld.param.s32 %ix, [px]; ld.param.s32 %iy, [py]; ld.param.s32 %iz, [pz]; ld.param.s32 %l, [pl];
mov.f32 %half, 0f3F000000;
cvt.rn.f32.s32 %fx, %ix; cvt.rn.f32.s32 %fy, %iy; cvt.rn.f32.s32 %fz, %iz;
add.f32 %fx, %fx, %half; add.f32 %fy, %fy, %half; add.f32 %fz, %fz, %half;
mov.b32 %o0, 0; mov.b32 %o1, 0; mov.b32 %o2, 0; mov.b32 %o3, 0;
{}
st.global.v4.b32 [%out], {{%o0, %o1, %o2, %o3}};
ret;
}}
)",
            count_, body);
        return count_++;
    }
    [[nodiscard]] std::string text() const {
        return ".version 8.0\n.target sm_75\n.address_size 64\n" + text_;
    }
    [[nodiscard]] unsigned size() const { return count_; }

  private:
    std::string text_;
    unsigned count_ = 0;
};

struct Image {
    std::vector<std::byte> bytes;
    TexelImage image;
};

Image image_of(const Geometry &geometry, TexelForm form, std::uint32_t width = kWidth) {
    Image out;
    out.image.form = form;
    out.image.dimensions = static_cast<std::uint8_t>(geometry.dimensions);
    out.image.layered = geometry.layered;
    out.image.cube = geometry.cube;
    out.image.width = width;
    out.image.height = geometry.dimensions > 1 ? kHeight : 1;
    out.image.depth = geometry.cube && !geometry.layered            ? 6
                      : geometry.dimensions > 2 || geometry.layered ? kDepth
                                                                    : 1;
    out.image.row = std::uint64_t{width} * form.size();
    out.image.slice = out.image.row * out.image.height;
    out.bytes.resize(out.image.slice * out.image.depth);
    out.image.texels = out.bytes.data();
    return out;
}

// What channel c of a texel is.
int value_at(std::uint32_t x, std::uint32_t y, std::uint32_t z, unsigned channel) {
    return static_cast<int>(x + 10 * y + 100 * z + 2000 * channel);
}

template <class T>
void fill(Image &image) {
    for (std::uint32_t z = 0; z < image.image.depth; ++z)
        for (std::uint32_t y = 0; y < image.image.height; ++y)
            for (std::uint32_t x = 0; x < image.image.width; ++x)
                for (unsigned c = 0; c < image.image.form.channels; ++c) {
                    const auto value = static_cast<T>(value_at(x, y, z, c));
                    std::memcpy(&image.bytes[z * image.image.slice + y * image.image.row +
                                             x * image.image.form.size() + c * sizeof(T)],
                                &value, sizeof(T));
                }
}

std::shared_ptr<TextureObjects> textures(const TexelImage &image, const Sampler &sampler) {
    auto objects = std::make_shared<TextureObjects>();
    objects->textures[kTexture] =
        std::make_shared<const Texture>(Texture{sampler, TexelSource::array, {image}, {}});
    objects->surfaces[kSurface] = std::make_shared<const Surface>(Surface{image, {}});
    return objects;
}

struct At {
    int x = 0, y = 0, z = 0, layer = 0;
};

class Runs {
  public:
    explicit Runs(const Kernels &kernels) : device_(kernels.text()), out_(device_.zeroed<std::uint32_t>(4)) {}
    Launch launch(unsigned kernel, std::uint64_t object, At at, std::shared_ptr<TextureObjects> objects) {
        auto launch = device_.launch(fmt::format("k{}", kernel), {1, 1, 1}, {1, 1, 1},
                                     Arguments(out_, object, at.x, at.y, at.z, at.layer));
        launch.textures = std::move(objects);
        return launch;
    }
    const std::uint32_t *run(unsigned kernel, std::uint64_t object, At at,
                             std::shared_ptr<TextureObjects> objects) {
        device_.run(launch(kernel, object, at, std::move(objects)));
        return out_;
    }
    Device &device() { return device_; }

  private:
    Device device_;
    std::uint32_t *out_;
};

void every_form_of_tex(void ** /*state*/) {
    Kernels kernels;
    struct Form {
        unsigned kernel;
        const Geometry *geometry;
        std::string result;
        bool integers;
    };
    std::vector<Form> forms;
    for (const auto &geometry : kGeometries)
        for (const char *result : {"u32", "s32", "f32"})
            for (const char *coordinate : {"s32", "f32"})
                for (const char *mode : {"", ".base", ".level", ".grad"}) {
                    const bool integers = *coordinate == 's';
                    const bool gradient = std::string(mode) == ".grad";
                    if ((integers && (geometry.cube || gradient)) || (gradient && geometry.cube))
                        continue;
                    std::string rest;
                    if (std::string(mode) == ".level")
                        rest = integers ? ", %v3" : ", %g3";
                    if (gradient) {
                        const char *slope = geometry.dimensions == 1   ? "{%g3}"
                                            : geometry.dimensions == 2 ? "{%g3, %g3}"
                                                                       : "{%g3, %g3, %g3, %g3}";
                        rest = fmt::format(", {}, {}", slope, slope);
                    }
                    forms.push_back({kernels.add(fmt::format(
                                         "mov.b32 %v3, 0; mov.f32 %g3, 0f00000000;\n"
                                         "tex{}.{}.v4.{}.{} {{%o0, %o1, %o2, %o3}}, [%object, {{{}}}]{};",
                                         mode, geometry.name, result, coordinate,
                                         spelled(geometry.coordinates, integers ? "%i" : "%f"), rest)),
                                     &geometry, result, integers});
                }
    assemble(kernels.text());
    Runs runs(kernels);
    for (const auto &form : forms) {
        const Geometry &geometry = *form.geometry;
        const bool floats = form.result == "f32";
        Image image = image_of(geometry, {floats                 ? TexelKind::floating
                                          : form.result == "u32" ? TexelKind::unsigned_integer
                                                                 : TexelKind::signed_integer,
                                          4, 4});
        if (floats)
            fill<float>(image);
        else
            fill<std::int32_t>(image);
        Sampler sampler;
        sampler.integers = !floats;
        const At at{.x = 3, .y = 6, .z = 2, .layer = 1};
        const auto *found = runs.run(form.kernel, kTexture, at, textures(image.image, sampler));
        // The direction (3.5, 6.5, 2.5) meets the third face.
        const std::uint32_t z = geometry.cube              ? (geometry.layered ? 6 : 0) + 2
                                : geometry.layered         ? 1
                                : geometry.dimensions == 3 ? 2
                                                           : 0;
        const std::uint32_t x = geometry.cube ? static_cast<std::uint32_t>((3.5 / 6.5 + 1) / 2 * kWidth) : 3;
        const std::uint32_t y = geometry.cube ? static_cast<std::uint32_t>((2.5 / 6.5 + 1) / 2 * kHeight)
                                : geometry.dimensions > 1 ? 6
                                                          : 0;
        for (unsigned c = 0; c < 4; ++c) {
            const int value = value_at(x, y, z, c);
            const auto bits = floats ? std::bit_cast<std::uint32_t>(static_cast<float>(value))
                                     : static_cast<std::uint32_t>(value);
            if (found[c] != bits)
                fail(fmt::format("tex of {} to {}: channel {} is {:#x}, not {:#x}", geometry.name,
                                 form.result, c, found[c], bits));
        }
    }
}

void what_a_gather_takes(void ** /*state*/) {
    Kernels kernels;
    for (const char *channel : {"r", "g", "b", "a"})
        kernels.add(
            fmt::format("tld4.{}.2d.v4.f32.f32 {{%o0, %o1, %o2, %o3}}, [%object, {{%fx, %fy}}];", channel));
    assemble(kernels.text());
    Runs runs(kernels);
    Image image = image_of(kGeometries[1], {TexelKind::floating, 4, 4});
    fill<float>(image);
    for (unsigned channel = 0; channel < 4; ++channel) {
        // At the middle of a texel: it and those before it.
        const auto *found = runs.run(channel, kTexture, {.x = 3, .y = 5}, textures(image.image, {}));
        const std::array<std::array<std::uint32_t, 2>, 4> corners{{{3, 6}, {4, 6}, {4, 5}, {3, 5}}};
        for (unsigned i = 0; i < 4; ++i)
            assert_true(std::bit_cast<float>(found[i]) ==
                        static_cast<float>(value_at(corners[i][0], corners[i][1], 0, channel)));
    }
}

void questions(void ** /*state*/) {
    Kernels kernels;
    kernels.add("txq.width.b32 %o0, [%object]; txq.height.b32 %o1, [%object]; txq.depth.b32 %o2, [%object];\n"
                "txq.normalized_coords.b32 %o3, [%object];");
    kernels.add("txq.array_size.b32 %o0, [%object]; txq.num_mipmap_levels.b32 %o1, [%object];");
    kernels.add("suq.width.b32 %o0, [%object]; suq.height.b32 %o1, [%object]; suq.depth.b32 %o2, [%object];\n"
                "suq.array_size.b32 %o3, [%object];");
    assemble(kernels.text());
    Runs runs(kernels);
    Sampler sampler;
    sampler.normalized = true;
    const Image volume = image_of(kGeometries[2], {TexelKind::floating, 4, 1});
    const Image layers = image_of(kGeometries[4], {TexelKind::floating, 4, 1});
    const auto answers = [&](unsigned kernel, std::uint64_t object, const Image &image) {
        const auto *found = runs.run(kernel, object, {}, textures(image.image, sampler));
        return std::array<std::uint32_t, 4>{found[0], found[1], found[2], found[3]};
    };
    assert_true((answers(0, kTexture, volume) == std::array<std::uint32_t, 4>{kWidth, kHeight, kDepth, 1}));
    assert_true((answers(1, kTexture, layers) == std::array<std::uint32_t, 4>{kDepth, 1, 0, 0}));
    assert_true((answers(2, kSurface, layers) == std::array<std::uint32_t, 4>{kWidth, kHeight, 0, kDepth}));
}

void every_form_of_surfaces(void ** /*state*/) {
    Kernels kernels;
    struct Form {
        unsigned load, store;
        const Geometry *geometry;
        std::uint32_t size; // of one value
        std::uint32_t count;
    };
    std::vector<Form> forms;
    for (const auto &geometry : kGeometries)
        for (const unsigned size : {1U, 2U, 4U, 8U})
            for (const unsigned count : {1U, 2U, 4U})
                for (const char *mode : {"trap", "clamp", "zero"}) {
                    if (geometry.cube || (size == 8 && count == 4))
                        continue;
                    const char *family = size == 8 ? "%d" : size == 4 ? "%v" : "%h";
                    std::string list;
                    std::string out;
                    for (unsigned i = 0; i < count; ++i) {
                        list += fmt::format("{}{}{}", i == 0 ? "" : ", ", family, i);
                        out += size == 8   ? fmt::format("cvt.u32.u64 %o{}, %d{};", i, i)
                               : size == 4 ? fmt::format("mov.b32 %o{}, %v{};", i, i)
                                           : fmt::format("cvt.u32.u16 %o{}, %h{};", i, i);
                    }
                    const std::string modifiers =
                        fmt::format("{}{}.b{}.{}", geometry.name,
                                    count == 1 ? "" : fmt::format(".v{}", count), size * 8, mode);
                    const std::string place =
                        fmt::format("[%object, {{{}}}]", spelled(geometry.coordinates, "%i"));
                    const auto load =
                        kernels.add(fmt::format("suld.b.{} {{{}}}, {};\n{}", modifiers, list, place, out));
                    const auto store = kernels.add(
                        fmt::format("suld.b.{} {{{}}}, {};\nadd.s32 %ix, %ix, {};\n"
                                    "sust.b.{} {}, {{{}}};",
                                    modifiers, list, place, size * count, modifiers, place, list));
                    forms.push_back({load, store, &geometry, size, count});
                }
    assemble(kernels.text());
    Runs runs(kernels);
    for (const auto &form : forms) {
        Image image = image_of(*form.geometry, {TexelKind::unsigned_integer, 4, 4});
        for (std::size_t i = 0; i < image.bytes.size(); ++i)
            image.bytes[i] = static_cast<std::byte>(i * 7 + i / 256);
        const bool layered = form.geometry->layered;
        const bool volume = form.geometry->dimensions == 3;
        const At at{.x = static_cast<int>(form.size * form.count), .y = 3, .z = 5, .layer = 4};
        const std::size_t place = static_cast<std::size_t>(at.x) +
                                  (form.geometry->dimensions > 1 ? 3 * image.image.row : 0) +
                                  (volume    ? 5
                                   : layered ? 4
                                             : 0) *
                                      image.image.slice;
        const auto objects = textures(image.image, {});
        const auto *found = runs.run(form.load, kSurface, at, objects);
        for (unsigned i = 0; i < form.count; ++i) {
            std::uint32_t expected = 0;
            std::memcpy(&expected, &image.bytes[place + std::size_t{i} * form.size], std::min(form.size, 4U));
            assert_int_equal(found[i], expected);
        }
        runs.run(form.store, kSurface, at, objects);
        assert_memory_equal(&image.bytes[place], &image.bytes[place + form.size * form.count],
                            form.size * form.count);
    }
}

void outside_of_a_surface(void ** /*state*/) {
    Kernels kernels;
    for (const char *mode : {"trap", "clamp", "zero"}) {
        kernels.add(fmt::format("suld.b.2d.b32.{} {{%o0}}, [%object, {{%ix, %iy}}];", mode));
        kernels.add(
            fmt::format("mov.b32 %v0, 99;\nsust.b.2d.b32.{} [%object, {{%ix, %iy}}], {{%v0}};", mode));
    }
    Runs runs(kernels);
    Image image = image_of(kGeometries[1], {TexelKind::unsigned_integer, 4, 1});
    fill<std::uint32_t>(image);
    const auto before = image.bytes;
    const auto objects = textures(image.image, {});
    for (const At at : {At{.x = -4}, At{.x = kWidth * 4}, At{.y = -1}, At{.y = kHeight}}) {
        runs.device().fault_of(runs.launch(0, kSurface, at, objects), FaultKind::trap);
        runs.device().fault_of(runs.launch(1, kSurface, at, objects), FaultKind::trap);
        assert_int_equal(runs.run(4, kSurface, at, objects)[0], 0);
        runs.run(5, kSurface, at, objects);
        assert_true(image.bytes == before);
        const auto x = static_cast<std::uint32_t>(std::clamp(at.x, 0, static_cast<int>(kWidth * 4 - 4))) / 4;
        const auto y = static_cast<std::uint32_t>(std::clamp(at.y, 0, static_cast<int>(kHeight) - 1));
        assert_int_equal(runs.run(2, kSurface, at, objects)[0], value_at(x, y, 0, 0));
        runs.run(3, kSurface, at, objects);
        std::uint32_t written = 0;
        std::memcpy(&written, &image.bytes[y * image.image.row + x * 4], 4);
        assert_int_equal(written, 99);
        std::ranges::copy(before, image.bytes.begin());
    }
    runs.device().fault_of(runs.launch(4, kSurface, {.x = 2}, objects), FaultKind::misaligned_address);
}

void reductions(void ** /*state*/) {
    Kernels kernels;
    struct Row {
        const char *what;
        int before, value, after;
    };
    const std::array<Row, 7> rows{{{"add.u32", 5, 7, 12},
                                   {"min.s32", -5, 3, -5},
                                   {"max.s32", -5, 3, 3},
                                   {"min.u32", -5, 3, 3},
                                   {"max.u32", -5, 3, -5},
                                   {"and.b32", 6, 3, 2},
                                   {"or.b32", 6, 3, 7}}};
    for (const Row &row : rows)
        kernels.add(fmt::format("mov.b32 %v0, {};\nsured.b.2d.{}.trap [%object, {{%ix, %iy}}], %v0;",
                                row.value, row.what));
    assemble(kernels.text());
    Runs runs(kernels);
    for (unsigned i = 0; i < rows.size(); ++i) {
        Image image = image_of(kGeometries[1], {TexelKind::unsigned_integer, 4, 1});
        const std::size_t place = 2 * image.image.row + 12;
        std::memcpy(&image.bytes[place], &rows[i].before, 4);
        runs.run(i, kSurface, {.x = 12, .y = 2}, textures(image.image, {}));
        int after = 0;
        std::memcpy(&after, &image.bytes[place], 4);
        assert_int_equal(after, rows[i].after);
    }
}

void what_ends_a_kernel(void ** /*state*/) {
    Kernels kernels;
    kernels.add("tex.2d.v4.f32.f32 {%o0, %o1, %o2, %o3}, [%object, {%fx, %fy}];");
    kernels.add("tex.1d.v4.f32.f32 {%o0, %o1, %o2, %o3}, [%object, {%fx}];");
    kernels.add("mov.f32 %g0, %half;\ntex.grad.2d.v4.f32.f32 {%o0, %o1, %o2, %o3}, [%object, {%fx, %fy}], "
                "{%g0, %g0}, "
                "{%g0, %g0};");
    Runs runs(kernels);
    const Image image = image_of(kGeometries[1], {TexelKind::floating, 4, 1});
    const auto fault = [&](unsigned kernel, std::uint64_t object, std::shared_ptr<TextureObjects> objects,
                           FaultKind kind) {
        return runs.device().fault_of(runs.launch(kernel, object, {}, std::move(objects)), kind).text;
    };
    expect_contains(fault(0, 77, textures(image.image, {}), FaultKind::illegal_address),
                    "no texture object 0x4d");
    expect_contains(fault(0, kTexture, nullptr, FaultKind::illegal_address), "no texture object");
    expect_contains(fault(1, kTexture, textures(image.image, {}), FaultKind::not_supported), "is read as 1d");
    auto levels = std::make_shared<TextureObjects>();
    levels->textures[kTexture] =
        std::make_shared<const Texture>(Texture{{}, TexelSource::array, {image.image, image.image}, {}});
    expect_contains(fault(2, kTexture, levels, FaultKind::not_supported), "gradients");
}

// What is between texels: weights have 8 bits of fraction, and the nearest of them is taken.
void weights(void ** /*state*/) {
    Kernels kernels;
    kernels.add(
        "div.rn.f32 %fx, %fx, 0f44800000;\ntex.1d.v4.f32.f32 {%o0, %o1, %o2, %o3}, [%object, {%fx}];");
    Runs runs(kernels);
    Image image = image_of(kGeometries[0], {TexelKind::unsigned_integer, 1, 1}, 2);
    image.bytes = {std::byte{0}, std::byte{255}};
    image.image.texels = image.bytes.data();
    Sampler sampler;
    sampler.linear = true;
    for (int i = 0; i < 2048; i += 3) {
        // From 0 to 2 in parts of 1024, and half a part.
        const double at = (i + 0.5) / 1024 - 0.5;
        const double share = std::clamp(std::floor((at - std::floor(at)) * 256 + 0.5) / 256, 0., 1.);
        const double expected = at < 0 ? 0 : at < 1 ? share : 1;
        const auto *found = runs.run(0, kTexture, {.x = i}, textures(image.image, sampler));
        assert_true(std::bit_cast<float>(found[0]) == static_cast<float>(expected));
    }
}

} // namespace

int main() {
    const CMUnitTest tests[] = {cmocka_unit_test(every_form_of_tex),
                                cmocka_unit_test(what_a_gather_takes),
                                cmocka_unit_test(questions),
                                cmocka_unit_test(every_form_of_surfaces),
                                cmocka_unit_test(outside_of_a_surface),
                                cmocka_unit_test(reductions),
                                cmocka_unit_test(what_ends_a_kernel),
                                cmocka_unit_test(weights)};
    return cmocka_run_group_tests(tests, nullptr, nullptr);
}
