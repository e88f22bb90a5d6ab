// SPDX-License-Identifier: GPL-2.0-or-later
#include "pages.hpp"

#include "file.hpp"
#include "records.hpp"

#include <algorithm>

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

namespace singularity::host {
namespace {

// Field numbers and flags of CRIU's images/pagemap.proto and criu/include/pagemap.h.
namespace head {
constexpr std::uint32_t kPagesId = 1;
}
namespace entry {
constexpr std::uint32_t kAddress = 1;
constexpr std::uint32_t kCompatiblePages = 2;
constexpr std::uint32_t kInParent = 3;
constexpr std::uint32_t kFlags = 4;
constexpr std::uint32_t kPages = 5;
constexpr std::uint64_t kPresent = 4; // of kFlags: its pages are in the file
} // namespace entry

struct Run {
    std::uint64_t address = 0;
    std::uint64_t size = 0;
};

std::uint64_t number(const std::vector<Field> &fields, std::uint32_t field) {
    const Field *const found = find(fields, field);
    return found == nullptr ? 0 : found->value;
}

Expected<Run> run_of(Bytes message, std::uint64_t page_size, const std::string &name) {
    auto fields = fields_of(message);
    if (!fields)
        return propagate(fields);
    const bool present = find(*fields, entry::kFlags) != nullptr
                             ? (number(*fields, entry::kFlags) & entry::kPresent) != 0
                             : number(*fields, entry::kInParent) == 0;
    const std::uint64_t pages =
        std::max(number(*fields, entry::kPages), number(*fields, entry::kCompatiblePages));
    const std::uint64_t address = number(*fields, entry::kAddress);
    if (pages > (UINT64_MAX - address) / page_size)
        return failure("read", name,
                       fmt::format("{} pages at {:#x} do not fit into an address space", pages, address));
    return Run{address, present ? pages * page_size : 0};
}

// 0: there is none, which an image without pages does not need.
std::uint64_t size_of(int images, const std::string &name) {
    struct stat status{};
    return fstatat(images, name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0 && S_ISREG(status.st_mode)
               ? static_cast<std::uint64_t>(status.st_size)
               : 0;
}

// One window's part of the file.
struct Window {
    std::uint64_t number = 0;
    std::uint64_t offset = 0;
    std::uint64_t size = 0;
};

void add(std::vector<Window> &windows, Run run, std::uint64_t &offset) {
    while (run.size > 0) {
        const std::uint64_t window = run.address / kWindow;
        const std::uint64_t part = std::min(run.size, ((window + 1) * kWindow) - run.address);
        if (windows.empty() || windows.back().number != window)
            windows.push_back({window, offset, 0});
        windows.back().size += part;
        offset += part;
        run.address += part;
        run.size -= part;
    }
}

std::vector<std::uint64_t> cuts_of(const std::vector<Window> &windows) {
    std::vector<std::uint64_t> cuts;
    for (std::size_t i = 1; i < windows.size(); ++i)
        if (windows[i].size >= kFewBytes || windows[i - 1].size >= kFewBytes)
            cuts.push_back(windows[i].offset);
    return cuts;
}

} // namespace

Expected<std::map<std::string, std::vector<std::uint64_t>>> page_cuts(int images) {
    const auto page_size = static_cast<std::uint64_t>(sysconf(_SC_PAGESIZE));
    auto names = names_in(images);
    if (!names)
        return propagate(names);
    std::map<std::string, std::vector<std::uint64_t>> cuts;
    for (const std::string &name : *names) {
        if (!name.starts_with("pagemap-"))
            continue;
        std::string pages;
        std::uint64_t size = 0; // of that file
        std::vector<Window> windows;
        std::uint64_t offset = 0;
        auto read = for_each_record(images, name, Magic::kPagemap, [&](Bytes message) -> Expected<void> {
            if (pages.empty()) {
                auto fields = fields_of(message);
                if (!fields)
                    return propagate(fields);
                pages = fmt::format("pages-{}.img", number(*fields, head::kPagesId));
                size = size_of(images, pages);
                return {};
            }
            auto run = run_of(message, page_size, name);
            if (!run)
                return propagate(run);
            if (run->size > size - offset)
                return failure("read", name,
                               fmt::format("it speaks of {} bytes at {} of {}, which has {}", run->size,
                                           offset, pages, size));
            add(windows, *run, offset);
            return {};
        });
        if (!read)
            return propagate(read);
        cuts[pages] = cuts_of(windows);
    }
    return cuts;
}

} // namespace singularity::host
