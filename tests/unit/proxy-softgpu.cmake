# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in proxy/softgpu/. Those on compiled programs need nvcc; the others run everywhere.
if(NOT TARGET singularity_engine)
    return()
endif()

set(softgpu_tests ${CMAKE_CURRENT_LIST_DIR}/proxy-softgpu)
singularity_unit_tests(proxy_softgpu SOURCES ${softgpu_tests}/parser.cpp ${softgpu_tests}/fatbin.cpp USES singularity_ptx singularity_common)
target_include_directories(proxy_softgpu_tests PRIVATE ${PROJECT_SOURCE_DIR}/proxy/softgpu)

if(TARGET singularity_engine)
    set(sources floats halves integers matrices textures wmma)
    if(TARGET singularity_softgpu_compiler)
        list(APPEND sources native)
    endif()
    list(TRANSFORM sources REPLACE ".+" "${softgpu_tests}/engine_\\0.cpp")
    singularity_unit_tests(proxy_softgpu_engine SOURCES ${sources} USES singularity_engine singularity_common)
    target_include_directories(proxy_softgpu_engine_tests PRIVATE ${PROJECT_SOURCE_DIR}/proxy/softgpu)
    # Once more with everything compiled before it runs: what is expected of the interpreter is expected of both.
    if(TARGET singularity_softgpu_compiler)
        foreach(subject IN ITEMS floats halves integers)
            add_test(NAME unit.proxy_softgpu_compiler_${subject} COMMAND proxy_softgpu_engine_tests engine_${subject})
            set_tests_properties(unit.proxy_softgpu_compiler_${subject} PROPERTIES
                LABELS unit TIMEOUT 600 ENVIRONMENT SINGULARITY_SOFTGPU_COMPILER=compiler)
        endforeach()
        singularity_needs(unit singularity_softgpu_compiler)
    endif()
    # Where NVIDIA's assembler is there, it takes what the tests write.
    find_program(SINGULARITY_PTXAS ptxas HINTS /usr/local/cuda/bin /usr/local/cuda-13.0/bin DOC "assembler of PTX")
    target_compile_definitions(proxy_softgpu_engine_tests
                               PRIVATE SINGULARITY_SOFTGPU_COMPILER_LIBRARY="${SINGULARITY_SOFTGPU_COMPILER_LIBRARY}")
    target_compile_definitions(proxy_softgpu_engine_tests
                               PRIVATE SINGULARITY_PTXAS="$<$<BOOL:${SINGULARITY_PTXAS}>:${SINGULARITY_PTXAS}>")
    get_property(lanes_v3 GLOBAL PROPERTY SINGULARITY_LANES_V3)
    if(lanes_v3)
        add_test(NAME unit.proxy_softgpu_only_symbol
                 COMMAND ${softgpu_tests}/only_symbol ${lanes_v3} _ZN11singularity7softgpu6engine8lanes_v39kHandlersE)
        set_tests_properties(unit.proxy_softgpu_only_symbol PROPERTIES LABELS unit TIMEOUT 60)
        singularity_needs(unit singularity_engine)
    endif()
endif()

find_program(SINGULARITY_NVCC nvcc HINTS /usr/local/cuda/bin /usr/local/cuda-13.0/bin
             DOC "CUDA compiler; without it the tests that need compiled programs are left out")
if(NOT SINGULARITY_NVCC)
    message(STATUS "nvcc was not found: no tests of compiled PTX and fatbins")
    return()
endif()

set(softgpu_compiled ${CMAKE_CURRENT_BINARY_DIR}/proxy-softgpu)
file(MAKE_DIRECTORY ${softgpu_compiled})
set(softgpu_images)
# softgpu_compile(SOURCE OUTPUT option...)
function(softgpu_compile source output)
    add_custom_command(OUTPUT ${softgpu_compiled}/${output}
        COMMAND ${SINGULARITY_NVCC} -std=c++20 -Xcompiler=-w -diag-suppress=177,550 ${ARGN}
            -o ${softgpu_compiled}/${output} ${source}
        DEPENDS ${source} COMMENT "nvcc ${output}" VERBATIM)
    set(softgpu_images ${softgpu_images} ${softgpu_compiled}/${output} PARENT_SCOPE)
endfunction()

file(GLOB softgpu_sources CONFIGURE_DEPENDS ${softgpu_tests}/*.cu)
foreach(source IN LISTS softgpu_sources)
    cmake_path(GET source STEM name)
    foreach(sm IN ITEMS 75 90 120)
        softgpu_compile(${source} ${name}.${sm}.ptx -ptx -arch=sm_${sm})
    endforeach()
endforeach()
softgpu_compile(${softgpu_tests}/control.cu control.debug.ptx -ptx -arch=sm_90 -G)
softgpu_compile(${softgpu_tests}/functions.cu functions.lines.ptx -ptx -arch=sm_90 -lineinfo -rdc=true)
# The same program with each way of compression; what each means is in the test.
foreach(mode IN ITEMS default size speed balance none)
    softgpu_compile(${softgpu_tests}/memory.cu ${mode}.fatbin -fatbin --compress-mode=${mode}
        -gencode arch=compute_75,code=[compute_75,sm_75] -gencode arch=compute_90a,code=[compute_90a,sm_90a]
        -gencode arch=compute_90,code=compute_90 -gencode arch=compute_120,code=[compute_120,sm_120])
endforeach()
add_custom_target(softgpu_images DEPENDS ${softgpu_images})

singularity_unit_test(proxy_softgpu_compiled SOURCES ${softgpu_tests}/compiled.cpp USES singularity_ptx singularity_common)
target_include_directories(proxy_softgpu_compiled PRIVATE ${PROJECT_SOURCE_DIR}/proxy/softgpu)
target_compile_definitions(proxy_softgpu_compiled PRIVATE SINGULARITY_SOFTGPU_COMPILED="${softgpu_compiled}")
add_dependencies(proxy_softgpu_compiled softgpu_images)

if(TARGET singularity_engine)
    foreach(subject IN ITEMS programs behaviour)
        singularity_unit_test(proxy_softgpu_engine_${subject} SOURCES ${softgpu_tests}/engine_${subject}.cpp
                              USES singularity_engine singularity_common)
        target_include_directories(proxy_softgpu_engine_${subject} PRIVATE ${PROJECT_SOURCE_DIR}/proxy/softgpu)
        target_compile_definitions(proxy_softgpu_engine_${subject}
                                   PRIVATE SINGULARITY_SOFTGPU_COMPILED="${softgpu_compiled}"
                                   SINGULARITY_SOFTGPU_COMPILER_LIBRARY="${SINGULARITY_SOFTGPU_COMPILER_LIBRARY}")
        add_dependencies(proxy_softgpu_engine_${subject} softgpu_images)
        if(TARGET singularity_softgpu_compiler)
            add_test(NAME unit.proxy_softgpu_compiler_${subject} COMMAND proxy_softgpu_engine_${subject})
            set_tests_properties(unit.proxy_softgpu_compiler_${subject} PROPERTIES
                LABELS unit TIMEOUT 600 ENVIRONMENT SINGULARITY_SOFTGPU_COMPILER=compiler)
        endif()
    endforeach()
endif()
