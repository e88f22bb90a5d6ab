# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in proxy/collectives/.
if(NOT TARGET singularity_collectives)
    return()
endif()

set(collectives_tests ${CMAKE_CURRENT_LIST_DIR}/proxy-collectives)
# As the loops that it checks: each step is rounded, and with sanitizers it is what would take longest.
set_source_files_properties(${collectives_tests}/reference.cpp PROPERTIES COMPILE_OPTIONS "-O2;-ffp-contract=off")
singularity_target(proxy_collectives_testing COMPONENT tests TYPE STATIC
    SOURCES ${collectives_tests}/reference.cpp ${collectives_tests}/ranks.cpp ${collectives_tests}/device.cpp
            ${collectives_tests}/link.cpp
    USES singularity_collectives singularity_protocol singularity_common
    LINKS singularity_fmt Threads::Threads PkgConfig::CMOCKA)
# The loops are internal, and so are sockets.
target_include_directories(proxy_collectives_testing PUBLIC ${PROJECT_SOURCE_DIR}/proxy/collectives ${PROJECT_SOURCE_DIR}/tests/unit)
target_include_directories(proxy_collectives_testing SYSTEM PUBLIC ${SINGULARITY_CUDA_INCLUDE})
set(sources reductions results devices links failures strangers early silence)
list(TRANSFORM sources REPLACE ".+" "${collectives_tests}/\\0.cpp")
singularity_unit_tests(proxy_collectives SOURCES ${sources} USES proxy_collectives_testing)
