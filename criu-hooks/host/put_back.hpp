// SPDX-License-Identifier: GPL-2.0-or-later
// The restore's side of written_files.hpp.
#pragma once

#include "places.hpp"
#include "written_files.hpp"

#include <set>
#include <string>

namespace singularity::host {

using FileNames = std::set<std::string>; // as the node sees them

// Makes the files that the node had open for writing what they were at the checkpoint, as far as the image
// has what that takes, and with no more rights than the user has:
//
//   what was written behind the end    is cut off
//   what has changed before it         is written back
//   a file that was renamed            gets its name back
//   a file that is gone                is made anew
//
// A file that others write to as well stays as it is. What has changed while the job did not run is first
// copied to a file beside it, and so is all else if request.keep_aside. request.notice is told of both, and
// of what cannot be put back. Harmless where nothing has changed, and when repeated. An error: the disk is
// full, or another node of the job does not do its part. Returns the names of the files whose size and mode
// criu must not compare.
[[nodiscard]] Expected<FileNames> put_back_files(const Context &context, const RestoreRequest &request,
                                                 const Places &places, const Deadline &deadline);

// Marks these files as the node's that goes on now.
[[nodiscard]] Expected<void> mark_files(const Context &context, const RestoreRequest &request,
                                        const Places &places, const Deadline &deadline);

} // namespace singularity::host
