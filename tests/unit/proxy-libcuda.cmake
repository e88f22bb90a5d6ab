# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in proxy/libcuda/.
if(NOT TARGET singularity_libcuda_headers)
    return()
endif()

singularity_unit_test(proxy_libcuda_integrity
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-libcuda/integrity.cpp ${PROJECT_SOURCE_DIR}/proxy/libcuda/integrity.cpp
    LINKS singularity_fmt)
target_include_directories(proxy_libcuda_integrity PRIVATE ${PROJECT_SOURCE_DIR}/proxy/libcuda)

# The entry points as a library has them, with nothing behind: every symbol is there, unsupported ones say so.
get_property(libcuda_sources GLOBAL PROPERTY SINGULARITY_LIBCUDA_SOURCES)
singularity_unit_test(proxy_libcuda_entry
    SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-libcuda/entry.cpp ${libcuda_sources}
    USES singularity_driver_api singularity_common)
target_include_directories(proxy_libcuda_entry PRIVATE ${PROJECT_SOURCE_DIR}/proxy/libcuda)
