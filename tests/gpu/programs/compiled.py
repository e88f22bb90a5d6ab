# SPDX-License-Identifier: GPL-2.0-or-later
"""torch.compile (Triton) and a CUDA graph."""

import torch

torch.manual_seed(1)
model = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10)).cuda()
x = torch.randn(64, 256).cuda()
print("compiled", f"{torch.compile(model)(x).double().sum().item():.6f}")
print("softmax", f"{torch.compile(lambda v: torch.softmax(v * 3 + 1, 1).square())(x).double().sum().item():.6f}")
graph = torch.cuda.CUDAGraph()
stream = torch.cuda.Stream()
with torch.cuda.stream(stream):
    model(x)
stream.synchronize()
with torch.cuda.graph(graph):
    y = model(x)
for step in range(50):
    x.fill_(step / 50)
    graph.replay()
print("graph", f"{y.double().sum().item():.6f}")
