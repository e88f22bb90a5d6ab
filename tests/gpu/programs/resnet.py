# SPDX-License-Identifier: GPL-2.0-or-later
"""ResNet-18 in float32 through cuDNN: `resnet.py STEPS`."""

import sys

import torch
import torchvision
import training


def batch(step):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(32, 3, 128, 128, generator=generator).cuda(), torch.arange(32).cuda() % 10


torch.manual_seed(1)
training.train(torchvision.models.resnet18().cuda(), batch, lambda model, x, y: torch.nn.functional.cross_entropy(model(x), y),
               int(sys.argv[1]))
