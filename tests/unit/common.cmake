# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in common/.
foreach(subject IN ITEMS error text deadline log raii settings config installation unix_socket proc program_output)
    singularity_unit_test(common_${subject} SOURCES ${CMAKE_CURRENT_LIST_DIR}/common_${subject}.cpp USES singularity_common)
endforeach()
target_link_options(common_program_output PRIVATE -Wl,--wrap=read) # which the test makes fail
target_compile_definitions(common_config PRIVATE
    SINGULARITY_EXAMPLE_CONFIGURATION="${PROJECT_SOURCE_DIR}/slurm-conf/singularity.yaml")
if(TARGET singularity_slurm_jobs)
    foreach(subject IN ITEMS job_fate verbs)
        singularity_unit_test(common_slurm_${subject} SOURCES ${CMAKE_CURRENT_LIST_DIR}/common_slurm_${subject}.cpp USES singularity_slurm_jobs)
        target_include_directories(common_slurm_${subject} SYSTEM PRIVATE ${SLURM_INCLUDE_DIR})
    endforeach()
endif()
