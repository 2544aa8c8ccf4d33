"""Proof of work: the kernels of kernels/ must do it, and nothing else may. Pure rules; the facts come from elsewhere.

Three layers that complement each other. Operators: everything of torch's dispatcher but `ALLOWED_OPERATORS` is taken away
from the candidate's process before its first call, whoever asks, from Python or C++ (the glue's `_seal`). Imports: what
the compiled kernels may not take from other libraries (`forbidden_import`), so that they cannot reach an operator behind
the dispatcher, load a library or call back into Python. Share: nearly all of a call's time is spent inside the extension
(`idle_kernels`), and with the extension's functions disabled the answer must be wrong. None of them stops native code that
resolves symbols by hand; the judge's clock and its own reading of the answers do not depend on any of this.
"""

import re
from collections.abc import Iterable

CREATION = (
    "empty empty_memory_format empty_like empty_strided new_empty new_empty_strided zeros zeros_like new_zeros zero_ "
    "ones ones_like new_ones full full_like new_full fill_ arange scalar_tensor lift lift_fresh"
)
VIEWS = (
    "view view_as _unsafe_view reshape _reshape_alias as_strided alias detach t transpose permute select slice "
    "expand expand_as unsqueeze squeeze split split_with_sizes unsafe_split unbind chunk narrow flatten unflatten movedim "
    "swapaxes numpy_T mT view_as_real view_as_complex real imag unfold diagonal"
)
COPIES = "contiguous clone copy_ to resolve_conj resolve_neg"  # `to` itself copies through _to_copy, which is not here
ALLOWED_OPERATORS = frozenset(f"{CREATION} {VIEWS} {COPIES}".split())
SEALED = "forbidden operator"  # how the glue's refusal begins

LEAST_SHARE = 0.5
OUTSIDE_NS = 100_000  # so much per call may pass outside the kernels in any case: Python itself

_OPERATOR = re.compile(r"^_ZN2at4_ops(\d+)(\w+)$")
_FORBIDDEN = re.compile(
    r"^(_ZN2at6native|_ZN2at3cpu|_ZN2at5meta|_ZN2at17compositeexplicit|_ZN2at17compositeimplicit|_ZN2at9functorch|"
    r"_ZNK?3c1010Dispatcher|_ZNK?3c1014OperatorHandle|_ZNK?5torch3jit|_ZNK?5torch2nn|"
    r"cblas_|mkl_|dnnl_|[sdcz](gemm|gemv|symm|syrk|trsm|trmm|dot|axpy)_$|"
    r"(__libc_)?dl(open|mopen|sym|vsym|_iterate_phdr|open_mode)$|_r_debug$|_dl_|"
    r"syscall$|ptrace$|process_vm_|v?fork$|clone3?$|exec[lv]|fexecve$|posix_spawn|system$|popen$|p?key_mprotect$|mprotect$|"
    r"memfd_create$|shm_open$|socket$|connect$|PyImport_|PyRun_|Py_CompileString|PyEval_EvalCode)"
)


def forbidden_import(symbols: Iterable[str]) -> str:
    """The first symbol that compiled kernels must not take from elsewhere, in words; an empty string if there is none."""
    for symbol in symbols:
        if operator := _operator(symbol):
            if operator not in ALLOWED_OPERATORS:
                return f"kernels call torch's operator {operator}"
        elif _FORBIDDEN.match(symbol):
            return f"kernels call {symbol}"
    return ""


def idle_kernels(total_ns: int, inside_ns: int, calls: int) -> str:
    """Why the kernels do too little of the work, from the time of so many calls and the part inside them; or empty."""
    outside = total_ns - inside_ns
    if outside <= OUTSIDE_NS * calls or inside_ns >= LEAST_SHARE * total_ns:
        return ""
    return f"only {100 * inside_ns / total_ns:.0f} % of forward's time is spent in kernels/; they must do the work"


def _operator(symbol: str) -> str:
    """The name in at::_ops::NAME::call, or an empty string."""
    found = _OPERATOR.match(symbol)
    return found[2][: int(found[1])].removesuffix("_out") if found else ""
