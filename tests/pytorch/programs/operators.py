# SPDX-License-Identifier: GPL-2.0-or-later
"""Runs PyTorch's own operator database on the device, forward and backward in float32, and compares each result with the processor's.

    operators.py FIRST      prints a line "NUMBER NAME VERDICT [WHY]" for each operator from number FIRST on

VERDICT: "right"; "refused" (an error, WHY is its text); "wrong" (no error, and another result); "uncompared" (the processor cannot do it). After an
error that stays with the context the program ends with status 3, and whoever has started it goes on with the next operator in another process.
"""

import itertools
import signal
import sys
import warnings

import torch
from torch.testing._internal import common_methods_invocations as database

DEVICE, SAMPLES, LIMIT_S = "cuda", 3, 100
CONTEXT_IS_LOST = 3
UNDEFINED = ("empty", "new_empty", "multinomial")  # what they return is what was in memory, or is drawn: only its shape is compared
FIRST_RESULT = ("native_batch_norm", "_native_batch_norm_legit")  # the others are what backward wants, and each backend's own matter
# Sums of many terms in another order; most operators are far nearer.
TOLERANCE = 2e-3


def leaves(value):
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for one in value:
            yield from leaves(one)
    elif isinstance(value, dict):
        yield from leaves(list(value.values()))


def moved(value, device):
    """A copy of the argument on the device, or where it is; tensors that want a gradient are leaves of their own."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone().to(device or value.device).requires_grad_(value.requires_grad)
    if isinstance(value, (list, tuple)):
        items = [moved(one, device) for one in value]
        return type(value)(*items) if hasattr(value, "_fields") else type(value)(items)
    if isinstance(value, dict):
        return {name: moved(one, device) for name, one in value.items()}
    if isinstance(value, (torch.device, str)) and str(value).split(":")[0] in ("cpu", "cuda"):
        return torch.device(device or value)
    return value


def outcome(op, sample, device, seed):
    """The operator's results and the gradients of its arguments, on the processor."""
    arguments = moved([sample.input, *sample.args], device)
    named = moved(dict(sample.kwargs), device)
    torch.manual_seed(seed)
    result = op(*arguments, **named)
    compared = sample.output_process_fn_grad(result) if sample.output_process_fn_grad is not None else result
    results = list(leaves(compared[0] if op.name in FIRST_RESULT else compared))
    gradients = []
    wanting = [one for one in leaves([arguments, named]) if one.requires_grad]
    roots = [one for one in results if one.requires_grad and one.dtype.is_floating_point]
    if op.supports_autograd and wanting and roots:
        generator = torch.Generator().manual_seed(0)
        weights = [torch.rand(one.shape, dtype=one.dtype, generator=generator).to(one.device) for one in roots]
        gradients = [one for one in torch.autograd.grad(roots, wanting, weights, allow_unused=True) if one is not None]
    return [one.detach().to_dense().cpu() if one.layout != torch.strided else one.detach().cpu() for one in (*results, *gradients)]


def reference(op, sample):
    """What the database's own NumPy function makes of the arguments, where it has one: results without gradients."""
    arguments = [one.detach().cpu().numpy() if isinstance(one, torch.Tensor) else one for one in (sample.input, *sample.args)]
    results = op.ref(*arguments, **sample.kwargs)
    return [torch.as_tensor(one) for one in (results if isinstance(results, tuple) else (results,))]


def same_shapes(ours, wanted):
    return [(one.shape, one.dtype) for one in ours] == [(one.shape, one.dtype) for one in wanted]


def difference(ours, wanted):
    """What differs, in words, or nothing."""
    if not same_shapes(ours, wanted):
        return "other shapes or types"
    for at, (one, other) in enumerate(zip(ours, wanted)):
        try:
            torch.testing.assert_close(one, other, rtol=TOLERANCE, atol=TOLERANCE, equal_nan=True)
        except AssertionError as error:
            return f"result {at}: {' '.join(str(error).split())}"
    return ""


def words_of(error):
    return " ".join(f"{type(error).__name__}: {error}".split())[:400]


def verdict(op):
    try:
        torch.manual_seed(0)
        samples = list(itertools.islice(op.sample_inputs(DEVICE, torch.float32, requires_grad=op.supports_autograd), SAMPLES))
    except Exception as error:
        return "refused", words_of(error)
    uncompared, compared = "no sample", 0
    for sample in samples:
        wanted = again = None
        try:
            wanted, again = outcome(op, sample, "cpu", 1), outcome(op, sample, "cpu", 2)
        except Exception as error:  # not on the processor either, in this release of PyTorch
            try:
                wanted = again = reference(op, sample)
            except Exception:
                uncompared = words_of(error)
        try:
            ours = outcome(op, sample, None, 1)
            torch.cuda.synchronize()
        except Exception as error:
            if wanted is None and words_of(error) == uncompared:
                continue  # the same of both
            return "refused", words_of(error)
        if wanted is None:
            continue
        compared += 1
        if again is wanted:
            ours = ours[:len(wanted)]
        drawn = op.name.startswith(UNDEFINED) or (same_shapes(again, wanted) and difference(again, wanted) != "")
        found = difference(ours, wanted) if not drawn else "" if same_shapes(ours, wanted) else "other shapes or types"
        if found:
            return "wrong", found[:300]
    return ("right", "") if compared else ("uncompared", uncompared)


def too_long(*_):
    raise TimeoutError(f"more than {LIMIT_S} s")


def main():
    warnings.simplefilter("ignore")
    # The database begins what draws numbers with one seed; devices draw other numbers than processors.
    database.wrapper_set_seed = lambda op, *arguments, **named: op(*arguments, **named)
    torch.backends.cuda.matmul.allow_tf32 = False
    signal.signal(signal.SIGALRM, too_long)
    chosen = [(number, op) for number, op in enumerate(database.op_db) if torch.float32 in op.dtypesIfCUDA]
    for number, op in chosen:
        if number < int(sys.argv[1]):
            continue
        name = f"{op.name}.{op.variant_test_name}" if op.variant_test_name else op.name
        print(number, name, "begins", flush=True)
        signal.alarm(LIMIT_S)
        with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):  # the database's module has closed the other way to say so
            what, why = verdict(op)
        signal.alarm(0)
        print(number, name, what, why, flush=True)
        if what == "refused":
            try:
                torch.cuda.synchronize()
                assert (torch.ones(3, device=DEVICE) + 1).sum().item() == 6
            except Exception:
                raise SystemExit(CONTEXT_IS_LOST) from None
    print("end", flush=True)


if __name__ == "__main__":
    main()
