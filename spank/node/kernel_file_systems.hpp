// SPDX-License-Identifier: GPL-2.0-or-later
// File systems that show the host's processes, devices or kernel. A node has its own of these, or none.
#pragma once

#include <algorithm>
#include <array>
#include <string_view>

#include <linux/magic.h>

namespace singularity::node {

struct KernelFileSystem {
    std::string_view type; // as in mountinfo
    // NOLINTNEXTLINE(google-runtime-int): as statfs(2) has it
    long magic;
    bool of_machine; // no node has one: the host's are taken out of its mounts
};
inline constexpr std::array kKernelFileSystems{KernelFileSystem{"binfmt_misc", 0x42494e4d, true},
                                               KernelFileSystem{"bpf", BPF_FS_MAGIC, true},
                                               KernelFileSystem{"cgroup", CGROUP_SUPER_MAGIC, false},
                                               KernelFileSystem{"cgroup2", CGROUP2_SUPER_MAGIC, false},
                                               KernelFileSystem{"configfs", 0x62656570, true},
                                               KernelFileSystem{"debugfs", DEBUGFS_MAGIC, true},
                                               KernelFileSystem{"devpts", DEVPTS_SUPER_MAGIC, false},
                                               KernelFileSystem{"efivarfs", 0xde5e81e4, true},
                                               KernelFileSystem{"fusectl", 0x65735543, true},
                                               KernelFileSystem{"mqueue", 0x19800202, false},
                                               KernelFileSystem{"nsfs", NSFS_MAGIC, true},
                                               KernelFileSystem{"proc", PROC_SUPER_MAGIC, false},
                                               KernelFileSystem{"pstore", 0x6165676c, true},
                                               KernelFileSystem{"rpc_pipefs", 0x67596969, true},
                                               KernelFileSystem{"securityfs", SECURITYFS_MAGIC, true},
                                               KernelFileSystem{"sysfs", SYSFS_MAGIC, false},
                                               KernelFileSystem{"tracefs", TRACEFS_MAGIC, true}};

[[nodiscard]] inline const KernelFileSystem *kernel_file_system(std::string_view type) {
    const auto *const found = std::ranges::find(kKernelFileSystems, type, &KernelFileSystem::type);
    return found == kKernelFileSystems.end() ? nullptr : found;
}
// NOLINTNEXTLINE(google-runtime-int)
[[nodiscard]] inline const KernelFileSystem *kernel_file_system(long magic) {
    const auto *const found = std::ranges::find(kKernelFileSystems, magic, &KernelFileSystem::magic);
    return found == kKernelFileSystems.end() ? nullptr : found;
}

} // namespace singularity::node
