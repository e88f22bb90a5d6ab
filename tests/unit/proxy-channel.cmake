# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in proxy/channel/: both ends in one process, or in two where one of them must die.
if(NOT TARGET singularity_channel)
    return()
endif()

set(sources ring garbage link death)
list(TRANSFORM sources REPLACE ".+" "${CMAKE_CURRENT_LIST_DIR}/proxy-channel/\\0.cpp")
singularity_unit_tests(proxy_channel SOURCES ${sources} USES singularity_channel singularity_common LINKS singularity_fmt)
