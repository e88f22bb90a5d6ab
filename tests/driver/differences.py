# SPDX-License-Identifier: GPL-2.0-or-later
"""Where this project's libraries answer otherwise than NVIDIA's driver, and why that stays. Exact: what is not here is a failure, and so is an
entry that is no difference any more.
"""

import dataclasses

CLIENT, SOFTWARE = ("client",), ("software GPU",)
BOTH = CLIENT + SOFTWARE

ARGUMENTS_FIRST = ("NVIDIA's driver looks at these arguments, all zero or all empty, before it looks whether cuInit was called, and ours looks at that "
                   "first. Only a program that calls it without cuInit can tell; it gets an error from both")
TRIED = ("NVIDIA's driver looks whether cuInit was called, not whether it found a device, and then at the arguments. Ours answers as before cuInit; "
         "a program that goes on after cuInit has failed gets an error from both")
TRIED_MODE = "a thread's capture mode is a word of the thread's own, which NVIDIA's driver gives once cuInit was tried. Without a device nothing is captured"
CRASHES = "NULL for what must be a pointer: NVIDIA's driver crashes, which is nothing to be equal to. Ours says what is wrong"
NOTHING_ASKED = "both outputs are NULL, so NVIDIA's driver has nothing to do. This one, for addresses of 32 bits, is not supported"
LATER = "it came with a later CUDA than NVIDIA's driver here is of"
NO_HEADER = "no header declares it, so nobody knows what it takes"
DEBUGGER = "it is what cuda-gdb calls in the program that it looks at, and no program calls it"
TEGRA = "cudaEGL.h declares it, and NVIDIA's library for x86-64 has none. Ours has all that the headers declare, and answers that it is not supported"
THIS_CUDA = "this project's libraries are of the CUDA whose headers they are built with"
SLOTS = "tables grow with the driver's version. Ours are as long as libraries of CUDA 13.0 were seen to look into them"


@dataclasses.dataclass(frozen=True)
class Difference:
    why: str
    real: str | None = None  # None: whatever it is, but not the same
    ours: str | None = None


@dataclasses.dataclass(frozen=True)
class Calls:
    """Functions that answer alike when they are called without a device."""

    why: str
    libraries: tuple
    real: str
    ours: str
    names: str


