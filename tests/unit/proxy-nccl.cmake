# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what libnccl.so.2 decides without a driver (proxy/nccl).
if(NOT TARGET singularity_nccl_logic)
    return()
endif()

singularity_target(proxy_nccl_testing COMPONENT tests TYPE STATIC SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-nccl/fake_driver.cpp
    USES singularity_nccl_logic singularity_protocol singularity_common LINKS PkgConfig::CMOCKA)
target_include_directories(proxy_nccl_testing PUBLIC
    ${PROJECT_SOURCE_DIR}/proxy/nccl ${CMAKE_CURRENT_LIST_DIR}/proxy-nccl ${PROJECT_SOURCE_DIR}/tests/unit)
set(sources words collectives groups lifecycle device_api)
list(TRANSFORM sources REPLACE ".+" "${CMAKE_CURRENT_LIST_DIR}/proxy-nccl/\\0.cpp")
singularity_unit_tests(proxy_nccl SOURCES ${sources} USES proxy_nccl_testing)

# NCCL is no part of the toolkit.
if(EXISTS ${SINGULARITY_CUDA_INCLUDE}/nccl.h)
    singularity_unit_test(proxy_nccl_abi SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-nccl/abi.cpp)
    target_include_directories(proxy_nccl_abi PRIVATE ${PROJECT_SOURCE_DIR}/proxy/nccl/include)
    target_include_directories(proxy_nccl_abi SYSTEM PRIVATE ${SINGULARITY_CUDA_INCLUDE})
endif()
