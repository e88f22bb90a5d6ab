# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in criu-hooks/.
if(NOT TARGET singularity_store)
    return()
endif()

foreach(subject IN ITEMS hash content damage crash faults fuzz concurrency memory)
    singularity_unit_test(store_${subject} SOURCES ${CMAKE_CURRENT_LIST_DIR}/criu-hooks/store_${subject}.cpp
                          USES singularity_store singularity_common LINKS singularity_fmt)
    target_include_directories(store_${subject} PRIVATE ${PROJECT_SOURCE_DIR}/criu-hooks/store)
    # They make and compare tens of megabytes: without optimisation, under ThreadSanitizer, that takes minutes.
    target_compile_options(store_${subject} PRIVATE -O1)
    set_tests_properties(unit.store_${subject} PROPERTIES TIMEOUT 300)
endforeach()
target_sources(store_crash PRIVATE ${CMAKE_CURRENT_LIST_DIR}/criu-hooks/supervised.cpp)
target_sources(store_faults PRIVATE ${CMAKE_CURRENT_LIST_DIR}/criu-hooks/supervised.cpp
                                    ${CMAKE_CURRENT_LIST_DIR}/criu-hooks/power_loss.cpp)

# Run by ./dev bench store.
singularity_target(store_bench COMPONENT tests TYPE EXECUTABLE
    SOURCES ${PROJECT_SOURCE_DIR}/tests/bench/store_bench.cpp
    USES singularity_store singularity_common LINKS singularity_fmt)

if(TARGET singularity_host_image)
    singularity_unit_test(host_image SOURCES ${CMAKE_CURRENT_LIST_DIR}/criu-hooks/host_image.cpp
                          USES singularity_host_image singularity_common)
    target_include_directories(host_image PRIVATE ${PROJECT_SOURCE_DIR}/criu-hooks/host)
endif()
