# SPDX-License-Identifier: GPL-2.0-or-later
"""CuPy: kernels that are compiled when they first run, its own sort and scan, cuBLAS, cuFFT, cuRAND, cuSPARSE, cuSOLVER."""

import cupy
import cupyx.scipy.sparse


@cupy.fuse()
def fused(a):
    return cupy.sqrt(a * a + 1) - a


cupy.random.seed(1)
x = cupy.random.standard_normal((512, 512), dtype=cupy.float32)
print("elementwise", f"{float(cupy.tanh(x * 2 + 1).sum()):.4f}")
print("fused", f"{float(fused(x).sum()):.4f}")
raw = cupy.RawKernel('extern "C" __global__ void twice(float *x, int n) { int i = blockDim.x * blockIdx.x + threadIdx.x; if (i < n) x[i] *= 2; }', "twice")
y = x.copy()
raw((y.size // 256,), (256,), (y, y.size))
print("raw", bool((y == 2 * x).all()))
print("sort", bool((cupy.diff(cupy.sort(x.ravel())) >= 0).all()), int(cupy.argsort(x.ravel())[0]))
print("scan", int(cupy.cumsum(cupy.arange(100000))[-1]), "unique", len(cupy.unique(cupy.arange(100000) % 777)))
print("product", f"{float(cupy.abs(x @ x).sum()):.2f}")
print("fft", f"{float(cupy.abs(cupy.fft.fft2(x)).sum()):.1f}")
square = x @ x.T + 600 * cupy.eye(512, dtype=cupy.float32)
print("solve", f"{float(cupy.abs(cupy.linalg.solve(square, x)).sum()):.4f}", "svd", f"{float(cupy.linalg.svd(x, compute_uv=False)[0]):.4f}")
sparse = cupyx.scipy.sparse.random(1000, 1000, 0.01, "csr", cupy.float32, random_state=1)
print("sparse", f"{float(cupy.abs(sparse @ cupy.ones(1000, cupy.float32)).sum()):.4f}")
pool = cupy.cuda.MemoryAsyncPool()
with cupy.cuda.using_allocator(pool.malloc):
    print("pool", float(cupy.arange(1 << 20, dtype=cupy.float32).sum()))
stream = cupy.cuda.Stream(non_blocking=True)
with stream:
    stream.begin_capture()
    y *= 2
    graph = stream.end_capture()
    graph.launch()
stream.synchronize()
print("graph", bool((y == 4 * x).all()))
