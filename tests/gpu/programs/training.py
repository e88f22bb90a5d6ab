# SPDX-License-Identifier: GPL-2.0-or-later
"""What the PyTorch programs here share: the same numbers in every run, one line of losses, times on stderr."""

import sys
import time

import torch

torch.backends.cudnn.deterministic = True
torch.backends.cudnn.benchmark = False


def train(model, batch, loss_of, steps, rate=1e-3):
    """Prints every tenth loss to six digits. Says `started` on stderr after ten steps, and `step_ms` at the end."""
    optimizer = torch.optim.AdamW(model.parameters(), rate)
    losses = []
    start = time.monotonic()
    for step in range(steps):
        if step == 10:
            torch.cuda.synchronize()
            print("started", file=sys.stderr, flush=True)
            start = time.monotonic()
        loss = loss_of(model, *batch(step))
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.detach())
    torch.cuda.synchronize()
    print(f"step_ms {(time.monotonic() - start) / (steps - 10) * 1000:.2f}", file=sys.stderr)
    print("losses", *(f"{value.item():.6f}" for value in losses[::10] + losses[-1:]))
