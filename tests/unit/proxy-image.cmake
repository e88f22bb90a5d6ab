# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of device images without a device: the stream of records, the journal of calls, names in modules.
if(NOT TARGET singularity_image OR NOT TARGET singularity_proxyd_parts)
    return()
endif()

singularity_unit_test(proxy_image_stream SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-image/stream.cpp
                      USES singularity_image singularity_common LINKS singularity_fmt)
singularity_unit_tests(proxy_image
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-image/journal.cpp ${CMAKE_CURRENT_LIST_DIR}/proxy-image/module_variables.cpp
    USES singularity_proxyd_parts singularity_common LINKS singularity_fmt)
target_include_directories(proxy_image_tests PRIVATE ${PROJECT_SOURCE_DIR}/proxy/daemon)
