# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in common/.
set(sources error text deadline raii settings config installation unix_socket proc crowd thread_owned outside port_range published_places write_all cpu_mask)
list(TRANSFORM sources REPLACE ".+" "${CMAKE_CURRENT_LIST_DIR}/common_\\0.cpp")
singularity_unit_tests(common SOURCES ${sources} USES singularity_common)
foreach(subject IN ITEMS log program_output)
    singularity_unit_test(common_${subject} SOURCES ${CMAKE_CURRENT_LIST_DIR}/common_${subject}.cpp USES singularity_common)
endforeach()
target_link_options(common_program_output PRIVATE -Wl,--wrap=read) # which the test makes fail
target_compile_definitions(common_tests PRIVATE
    SINGULARITY_EXAMPLE_CONFIGURATION="${PROJECT_SOURCE_DIR}/slurm-conf/singularity.yaml")
if(TARGET singularity_slurm_jobs)
    singularity_unit_tests(common_slurm USES singularity_slurm_jobs LABELS release
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/common_slurm_job_fate.cpp ${CMAKE_CURRENT_LIST_DIR}/common_slurm_memory.cpp ${CMAKE_CURRENT_LIST_DIR}/common_slurm_verbs.cpp)
    target_include_directories(common_slurm_tests SYSTEM PRIVATE ${SLURM_INCLUDE_DIR})
endif()
