// SPDX-License-Identifier: GPL-2.0-or-later
#include "program_path.hpp"

#include <algorithm>

#include <sys/stat.h>

namespace singularity::task {

std::string program_path(const std::string &name, std::string_view path,
                         const std::filesystem::path &working_directory) {
    if (name.starts_with('/'))
        return name;
    std::string here = working_directory.native() + '/' + name;
    if (name.starts_with('.'))
        return here;
    while (!path.empty()) {
        const auto end = std::min(path.find(':'), path.size());
        const std::string found = std::string(path.substr(0, end)) + '/' + name;
        struct stat about{};
        if (end != 0 && stat(found.c_str(), &about) == 0 && !S_ISDIR(about.st_mode))
            return found;
        path.remove_prefix(std::min(end + 1, path.size()));
    }
    return here;
}

} // namespace singularity::task
