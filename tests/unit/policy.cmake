# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of the scheduling policy (select-plugin/policy): units, scenarios, and the invariants on random clusters.
foreach(subject IN ITEMS ledger room decisions properties)
    singularity_unit_test(policy_${subject}
        SOURCES ${PROJECT_SOURCE_DIR}/tests/unit/select-plugin/policy_${subject}.cpp
        USES singularity_policy singularity_common
        LINKS singularity_fmt)
    set_tests_properties(unit.policy_${subject} PROPERTIES LABELS "unit;policy")
    target_include_directories(policy_${subject} PRIVATE
        ${PROJECT_SOURCE_DIR}/tests/unit/select-plugin ${PROJECT_SOURCE_DIR}/select-plugin/policy)
endforeach()

# Run by tests/bench/policy.py; no test depends on time.
singularity_target(policy-bench COMPONENT tests TYPE EXECUTABLE
    SOURCES ${PROJECT_SOURCE_DIR}/tests/bench/policy_bench.cpp
    USES singularity_policy LINKS singularity_fmt)
target_include_directories(policy-bench PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit/select-plugin)