CALLS = (
    Calls(ARGUMENTS_FIRST, BOTH, "invalid value", "not initialized",
          "cuArrayGetMemoryRequirements cuArrayGetSparseProperties cuCoredumpGetAttribute cuCoredumpGetAttributeGlobal cuCoredumpSetAttribute "
          "cuCoredumpSetAttributeGlobal cuCtxDestroy cuCtxDestroy_v2 cuDevResourceGenerateDesc cuFuncGetName cuFuncGetParamInfo "
          "cuGraphAddDependencies cuGraphAddDependencies_v2 cuGraphAddEmptyNode cuGraphAddEventRecordNode cuGraphAddEventWaitNode "
          "cuGraphAddExternalSemaphoresSignalNode cuGraphAddExternalSemaphoresWaitNode cuGraphBatchMemOpNodeGetParams "
          "cuGraphBatchMemOpNodeSetParams cuGraphConditionalHandleCreate cuGraphDebugDotPrint cuGraphEventRecordNodeGetEvent "
          "cuGraphEventRecordNodeSetEvent cuGraphEventWaitNodeGetEvent cuGraphEventWaitNodeSetEvent cuGraphExecBatchMemOpNodeSetParams "
          "cuGraphExecChildGraphNodeSetParams cuGraphExecEventRecordNodeSetEvent cuGraphExecEventWaitNodeSetEvent "
          "cuGraphExecExternalSemaphoresSignalNodeSetParams cuGraphExecExternalSemaphoresWaitNodeSetParams cuGraphExecKernelNodeSetParams "
          "cuGraphExecKernelNodeSetParams_v2 cuGraphExternalSemaphoresSignalNodeGetParams cuGraphExternalSemaphoresSignalNodeSetParams "
          "cuGraphExternalSemaphoresWaitNodeGetParams cuGraphExternalSemaphoresWaitNodeSetParams cuGraphKernelNodeSetParams "
          "cuGraphKernelNodeSetParams_v2 cuGraphMemAllocNodeGetParams cuGraphMemFreeNodeGetParams cuGraphNodeGetEnabled cuGraphNodeSetEnabled "
          "cuGraphReleaseUserObject cuGraphRemoveDependencies cuGraphRemoveDependencies_v2 cuGraphRetainUserObject cuIpcGetEventHandle "
          "cuIpcGetMemHandle cuIpcOpenMemHandle cuIpcOpenMemHandle_v2 cuKernelGetName cuKernelGetParamInfo cuLibraryGetGlobal cuLibraryGetManaged "
          "cuMemAdvise_v2 cuMemAllocManaged cuMemGetHandleForAddressRange cuMemMapArrayAsync cuMemMapArrayAsync_ptsz cuMemPrefetchAsync_v2 "
          "cuMemPrefetchAsync_v2_ptsz cuMipmappedArrayGetMemoryRequirements cuMipmappedArrayGetSparseProperties cuOccupancyMaxActiveClusters "
          "cuOccupancyMaxPotentialClusterSize cuStreamBeginCaptureToGraph cuStreamBeginCaptureToGraph_ptsz cuUserObjectCreate cuUserObjectRelease "
          "cuUserObjectRetain"),
    Calls(ARGUMENTS_FIRST, SOFTWARE, "invalid value", "not initialized",
          "cuGraphAddBatchMemOpNode cuGraphAddHostNode cuGraphExecHostNodeSetParams cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams "
          "cuGraphExecNodeSetParams cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphKernelNodeGetParams cuGraphKernelNodeGetParams_v2 "
          "cuGraphMemcpyNodeSetParams cuGraphMemsetNodeSetParams cuGraphNodeSetParams"),
    Calls(ARGUMENTS_FIRST, BOTH, "invalid handle", "not initialized",
          "cuArray3DGetDescriptor cuArray3DGetDescriptor_v2 cuArrayGetDescriptor cuArrayGetDescriptor_v2 cuArrayGetPlane "
          "cuEGLStreamConsumerAcquireFrame cuEGLStreamConsumerConnect cuEGLStreamConsumerConnectWithFlags cuEGLStreamConsumerDisconnect "
          "cuEGLStreamConsumerReleaseFrame cuEGLStreamProducerConnect cuEGLStreamProducerDisconnect cuEGLStreamProducerPresentFrame "
          "cuEGLStreamProducerReturnFrame cuEventDestroy cuEventDestroy_v2 cuEventElapsedTime cuEventQuery cuEventSynchronize cuFuncLoad "
          "cuLibraryUnload cuLinkAddData cuLinkAddData_v2 cuLinkAddFile cuLinkAddFile_v2 cuLinkComplete cuLinkDestroy cuMipmappedArrayGetLevel "
          "cuStreamDestroy cuStreamDestroy_v2"),
    Calls(ARGUMENTS_FIRST, BOTH, "zeros: invalid value; buffers: not initialized", "not initialized",
          "cuCtxFromGreenCtx cuCtxGetFlags cuCtxGetId cuDeviceGetAttribute cuDevicePrimaryCtxGetState cuIpcOpenEventHandle cuLibraryLoadData "
          "cuLibraryLoadFromFile cuMemHostGetFlags cuStreamCreate cuStreamCreateWithPriority cuStreamGetCaptureInfo cuStreamGetCaptureInfo_ptsz "
          "cuStreamGetCaptureInfo_v2 cuStreamGetCaptureInfo_v2_ptsz cuStreamGetCaptureInfo_v3 cuStreamGetCaptureInfo_v3_ptsz cuStreamGetCtx "
          "cuStreamGetCtx_ptsz cuStreamGetFlags cuStreamGetFlags_ptsz cuStreamGetGreenCtx cuStreamGetId cuStreamGetId_ptsz cuStreamGetPriority "
          "cuStreamGetPriority_ptsz cuStreamIsCapturing cuStreamIsCapturing_ptsz"),
    Calls(ARGUMENTS_FIRST, CLIENT, "zeros: invalid value; buffers: not initialized", "not initialized",
          "cuGraphInstantiateWithParams cuGraphInstantiateWithParams_ptsz"),
    Calls(ARGUMENTS_FIRST, SOFTWARE, "zeros: invalid value; buffers: not initialized", "not initialized",
          "cuGraphAddNode cuGraphAddNode_v2"),
    Calls(ARGUMENTS_FIRST, BOTH, "zeros: invalid value; buffers: invalid handle", "not initialized",
          "cuFuncGetAttribute cuFuncIsLoaded cuKernelGetFunction cuLibraryEnumerateKernels cuLibraryGetKernel cuLibraryGetKernelCount "
          "cuLibraryGetModule cuModuleEnumerateFunctions cuModuleGetFunctionCount"),
    Calls(TRIED, BOTH, "not initialized, after cuInit invalid value", "not initialized",
          "cuDeviceRegisterAsyncNotification cuDeviceUnregisterAsyncNotification cuLaunchCooperativeKernelMultiDevice cuLaunchHostFunc "
          "cuLaunchHostFunc_ptsz cuStreamAddCallback cuStreamAddCallback_ptsz"),
    Calls(ARGUMENTS_FIRST, CLIENT, "invalid value", "zeros: invalid value; buffers: not initialized",
          "cuGraphAddBatchMemOpNode cuGraphAddHostNode cuGraphExecHostNodeSetParams cuGraphExecMemcpyNodeSetParams cuGraphExecMemsetNodeSetParams "
          "cuGraphExecNodeSetParams cuGraphHostNodeGetParams cuGraphHostNodeSetParams cuGraphKernelNodeGetParams cuGraphKernelNodeGetParams_v2 "
          "cuGraphMemcpyNodeSetParams cuGraphMemsetNodeSetParams cuGraphNodeSetParams"),
    Calls(TRIED, BOTH, "not initialized, after cuInit invalid handle", "not initialized",
          "cuArrayDestroy cuLaunchCooperativeKernel cuLaunchCooperativeKernel_ptsz cuLaunchKernel cuLaunchKernel_ptsz cuMipmappedArrayDestroy"),
    Calls(CRASHES, BOTH, "zeros: crashes; buffers: not initialized", "not initialized",
          "cuMemcpy3DPeer cuMemcpy3DPeerAsync cuMemcpy3DPeerAsync_ptsz cuMemcpy3DPeer_ptds"),
    Calls(CRASHES, BOTH, "zeros: crashes; buffers: success", "zeros: invalid value; buffers: success",
          "cuGetErrorName cuGetErrorString cuGetProcAddress_v2"),
    Calls(ARGUMENTS_FIRST, BOTH, "zeros: invalid value; buffers: invalid resource type", "not initialized",
          "cuCtxGetDevResource cuGreenCtxGetDevResource"),
    Calls(ARGUMENTS_FIRST, BOTH, "invalid context", "not initialized",
          "cuGreenCtxRecordEvent cuGreenCtxWaitEvent"),
    Calls(CRASHES, BOTH, "zeros: crashes; buffers: not found", "zeros: invalid value; buffers: not found",
          "cuGetProcAddress"),
    Calls(TRIED, CLIENT, "zeros: invalid value; buffers: not initialized, after cuInit invalid handle", "not initialized",
          "cuLaunchKernelEx cuLaunchKernelEx_ptsz"),
    Calls(TRIED, SOFTWARE, "zeros: invalid value; buffers: not initialized, after cuInit invalid handle", "zeros: invalid value; buffers: not initialized",
          "cuLaunchKernelEx cuLaunchKernelEx_ptsz"),
    Calls(NOTHING_ASKED, BOTH, "zeros: success; buffers: not initialized", "not initialized",
          "cuMemGetAddressRange"),
    Calls(TRIED_MODE, BOTH, "zeros: not initialized, after cuInit crashes; buffers: not initialized, after cuInit success", "not initialized",
          "cuThreadExchangeStreamCaptureMode"),
)

