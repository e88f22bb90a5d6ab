# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in spank/.
set(sources checkpoint_every elastic_range image_options publish_option node_checks node local node_process seqpacket program_memory kept_output shares peers network jobs metrics doctor steps allocation program_path commands command_doors command_steps command_environment doors let_go own_questions standstill script_output steps_save streams)
list(TRANSFORM sources REPLACE ".+" "${CMAKE_CURRENT_LIST_DIR}/spank_\\0.cpp")
singularity_unit_tests(spank SOURCES ${sources}
    USES singularity_spank singularity_node_checks singularity_doctor_checks singularity_step_request singularity_steps_save singularity_script_output singularity_streams singularity_agent_server
         singularity_commands singularity_stand_in singularity_network singularity_peers singularity_local singularity_node singularity_common)
target_include_directories(spank_tests PRIVATE ${PROJECT_SOURCE_DIR}/spank)
# The stand-in as it is installed.
target_compile_definitions(spank_tests PRIVATE SINGULARITY_COMMAND="$<TARGET_FILE:singularity-command>")
add_dependencies(spank_tests singularity-command)
