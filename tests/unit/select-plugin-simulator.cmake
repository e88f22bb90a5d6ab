# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in select-plugin/simulator/. They need nothing of Slurm.
set(sources input schedules conservation)
list(TRANSFORM sources REPLACE ".+" "${CMAKE_CURRENT_LIST_DIR}/select-plugin/simulator_\\0.cpp")
singularity_unit_tests(simulator SOURCES ${sources} USES singularity_simulator singularity_policy singularity_common
                       LINKS singularity_fmt)
target_compile_definitions(simulator_tests PRIVATE SINGULARITY_TRACES="${PROJECT_SOURCE_DIR}/tests/traces")
