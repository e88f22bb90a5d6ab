# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in criu-hooks/.
if(NOT TARGET singularity_store)
    return()
endif()

# They make and compare tens of megabytes: without optimisation, under ThreadSanitizer, that takes minutes.
set(store_tests ${CMAKE_CURRENT_LIST_DIR}/criu-hooks)
singularity_target(store_testing COMPONENT tests TYPE STATIC SOURCES ${store_tests}/supervised.cpp ${store_tests}/power_loss.cpp
                   USES singularity_store singularity_common LINKS singularity_fmt PkgConfig::CMOCKA)
target_include_directories(store_testing PUBLIC ${PROJECT_SOURCE_DIR}/criu-hooks/store ${PROJECT_SOURCE_DIR}/tests/unit)
set(subjects hash content damage crash faults concurrency memory)
set(sources ${subjects})
list(TRANSFORM sources REPLACE ".+" "${store_tests}/store_\\0.cpp")
singularity_unit_tests(store SOURCES ${sources} USES store_testing)
singularity_unit_test(store_fuzz SOURCES ${store_tests}/store_fuzz.cpp USES store_testing)
target_compile_options(store_tests PRIVATE -O1)
target_compile_options(store_fuzz PRIVATE -O1)
foreach(subject IN LISTS subjects ITEMS fuzz)
    set_tests_properties(unit.store_${subject} PROPERTIES TIMEOUT 300)
endforeach()

# Run by ./dev bench store.
singularity_target(store_bench COMPONENT tests TYPE EXECUTABLE
    SOURCES ${PROJECT_SOURCE_DIR}/tests/bench/store_bench.cpp
    USES singularity_store singularity_common LINKS singularity_fmt)

if(TARGET singularity_host_image)
    singularity_unit_test(host_image SOURCES ${CMAKE_CURRENT_LIST_DIR}/criu-hooks/host_image.cpp
                          USES singularity_host_image singularity_common)
    target_include_directories(host_image PRIVATE ${PROJECT_SOURCE_DIR}/criu-hooks/host)
endif()
