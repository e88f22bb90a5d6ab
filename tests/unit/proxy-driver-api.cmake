# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in proxy/driver-api/.
if(NOT TARGET singularity_driver_api)
    return()
endif()

find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)

foreach(subject IN ITEMS tables messages calls)
    singularity_unit_test(proxy_driver_api_${subject}
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/proxy-driver-api/${subject}.cpp
        USES singularity_driver_api singularity_common)
endforeach()

get_target_property(generated singularity_driver_api SINGULARITY_GENERATED)
add_test(NAME unit.proxy_driver_api_generator
    COMMAND ${CMAKE_COMMAND} -E env PYTHONDONTWRITEBYTECODE=1
            SINGULARITY_CUDA_INCLUDE=${SINGULARITY_CUDA_INCLUDE}
            SINGULARITY_GENERATED=${generated}
            SINGULARITY_CXX=${CMAKE_CXX_COMPILER}
            ${Python3_EXECUTABLE} ${CMAKE_CURRENT_LIST_DIR}/proxy-driver-api/test_generator.py -v)
set_tests_properties(unit.proxy_driver_api_generator PROPERTIES LABELS unit TIMEOUT 300)
