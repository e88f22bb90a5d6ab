# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in select-plugin/. Needs Slurm's headers, as the plugins themselves do.
if(NOT TARGET singularity_slurmctld)
    return()
endif()

find_package(Python3 REQUIRED COMPONENTS Interpreter)

# Tests of records need a table whatever Slurm is installed; what they read they make themselves.
set(generated ${CMAKE_CURRENT_BINARY_DIR}/select-plugin)
singularity_slurmctld_library(singularity_slurmctld_tested ${generated}/tested
    ${PROJECT_SOURCE_DIR}/select-plugin/slurm-abi/24.11.5.json)

set(sources records verifier dispatch shield background)
list(TRANSFORM sources REPLACE ".+" "${CMAKE_CURRENT_LIST_DIR}/select_plugin_\\0.cpp")
singularity_unit_tests(select_plugin SOURCES ${sources} USES singularity_slurmctld_tested singularity_common LABELS release)

# The plugins as they are installed, in front of plugins that only note what they were asked.
foreach(name IN ITEMS select priority incomplete)
    set(operations ${name})
    set(left_out)
    if(name STREQUAL "incomplete")
        set(operations select)
        set(left_out select_p_job_ready)
    endif()
    set(table ${PROJECT_SOURCE_DIR}/select-plugin/operations/${operations}.json)
    set(maker ${PROJECT_SOURCE_DIR}/tests/unit/select-plugin/fake_backing.py)
    set(source ${generated}/${name}_backing.cpp)
    add_custom_command(OUTPUT ${source}
        COMMAND ${CMAKE_COMMAND} -E make_directory ${generated}
        COMMAND ${Python3_EXECUTABLE} -B ${maker} ${table} ${SLURM_RELEASE} ${source} ${left_out}
        DEPENDS ${maker} ${table} ${PROJECT_SOURCE_DIR}/select-plugin/operations/generate.py VERBATIM)
    singularity_target(fake_${name}_backing COMPONENT tests TYPE MODULE SOURCES ${source} USES singularity_slurmctld_tested)
    target_include_directories(fake_${name}_backing PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit/select-plugin)
endforeach()
singularity_generate_operations(${generated}/operations select)
singularity_generate_operations(${generated}/operations priority)
singularity_target(select_plugin_loading COMPONENT tests TYPE EXECUTABLE
    SOURCES
        ${PROJECT_SOURCE_DIR}/tests/unit/select_plugin_loading.cpp
        ${generated}/operations/select_operations.hpp
        ${generated}/operations/priority_operations.hpp
    LINKS PkgConfig::CMOCKA ${CMAKE_DL_LIBS})
target_include_directories(select_plugin_loading PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit ${generated}/operations)
target_include_directories(select_plugin_loading SYSTEM PRIVATE ${SLURM_INCLUDE_DIR})
set_target_properties(select_plugin_loading PROPERTIES ENABLE_EXPORTS ON)
add_dependencies(select_plugin_loading select_cons_tres_singularity priority_singularity)
add_test(NAME unit.select_plugin_loading COMMAND select_plugin_loading
    $<TARGET_FILE:select_cons_tres_singularity> $<TARGET_FILE:priority_singularity>
    $<TARGET_FILE:fake_select_backing> $<TARGET_FILE:fake_priority_backing> $<TARGET_FILE:fake_incomplete_backing>)
set_tests_properties(unit.select_plugin_loading PROPERTIES LABELS "unit;release" TIMEOUT 120)
foreach(label IN ITEMS unit release)
    singularity_needs(${label} select_plugin_loading fake_select_backing fake_priority_backing fake_incomplete_backing)
endforeach()

add_test(NAME unit.select_plugin_generators
    COMMAND ${Python3_EXECUTABLE} -B ${PROJECT_SOURCE_DIR}/tests/unit/select-plugin/test_generators.py)
set_tests_properties(unit.select_plugin_generators PROPERTIES LABELS "unit;release" TIMEOUT 120)

# For the tests on a real cluster: the select plugin with a table that is wrong on purpose. Not installed.
# <build>/tests/unit/wrong-table/select_cons_tres_singularity.so; only where there is a right one.
if(EXISTS ${PROJECT_SOURCE_DIR}/select-plugin/slurm-abi/${SLURM_RELEASE}.json)
    set(right ${PROJECT_SOURCE_DIR}/select-plugin/slurm-abi/${SLURM_RELEASE}.json)
    set(wrong ${generated}/wrong.json)
    set(maker ${PROJECT_SOURCE_DIR}/tests/unit/select-plugin/wrong_table.py)
    add_custom_command(OUTPUT ${wrong}
        COMMAND ${Python3_EXECUTABLE} ${maker} ${right} ${wrong} DEPENDS ${maker} ${right} VERBATIM)
    singularity_slurmctld_library(singularity_slurmctld_wrong ${generated}/wrong ${wrong})
    singularity_slurmctld_plugin(select_plugin_with_wrong_table select_cons_tres_singularity select
        singularity_slurmctld_wrong plugin_id singularity_shared)
    set_target_properties(select_plugin_with_wrong_table PROPERTIES
        LIBRARY_OUTPUT_DIRECTORY ${CMAKE_CURRENT_BINARY_DIR}/wrong-table)
else()
    add_custom_target(select_plugin_with_wrong_table)
endif()

singularity_unit_test(select_plugin_submission SOURCES ${PROJECT_SOURCE_DIR}/tests/unit/select_plugin_submission.cpp
                      USES singularity_submission LABELS release)
target_include_directories(select_plugin_submission PRIVATE ${PROJECT_SOURCE_DIR}/select-plugin/job_submit)

if(TARGET singularity_outlook)
    singularity_unit_test(select_plugin_planner SOURCES ${PROJECT_SOURCE_DIR}/tests/unit/select_plugin_planner.cpp
                          USES singularity_outlook singularity_policy singularity_slurm_jobs singularity_common LINKS singularity_fmt
                          LABELS release)
    target_include_directories(select_plugin_planner PRIVATE ${PROJECT_SOURCE_DIR}/select-plugin/planner)
endif()
