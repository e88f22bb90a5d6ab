# SPDX-License-Identifier: GPL-2.0-or-later
# Whatever reads what a user, another host or a disk has written, with inputs that somebody has made up: with libFuzzer where
# the compiler has it (tests/fuzz), with inputs of their own everywhere.
set(fuzz ${CMAKE_CURRENT_LIST_DIR}/fuzz)
# Instruments everything that is fuzzed: for a build directory of its own.
option(SINGULARITY_FUZZ "build libFuzzer's targets (needs Clang)" OFF)

# singularity_instrument(target...): libFuzzer sees which ways an input takes in those of them that there are.
function(singularity_instrument)
    if(NOT SINGULARITY_FUZZ)
        return()
    endif()
    foreach(target IN LISTS ARGN)
        if(TARGET ${target})
            target_compile_options(${target} PRIVATE -fsanitize=fuzzer-no-link)
        endif()
    endforeach()
endfunction()

# singularity_fuzz(NAME SOURCES file... [REPLAY name] [USES ...] [LINKS ...] [INCLUDES directory...]): what the
# sources say of a subject (fuzz/subject.hpp) as NAME, for libFuzzer, and as REPLAY (NAME_replay), which is a unit test.
function(singularity_fuzz name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "REPLAY" "SOURCES;USES;LINKS;INCLUDES")
    if(NOT arg_REPLAY)
        set(arg_REPLAY ${name}_replay)
    endif()
    set(all ${arg_REPLAY})
    singularity_target(${arg_REPLAY} COMPONENT tests TYPE EXECUTABLE SOURCES ${arg_SOURCES} ${fuzz}/main.cpp
                       USES ${arg_USES} LINKS ${arg_LINKS})
    add_test(NAME unit.${arg_REPLAY} COMMAND ${arg_REPLAY} --seconds 5)
    set_tests_properties(unit.${arg_REPLAY} PROPERTIES LABELS unit TIMEOUT 120)
    singularity_needs(unit ${arg_REPLAY})
    if(SINGULARITY_FUZZ)
        singularity_target(${name} COMPONENT tests TYPE EXECUTABLE SOURCES ${arg_SOURCES} ${fuzz}/libfuzzer.cpp
                           USES ${arg_USES} LINKS ${arg_LINKS})
        target_link_options(${name} PRIVATE -fsanitize=fuzzer)
        singularity_instrument(${name})
        list(APPEND all ${name})
    endif()
    foreach(target IN LISTS all)
        target_include_directories(${target} PRIVATE ${arg_INCLUDES})
    endforeach()
endfunction()

set(any ${fuzz}/parts.cpp ${fuzz}/changes.cpp)
set(table ${fuzz}/table.cpp ${any})
singularity_instrument(singularity_common singularity_node singularity_network singularity_peers singularity_peer_messages
                       singularity_agent_protocol singularity_agent_limits singularity_agent_worker singularity_agent_output singularity_agent_slurm singularity_agent_node
                       singularity_agent_step singularity_agent_job singularity_agent_server singularity_barrier singularity_spank singularity_step_request singularity_doctor_checks
                       singularity_slurm_jobs singularity_outlook singularity_protection singularity_policy singularity_store
                       singularity_host_image)

singularity_fuzz(fuzz_agents SOURCES ${fuzz}/agents.cpp ${table}
    USES singularity_agent_server singularity_barrier singularity_network singularity_peers singularity_node singularity_common
    LINKS singularity_fmt
    INCLUDES ${PROJECT_SOURCE_DIR}/spank)
if(TARGET singularity_host_image)
    singularity_fuzz(fuzz_host_images SOURCES ${fuzz}/host_images.cpp ${any}
        USES singularity_host_image singularity_common LINKS singularity_fmt
        INCLUDES ${PROJECT_SOURCE_DIR}/criu-hooks/host)
endif()
if(TARGET singularity_store AND TARGET singularity_outlook)
    singularity_fuzz(fuzz_store SOURCES ${fuzz}/store.cpp ${table}
        USES singularity_store singularity_outlook singularity_protection singularity_common LINKS singularity_fmt
        INCLUDES ${PROJECT_SOURCE_DIR}/criu-hooks/store ${PROJECT_SOURCE_DIR}/select-plugin/planner)
endif()
if(TARGET singularity_outlook)
    singularity_fuzz(fuzz_texts SOURCES ${fuzz}/texts.cpp ${table}
        USES singularity_spank singularity_step_request singularity_doctor_checks singularity_outlook singularity_slurm_jobs
             singularity_common
        LINKS singularity_fmt
        INCLUDES ${PROJECT_SOURCE_DIR}/spank ${PROJECT_SOURCE_DIR}/select-plugin)
endif()
