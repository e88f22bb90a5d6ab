# SPDX-License-Identifier: GPL-2.0-or-later
"""A strict reader of Prometheus' text format: what is not exactly as it says is an AssertionError.

https://prometheus.io/docs/instrumenting/exposition_formats, version 0.0.4, without timestamps, histograms and quantiles."""

import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
VALUE = r"[+-]?(?:[0-9]+(?:\.[0-9]+)?(?:e[+-]?[0-9]+)?|Inf)|NaN"
LABEL = r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\"n])*)"'
SAMPLE = re.compile(rf"({NAME})(?:\{{({LABEL}(?:,{LABEL})*)\}})? ({VALUE})")
ESCAPES = {r"\\": "\\", r"\"": '"', r"\n": "\n"}
SUFFIXES = {"counter": ("",), "gauge": ("",), "summary": ("_sum", "_count")}


def labels_of(text):
    found = [(name, re.sub(r"\\.", lambda escape: ESCAPES[escape[0]], value)) for name, value in re.findall(LABEL, text or "")]
    assert len(dict(found)) == len(found), f"a label is there twice: {text}"
    return dict(found)


def parse(text):
    """{metric: type}, {(name of a sample, (label, value), ...): number}; labels sorted."""
    assert text.endswith("\n"), "the last line does not end"
    types, samples, helped, current = {}, {}, None, None
    for line in text[:-1].split("\n"):
        if line.startswith("#"):
            kind, name, rest = re.fullmatch(rf"# (HELP|TYPE) ({NAME}) (.+)", line).groups()
            if kind == "HELP":
                assert name not in types and re.fullmatch(r"(?:[^\\]|\\[\\n])+", rest), line
                helped = name
            else:
                assert name == helped and name not in types and rest in SUFFIXES, line
                assert (rest == "counter") == name.endswith("_total"), line
                types[name], current = rest, name
            continue
        sample = SAMPLE.fullmatch(line)
        assert sample, f"no sample: {line!r}"
        assert current and current == helped and sample[1] in [current + suffix for suffix in SUFFIXES[types[current]]], f"{line!r} in {current}"
        key = (sample[1], *sorted(labels_of(sample[2]).items()))
        assert key not in samples, f"it is there twice: {line!r}"
        samples[key] = float(sample[sample.lastindex])
        assert types[current] == "gauge" or samples[key] >= 0, line
    return types, samples
