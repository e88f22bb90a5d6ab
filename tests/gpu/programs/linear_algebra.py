# SPDX-License-Identifier: GPL-2.0-or-later
"""cuSOLVER and cuBLAS: factorisations and products in several types; handles are destroyed while the program ends."""

import torch

torch.manual_seed(1)
x = torch.randn(64, 64).cuda()
square = x @ x.T + 64 * torch.eye(64, device="cuda")
print("cholesky", f"{torch.linalg.cholesky(square).double().sum().item():.9f}")
print("qr", f"{torch.linalg.qr(x)[1].abs().double().sum().item():.9f}")
print("svd", f"{torch.linalg.svdvals(x).double().sum().item():.9f}")
print("solve", f"{torch.linalg.solve(square, x).double().sum().item():.9f}")
for kind in (torch.float16, torch.bfloat16, torch.float32, torch.float64, torch.complex64):
    for size in (64, 1000, 4096):
        a = torch.randn(size, size, dtype=torch.float32).cuda().to(kind)
        print("product", kind, size, f"{(a @ a).abs().double().sum().item():.6f}")
