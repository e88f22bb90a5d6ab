# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in proxy/channel/: both ends in one process, or in two where one of them must die.
if(NOT TARGET singularity_channel)
    return()
endif()

foreach(subject IN ITEMS ring garbage link death)
    singularity_unit_test(proxy_channel_${subject} SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-channel/${subject}.cpp
                          USES singularity_channel singularity_common LINKS singularity_fmt)
endforeach()
