# Finds the installed Slurm's public headers. Sets SLURM_FOUND, SLURM_RELEASE (e.g. 24.11.5), SLURM_INCLUDE_DIR and
# SINGULARITY_SLURM_PLUGINDIR, where the plugins are installed; SINGULARITY_SLURM_BINDIR, where srun is; and SLURM_LIBRARY, libslurm,
# which plugins do not link: their symbols come from the program that loads them.
# SPDX-License-Identifier: GPL-2.0-or-later

find_path(SLURM_INCLUDE_DIR slurm/slurm_version.h)
find_library(SLURM_LIBRARY slurm)
set(SLURM_FOUND FALSE)
if(SLURM_INCLUDE_DIR)
    file(STRINGS ${SLURM_INCLUDE_DIR}/slurm/slurm_version.h line REGEX "define SLURM_VERSION_NUMBER +0x")
    if(NOT line MATCHES "0x([0-9a-fA-F][0-9a-fA-F])([0-9a-fA-F][0-9a-fA-F])([0-9a-fA-F][0-9a-fA-F])")
        message(FATAL_ERROR "${SLURM_INCLUDE_DIR}/slurm/slurm_version.h: no SLURM_VERSION_NUMBER of the form 0xMMmmpp")
    endif()
    math(EXPR major "0x${CMAKE_MATCH_1}")
    math(EXPR minor "0x${CMAKE_MATCH_2}")
    math(EXPR micro "0x${CMAKE_MATCH_3}")
    if(minor LESS 10)
        set(minor "0${minor}")
    endif()
    set(SLURM_RELEASE ${major}.${minor}.${micro})
    set(SLURM_FOUND TRUE)
    # A change of Slurm's version must reconfigure: the plugins are made for one exact release.
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${SLURM_INCLUDE_DIR}/slurm/slurm_version.h)
    find_path(SINGULARITY_SLURM_PLUGINDIR select_cons_tres.so
              PATHS /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/slurm-wlm /usr/lib/${CMAKE_LIBRARY_ARCHITECTURE}/slurm /usr/lib64/slurm
                    /usr/lib/slurm /usr/local/lib/slurm
              NO_DEFAULT_PATH DOC "where slurm.conf's PluginDir points")
    if(NOT SINGULARITY_SLURM_PLUGINDIR)
        set(SINGULARITY_SLURM_PLUGINDIR ${CMAKE_INSTALL_FULL_LIBDIR}/slurm)
    endif()
    # The nodes' own: of the machine that builds only where it has them.
    find_program(SINGULARITY_SRUN srun NO_CACHE)
    if(SINGULARITY_SRUN)
        get_filename_component(srun_directory ${SINGULARITY_SRUN} DIRECTORY)
    else()
        set(srun_directory ${CMAKE_INSTALL_FULL_BINDIR})
    endif()
    set(SINGULARITY_SLURM_BINDIR ${srun_directory} CACHE PATH "where Slurm's commands are installed")
    message(STATUS "Slurm ${SLURM_RELEASE}, plugins go to ${SINGULARITY_SLURM_PLUGINDIR}")
else()
    message(STATUS "No Slurm headers (package libslurm-dev): the Slurm plugins are not built")
endif()
