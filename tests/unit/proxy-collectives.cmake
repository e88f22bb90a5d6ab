# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in proxy/collectives/.
if(NOT TARGET singularity_collectives)
    return()
endif()

set(collectives_tests ${CMAKE_CURRENT_LIST_DIR}/proxy-collectives)
# As the loops that it checks: each step is rounded, and with sanitizers it is what would take longest.
set_source_files_properties(${collectives_tests}/reference.cpp PROPERTIES COMPILE_OPTIONS "-O2;-ffp-contract=off")
foreach(subject IN ITEMS reductions results devices links failures strangers early)
    singularity_unit_test(proxy_collectives_${subject}
        SOURCES ${collectives_tests}/${subject}.cpp ${collectives_tests}/reference.cpp ${collectives_tests}/ranks.cpp
                ${collectives_tests}/device.cpp ${collectives_tests}/link.cpp
        USES singularity_collectives singularity_protocol singularity_common
        LINKS singularity_fmt Threads::Threads)
    # The loops are internal, and so are sockets.
    target_include_directories(proxy_collectives_${subject} PRIVATE ${PROJECT_SOURCE_DIR}/proxy/collectives)
    target_include_directories(proxy_collectives_${subject} SYSTEM PRIVATE ${SINGULARITY_CUDA_INCLUDE})
endforeach()
