# SPDX-License-Identifier: GPL-2.0-or-later
# The barrier: its parts, and every interleaving of small jobs.
if(NOT TARGET singularity_barrier)
    return()
endif()
set(sources gate coordinator messages explore)
list(TRANSFORM sources REPLACE ".+" "${CMAKE_CURRENT_LIST_DIR}/proxy-barrier/\\0.cpp")
singularity_unit_tests(proxy_barrier SOURCES ${sources} USES singularity_barrier singularity_common LINKS singularity_fmt)
