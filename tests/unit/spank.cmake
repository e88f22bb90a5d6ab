# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in spank/.
foreach(subject IN ITEMS checkpoint_every elastic_range)
    singularity_unit_test(spank_${subject} SOURCES ${CMAKE_CURRENT_LIST_DIR}/spank_${subject}.cpp
                          USES singularity_spank singularity_common)
    target_include_directories(spank_${subject} PRIVATE ${PROJECT_SOURCE_DIR}/spank)
endforeach()
singularity_unit_test(spank_node_checks SOURCES ${CMAKE_CURRENT_LIST_DIR}/spank_node_checks.cpp
                      USES singularity_node_checks singularity_common)
target_include_directories(spank_node_checks PRIVATE ${PROJECT_SOURCE_DIR}/spank)
foreach(subject IN ITEMS node node_process)
    singularity_unit_test(spank_${subject} SOURCES ${CMAKE_CURRENT_LIST_DIR}/spank_${subject}.cpp
                          USES singularity_node singularity_common)
    target_include_directories(spank_${subject} PRIVATE ${PROJECT_SOURCE_DIR}/spank)
endforeach()
foreach(room IN ITEMS peers network)
    singularity_unit_test(spank_${room} SOURCES ${CMAKE_CURRENT_LIST_DIR}/spank_${room}.cpp USES singularity_${room} singularity_common)
    target_include_directories(spank_${room} PRIVATE ${PROJECT_SOURCE_DIR}/spank)
endforeach()
singularity_unit_test(spank_jobs SOURCES ${CMAKE_CURRENT_LIST_DIR}/spank_jobs.cpp USES singularity_agent singularity_common)
target_include_directories(spank_jobs PRIVATE ${PROJECT_SOURCE_DIR}/spank)
singularity_unit_test(spank_metrics SOURCES ${CMAKE_CURRENT_LIST_DIR}/spank_metrics.cpp USES singularity_agent singularity_common)
target_include_directories(spank_metrics PRIVATE ${PROJECT_SOURCE_DIR}/spank)
singularity_unit_test(spank_doctor SOURCES ${CMAKE_CURRENT_LIST_DIR}/spank_doctor.cpp USES singularity_doctor_checks singularity_common)
target_include_directories(spank_doctor PRIVATE ${PROJECT_SOURCE_DIR}/spank)
singularity_unit_test(spank_steps SOURCES ${CMAKE_CURRENT_LIST_DIR}/spank_steps.cpp
                      USES singularity_step_request singularity_agent singularity_node singularity_common)
target_include_directories(spank_steps PRIVATE ${PROJECT_SOURCE_DIR}/spank)
singularity_unit_test(spank_allocation SOURCES ${CMAKE_CURRENT_LIST_DIR}/spank_allocation.cpp USES singularity_step_request)
target_include_directories(spank_allocation PRIVATE ${PROJECT_SOURCE_DIR}/spank)
