#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""Prints the bytes that are free on device 0, whoever has the others, as NVML says it. (CUDA says how many one can have.)"""

import ctypes
import os
import subprocess
import sys


def free(environment):
    """The same, of the proxies that an environment names."""
    line = [sys.executable, os.path.abspath(__file__)]
    return int(subprocess.run(line, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout.split()[1])


class Memory(ctypes.Structure):
    _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]


def main():
    nvml = ctypes.CDLL("libnvidia-ml.so.1")
    device, memory = ctypes.c_void_p(), Memory()
    for result in (nvml.nvmlInit_v2(), nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)),
                   nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory))):
        if result != 0:
            raise SystemExit(f"NVML: error {result}")
    print("free", memory.free)


if __name__ == "__main__":
    main()
