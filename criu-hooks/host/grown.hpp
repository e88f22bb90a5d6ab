// SPDX-License-Identifier: GPL-2.0-or-later
// Files that have grown since the dump. CRIU refuses a file whose size is not that in the image.
#pragma once

#include "criu-hooks/host/node.hpp"
#include "places.hpp"
#include "put_back.hpp"

namespace singularity::host {

// Puts the present size into the image for files that the node has open for appending and that have only
// grown, and takes size and mode of those in `put_back` out of it. An error names a file that has changed
// otherwise. What is on a mount whose content the caller keeps is as the caller has made it.
[[nodiscard]] Expected<void> accept_grown_files(const RestoreRequest &request, const Places &places,
                                                const FileNames &put_back);

} // namespace singularity::host
