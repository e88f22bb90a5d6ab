# SPDX-License-Identifier: GPL-2.0-or-later
# Tests of what is in proxy/daemon/: the daemon as a process, with a driver library of the tests' own behind it.
if(NOT TARGET singularity-proxyd)
    return()
endif()

set(proxyd_tests ${CMAKE_CURRENT_LIST_DIR}/proxy-daemon)
singularity_target(proxyd_fake_driver COMPONENT tests TYPE SHARED
    SOURCES ${proxyd_tests}/fake_driver.cpp
    USES singularity_libcuda_headers
    LINKS Threads::Threads)
target_include_directories(proxyd_fake_driver SYSTEM PRIVATE ${SINGULARITY_CUDA_INCLUDE})

singularity_target(proxy_daemon_testing COMPONENT tests TYPE STATIC SOURCES ${proxyd_tests}/proxy_process.cpp
    USES singularity_collectives singularity_channel singularity_protocol singularity_driver_api singularity_common
    LINKS singularity_fmt Threads::Threads PkgConfig::CMOCKA)
target_include_directories(proxy_daemon_testing PUBLIC ${PROJECT_SOURCE_DIR}/tests/unit)
target_compile_definitions(proxy_daemon_testing PUBLIC
    SINGULARITY_PROXYD="$<TARGET_FILE:singularity-proxyd>"
    SINGULARITY_FAKE_DRIVER="$<TARGET_FILE:proxyd_fake_driver>")
set(sources sessions failures command_line collectives late_device)
list(TRANSFORM sources REPLACE ".+" "${proxyd_tests}/\\0.cpp")
singularity_unit_tests(proxy_daemon SOURCES ${sources} USES proxy_daemon_testing singularity_proxy_control)
add_dependencies(proxy_daemon_tests singularity-proxyd proxyd_fake_driver)

singularity_unit_test(proxy_daemon_residency SOURCES ${proxyd_tests}/residency.cpp
    USES singularity_proxyd_parts singularity_common LINKS Threads::Threads)
target_include_directories(proxy_daemon_residency PRIVATE ${PROJECT_SOURCE_DIR}/proxy/daemon)

singularity_unit_test(proxy_daemon_neighbours SOURCES ${proxyd_tests}/neighbours.cpp
    USES singularity_proxyd_parts singularity_common LINKS Threads::Threads)
target_include_directories(proxy_daemon_neighbours PRIVATE ${PROJECT_SOURCE_DIR}/proxy/daemon)

singularity_unit_test(proxy_daemon_event_times SOURCES ${proxyd_tests}/event_times.cpp
    USES singularity_proxyd_parts singularity_common)
target_include_directories(proxy_daemon_event_times PRIVATE ${PROJECT_SOURCE_DIR}/proxy/daemon)

singularity_unit_test(proxy_daemon_graph_parts SOURCES ${proxyd_tests}/graph_parts.cpp
    USES singularity_proxyd_parts singularity_common)
target_include_directories(proxy_daemon_graph_parts PRIVATE ${PROJECT_SOURCE_DIR}/proxy/daemon)

singularity_unit_test(proxy_daemon_shared_events SOURCES ${proxyd_tests}/shared_events.cpp
    USES singularity_proxyd_parts singularity_common)
target_include_directories(proxy_daemon_shared_events PRIVATE ${PROJECT_SOURCE_DIR}/proxy/daemon)

singularity_unit_test(proxy_daemon_wanted_number SOURCES ${proxyd_tests}/wanted_number.cpp
    USES singularity_proxyd_parts singularity_common LINKS singularity_fmt)
target_include_directories(proxy_daemon_wanted_number PRIVATE ${PROJECT_SOURCE_DIR}/proxy/daemon)

# With these sanitizers the kernel places mappings.
if(NOT SINGULARITY_SANITIZE MATCHES "address|thread")
    singularity_target(proxyd_mapping_library COMPONENT tests TYPE MODULE SOURCES ${proxyd_tests}/mapping_library.cpp)
    singularity_unit_test(proxy_daemon_driver_mappings SOURCES ${proxyd_tests}/driver_mappings.cpp
        USES singularity_proxyd_parts singularity_common LINKS ${CMAKE_DL_LIBS} Threads::Threads)
    target_include_directories(proxy_daemon_driver_mappings PRIVATE ${PROJECT_SOURCE_DIR}/proxy/daemon)
    target_compile_definitions(proxy_daemon_driver_mappings PRIVATE
        SINGULARITY_MAPPING_LIBRARY="$<TARGET_FILE:proxyd_mapping_library>")
    target_link_options(proxy_daemon_driver_mappings PRIVATE -Wl,--export-dynamic-symbol=mmap
        -Wl,--export-dynamic-symbol=mmap64)
    add_dependencies(proxy_daemon_driver_mappings proxyd_mapping_library)
endif()

if(TARGET singularity_softgpu)
    foreach(subject IN ITEMS contents reduction_kernels)
        singularity_unit_test(proxy_daemon_${subject} SOURCES ${proxyd_tests}/${subject}.cpp
            USES singularity_proxyd_parts singularity_collectives singularity_driver_api singularity_common LINKS singularity_fmt)
        target_include_directories(proxy_daemon_${subject} PRIVATE ${PROJECT_SOURCE_DIR}/proxy/daemon ${PROJECT_SOURCE_DIR}/tests/unit)
        target_compile_definitions(proxy_daemon_${subject} PRIVATE SINGULARITY_SOFTGPU="$<TARGET_FILE:singularity_softgpu>")
        add_dependencies(proxy_daemon_${subject} singularity_softgpu)
    endforeach()
endif()

# A client that writes anything, and device images of any content: see fuzz.cmake.
singularity_target(proxyd_fuzz_testing COMPONENT tests TYPE STATIC
    SOURCES ${proxyd_tests}/fuzz_session.cpp ${proxyd_tests}/fuzz_inputs.cpp ${fuzz}/parts.cpp
    USES singularity_proxyd_parts singularity_protocol singularity_common LINKS singularity_fmt)
target_include_directories(proxyd_fuzz_testing PUBLIC ${PROJECT_SOURCE_DIR}/proxy/daemon)
singularity_instrument(singularity_proxyd_parts singularity_channel singularity_protocol singularity_image
                       singularity_driver_dispatch singularity_driver_api proxyd_fuzz_testing)
singularity_fuzz(proxy_fuzz_records REPLAY proxy_fuzz_replay SOURCES ${proxyd_tests}/fuzz_records.cpp USES proxyd_fuzz_testing)
singularity_fuzz(proxy_fuzz_images SOURCES ${proxyd_tests}/fuzz_images.cpp USES proxyd_fuzz_testing)
