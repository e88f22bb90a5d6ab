# The house rules as targets: every target belongs to one component, and a component may use only what this
# table says. A component's public headers live in <component>/include/<component>/, and only a target that
# USES the component has that directory on its include path, so a forbidden #include does not compile.
# SPDX-License-Identifier: GPL-2.0-or-later

set(SINGULARITY_COMPONENTS common proxy criu-hooks select-plugin spank)
set(SINGULARITY_MAY_USE_common "")
set(SINGULARITY_MAY_USE_proxy common)
set(SINGULARITY_MAY_USE_criu-hooks common)
set(SINGULARITY_MAY_USE_select-plugin common)
set(SINGULARITY_MAY_USE_spank proxy criu-hooks common)
set(SINGULARITY_MAY_USE_tests common proxy criu-hooks select-plugin spank)

add_library(singularity_flags INTERFACE)
target_compile_options(singularity_flags INTERFACE
    -Wall -Wextra -Wpedantic -Wconversion -Wshadow -Wnon-virtual-dtor -Woverloaded-virtual -Wcast-qual
    -Wformat=2 -Wundef -Werror
    # With Clang, -Wconversion means more than with GCC.
    $<$<CXX_COMPILER_ID:Clang>:-Wno-sign-conversion>
    -fstack-protector-strong)
if(CMAKE_BUILD_TYPE MATCHES "Rel" AND NOT SINGULARITY_SANITIZE)
    target_compile_options(singularity_flags INTERFACE -U_FORTIFY_SOURCE -D_FORTIFY_SOURCE=2)
endif()
target_link_options(singularity_flags INTERFACE -Wl,--as-needed -Wl,-z,relro -Wl,-z,noexecstack)
if(SINGULARITY_SANITIZE)
    # function: a driver's functions come from dlsym, with types that only look alike to Clang.
    target_compile_options(singularity_flags INTERFACE
        -fsanitize=${SINGULARITY_SANITIZE} -fno-sanitize-recover=all -fno-omit-frame-pointer
        $<$<CXX_COMPILER_ID:Clang>:-fno-sanitize=function>)
    target_link_options(singularity_flags INTERFACE -fsanitize=${SINGULARITY_SANITIZE})
endif()

