# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what the client decides without a daemon (proxy/client).
if(NOT TARGET singularity_client_logic)
    return()
endif()

set(sources memory images handles sockets page_swap)
list(TRANSFORM sources REPLACE ".+" "${CMAKE_CURRENT_LIST_DIR}/proxy-client/\\0.cpp")
singularity_unit_tests(proxy_client SOURCES ${sources} USES singularity_client_logic singularity_common)
target_include_directories(proxy_client_tests PRIVATE ${PROJECT_SOURCE_DIR}/proxy/client)
