# SPDX-License-Identifier: GPL-2.0-or-later
"""Tensors on the device that two processes have at once, by torch.multiprocessing: a parent makes them, a child writes to them and sends its own."""

import torch
import torch.multiprocessing as mp

ROUNDS, LIMIT_S = 3, 300


def child(given, returned, done):
    model = given.get(timeout=LIMIT_S)
    for number in range(ROUNDS):
        values = given.get(timeout=LIMIT_S)
        values.mul_(2)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.add_(number)
        mine = values.sum(0) + number
        returned.put(mine)
        torch.cuda.synchronize()
        done.wait(LIMIT_S)  # whoever has made a tensor keeps it until the others have done with it
        done.clear()


def main():
    context = mp.get_context("spawn")
    given, returned, done = context.Queue(), context.Queue(), context.Event()
    process = context.Process(target=child, args=(given, returned, done), daemon=True)
    process.start()
    torch.manual_seed(0)
    model = torch.nn.Linear(4, 3).cuda()
    model.share_memory()
    given.put(model)
    for number in range(ROUNDS):
        values = torch.rand(5, 7, device="cuda")
        before, weights = values.clone(), model.weight.detach().clone()
        given.put(values)
        theirs = returned.get(timeout=LIMIT_S)
        torch.cuda.synchronize()
        assert torch.equal(values, before * 2), "what the child has written is not here"
        assert torch.equal(theirs, values.sum(0) + number), "what the child has sent has other values"
        assert torch.equal(model.weight, weights + number), "the child's changes of the model are not here"
        print(f"round {number} {theirs.sum().item().hex()}", flush=True)
        del theirs
        done.set()
    process.join(LIMIT_S)
    assert process.exitcode == 0, f"the child ended with {process.exitcode}"


if __name__ == "__main__":
    main()
