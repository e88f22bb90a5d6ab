# SPDX-License-Identifier: GPL-2.0-or-later
"""Ranks hand a number round, over TCP between their nodes, and each changes it: a run that is restored from a wrong moment says
something else, or nothing. Arguments: rounds, seconds between them."""

import os
import socket
import sys
import time

PORT = 4711
MODULUS = (1 << 61) - 1


def changed(number, rank, step):
    return (number * 6364136223846793005 + 1442695040888963407 * (rank + 1) + step) % MODULUS


def lines_of(ranks, rounds):
    """What each rank writes."""
    lines = [[] for _ in range(ranks)]
    number = 1
    for step in range(rounds):
        for rank in range(ranks):
            number = changed(number, rank, step)
            lines[rank].append(f"{step} {number}")
    return {rank: said + ["end"] for rank, said in enumerate(lines)}


def peer(rank):
    job = os.environ["MASTER_ADDR"].rsplit("-", 1)[0]
    return f"{job}-{rank // int(os.environ['LOCAL_WORLD_SIZE'])}", PORT + rank


def main():
    rank, ranks = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    rounds, pause = int(sys.argv[1]), float(sys.argv[2])
    listener = socket.create_server(("", PORT + rank))
    until = time.monotonic() + 60
    while True:
        try:
            onward = socket.create_connection(peer((rank + 1) % ranks))
            break
        except OSError:
            if time.monotonic() > until:
                raise
            time.sleep(0.05)
    source = listener.accept()[0].makefile("r", encoding="ascii")
    for step in range(rounds):
        number = 1 if rank == step == 0 else int(source.readline())
        number = changed(number, rank, step)
        print(step, number, flush=True)
        if rank == 0:
            time.sleep(pause)
        onward.sendall(f"{number}\n".encode("ascii"))
    if rank == 0:
        source.readline()
    print("end", flush=True)


if __name__ == "__main__":
    main()
