# SPDX-License-Identifier: GPL-2.0-or-later
"""A data-parallel training, one rank of it: `ddp.py STEPS`. Ranks share a device by NCCL through the proxy, by gloo without it: NCCL
itself refuses that. A sum of two ranks has the same bits in either order."""

import os
import sys

import torch
import torch.distributed
from torch import nn
from torch.nn.parallel import DistributedDataParallel

torch.backends.cudnn.deterministic = True
torch.manual_seed(1)
torch.distributed.init_process_group("nccl" if "SINGULARITY_PROXY_SOCKETS" in os.environ else "gloo")
layers = nn.Sequential(nn.Linear(256, 1024), nn.GELU(), nn.Linear(1024, 1024), nn.GELU(), nn.Linear(1024, 16)).cuda()
model = DistributedDataParallel(layers)
optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
generator = torch.Generator().manual_seed(torch.distributed.get_rank())
losses = []
for step in range(int(sys.argv[1])):
    data = torch.randn(64, 256, generator=generator)
    loss = nn.functional.cross_entropy(model(data.cuda()), data[:, :16].argmax(1).cuda())
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    losses.append(loss.detach())
if torch.distributed.get_rank() == 0:
    print("losses", *(f"{value.item():.6f}" for value in losses[::10] + losses[-1:]))
torch.distributed.destroy_process_group()
