# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what the client decides without a daemon (proxy/client).
if(NOT TARGET singularity_client_logic)
    return()
endif()

set(sources memory images handles sockets page_swap)
list(TRANSFORM sources REPLACE ".+" "${CMAKE_CURRENT_LIST_DIR}/proxy-client/\\0.cpp")
singularity_unit_tests(proxy_client SOURCES ${sources} USES singularity_client_logic singularity_common)
target_include_directories(proxy_client_tests PRIVATE ${PROJECT_SOURCE_DIR}/proxy/client)

# As in the libraries: the unwinder is in the program, and asks what is there. Sanitizers bring their own.
if(NOT SINGULARITY_SANITIZE)
    singularity_unit_test(proxy_old_glibc
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy_old_glibc.cpp)
    singularity_old_glibc(proxy_old_glibc)
    target_link_options(proxy_old_glibc PRIVATE -static-libgcc -static-libstdc++)
endif()