EXACT = {
    "cuDriverGetVersion": Difference(THIS_CUDA, "success: 12040", "success: 13000"),
    **{f"cuGetErrorName {code}": Difference(LATER, "invalid value: None", f"success: {name}")
       for code, name in ((36, "CUDA_ERROR_CALL_REQUIRES_NEWER_DRIVER"), (226, "CUDA_ERROR_CONTAINED"), (721, "CUDA_ERROR_TENSOR_MEMORY_LEAK"))},
    **{f"cuGetErrorString {code}": Difference(LATER, "invalid value: None") for code in (36, 226, 721)},
    **{f"export table {uuid}": Difference(SLOTS, f"{real} slots", f"{ours} slots")
       for uuid, real, ours in (("6bd5fb6c-5bf4-e74a-8987-d93912fd9df9", 12, 13), ("42d85a81-23f6-cb47-8298-f6e78a3aecdc", 3, 4),
                                ("263e8860-7cd2-6143-92f6-bbd5006dfa7e", 5, 15), ("21318c60-9714-3248-8ca6-41ff7324c8f2", 86, 95),
                                ("1734dc26-800d-4745-8726-c0f1e7dd8bca", 16, 17), ("6e163fbe-b958-444d-835c-e182aff1991e", 92, 99))},
    **{f"exports {name}": Difference(NO_HEADER, "yes", "no") for name in ("cuMemGetAttribute", "cuMemGetAttribute_v2", "cuEGLApiInit")},
    **{f"exports cudbg{name}": Difference(DEBUGGER, "yes", "no")
       for name in ("ApiAttach", "ApiDetach", "ApiInit", "GetAPI", "GetAPIVersion", "Main", "ReportDriverApiError", "ReportDriverInternalError")},
    "exports cuEventCreateFromEGLSync": Difference(TEGRA, "no", "yes"),
}


def of(library, interface, flags, driver_version):
    """{question: Difference} of one of BOTH, compared with a driver of that version."""
    out = dict(EXACT)
    for row in CALLS:
        if library in row.libraries:
            out.update({f"call {name}": Difference(row.why, row.real, row.ours) for name in row.names.split()})
    for symbol in interface.symbols_later_than(driver_version):
        out[f"exports {symbol}"] = Difference(LATER, "no", "yes")
    for flag in flags:
        for name in interface.names_with_later(driver_version):
            out[f"cuGetProcAddress later {name} {flag}"] = Difference(LATER)
        for name in interface.names_later_than(driver_version):
            out[f"cuGetProcAddress {name} {flag}"] = Difference(LATER, "from 0 nothing, status 1", "from 0 nothing, status 2")
        for asked in ("", "later "):
            out[f"cuGetProcAddress {asked}cuEventCreateFromEGLSync {flag}"] = Difference(TEGRA)
    return out
