# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in proxy/driver-api/.
if(NOT TARGET singularity_driver_api)
    return()
endif()

find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)

set(api_tests ${CMAKE_CURRENT_LIST_DIR}/proxy-driver-api)
foreach(subject IN ITEMS tables calls)
    singularity_unit_test(proxy_driver_api_${subject} SOURCES ${api_tests}/${subject}.cpp USES singularity_driver_api singularity_common)
endforeach()
singularity_unit_test(proxy_driver_api_messages SOURCES ${api_tests}/messages.cpp ${api_tests}/requests.cpp ${api_tests}/replies.cpp
                      USES singularity_driver_api singularity_common)
# Hundreds of kinds of messages: optimised, with sanitizers, these would take minutes to compile, and to run no less.
set_source_files_properties(${api_tests}/requests.cpp ${api_tests}/replies.cpp PROPERTIES
    SKIP_UNITY_BUILD_INCLUSION ON COMPILE_OPTIONS "-O0;-U_FORTIFY_SOURCE")

get_target_property(generated singularity_driver_api SINGULARITY_GENERATED)
add_test(NAME unit.proxy_driver_api_generator
    COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1
            SINGULARITY_CUDA_INCLUDE=${SINGULARITY_CUDA_INCLUDE}
            SINGULARITY_GENERATED=${generated}
            SINGULARITY_CXX=${CMAKE_CXX_COMPILER}
            ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/proxy-driver-api/test_generator.py -v)
set_tests_properties(unit.proxy_driver_api_generator PROPERTIES LABELS unit TIMEOUT 300)
singularity_needs(unit singularity_driver_api_generated)
