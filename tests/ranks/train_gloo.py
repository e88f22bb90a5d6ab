# SPDX-License-Identifier: GPL-2.0-or-later
"""A data-parallel training on the CPU, one rank of it: over gloo on the job's network. Argument: steps. Prints the loss of each
step and a hash of the parameters: equal to the bit, or different."""

import hashlib
import os
import sys
import time

os.environ.update(USE_LIBUV="0", GLOO_SOCKET_IFNAME="eth0")

import torch  # noqa: E402
import torch.distributed  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def main():
    torch.set_num_threads(1)
    torch.manual_seed(7)
    torch.distributed.init_process_group("gloo")
    layers = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Dropout(0.1), torch.nn.Linear(128, 10))
    model = DistributedDataParallel(layers)
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
    generator = torch.Generator().manual_seed(torch.distributed.get_rank())
    for _ in range(int(sys.argv[1])):
        data = torch.randn(32, 64, generator=generator)
        loss = torch.nn.functional.cross_entropy(model(data), data[:, :10].argmax(1))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        print(loss.item().hex(), flush=True)
        time.sleep(0.01)
    digest = hashlib.sha256()
    for parameter in model.parameters():
        digest.update(parameter.detach().numpy().tobytes())
    print(digest.hexdigest(), flush=True)
    torch.distributed.destroy_process_group()


if __name__ == "__main__":
    main()
