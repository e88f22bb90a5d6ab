# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of device images without a device: the stream of records, the journal of calls, names in modules.
if(NOT TARGET singularity_image OR NOT TARGET singularity_proxyd_parts)
    return()
endif()

singularity_unit_test(proxy_image_stream SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-image/stream.cpp
                      USES singularity_image singularity_common LINKS singularity_fmt)
foreach(subject IN ITEMS journal module_variables)
    singularity_unit_test(proxy_image_${subject} SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-image/${subject}.cpp
                          USES singularity_proxyd_parts singularity_common LINKS singularity_fmt)
    target_include_directories(proxy_image_${subject} PRIVATE ${PROJECT_SOURCE_DIR}/proxy/daemon)
endforeach()
