# SPDX-License-Identifier: GPL-2.0-or-later
"""A data-parallel training on the CPU, ranks over gloo on the node's own loopback. train.py RANKS STEPS PROGRESS

Every rank prints the loss of each step and a hash of its parameters: equal to the bit, or different.
"""

import hashlib
import os
import sys
import time

RANKS, STEPS = int(sys.argv[1]), int(sys.argv[2])


def rank(number, progress):
    os.environ.update(RANK=str(number), WORLD_SIZE=str(RANKS), MASTER_ADDR="127.0.0.1", MASTER_PORT="29500", USE_LIBUV="0",
                      GLOO_SOCKET_IFNAME="lo")
    import torch
    import torch.distributed
    from torch.nn.parallel import DistributedDataParallel

    torch.set_num_threads(1)
    torch.manual_seed(7)
    torch.distributed.init_process_group("gloo")
    layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(128, 10))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(number)
    log = open(f"rank-{number}", "a", encoding="utf-8")
    for _ in range(STEPS):
        data = torch.randn(32, 64, generator=generator)
        loss = torch.nn.functional.cross_entropy(model(data), data[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex(), file=log, flush=True)
        if number == 0:
            os.write(progress, b".")
        time.sleep(0.01)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print(digest.hexdigest(), file=log, flush=True)
    torch.distributed.destroy_process_group()


def main():
    progress = os.open(sys.argv[3], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    children = []
    for number in range(RANKS):
        pid = os.fork()
        if pid == 0:
            rank(number, progress)
            os._exit(0)
        children.append(pid)
    for pid in children:
        assert os.waitpid(pid, 0)[1] == 0
    for number in range(RANKS):
        with open(f"rank-{number}", encoding="utf-8") as log:
            print(number, log.read())


main()