# singularity_target(NAME COMPONENT component TYPE STATIC|MODULE|SHARED|EXECUTABLE
#                    SOURCES file... [APART file...] [USES component-library...] [LINKS library...] [EXPORTS version-script])
#   APART    those SOURCES whose names are also another source's of the target: never compiled together with others
#   USES     targets of other components, e.g. singularity_common; checked against the table above
#   LINKS    anything from outside the project
#   EXPORTS  linker version script: the symbols that a plugin shows to its host program, and no others
function(singularity_target name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "COMPONENT;TYPE;EXPORTS" "SOURCES;APART;USES;LINKS")
    if(arg_UNPARSED_ARGUMENTS OR NOT arg_COMPONENT OR NOT arg_TYPE OR NOT arg_SOURCES)
        message(FATAL_ERROR "singularity_target(${name}): COMPONENT, TYPE and SOURCES are required; "
                            "not understood: '${arg_UNPARSED_ARGUMENTS}'")
    endif()
    if(arg_TYPE STREQUAL "EXECUTABLE")
        add_executable(${name} ${arg_SOURCES})
        target_link_options(${name} PRIVATE -Wl,-z,now)
    else()
        add_library(${name} ${arg_TYPE} ${arg_SOURCES})
    endif()
    set_target_properties(${name} PROPERTIES SINGULARITY_COMPONENT ${arg_COMPONENT})
    # What is generated may define weakly what another source of the target defines, and is long enough by itself.
    set(apart ${arg_SOURCES})
    list(FILTER apart INCLUDE REGEX "^${PROJECT_BINARY_DIR}/")
    set_source_files_properties(${apart} ${arg_APART} PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)
    list(LENGTH arg_SOURCES sources)
    if(sources EQUAL 1)
        set_target_properties(${name} PROPERTIES UNITY_BUILD OFF)
    endif()
    if(IS_DIRECTORY ${PROJECT_SOURCE_DIR}/${arg_COMPONENT}/include)
        target_include_directories(${name} PUBLIC ${PROJECT_SOURCE_DIR}/${arg_COMPONENT}/include)
    endif()
    target_include_directories(${name} PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
    foreach(used IN LISTS arg_USES)
        get_target_property(used_component ${used} SINGULARITY_COMPONENT)
        if(NOT used_component STREQUAL arg_COMPONENT
           AND NOT used_component IN_LIST SINGULARITY_MAY_USE_${arg_COMPONENT})
            message(FATAL_ERROR "${name}: component '${arg_COMPONENT}' may not use '${used}' of component "
                                "'${used_component}' (see common/cmake/Components.cmake)")
        endif()
    endforeach()
    target_link_libraries(${name} PRIVATE singularity_flags)
    target_link_libraries(${name} PUBLIC ${arg_USES} ${arg_LINKS})
    if(arg_EXPORTS)
        target_link_options(${name} PRIVATE -Wl,--version-script=${arg_EXPORTS} -Wl,--exclude-libs,ALL)
        set_property(TARGET ${name} APPEND PROPERTY LINK_DEPENDS ${arg_EXPORTS})
    endif()
endfunction()

# singularity_unit_test(NAME SOURCES file... [USES ...] [LINKS ...] [LABELS label...]): one cmocka program, one ctest, labels
# "unit" and those given. "release": for what depends on Slurm's release, which is built and run with every release.
function(singularity_unit_test name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;USES;LINKS;LABELS")
    singularity_target(${name} COMPONENT tests TYPE EXECUTABLE SOURCES ${arg_SOURCES} USES ${arg_USES}
                       LINKS ${arg_LINKS} PkgConfig::CMOCKA)
    target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit)
    add_test(NAME unit.${name} COMMAND ${name})
    set_tests_properties(unit.${name} PROPERTIES LABELS "unit;${arg_LABELS}" TIMEOUT 600)
    singularity_needs(unit ${name})
    foreach(label IN LISTS arg_LABELS)
        singularity_needs(${label} ${name})
    endforeach()
endfunction()

# singularity_unit_tests(NAME SOURCES file... ...): likewise for several sources, each a test by itself, in one program, so that
# what they include is compiled once: the target NAME_tests. The ctest of a source is unit.NAME_SUBJECT, its file SUBJECT.cpp,
# NAME_SUBJECT.cpp, or LAST_SUBJECT.cpp with the last word of NAME.
# Nothing in such a source may be meant for a namespace of others or for the linker, such as extern "C": it is compiled in a
# namespace of its own (tests/unit/together.py).
function(singularity_unit_tests name)
    cmake_parse_arguments(PARSE_ARGV 1 arg "" "" "SOURCES;USES;LINKS;LABELS")
    find_package(Python3 3.9 REQUIRED COMPONENTS Interpreter)
    set(maker ${PROJECT_SOURCE_DIR}/tests/unit/together.py)
    set(together ${CMAKE_CURRENT_BINARY_DIR}/${name}/Unity/together.cpp) # as CMake calls its own, for clang-tidy's sake
    add_custom_command(OUTPUT ${together} COMMAND ${Python3_EXECUTABLE} -B ${maker} ${together} ${arg_SOURCES}
                       DEPENDS ${maker} ${arg_SOURCES} COMMENT "Tests of ${name} in one program" VERBATIM)
    singularity_target(${name}_tests COMPONENT tests TYPE EXECUTABLE SOURCES ${together} USES ${arg_USES}
                       LINKS ${arg_LINKS} PkgConfig::CMOCKA)
    string(REGEX REPLACE ".*_" "" room ${name})
    list(GET arg_SOURCES 0 first)
    cmake_path(GET first PARENT_PATH directory)
    target_include_directories(${name}_tests PRIVATE ${PROJECT_SOURCE_DIR}/tests/unit ${directory})
    foreach(source IN LISTS arg_SOURCES)
        cmake_path(GET source STEM stem)
        string(REGEX REPLACE "^(${name}|${room})_" "" subject ${stem})
        add_test(NAME unit.${name}_${subject} COMMAND ${name}_tests ${stem})
        set_tests_properties(unit.${name}_${subject} PROPERTIES LABELS "unit;${arg_LABELS}" TIMEOUT 600)
    endforeach()
    singularity_needs(unit ${name}_tests)
    foreach(label IN LISTS arg_LABELS)
        singularity_needs(${label} ${name}_tests)
    endforeach()
endfunction()
