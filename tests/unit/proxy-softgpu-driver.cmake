# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of the software GPU's libcuda.so.1, through the driver API, with PTX that is in the tests.
if(NOT TARGET singularity_softgpu)
    return()
endif()

set(driver_tests ${CMAKE_CURRENT_LIST_DIR}/proxy-softgpu-driver)
set(subjects arrays conditionals contexts copies events graphs host_memory launches memory modules pools streams textures virtual_memory)
set(sources ${subjects})
list(TRANSFORM sources REPLACE ".+" "${driver_tests}/\\0.cpp")
singularity_unit_tests(proxy_softgpu_driver SOURCES ${sources} USES singularity_softgpu singularity_libcuda_headers singularity_common)
target_include_directories(proxy_softgpu_driver_tests SYSTEM PRIVATE ${SINGULARITY_CUDA_INCLUDE})
foreach(subject IN LISTS subjects)
    set_tests_properties(unit.proxy_softgpu_driver_${subject} PROPERTIES
        ENVIRONMENT "SINGULARITY_SOFTGPU_DEVICES=2;SINGULARITY_SOFTGPU_MEMORY=256M;SINGULARITY_SOFTGPU_THREADS=2")
endforeach()
singularity_unit_test(proxy_softgpu_driver_config SOURCES ${driver_tests}/config.cpp ${PROJECT_SOURCE_DIR}/proxy/softgpu/driver/config.cpp
                      USES singularity_common LINKS singularity_fmt)
target_include_directories(proxy_softgpu_driver_config PRIVATE ${PROJECT_SOURCE_DIR}/proxy/softgpu)
