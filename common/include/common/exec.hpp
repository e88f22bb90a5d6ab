// SPDX-License-Identifier: GPL-2.0-or-later
// For execve(2). Nothing but the C++ library: singularity-init, which links none of this, includes it.
#pragma once

#include <string>
#include <vector>

namespace singularity {

// Arguments or an environment as execve(2) takes them: pointers to the texts, which must outlive them, and a
// null pointer. exec does not write to the texts, whatever its type says.
[[nodiscard]] inline std::vector<char *> exec_list(std::vector<std::string> &texts) {
    std::vector<char *> out;
    out.reserve(texts.size() + 1);
    for (auto &text : texts)
        out.push_back(text.data());
    out.push_back(nullptr);
    return out;
}

} // namespace singularity
