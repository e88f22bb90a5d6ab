# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of the auditor of the dynamic linker (proxy/launcher/redirect.cpp), under which this program runs.
# Under an auditor ThreadSanitizer's library finds no room for what each thread has of it.
if(NOT TARGET singularity_redirect OR SINGULARITY_SANITIZE MATCHES "thread")
    return()
endif()

# Libraries that the program opens by what they are called.
set(fakes ${CMAKE_CURRENT_BINARY_DIR}/proxy-launcher)
foreach(fake IN ITEMS "libcuda|libcuda.so.1" "nvrtc|libnvrtc.so.12" "nvrtc|libnvrtc-0a1b2c3d.so.13")
    string(REGEX MATCH "(.*)\\|(.*)" fake ${fake})
    set(target proxy_launcher_fake_${CMAKE_MATCH_2})
    add_library(${target} MODULE ${CMAKE_CURRENT_LIST_DIR}/proxy-launcher/fake_${CMAKE_MATCH_1}.cpp)
    set_target_properties(${target} PROPERTIES SINGULARITY_COMPONENT tests LIBRARY_OUTPUT_DIRECTORY ${fakes}
                          PREFIX "" SUFFIX "" OUTPUT_NAME ${CMAKE_MATCH_2})
    list(APPEND fake_targets ${target})
endforeach()

singularity_unit_test(proxy_launcher_nvrtc SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-launcher/nvrtc.cpp
    LINKS singularity_libcuda_headers ${CMAKE_DL_LIBS})
add_dependencies(proxy_launcher_nvrtc singularity_redirect ${fake_targets})
target_compile_definitions(proxy_launcher_nvrtc PRIVATE FAKE_LIBCUDA="${fakes}/libcuda.so.1"
    FAKE_NVRTC="${fakes}/libnvrtc.so.12" FAKE_NVRTC_2="${fakes}/libnvrtc-0a1b2c3d.so.13")
set_tests_properties(unit.proxy_launcher_nvrtc PROPERTIES ENVIRONMENT LD_AUDIT=$<TARGET_FILE:singularity_redirect>)
