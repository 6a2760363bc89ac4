"""Names what a kernel uses that no host can run, from what g++ says about it."""

from __future__ import annotations

import re

_LIBRARIES = {
    r"cublas.*": "cuBLAS",
    r"cusparse.*": "cuSPARSE",
    r"cudnn.*": "cuDNN",
    r"cufft.*": "cuFFT",
    r"curand.*": "cuRAND",
    r"cusolver.*": "cuSOLVER",
    r"cutensor.*": "cuTENSOR",
    r"(cutlass|cute)/.*": "CUTLASS",
    r"thrust/.*": "Thrust",
    r"cub/device/.*": "device-level CUB",
    r"cub/.*": "a part of CUB that it lacks",
    r"cuda_fp[468]\.h(pp)?": "8-bit and narrower floats",
    r"cuda_awbarrier.*": "cuda::barrier (mbarrier)",
    r"cuda_pipeline\.h": "cuda::pipeline",
    r"cudaTypedefs\.h": "the driver API (cudaTypedefs.h)",
    r"(cuda|nv)/.*": "libcu++",
}
"""Headers that are not there, by pattern."""

_NAMES = {
    r"Device\w+": "device-level CUB (cub::{})",
    r"wmma|nvcuda": "nvcuda::wmma (tensor cores)",
    r"thrust": "Thrust",
    r"cublas\w*": "cuBLAS ({})",
    r"cusparse\w*": "cuSPARSE ({})",
    r"cudnn\w*": "cuDNN ({})",
    r"cufft\w*": "cuFFT ({})",
    r"cudaDevAttrClusterLaunch|cluster_group|this_cluster|cudaLaunchAttributeClusterDimension|cluster_dim\w*": "thread block clusters ({})",
    r"CUtensorMap\w*|cuTensorMap\w*|cp_async_bulk\w*": "TMA ({})",
    r"barrier|mbarrier\w*": "cuda::barrier (mbarrier)",
    r"pipeline\w*": "cuda::pipeline",
    r"cudaTextureObject_t|tex[123]D\w*|cudaSurfaceObject_t": "textures ({})",
    r"cudaGraph\w*|cudaStreamBeginCapture": "CUDA graphs ({})",
    r"__half2?|half2?|__float2half\w*|__half2float": "__half (cuda_fp16.h)",
    r"__nv_fp8\w*": "8-bit floats ({})",
    r"cuda(?:DevAttr|FuncAttribute|LaunchAttribute|Occupancy)[A-Z]\w*": "a part of the runtime API that it lacks ({})",
    r"__\w+_r[duz]|erf(?:cinv|inv|cx)f?|normcdfinvf?|rhypotf?|cyl_bessel_\w+|__ur?hadd|__dp2a_\w+": "an intrinsic that it lacks ({})",
    r"thread_group|multi_grid_group|this_multi_grid": "a part of cooperative_groups that it lacks ({})",
    r"CU[a-z]\w+|cu[A-Z]\w+": "the driver API ({})",
    r"__is(?:Shared|Global|Constant|Local|GridConstant)|__v[a-z]+[24]|__vi[a-z]+_[su]\d\w*": "an intrinsic that it lacks ({})",
}
"""Names that g++ does not know, by pattern."""

_OWN = re.compile(r"msbench_unsupported: (?P<what>[^\"\n]*?)\"?$|msbench_unsupported_(?P<name>\w+)")
_NO_HEADER = re.compile(r"fatal error: (?P<header>\S+): No such file or directory")
_NO_NAME = re.compile(
    r"error: '(?:[\w:]*::)?(?P<name>\w+)(?:<[^']*>)?' (?:has not been declared|was not declared|is not a|does not name)"
)
_NO_PART = re.compile(r"error: '(?P<name>(?!Device)\w+)' (?:in namespace|is not a member of) 'cub(?:::\w+)*'")
_FOLLOWS = re.compile(r"error: variable or field '\w+' declared void")
"""What g++ says before it names a type that it does not know."""
_NO_MEMBER = re.compile(
    r"error: '(?:struct )?(?P<type>cuda\w+)' has no (?:non-static data )?member named '(?P<name>\w+)'"
)
_ERROR = re.compile(r"^(?:(?P<where>[^\s:]+:\d+):(?:\d+:)? )?(?:fatal )?error: ")


def unsupported_construct(log: str) -> str | None:
    """What the first error of a compiler's log is about, if it is about something that only a GPU has; with its place."""
    for line in log.splitlines():
        error = _ERROR.match(line)
        if not error or _FOLLOWS.search(line):
            continue
        if found := _OWN.search(line):
            return found["what"] or found["name"].replace("_", " ")  # its place is that of our macro
        if found := _NO_HEADER.search(line):
            return next(
                (f"{what} ({error['where']})" for p, what in _LIBRARIES.items() if re.fullmatch(p, found["header"])),
                None,
            )
        if found := _NO_MEMBER.search(line):
            return f"{found['type']}::{found['name']} ({error['where']})"
        if found := _NO_PART.search(line):
            return f"a part of CUB that it lacks (cub::{found['name']}) ({error['where']})"
        if found := _NO_NAME.search(line):
            name = found["name"]
            construct = next((what.format(name) for p, what in _NAMES.items() if re.fullmatch(p, name)), None)
            return f"{construct} ({error['where']})" if construct else None
        return None
    return None
