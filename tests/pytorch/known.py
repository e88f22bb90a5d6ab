# SPDX-License-Identifier: GPL-2.0-or-later
"""Operators of PyTorch's database that are not right in float32: (verdict, words of the error, why). What begins to work is taken out: the test
says so."""

KNOWN = {
    "sparse.mm.reduce": ("refused", "_sparse_mm_reduce_impl", "PyTorch has it for processors only"),
    "torch.ops.aten._efficient_attention_forward":
        ("refused", "cutlassF: no kernel found to launch", "PyTorch 2.6 looks for a kernel by the device's capability, and knows none for 13.0; "
         "scaled_dot_product_attention chooses another way"),
}
OPERATORS = 670  # of PyTorch 2.6's database, that have float32 on CUDA devices
