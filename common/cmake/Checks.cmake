# What the tests of a label use, so that ./dev test LABEL builds that and nothing else.
# SPDX-License-Identifier: GPL-2.0-or-later

# singularity_needs(LABEL [RELEASE release] target...): the tests of that label use these targets' products. RELEASE: those of
# the build for that other release of Slurm.
function(singularity_needs label)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "RELEASE" "")
    set_property(GLOBAL APPEND PROPERTY SINGULARITY_LABELS ${label})
    if(arg_RELEASE)
        set_property(GLOBAL APPEND PROPERTY SINGULARITY_RELEASES_${label} ${arg_RELEASE})
        set(label ${label}/${arg_RELEASE})
    endif()
    set_property(GLOBAL APPEND PROPERTY SINGULARITY_NEEDS_${label} ${arg_UNPARSED_ARGUMENTS})
endfunction()

# singularity_needs_of(RESULT KEY...): the targets of all these keys, LABEL or LABEL/RELEASE, each once.
function(singularity_needs_of result)
    set(needs)
    foreach(key IN LISTS ARGN)
        get_property(of_key GLOBAL PROPERTY SINGULARITY_NEEDS_${key})
        list(APPEND needs ${of_key})
    endforeach()
    list(REMOVE_DUPLICATES needs)
    set(${result} ${needs} PARENT_SCOPE)
endfunction()

# singularity_checks(NAME LABEL...): the target check_NAME builds what the tests of these labels use; the file check/NAME in the
# build directory tells ./dev what to build where, in lines RELEASE TARGET..., RELEASE "-" for this build.
function(singularity_checks name)
    set(labels ${ARGN})
    singularity_needs_of(needs ${labels})
    add_custom_target(check_${name})
    foreach(target IN LISTS needs)
        if(TARGET ${target})
            add_dependencies(check_${name} ${target})
        elseif(NOT target MATCHES "^workload_") # these are left out where the toolkit lacks something, with a message
            message(FATAL_ERROR "the tests of '${name}' need a target '${target}', and there is none")
        endif()
    endforeach()
    set(lines "- check_${name}")
    if("programs" IN_LIST needs)
        string(APPEND lines " programs")
    endif()
    set(releases)
    foreach(label IN LISTS labels)
        get_property(of_label GLOBAL PROPERTY SINGULARITY_RELEASES_${label})
        list(APPEND releases ${of_label})
    endforeach()
    list(REMOVE_DUPLICATES releases)
    foreach(release IN LISTS releases)
        set(keys ${labels})
        list(TRANSFORM keys APPEND /${release})
        singularity_needs_of(needs ${keys})
        list(JOIN needs " " needs)
        string(APPEND lines "\n${release} ${needs}")
    endforeach()
    file(WRITE ${PROJECT_BINARY_DIR}/check/${name} "${lines}\n")
endfunction()

# To be called when everything else is there.
function(singularity_all_checks)
    get_property(labels GLOBAL PROPERTY SINGULARITY_LABELS)
    list(REMOVE_DUPLICATES labels)
    file(REMOVE_RECURSE ${PROJECT_BINARY_DIR}/check)
    foreach(label IN LISTS labels)
        singularity_checks(${label} ${label})
    endforeach()
    singularity_checks(all ${labels})
endfunction()
