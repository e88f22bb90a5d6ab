// SPDX-License-Identifier: GPL-2.0-or-later
// Changes a checkpoint as somebody who can write to the store could: through the store's own writer, so that
// all names are those of the content.
//     store-editor export STORE UID ID DIRECTORY      each image as a file; says what there is, a line for
//     each store-editor import STORE UID GID JOB           reads such lines; prints the id of the new
//     checkpoint
// A line is "attribute NODE DEVICE NAME VALUE" or "image NODE DEVICE NAME FILE", all words but the first in
// hexadecimal after an 'x'.
#include "criu-hooks/store/store.hpp"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

namespace {

using namespace singularity;

std::string in_hex(std::string_view bytes) {
    std::string out = "x";
    for (const char each : bytes)
        out += fmt::format("{:02x}", static_cast<unsigned char>(each));
    return out;
}

std::string from_hex(const std::string &word) {
    constexpr int kHex = 16;
    std::string out;
    for (std::size_t at = 1; at + 1 < word.size(); at += 2)
        out += static_cast<char>(std::stoi(word.substr(at, 2), nullptr, kHex));
    return out;
}

void say(const char *what, const std::vector<std::string> &words) {
    std::cout << what;
    for (const auto &word : words)
        std::cout << ' ' << in_hex(word);
    std::cout << '\n';
}

Expected<void> export_image(const store::Checkpoint &checkpoint, const store::ImageAddress &address,
                            const std::string &file) {
    auto image = checkpoint.image(address);
    if (!image)
        return propagate(image);
    std::vector<char> content(image->size());
    if (auto got = image->read(std::as_writable_bytes(std::span(content))); !got)
        return propagate(got);
    std::ofstream out(file, std::ios::binary);
    if (!out.write(content.data(), static_cast<std::streamsize>(content.size())).flush())
        return failure("write", file, "it cannot be written", EIO);
    say("image", {address.node, address.device, address.name, file});
    return {};
}

Expected<void> export_all(const store::Store &opened, uid_t uid, const std::string &id,
                          const std::string &directory) {
    auto checkpoint = opened.read(uid, id);
    if (!checkpoint)
        return propagate(checkpoint);
    std::size_t number = 0;
    const auto attributes = [](const std::string &node, const std::string &device, const auto &all) {
        for (const auto &[name, value] : all)
            say("attribute", {node, device, name, value});
    };
    for (const auto &node : checkpoint->manifest().nodes) {
        attributes(node.name, "", node.attributes);
        for (const auto &device : node.devices)
            attributes(node.name, device.name, device.attributes);
    }
    Expected<void> done;
    store::for_each_image(
        checkpoint->manifest(),
        [&](const store::VirtualNode &node, const store::Device *device, const store::Image &image) {
            if (done)
                done = export_image(
                    *checkpoint,
                    {.node = node.name, .device = device != nullptr ? device->name : "", .name = image.name},
                    fmt::format("{}/{}", directory, number++));
        });
    return done;
}

Expected<void> import_line(store::Writer &writer, const std::string &line) {
    std::istringstream words(line);
    std::string what;
    std::vector<std::string> parts;
    words >> what;
    for (std::string word; words >> word;)
        parts.push_back(from_hex(word));
    if (parts.size() != 4)
        return failure("read", line, "it has not five words", EINVAL);
    if (what == "attribute")
        return writer.describe(parts[0], parts[1], {{parts[2], parts[3]}});
    auto image = writer.image({.node = parts[0], .device = parts[1], .name = parts[2]});
    if (!image)
        return propagate(image);
    std::ifstream file(parts[3], std::ios::binary);
    const std::string content((std::istreambuf_iterator<char>(file)), {});
    if (auto done = image->append(std::as_bytes(std::span(content))); !done)
        return done;
    return image->finish();
}

Expected<void> import_all(const store::Store &opened, const store::Request &request) {
    auto writer = opened.begin(request);
    if (!writer)
        return propagate(writer);
    for (std::string line; std::getline(std::cin, line);)
        if (auto done = import_line(*writer, line); !done)
            return done;
    auto manifest = writer->commit();
    if (!manifest)
        return propagate(manifest);
    std::cout << manifest->id << '\n';
    return {};
}

Expected<void> edit(const std::vector<std::string> &words) {
    const auto opened = store::Store::open(words[1]);
    if (!opened)
        return std::unexpected(opened.error());
    const auto uid = static_cast<uid_t>(std::stoul(words[2]));
    if (words[0] == "export")
        return export_all(*opened, uid, words[3], words[4]);
    return import_all(*opened, {.job = words[4],
                                .uid = uid,
                                .gid = static_cast<gid_t>(std::stoul(words[3])),
                                .user = fmt::format("user{}", uid),
                                .tier = {},
                                .parent = {},
                                .attributes = {}});
}

} // namespace

int main(int argc, char **argv) {
    const std::vector<std::string> words(argv + 1, argv + argc);
    constexpr std::size_t kWords = 5;
    if (words.size() != kWords || (words[0] != "export" && words[0] != "import")) {
        std::cerr << "usage: store-editor export STORE UID ID DIRECTORY | import STORE UID GID JOB\n";
        return EXIT_FAILURE;
    }
    const auto done = edit(words);
    if (!done)
        std::cerr << done.error().message() << '\n';
    return done ? EXIT_SUCCESS : EXIT_FAILURE;
}
