#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""nested.py DEVICES LOG PROGRAM [ARGUMENT...]: run through so many device proxies, it runs the program through as many others, each
of which has one of those devices for its GPU, and the libnccl.so.2 of this project for NVIDIA's: to them it is what NCCL is on
devices of its own. They append to LOG.
"""

import os
import secrets
import signal
import socket
import subprocess
import sys
import tempfile

BUILD = os.environ["SINGULARITY_LIBDIR"]
CLIENT = os.path.join(BUILD, "client")
# In the part of its window that a proxy under test has for its device (proxy/client/window.hpp), behind what it needs itself. The
# outer proxies have one window each, of which that is the upper half: --window-size=57174604644352.
INNER_AREA = ("--window-area=0x400000000000-0x540000000000", "--window-size=1099511627776")
STATUS_OF_SIGNAL = 128


def proxy(directory, number, log, rendezvous):
    """One that is being started, and the descriptor that says when it serves."""
    key, put = os.pipe()
    os.write(put, directory.key)
    os.close(put)
    ready, say = os.pipe()
    descriptors = {"--job-key-fd": key, "--ready-fd": say}
    if number == 0:
        descriptors["--rendezvous-fd"] = rendezvous.fileno()
    line = [os.path.join(BUILD, "singularity-proxyd"), f"--driver={CLIENT}/libcuda.so.1", "--device=0", f"--socket={directory.name}/{number}.sock",
            f"--rendezvous=unix:{directory.name}/rendezvous", "--host-name=nested", "--reductions=device", f"--nccl={CLIENT}/libnccl.so.2",
            f"--log-file={log}", "--log-level=debug", "--die-with-parent", *INNER_AREA, *(f"{name}={fd}" for name, fd in descriptors.items())]
    process = subprocess.Popen(line, env={**os.environ, "CUDA_VISIBLE_DEVICES": str(number)}, pass_fds=descriptors.values(), stdin=subprocess.DEVNULL)
    for descriptor in (key, say):
        os.close(descriptor)
    return process, ready


def main():
    devices, log, program = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    with tempfile.TemporaryDirectory(prefix="nested-") as name:
        directory = type("Directory", (), {"name": name, "key": secrets.token_bytes(32)})
        rendezvous = socket.socket(socket.AF_UNIX)
        rendezvous.bind(f"{name}/rendezvous")
        rendezvous.listen()
        begun = [proxy(directory, number, log, rendezvous) for number in range(devices)]
        try:
            for number, (_, ready) in enumerate(begun):
                assert os.read(ready, 1), f"proxy {number} does not come up: see {log}"
            sockets = ":".join(f"{name}/{number}.sock" for number in range(devices))
            status = subprocess.run(program, env={**os.environ, "SINGULARITY_PROXY_SOCKETS": sockets}, check=False).returncode
        finally:
            for process, ready in begun:
                os.close(ready)
                process.send_signal(signal.SIGTERM)
            for process, _ in begun:
                process.wait()
    return status if status >= 0 else STATUS_OF_SIGNAL - status


if __name__ == "__main__":
    sys.exit(main())
