# SPDX-License-Identifier: GPL-2.0-or-later
"""The operators of PyTorch's own operator database, forward and backward, one line each: `operators.py TYPE [PART/PARTS]`.

A line is the operator's name and a digest of all that it returned, or its error's class. What may differ from run to run is left
out by whoever compares (two direct runs). TYPE: a name such as float32, of torch."""

import hashlib
import itertools
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree

SAMPLES = 3
# Names that begin so return memory that nobody has written.
WITHOUT_VALUES = ("empty", "new_empty", "resize_")


def tensors(value):
    return [leaf for leaf in _pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]


def add(digest, tensor):
    tensor = tensor.detach()
    if tensor.layout != torch.strided:
        tensor = tensor.to_dense()
    tensor = tensor.resolve_conj().resolve_neg().cpu().contiguous()
    digest.update(f"{tensor.dtype} {tuple(tensor.shape)}".encode())
    digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes() if tensor.numel() else b"")


def run(operator, kind):
    digest = hashlib.sha256()
    backward = kind in operator.supported_backward_dtypes("cuda") and operator.supports_autograd
    for sample in itertools.islice(operator.sample_inputs("cuda", kind, requires_grad=backward), SAMPLES):
        torch.manual_seed(2)
        result = operator(sample.input, *sample.args, **sample.kwargs)
        for tensor in tensors(result):
            add(digest, tensor)
        differentiable = [tensor for tensor in tensors(result) if tensor.requires_grad and tensor.layout == torch.strided]
        inputs = [tensor for tensor in tensors((sample.input, sample.args, sample.kwargs)) if tensor.requires_grad and tensor.is_leaf]
        if not differentiable or not inputs:
            continue
        for gradient in torch.autograd.grad(differentiable, inputs, [torch.ones_like(one) for one in differentiable], allow_unused=True):
            if gradient is not None:
                add(digest, gradient)
    torch.cuda.synchronize()
    return digest.hexdigest()[:16]


def main():
    warnings.simplefilter("ignore")
    kind = getattr(torch, sys.argv[1])
    part, parts = map(int, sys.argv[2].split("/")) if len(sys.argv) > 2 else (0, 1)
    torch.use_deterministic_algorithms(True, warn_only=True)
    for operator in op_db[part::parts]:
        if kind not in operator.supported_dtypes("cuda") or operator.name.startswith(WITHOUT_VALUES):
            continue
        torch.manual_seed(1)
        name = operator.name + ("." + operator.variant_test_name if operator.variant_test_name else "")
        try:
            print(name, run(operator, kind), flush=True)
        except Exception as error:  # any: the line says it, and the next operator is asked
            print(name, "error", type(error).__name__, flush=True)
            print(name, str(error)[:300].replace("\n", " "), file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
