# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of the scheduling policy (select-plugin/policy): units, scenarios, and the invariants on random clusters.
set(sources ledger room decisions properties)
list(TRANSFORM sources REPLACE ".+" "${CMAKE_CURRENT_LIST_DIR}/select-plugin/policy_\\0.cpp")
singularity_unit_tests(policy SOURCES ${sources} USES singularity_policy singularity_common LINKS singularity_fmt LABELS policy)
target_include_directories(policy_tests PRIVATE ${PROJECT_SOURCE_DIR}/select-plugin/policy)

# Run by tests/bench/policy.py; no test depends on time.
singularity_target(policy-bench COMPONENT tests TYPE EXECUTABLE
    SOURCES ${PROJECT_SOURCE_DIR}/tests/bench/policy_bench.cpp
    USES singularity_policy LINKS singularity_fmt)
target_include_directories(policy-bench PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit/select-plugin)
