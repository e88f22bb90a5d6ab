// SPDX-License-Identifier: GPL-2.0-or-later
// The files of jobs: JOBS/NAME of who coordinates one, MEMBERS/NAME of who has nodes of one. Root's alone.
#pragma once

#include "common/error.hpp"
#include "peers/peer_messages.pb.h"

#include <filesystem>
#include <set>
#include <string>

namespace singularity::agent {

// A new one; EEXIST.
[[nodiscard]] Expected<void> make_job_directory(const std::filesystem::path &directory);
[[nodiscard]] Expected<void> remove_job_directory(const std::filesystem::path &directory);
// The names in a directory of such directories, which is made if it is missing.
[[nodiscard]] Expected<std::set<std::string>> job_directories(const std::filesystem::path &place);

[[nodiscard]] Expected<void> write_record(const std::filesystem::path &directory,
                                          const google::protobuf::MessageLite &record);
[[nodiscard]] Expected<void> read_record(const std::filesystem::path &directory,
                                         google::protobuf::MessageLite &record);

} // namespace singularity::agent
