# `./dev package` (cpack) makes one .deb for the Slurm release whose headers it was built with.
# SPDX-License-Identifier: GPL-2.0-or-later
set(CPACK_GENERATOR DEB)
set(CPACK_PACKAGE_NAME slurm-singularity)
set(CPACK_PACKAGE_CONTACT "slurm-singularity maintainers <slurm-singularity@localhost>")
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "${PROJECT_DESCRIPTION}")
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_STRIP_FILES ON)
set(CPACK_DEBIAN_FILE_NAME DEB-DEFAULT)
set(CPACK_DEBIAN_PACKAGE_SECTION admin)
set(CPACK_DEBIAN_PACKAGE_SHLIBDEPS ON)
set(CPACK_DEBIAN_PACKAGE_CONTROL_STRICT_PERMISSION ON)
if(SLURM_FOUND)
    # slurmctld refuses a plugin of any other micro release; SPANK plugins go by major and minor.
    set(CPACK_DEBIAN_PACKAGE_VERSION "${PROJECT_VERSION}~slurm${SLURM_RELEASE}")
    set(CPACK_DEBIAN_PACKAGE_ENHANCES "slurmctld, slurmd, slurm-client")
    set(CPACK_DEBIAN_PACKAGE_SUGGESTS squashfuse) # images of containers in one file
endif()
include(CPack)
