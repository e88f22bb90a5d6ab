# SPDX-License-Identifier: GPL-2.0-or-later
"""JAX: a training compiled by XLA, a convolution, a sort, a factorisation, a loop on the device: `jax_training.py STEPS`."""

import os
import sys
import time

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # an image of three quarters of the device's memory takes its time

import jax  # noqa: E402
from jax import numpy  # noqa: E402

jax.config.update("jax_default_matmul_precision", "highest")


def forward(parameters, x):
    for weights, offset in parameters[:-1]:
        x = jax.nn.gelu(x @ weights + offset)
    weights, offset = parameters[-1]
    return x @ weights + offset


def loss_of(parameters, x, wanted):
    return -numpy.mean(jax.nn.log_softmax(forward(parameters, x))[numpy.arange(len(wanted)), wanted])


@jax.jit
def step(parameters, x, wanted):
    loss, slopes = jax.value_and_grad(loss_of)(parameters, x, wanted)
    return jax.tree.map(lambda value, slope: value - 0.05 * slope, parameters, slopes), loss


def main():
    steps = int(sys.argv[1])
    keys = jax.random.split(jax.random.key(1), 6)
    widths = (256, 1024, 1024, 16)
    parameters = [(jax.random.normal(key, (a, b)) / a**0.5, numpy.zeros(b)) for key, a, b in zip(keys, widths, widths[1:])]
    x = jax.random.normal(keys[4], (512, 256))
    wanted = numpy.argmax(x[:, :16], 1)
    losses = []
    for number in range(steps):
        if number == 10:
            jax.block_until_ready(losses)
            print("started", file=sys.stderr, flush=True)
            start = time.monotonic()
        parameters, loss = step(parameters, x, wanted)
        losses.append(loss)
    jax.block_until_ready(losses)
    print(f"step_ms {(time.monotonic() - start) / (steps - 10) * 1000:.2f}", file=sys.stderr)
    print("losses", *(f"{value:.5f}" for value in losses[::10] + losses[-1:]))
    image = jax.random.normal(keys[5], (8, 3, 64, 64))
    kernel = jax.random.normal(keys[0], (16, 3, 3, 3))
    print("convolution", f"{numpy.abs(jax.lax.conv(image, kernel, (1, 1), 'SAME')).sum():.4g}")
    print("sort", bool((numpy.diff(numpy.sort(image.ravel())) >= 0).all()))
    square = x.T @ x + 10 * numpy.eye(256)
    print("cholesky", f"{numpy.abs(numpy.linalg.cholesky(square)).sum():.4g}")
    print("fft", f"{numpy.abs(numpy.fft.fft(image.ravel())).sum():.4g}")
    print("loop", int(jax.lax.fori_loop(0, 1000, lambda i, value: value * 3 + i, numpy.int32(1))))


main()
