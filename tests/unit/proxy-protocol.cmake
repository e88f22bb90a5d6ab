# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in proxy/protocol/.
if(NOT TARGET singularity_protocol)
    return()
endif()

singularity_unit_test(proxy_protocol_messages SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-protocol/messages.cpp
                      USES singularity_protocol singularity_common)
