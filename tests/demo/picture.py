# SPDX-License-Identifier: GPL-2.0-or-later
"""Loss and GPUs over time, with what happened."""

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

EPOCH = 44  # steps over which the loss is averaged: each sees other images


def smooth(training):
    """(seconds, losses), averaged over the steps of an epoch before. What was done again is there twice."""
    losses = [float.fromhex(training.losses[step]) for step in sorted(training.losses)]
    means = [sum(losses[max(at - EPOCH + 1, 0):at + 1]) / min(at + 1, EPOCH) for at in range(len(losses))]
    return [seconds for seconds, _ in training.history], [means[step] for _, step in training.history]


def draw(path, undisturbed, disturbed, samples, events):
    figure, (top, bottom) = pyplot.subplots(2, 1, sharex=True, figsize=(12, 7), height_ratios=(2, 1), layout="constrained")
    figure.suptitle("An unmodified training of 8 ranks: the same losses to the bit, whatever happens to its GPUs")
    top.plot(*smooth(undisturbed), color="0.6", label="undisturbed, 8 GPUs")
    top.plot(*smooth(disturbed), color="tab:blue", label="disturbed")
    top.set_yscale("log")
    top.set_ylabel("training loss (mean of an epoch)")
    top.grid(alpha=0.3)
    top.legend(loc="center right")
    seconds = [sample.seconds for sample in samples]
    bottom.step(seconds, [sample.gpus for sample in samples], where="post", color="tab:green")
    bottom.fill_between(seconds, [sample.gpus for sample in samples], step="post", color="tab:green", alpha=0.3)
    bottom.set_ylabel("GPUs")
    bottom.set_yticks(range(0, 9, 2))
    bottom.set_ylim(0, 8.5)
    bottom.set_xlabel("seconds")
    for event in events:
        if event.short:
            for axes in (top, bottom):
                axes.axvline(event.seconds, color="tab:red", linestyle="--", linewidth=1)
            top.text(event.seconds, 0.98, event.short, transform=top.get_xaxis_transform(), rotation=90, color="tab:red",
                     horizontalalignment="right", verticalalignment="top",
                     bbox={"facecolor": "white", "edgecolor": "none", "alpha": 0.7, "pad": 1})
    figure.savefig(path, dpi=120)
