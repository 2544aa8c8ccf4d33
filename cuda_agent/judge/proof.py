"""Proof of work: the kernels of kernels/ must do it, and nothing else may. Pure rules; the facts come from elsewhere.

Three layers that complement each other. Operators: everything of torch's dispatcher but `ALLOWED_OPERATORS` is taken away
from the candidate's process before its first call, whoever asks, from Python or C++ (`sealing`). Imports: what
the compiled kernels may take from other libraries (`forbidden_import`): not an operator behind the dispatcher, a loaded
library, or Python. Share: nearly all of a call's time is spent inside the extension
(`idle_kernels`), and with the extension's functions disabled the answer must be wrong. None of them stops native code that
resolves symbols by hand; the judge's clock and its own reading of the answers do not depend on any of this.
"""

import re
import statistics
from collections.abc import Collection, Iterable, Sequence

from cuda_agent.judge.rounds import Turn

CREATION = (
    "empty empty_memory_format empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros zero_ "
    "ones ones_like new_ones full full_like new_full fill_ resize_ arange scalar_tensor lift lift_fresh"
)
VIEWS = (
    "view view_as _unsafe_view reshape _reshape_alias as_strided alias detach t transpose permute select slice "
    "expand expand_as unsqueeze squeeze split split_with_sizes unsafe_split tensor_split hsplit vsplit dsplit unbind chunk "
    "narrow flatten unflatten movedim swapaxes numpy_T mT view_as_real view_as_complex real imag unfold diagonal"
)
COPIES = "contiguous clone copy_ to resolve_conj resolve_neg"  # `to` itself copies through _to_copy, which is not here
ALLOWED_OPERATORS = frozenset(f"{CREATION} {VIEWS} {COPIES}".split())
SEALED, SEALED_CODE = "forbidden operator", "forbidden library"  # how refusals begin (native/seal.cpp)

LEAST_SHARE = 0.5
OUTSIDE_NS = 250_000  # so much per call may pass outside the kernels in any case: Python itself, with cold caches

_OPERATOR = re.compile(r"^_ZN2at4_ops(\d+)(\w+)$")
# Of the system's libraries, what starts processes, loads or maps code, or reaches out of this process.
_DENIED = re.compile(
    r"^((__libc_)?dl(open|mopen|sym|vsym|_iterate_phdr|open_mode|addr|info)|_r_debug|_dl_\w+|getauxval|syscall|ptrace|process_vm_\w+|"
    r"v?fork|clone3?|exec[lv]\w*|fexecve|posix_spawn\w*|system|popen|pkey_mprotect|mprotect|mmap(64)?|mremap|remap_file_pages|"
    r"memfd_create|shm_open|socket|connect|fopen(64)?|freopen(64)?|open(at)?(64)?|__open\w*|creat(64)?|_ZNS\w*basic_(fstream|[io]fstream|filebuf)\w*)$"
)
# Of torch, C++ objects that bindings with its headers are made of; operators are asked by name, everything else is not taken.
_TORCH = re.compile(
    r"^(_ZNK?3c10(?!10Dispatcher|14OperatorHandle|4impl13OperatorEntry|14KernelFunction|18SafeKernelFunction|11BoxedKernel|17RegisterOperators)|_ZNK?6caffe2|_ZNK?2at10TensorBase|_ZNK?2at6Tensor|_ZN2at6detail|_ZN2at8internal|_ZN2at14get_thread_num|_ZN2at15get_num_threads|_ZN2at16init_num_threads|_ZN2at18in_parallel_region|_ZNK?8pybind11|"
    r"_ZNK?S?t?8pybind11|_ZNK?5torch8autograd|_ZN5torch6detail|_Z\d+THP|THP|_ZT[ISV])"
)
PRODUCTS = {"mm", "addmm", "bmm", "baddbmm", "addbmm", "mv", "addmv", "dot", "matmul", "linear"}
_OTHER_DNN = re.compile(r"^cudnn(Softmax|Activation|Pooling|Reduce|OpTensor|BatchNorm|Norm|LRN|Dropout|RNN|MultiHead|CTC)")
_PYTHON = re.compile(r"^_?Py(?!Import_|Run_|Eval_EvalCode|_CompileString)")


def forbidden_import(symbols: Iterable[str], system: Collection[str], *, headers: bool) -> str:
    """The first symbol that compiled kernels must not take from elsewhere, in words; an empty string if there is none.

    `system` are the symbols of the libraries that kernels may use (C, C++, OpenMP, CUDA) and of the glue; `headers` tells
    that sources include torch's or pybind11's.
    """
    for symbol in symbols:
        operator = _operator(symbol)
        if operator and operator not in ALLOWED_OPERATORS:
            return f"kernels call torch's operator {operator}"
        known = operator or symbol in system or (headers and (_TORCH.match(symbol) or _PYTHON.match(symbol)))
        if not known or _DENIED.match(symbol):
            return f"kernels use {symbol}"
    return ""


def needless_library(symbols: Iterable[str], operators: Collection[str]) -> str:
    """Which library kernels use though the problem has no such work, in words; an empty string if none.

    cuBLAS is for matrix products and cuDNN for convolutions; `operators` are those that the reference calls.
    """
    products = any(name in PRODUCTS or "attention" in name for name in operators)
    convolutions = any("conv" in name for name in operators)
    for symbol in symbols:
        if symbol.startswith("cublas") and not products and not convolutions:
            return f"kernels use {symbol}, but the problem has no matrix product"
        if symbol.startswith("cudnn") and (not convolutions or _OTHER_DNN.match(symbol)):
            return f"kernels use {symbol}; cuDNN is for convolutions"
    return ""


def idle_kernels(turns: Sequence[Turn]) -> str:
    """Why the kernels do too little of the work, in words; or empty.

    They do in most rounds: in a few, a busy host may have kept Python waiting.
    """
    idle = [turn for turn in turns if _is_idle(turn)]
    if 2 * len(idle) <= len(turns):
        return ""
    share = statistics.median(turn.inside / turn.admitted for turn in idle)
    return f"only {100 * share:.0f} % of forward's time is spent in kernels/; they must do the work"


def unentered(turns: Sequence[Turn]) -> str:
    """Whether in a batch fewer functions of the extension were called than calls were made, in words; or empty."""
    short = next((turn for turn in turns if turn.entered < turn.calls), None)
    if short is None:
        return ""
    return f"of {short.calls} timed calls only {short.entered} called a function of kernels/; each must do its work there"


def faster_than_memory(written: int, calls: int, ms: float, *, cache: int, bandwidth: float) -> str:
    """Why calls of `ms` each cannot have written so many bytes each, in words; or an empty string.

    The outputs of a batch of `calls` lie side by side; all but `cache` bytes of them reach the memory within the batch's time.
    """
    floor = 1e3 * max(0, written * calls - cache) / bandwidth / calls
    if ms >= floor:
        return ""
    return f"a call took {ms:.4f} ms, and the memory needs {floor:.4f} ms for its output alone"


def _is_idle(turn: Turn) -> bool:
    return turn.admitted - turn.inside > OUTSIDE_NS * turn.calls and turn.inside < LEAST_SHARE * turn.admitted


def _operator(symbol: str) -> str:
    """The name in at::_ops::NAME::call, or an empty string."""
    found = _OPERATOR.match(symbol)
    return found[2][: int(found[1])].removesuffix("_out") if found else ""
