// SPDX-License-Identifier: GPL-2.0-or-later
#include "files.hpp"

#include <cstddef>
#include <utility>

namespace singularity::worker {

namespace {

constexpr std::size_t kMostNotices = 32;
constexpr std::size_t kLongestNotice = 1024;

} // namespace

Expected<Config::Files> file_settings() {
    auto settings = config::load_or_default(config::default_path());
    if (!settings)
        return propagate(settings);
    return settings->files;
}

std::string owner_of(const node::Spec &spec) { return spec.job.empty() ? spec.name : spec.job; }

void add_notice(agent::ImageReport &report, std::string text) {
    if (report.notices.size() == kMostNotices - 1)
        text = "and more files of that kind";
    if (text.size() > kLongestNotice)
        text.replace(kLongestNotice / 2, text.size() - kLongestNotice, " ... ");
    if (report.notices.size() < kMostNotices)
        report.notices.push_back(std::move(text));
}

} // namespace singularity::worker
