// SPDX-License-Identifier: GPL-2.0-or-later
#include "table.hpp"

#include "common/log.hpp"
#include "reached.hpp"
#include "subject.hpp"

#include <cstddef>
#include <cstdint>

namespace singularity::test {

namespace {

const std::vector<Parser> &table() {
    static const auto kTable = parsers();
    return kTable;
}

Reached &reached() {
    static Reached instance([] {
        std::vector<std::string_view> names;
        for (const auto &parser : table())
            names.push_back(parser.name);
        return names;
    }());
    return instance;
}

} // namespace

std::vector<std::string_view> texts_in(std::string_view bytes, std::size_t count) {
    std::vector<std::string_view> texts;
    while (texts.size() + 1 < count) {
        const auto text = bytes.substr(0, bytes.find('\0'));
        texts.push_back(text);
        bytes.remove_prefix(text.size() < bytes.size() ? text.size() + 1 : text.size());
    }
    texts.push_back(bytes);
    return texts;
}

std::string texts(std::initializer_list<std::string_view> all) {
    std::string out;
    for (const auto text : all)
        out.append(text).push_back('\0');
    out.pop_back();
    return out;
}

void run_input(std::span<const std::uint8_t> input) {
    log::set_sink([](log::Level, std::string_view) {}); // most of what is tried is refused
    for (const auto &part : parts_of(input)) {
        const auto &parser = table()[part.slot % table().size()];
        const std::string bytes(part.message.begin(), part.message.end());
        if (parser.reads(bytes))
            reached().add(parser.name);
    }
}

const std::vector<std::vector<Part>> &good_inputs() {
    static const auto kGood = [] {
        std::vector<std::vector<Part>> inputs;
        for (std::size_t at = 0; at < table().size(); ++at)
            for (const auto &good : table()[at].good)
                inputs.push_back({{.slot = static_cast<std::uint8_t>(at),
                                   .piece = kNothing,
                                   .context = 0,
                                   .flags = 0,
                                   .message = Bytes(good.begin(), good.end())}});
        return inputs;
    }();
    return kGood;
}

std::string reached_text() { return reached().text(); }

} // namespace singularity::test
