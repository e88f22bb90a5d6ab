// SPDX-License-Identifier: GPL-2.0-or-later
#include "common/slurm/topology.hpp"

#include <algorithm>
#include <utility>

namespace singularity::slurm {

namespace {

// Up to the separator, which is taken too.
std::string_view next(std::string_view &text, char separator) {
    const auto part = text.substr(0, text.find(separator));
    text.remove_prefix(std::min(text.size(), part.size() + 1));
    return part;
}

} // namespace

std::vector<Leaf> leaves_of(std::string_view printed) {
    std::vector<Leaf> out;
    while (!printed.empty()) {
        auto line = next(printed, '\n');
        Leaf leaf;
        bool is_leaf = false;
        while (!line.empty()) {
            auto value = next(line, ' ');
            const auto key = next(value, '=');
            if (key == "SwitchName" || key == "BlockName")
                leaf.name = value;
            else if (key == "Nodes")
                leaf.nodes = value;
            is_leaf |= key == "BlockName" || (key == "Level" && value == "0");
        }
        if (is_leaf && !leaf.name.empty() && !leaf.nodes.empty())
            out.push_back(std::move(leaf));
    }
    return out;
}

} // namespace singularity::slurm
