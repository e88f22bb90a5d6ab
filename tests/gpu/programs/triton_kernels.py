# SPDX-License-Identifier: GPL-2.0-or-later
"""Kernels of Triton: a softmax, and a product that is tuned when it first runs."""

import torch
import triton
import triton.language as tl


@triton.jit
def softmax(out, x, columns, width: tl.constexpr):
    row = tl.program_id(0)
    at = tl.arange(0, width)
    values = tl.load(x + row * columns + at, mask=at < columns, other=-float("inf"))
    powers = tl.exp(values - tl.max(values, 0))
    tl.store(out + row * columns + at, powers / tl.sum(powers, 0), mask=at < columns)


@triton.autotune([triton.Config({"m": m, "n": n}, num_warps=warps) for m, n, warps in ((64, 64, 4), (128, 64, 4), (128, 128, 8))], key=["size"])
@triton.jit
def product(out, x, y, size, m: tl.constexpr, n: tl.constexpr, k: tl.constexpr = 32):
    rows = tl.program_id(0) * m + tl.arange(0, m)
    columns = tl.program_id(1) * n + tl.arange(0, n)
    sums = tl.zeros((m, n), tl.float32)
    for first in range(0, size, k):
        between = first + tl.arange(0, k)
        left = tl.load(x + rows[:, None] * size + between[None, :])
        right = tl.load(y + between[:, None] * size + columns[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(out + rows[:, None] * size + columns[None, :], sums)


torch.manual_seed(1)
x = torch.randn(1000, 777).cuda()
out = torch.empty_like(x)
softmax[(1000,)](out, x, 777, 1024)
print("softmax", torch.allclose(out, torch.softmax(x, 1), atol=1e-6))
x = torch.randint(-4, 5, (1024, 1024)).half().cuda()
y = torch.randint(-4, 5, (1024, 1024)).half().cuda()
out = torch.empty(1024, 1024, device="cuda")
product[lambda chosen: (1024 // chosen["m"], 1024 // chosen["n"])](out, x, y, 1024)
print("product", torch.equal(out, x.float() @ y.float()), out.double().abs().sum().item())
