// SPDX-License-Identifier: GPL-2.0-or-later
#include "pyxis_options.hpp"

#include "image_options.hpp"

#include <array>
#include <cerrno>
#include <utility>

#include <fmt/format.h>

namespace singularity::spank {

namespace {

enum PyxisNumber : std::uint8_t {
    kContainerImage,
    kContainerMounts,
    kContainerWorkdir,
    kContainerWritable,
    kContainerReadOnly
};

constexpr std::array kPyxis{
    PyxisOption{"container-image", "PATH",
                "[pyxis] as --singularity-image: a squashfs file, or the directory of an unpacked image",
                nullptr},
    PyxisOption{"container-mounts", "SRC[:DST[:FLAGS]][,...]",
                "[pyxis] as --singularity-mount; without DST at the same place; FLAGS: ro or rw", nullptr},
    PyxisOption{"container-workdir", "PATH", "[pyxis] as --singularity-workdir", nullptr},
    PyxisOption{"container-writable", nullptr, "[pyxis] as --singularity-root=writable", nullptr},
    PyxisOption{"container-readonly", nullptr, "[pyxis] as --singularity-root=read-only", nullptr},
    PyxisOption{"container-mount-home", nullptr,
                "[pyxis] taken, and changes nothing: homes are shown in images where the site says so",
                nullptr},
    PyxisOption{"no-container-remap-root", nullptr,
                "[pyxis] taken, and changes nothing: users are themselves in images", nullptr},
    PyxisOption{"no-container-entrypoint", nullptr,
                "[pyxis] taken, and changes nothing: the entry point of an image is not run", nullptr},
    PyxisOption{
        "container-name", "NAME", "[pyxis] refused",
        "each step has its own layer over an image here, and none is kept under a name: leave it out, "
        "name the image in each step (--container-image), and do in one step what belongs together, "
        "or make an image of it"},
    PyxisOption{"container-save", "PATH", "[pyxis] refused",
                "nothing is saved as an image here: make one outside of the job (mksquashfs, enroot export), "
                "or leave it out"},
    PyxisOption{"no-container-mount-home", nullptr, "[pyxis] refused",
                "the site decides which directories of the host are in images (containers.mounts in "
                "singularity.yaml): leave it out; PYTHONNOUSERSITE=1 keeps Python from packages in the home"},
    PyxisOption{
        "container-remap-root", nullptr, "[pyxis] refused",
        "users are themselves in images, and nobody is root: leave it out; with containers.writable in "
        "singularity.yaml they may write to the root all the same"},
    PyxisOption{"container-entrypoint", nullptr, "[pyxis] refused",
                "the entry point of an image is not run here: leave it out, and name its program before "
                "yours"},
    PyxisOption{"container-env", "NAME[,NAME...]", "[pyxis] refused",
                "what an image says of the environment takes the place of the job's variables: leave it out, "
                "and set what you need in the step (env NAME=VALUE program)"},
};
static_assert(kPyxis[kContainerReadOnly].name == std::string_view("container-readonly"));

std::unexpected<Error> refuse(const PyxisOption &option, std::string_view argument, std::string why) {
    return failure(fmt::format("accept --{}", option.name), std::string(argument), std::move(why), EINVAL);
}

// One of pyxis' mounts as one of ours.
Expected<std::string> mount_of(std::string_view one) {
    const auto refused = [&] {
        return refuse(kPyxis[kContainerMounts], one,
                      "expected SRC, SRC:DST, SRC:DST:ro or SRC:DST:rw, with commas between several: "
                      "--container-mounts=/data:/data:ro");
    };
    const auto colon = one.find(':');
    const auto source = one.substr(0, colon);
    if (source.empty())
        return refused();
    if (colon == std::string_view::npos)
        return fmt::format("{}:{}", source, source);
    const auto rest = one.substr(colon + 1);
    const auto second = rest.find(':');
    const auto target = rest.substr(0, second);
    const auto flags = second == std::string_view::npos ? "rw" : rest.substr(second + 1);
    if (target.empty() || (flags != "rw" && flags != "ro"))
        return refused();
    return fmt::format("{}:{}{}", source, target, flags == "ro" ? ":ro" : "");
}

Expected<std::string> mounts_of(std::string_view text) {
    std::string out;
    for (bool more = true; more;) {
        const auto comma = text.find(',');
        more = comma != std::string_view::npos;
        auto one = mount_of(text.substr(0, comma));
        if (!one)
            return one;
        text.remove_prefix(more ? comma + 1 : text.size());
        out += (out.empty() ? "" : ",") + *one;
    }
    return out;
}

} // namespace

std::span<const PyxisOption> pyxis_options() { return kPyxis; }

Expected<void> add_pyxis_option(std::size_t number, std::string_view argument, ImageWords &out) {
    const auto &option = kPyxis.at(number);
    if (option.refusal != nullptr)
        return refuse(option, argument, option.refusal);
    const auto once = [&](std::optional<std::string> &where, std::string text) -> Expected<void> {
        if (where)
            return refuse(option, argument,
                          fmt::format("{} is given for the same already, by another option: leave one of "
                                      "them out",
                                      *where));
        where = std::move(text);
        return {};
    };
    if (number == kContainerImage) {
        if (!argument.starts_with('/'))
            return refuse(option, argument,
                          "expected the absolute path of a file or directory that every node has; nothing is "
                          "fetched from registries: make a file of it once, 'enroot import -o "
                          "/shared/IMAGE.sqsh docker://IMAGE', and name that file");
        return once(out.image, std::string(argument));
    }
    if (number == kContainerWorkdir)
        return once(out.workdir, std::string(argument));
    if (number == kContainerWritable || number == kContainerReadOnly)
        return once(out.root, std::string(number == kContainerWritable ? kRootWritable : kRootReadOnly));
    if (number == kContainerMounts) {
        auto mounts = mounts_of(argument);
        if (!mounts)
            return propagate(mounts);
        out.mounts = out.mounts ? *out.mounts + "," + *mounts : *std::move(mounts);
    }
    return {};
}

} // namespace singularity::spank
