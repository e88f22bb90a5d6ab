# SPDX-License-Identifier: GPL-2.0-or-later
# The barrier: its parts, and every interleaving of small jobs.
if(NOT TARGET singularity_barrier)
    return()
endif()
foreach(subject IN ITEMS gate coordinator messages explore)
    singularity_unit_test(proxy_barrier_${subject} SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-barrier/${subject}.cpp
                          USES singularity_barrier singularity_common LINKS singularity_fmt)
endforeach()
