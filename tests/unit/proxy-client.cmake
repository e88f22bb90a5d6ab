# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what the client decides without a daemon (proxy/client).
if(NOT TARGET singularity_client_logic)
    return()
endif()

foreach(subject IN ITEMS memory images handles sockets page_swap)
    singularity_unit_test(proxy_client_${subject} SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-client/${subject}.cpp
                          USES singularity_client_logic singularity_common)
    target_include_directories(proxy_client_${subject} PRIVATE ${PROJECT_SOURCE_DIR}/proxy/client)
endforeach()
