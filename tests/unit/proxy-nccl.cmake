# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what libnccl.so.2 decides without a driver (proxy/nccl).
if(NOT TARGET singularity_nccl_logic)
    return()
endif()

foreach(subject IN ITEMS words collectives groups lifecycle)
    singularity_unit_test(proxy_nccl_${subject}
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-nccl/${subject}.cpp ${CMAKE_CURRENT_LIST_DIR}/proxy-nccl/fake_driver.cpp
        USES singularity_nccl_logic singularity_protocol singularity_common)
    target_include_directories(proxy_nccl_${subject} PRIVATE
        ${PROJECT_SOURCE_DIR}/proxy/nccl ${CMAKE_CURRENT_LIST_DIR}/proxy-nccl)
endforeach()

# NCCL is no part of the toolkit.
if(EXISTS ${SINGULARITY_CUDA_INCLUDE}/nccl.h)
    singularity_unit_test(proxy_nccl_abi SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-nccl/abi.cpp)
    target_include_directories(proxy_nccl_abi PRIVATE ${PROJECT_SOURCE_DIR}/proxy/nccl/include)
    target_include_directories(proxy_nccl_abi SYSTEM PRIVATE ${SINGULARITY_CUDA_INCLUDE})
endif()
