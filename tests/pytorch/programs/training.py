# SPDX-License-Identifier: GPL-2.0-or-later
"""Trains one small model on the device and prints each step's loss, and what the parameters are at the end, to the bit.

    training.py MODEL [STEPS]     MODEL: one of the table at the end
"""

import sys
import zlib

import torch
from torch import nn
from torch.nn import functional

DEVICE = "cuda"


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.before, self.after = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.mlp = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1))

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = (part.view(batch, length, self.heads, -1).transpose(1, 2) for part in self.qkv(self.before(x)).chunk(3, -1))
        attended = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.mlp(self.after(x))


class Gpt(nn.Module):
    """Predicts the next of its tokens."""

    def __init__(self, tokens=64, length=16, width=32, heads=2, layers=2):
        super().__init__()
        self.token, self.place = nn.Embedding(tokens, width), nn.Embedding(length, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.last, self.head = nn.LayerNorm(width), nn.Linear(width, tokens, bias=False)

    def forward(self, tokens):
        places = torch.arange(tokens.shape[1], device=tokens.device)
        return self.head(self.last(self.blocks(self.token(tokens) + self.place(places))))

    @staticmethod
    def batch(generator):
        tokens = torch.randint(0, 64, (4, 17), generator=generator)
        return tokens[:, :-1], tokens[:, 1:]


class Cnn(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Conv2d(1, 8, 3, padding=1), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2), nn.Conv2d(8, 16, 3, stride=2),
                                    nn.ReLU(), nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(64, 10))

    def forward(self, images):
        return self.layers(images)

    @staticmethod
    def batch(generator):
        return torch.rand(8, 1, 12, 12, generator=generator), torch.randint(0, 10, (8,), generator=generator)


class Lstm(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn, self.head = nn.LSTM(8, 16, num_layers=2, batch_first=True, bidirectional=True), nn.Linear(32, 4)

    def forward(self, series):
        return self.head(self.rnn(series)[0][:, -1])

    @staticmethod
    def batch(generator):
        return torch.rand(4, 10, 8, generator=generator), torch.randint(0, 4, (4,), generator=generator)


class Encoder(nn.Module):
    def __init__(self):
        super().__init__()
        layer = nn.TransformerEncoderLayer(16, 2, 32, batch_first=True)
        self.encoder, self.head = nn.TransformerEncoder(layer, 2), nn.Linear(16, 4)

    def forward(self, series):
        return self.head(self.encoder(series).mean(1))

    @staticmethod
    def batch(generator):
        return torch.rand(4, 10, 16, generator=generator), torch.randint(0, 4, (4,), generator=generator)


def loss_of(model, batch):
    inputs, wanted = (part.to(DEVICE, non_blocking=True) for part in batch)
    return functional.cross_entropy(model(inputs).float().flatten(0, -2), wanted.flatten())


def told(step, loss):
    print(f"step {step} loss {loss.item():.6f} {loss.item().hex()}", flush=True)


def eager(model, optimizer, batches, amp=None, scaler=None):
    for step, batch in enumerate(batches):
        optimizer.zero_grad(set_to_none=True)
        with torch.autocast(DEVICE, amp or torch.bfloat16, enabled=amp is not None):
            loss = loss_of(model, batch)
        if scaler is None:
            loss.backward()
            optimizer.step()
        else:
            scaler.scale(loss).backward()
            scaler.step(optimizer)
            scaler.update()
        told(step, loss)


def captured(model, optimizer, batches):
    """Forward, backward and the optimizer's step as one CUDA graph."""
    batches = iter(batches)
    fixed = [part.to(DEVICE) for part in next(batches)]
    aside = torch.cuda.Stream()
    aside.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(aside):
        for _ in range(3):
            optimizer.zero_grad(set_to_none=True)
            loss_of(model, fixed).backward()
            optimizer.step()
    torch.cuda.current_stream().wait_stream(aside)
    graph = torch.cuda.CUDAGraph()
    optimizer.zero_grad(set_to_none=True)
    with torch.cuda.graph(graph):
        loss = loss_of(model, fixed)
        loss.backward()
        optimizer.step()
    for step, batch in enumerate(batches):
        for place, part in zip(fixed, batch):
            place.copy_(part)
        graph.replay()
        told(step, loss)


def checksum(model):
    return zlib.crc32(b"".join(one.detach().cpu().numpy().tobytes() for one in model.state_dict().values()))


def train(kind, steps):
    model_class, run, amp = MODELS[kind]
    torch.manual_seed(1)
    generator = torch.Generator().manual_seed(2)
    model = model_class().to(DEVICE)
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, capturable=run is captured)
    kept = [model_class.batch(generator) for _ in range(2)]  # seen again and again, so that there is something to learn
    batches = (kept[step % 2] for step in range(steps))
    if run is captured:
        captured(model, optimizer, batches)
    else:
        eager(model, optimizer, batches, amp, torch.amp.GradScaler(DEVICE) if amp is torch.float16 else None)
    print(f"parameters {checksum(model):08x}")


MODELS = {
    "gpt": (Gpt, eager, None),
    "gpt-bf16": (Gpt, eager, torch.bfloat16),
    "gpt-fp16": (Gpt, eager, torch.float16),
    "gpt-graph": (Gpt, captured, None),
    "cnn": (Cnn, eager, None),
    "cnn-graph": (Cnn, captured, None),
    "lstm": (Lstm, eager, None),
    "encoder": (Encoder, eager, None),
}

if __name__ == "__main__":
    train(sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 8)
