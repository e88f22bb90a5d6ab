# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in select-plugin/simulator/. They need nothing of Slurm.
foreach(subject IN ITEMS input schedules conservation)
    singularity_unit_test(select_plugin_simulator_${subject}
        SOURCES ${CMAKE_CURRENT_LIST_DIR}/select-plugin/simulator_${subject}.cpp
        USES singularity_simulator singularity_policy singularity_common
        LINKS singularity_fmt)
endforeach()
target_compile_definitions(select_plugin_simulator_input PRIVATE SINGULARITY_TRACES="${PROJECT_SOURCE_DIR}/tests/traces")
