#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0-or-later
"""launch.py RANKS PROGRAM [ARGUMENT...]: runs so many of a program, each with its RANK and the like, as torchrun does;
with LAUNCH_AS=slurm in the environment as srun does.

What they print comes out by lines with the rank in front. The status is the first that is not 0; then, and at the
end of this program, the others are killed.
"""

import os
import signal
import socket
import subprocess
import sys
import threading


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def relay(rank, stream, out, lock):
    for line in stream:
        with lock:
            out.write(f"[{rank}] {line}")
            out.flush()


def main():
    ranks = int(sys.argv[1])
    own, size = ("SLURM_PROCID", "SLURM_LOCALID"), "SLURM_NTASKS"
    if os.environ.get("LAUNCH_AS") != "slurm":
        own, size = ("RANK", "LOCAL_RANK"), "WORLD_SIZE"
    shared = {size: str(ranks), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
    lock = threading.Lock()
    processes = []
    threads = []
    for rank in range(ranks):
        environment = dict(os.environ, **shared, **{name: str(rank) for name in own})
        one = subprocess.Popen(sys.argv[2:], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, errors="replace")
        processes.append(one)
        for stream, out in ((one.stdout, sys.stdout), (one.stderr, sys.stderr)):
            threads.append(threading.Thread(target=relay, args=(rank, stream, out, lock)))
            threads[-1].start()
    status = 0
    try:
        # A rank that was killed on purpose is not what a test asks about: the others' statuses are.
        killed = int(os.environ.get("LAUNCH_MAY_DIE", "-1"))
        left = dict(enumerate(processes))
        while left:
            pid, code = os.wait()
            rank = next(rank for rank, one in left.items() if one.pid == pid)
            left.pop(rank).returncode = os.waitstatus_to_exitcode(code)
            if processes[rank].returncode != 0 and rank != killed:
                status = status or (processes[rank].returncode if processes[rank].returncode > 0 else 1)
                break
    finally:
        for one in processes:
            if one.returncode is None:
                one.send_signal(signal.SIGKILL)
                one.wait()
        for thread in threads:
            thread.join()
    return status


if __name__ == "__main__":
    sys.exit(main())
