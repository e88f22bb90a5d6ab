# SPDX-License-Identifier: GPL-2.0-or-later
"""A small GPT in bfloat16: `gpt.py STEPS [LAYERS]`."""

import sys

import torch
import training
from torch import nn
from torch.nn import functional

WIDTH, HEADS, WORDS, LENGTH, BATCH = 512, 8, 4096, 256, 16


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.before = nn.LayerNorm(WIDTH)
        self.queries = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)
        self.between = nn.LayerNorm(WIDTH)
        self.wide = nn.Sequential(nn.Linear(WIDTH, 4 * WIDTH), nn.GELU(), nn.Linear(4 * WIDTH, WIDTH))

    def forward(self, x):
        heads = self.queries(self.before(x)).view(BATCH, LENGTH, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4)
        seen = functional.scaled_dot_product_attention(*heads, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(BATCH, LENGTH, WIDTH))
        return x + self.wide(self.between(x))


class Gpt(nn.Module):
    def __init__(self, layers):
        super().__init__()
        self.words = nn.Embedding(WORDS, WIDTH)
        self.places = nn.Embedding(LENGTH, WIDTH)
        self.blocks = nn.Sequential(*(Block() for _ in range(layers)))
        self.head = nn.Linear(WIDTH, WORDS)

    def forward(self, words):
        return self.head(self.blocks(self.words(words) + self.places.weight))


def batch(step):
    words = torch.randint(0, WORDS, (BATCH, LENGTH + 1), generator=torch.Generator().manual_seed(step)).cuda()
    return words[:, :-1], words[:, 1:]


def loss_of(model, words, following):
    with torch.autocast("cuda", torch.bfloat16):
        return functional.cross_entropy(model(words).reshape(-1, WORDS).float(), following.reshape(-1))


torch.manual_seed(1)
training.train(Gpt(int(sys.argv[2]) if len(sys.argv) > 2 else 6).cuda(), batch, loss_of, int(sys.argv[1]))
