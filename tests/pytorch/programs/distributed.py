# SPDX-License-Identifier: GPL-2.0-or-later
"""Trains training.py's GPT on two ranks and prints each rank's losses to the bit.

    distributed.py KIND     KIND: one of the table at the end

It starts the ranks as srun would: torchrun of Debian's build asks for libuv, which that build does not have. A rank uses device RANK modulo the
number of devices, so two ranks may share one.
"""

import functools
import os
import socket
import subprocess
import sys

import torch
import torch.distributed as dist
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.fsdp.wrap import transformer_auto_wrap_policy
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import training

RANKS, STEPS, WARM_UP = 2, 4, 11  # DistributedDataParallel wants that many steps before it is captured


def ddp(model):
    return DistributedDataParallel(model, device_ids=[torch.cuda.current_device()])


def fsdp(model):
    return FullyShardedDataParallel(model, device_id=torch.cuda.current_device(),
                                    auto_wrap_policy=functools.partial(transformer_auto_wrap_policy, transformer_layer_cls={training.Block}))


def fsdp2(model):
    for block in model.blocks:
        fully_shard(block)
    return fully_shard(model)


def adam(model, **options):
    return torch.optim.AdamW(model.parameters(), lr=3e-3, **options)


def zero(model):
    return ZeroRedundancyOptimizer(model.parameters(), torch.optim.AdamW, lr=3e-3)


def told(what, value):
    print(f"rank {dist.get_rank()} {what} {value.item():.6f} {value.item().hex()}", flush=True)


def batches():
    generator = torch.Generator().manual_seed(2 + dist.get_rank())
    kept = [training.Gpt.batch(generator) for _ in range(2)]
    step = 0
    while True:
        yield kept[step % 2]
        step += 1


def train(wrap, make_optimizer):
    model = wrap(training.Gpt().to("cuda"))
    optimizer = make_optimizer(model)
    for step, batch in zip(range(STEPS), batches()):
        optimizer.zero_grad(set_to_none=True)
        loss = training.loss_of(model, batch)
        loss.backward()
        optimizer.step()
        told(f"step {step} loss", loss)


def train_captured():
    """All of a step, with its reductions, as one CUDA graph."""
    aside = torch.cuda.Stream()
    with torch.cuda.stream(aside):
        model = ddp(training.Gpt().to("cuda"))
        optimizer = adam(model, capturable=True)
        source = batches()
        fixed = [part.to("cuda") for part in next(source)]
        for _ in range(WARM_UP):
            optimizer.zero_grad(set_to_none=True)
            training.loss_of(model, fixed).backward()
            optimizer.step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = training.loss_of(model, fixed)
        loss.backward()
        optimizer.step()
    for step, batch in zip(range(STEPS), source):
        for place, part in zip(fixed, batch):
            place.copy_(part)
        graph.replay()
        told(f"step {step} loss", loss)


def reduce_captured():
    """What a captured all_reduce makes of changing values is what it makes of them as they come."""
    value = torch.zeros(1000, device="cuda")
    total = torch.zeros_like(value)
    dist.all_reduce(total)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        total.copy_(value)
        dist.all_reduce(total)
        total.mul_(0.5)
    generator = torch.Generator().manual_seed(dist.get_rank())
    for step in range(STEPS):
        value.copy_(torch.rand(1000, generator=generator))
        graph.replay()
        wanted = value.clone()
        dist.all_reduce(wanted)
        assert torch.equal(total, wanted.mul_(0.5)), f"step {step}: a captured all_reduce gives other values"
        told(f"step {step} mean", total.mean())


KINDS = {
    "ddp": lambda: train(ddp, adam),
    "fsdp": lambda: train(fsdp, adam),
    "fsdp2": lambda: train(fsdp2, adam),
    "zero": lambda: train(ddp, zero),
    "ddp-graph": train_captured,
    "all-reduce-graph": reduce_captured,
}

def rank():
    torch.cuda.set_device(int(os.environ["RANK"]) % torch.cuda.device_count())
    dist.init_process_group("nccl")
    torch.manual_seed(1)
    KINDS[sys.argv[1]]()
    dist.destroy_process_group()


def start_ranks():
    """All of them; the status is that of the first that fails, and the others are ended then."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    one = {**os.environ, "WORLD_SIZE": str(RANKS), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "USE_LIBUV": "0"}
    ranks = [subprocess.Popen([sys.executable, *sys.argv], env={**one, "RANK": str(number)}) for number in range(RANKS)]
    left = list(ranks)
    while left:
        os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOWAIT)
        for ended in [process for process in left if process.poll() is not None]:
            left.remove(ended)
            if ended.returncode != 0:
                for other in left:
                    other.kill()
                raise SystemExit(f"rank {ranks.index(ended)} ended with {ended.returncode}")


if __name__ == "__main__":
    if "RANK" in os.environ:
        rank()
    else:
        start_ranks()
