// SPDX-License-Identifier: GPL-2.0-or-later
// What agents keep of an elastic job where everybody can read it and only root can write: its AdminComment,
// "singularity: elastic=2-8 ranks=8 gpus=4 nodes=n1 checkpoints=3 saved=1767225600". One that the site uses
// for something else is left alone.
#pragma once

#include "common/error.hpp"

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

namespace singularity::slurm {

class Note {
  public:
    // Nothing: the comment is somebody else's. One that is empty is ours.
    [[nodiscard]] static std::optional<Note> parse(std::string_view admin_comment);

    [[nodiscard]] bool empty() const { return values_.empty(); }
    // Empty: it is not there.
    [[nodiscard]] std::string get(const std::string &key) const;
    [[nodiscard]] std::optional<std::uint64_t> number(const std::string &key) const;
    // An empty value takes it out. Neither has blanks.
    void set(const std::string &key, const std::string &value);
    // KEY=VALUE, or KEY=+1, which counts. An error: it is neither.
    [[nodiscard]] Expected<void> take(std::string_view word);

    [[nodiscard]] std::string text() const;

  private:
    std::map<std::string, std::string> values_;
};

} // namespace singularity::slurm
