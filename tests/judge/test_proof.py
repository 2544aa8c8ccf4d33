"""Which symbols compiled kernels may not take from elsewhere, and how much of a call must be theirs."""

import pytest

from cuda_agent.judge.proof import forbidden_import, idle_kernels, needless_library, unentered
from cuda_agent.judge.rounds import Turn

SYSTEM = {"expf", "GOMP_parallel", "memcpy", "light_register", "malloc", "pthread_create", "_ZSt9terminatev", "__cxa_throw"}
SYSTEM |= {"dlsym", "mprotect", "system", "fopen"}


@pytest.mark.parametrize(
    ("symbol", "words"),
    [
        ("_ZN2at4_ops2mm4callERKNS_6TensorES4_", "operator mm"),
        ("_ZN2at4_ops6matmul4callERKNS_6TensorES4_", "operator matmul"),
        ("_ZN2at4_ops14_log_softmax4callERKNS_6TensorElb", "operator _log_softmax"),
        ("_ZN2at6native6matmulERKNS_6TensorES3_", "at6native"),
        ("_ZN3c1010Dispatcher9singletonEv", "Dispatcher"),
        ("dlsym", "dlsym"),
        ("sgemm_", "sgemm_"),
        ("SGEMM", "SGEMM"),
        ("Sleef_tanhf8_u10", "Sleef"),
        ("fopen", "fopen"),
        ("cblas_sgemm", "cblas_sgemm"),
        ("mprotect", "mprotect"),
        ("PyImport_ImportModule", "PyImport"),
        ("system", "system"),
    ],
)
def test_forbidden_symbols_are_named(symbol: str, words: str) -> None:
    assert words in forbidden_import(["expf", symbol], SYSTEM, headers=True)


def test_what_honest_kernels_need_is_allowed() -> None:
    symbols = ["expf", "GOMP_parallel", "_ZN2at4_ops10empty_like4callERKNS_6TensorE", "_ZNK2at10TensorBase8data_ptrIfEEPT_v"]
    symbols += ["memcpy", "light_register", "malloc", "pthread_create", "_ZSt9terminatev", "__cxa_throw", "PyErr_SetString"]
    symbols += ["_ZN2at4_ops19empty_memory_format4callEN3c108ArrayRefINS2_6SymIntEEE", "_ZN3c1011TensorImplD0Ev"]
    assert forbidden_import(symbols, SYSTEM, headers=True) == ""


def test_python_is_for_bindings_with_headers_only() -> None:
    assert "PyObject_CallObject" in forbidden_import(["PyObject_CallObject"], SYSTEM, headers=False)


@pytest.mark.parametrize(
    ("total", "inside", "calls", "idle"),
    [(2_000_000, 1_900_000, 1, False), (2_000_000, 100_000, 1, True), (60_000, 5_000, 1, False), (6_000_000, 100, 60, False)],
)
def test_share_of_the_kernels(total: int, inside: int, calls: int, idle: bool) -> None:
    assert bool(idle_kernels([Turn(total, 0, calls, inside)] * 3)) is idle


def test_rounds_that_a_busy_host_delayed_do_not_make_kernels_idle() -> None:
    busy, delayed = Turn(3_000_000, 0, 2, 2_900_000), Turn(30_000_000, 0, 2, 3_000_000)
    assert idle_kernels([busy] * 8 + [delayed] * 7) == ""
    assert "10 %" in idle_kernels([busy] * 7 + [delayed] * 8)


def test_a_timed_call_without_a_call_of_the_extension_is_told() -> None:
    full, short = Turn(1_000, 0, 4, 900, 4), Turn(1_000, 0, 4, 900, 3)
    assert unentered([full, full]) == ""
    assert "of 4 timed calls only 3" in unentered([full, short])


@pytest.mark.parametrize(
    "symbol",
    [
        "_ZNK3c104impl13OperatorEntry20kernelForDispatchKeyENS_11DispatchKeyE",
        "_ZNK3c1014KernelFunction9callBoxedERKNS_14OperatorHandleENS_14DispatchKeySetEPSt6vectorINS_6IValueESaIS6_EE",
        "_ZN3c1017RegisterOperatorsC1Ev",
    ],
)
def test_a_binding_takes_no_kernel_of_an_operators(symbol: str) -> None:
    assert symbol in forbidden_import([symbol], SYSTEM, headers=True)


@pytest.mark.parametrize(
    ("symbol", "operators", "allowed"),
    [
        ("cublasSgemm_v2", {"addmm", "gelu"}, True),
        ("cublasSgemm_v2", {"sum"}, False),
        ("cudnnConvolutionForward", {"convolution"}, True),
        ("cudnnConvolutionForward", {"mm"}, False),
        ("cudnnSoftmaxForward", {"convolution", "_softmax"}, False),
        ("cudaLaunchKernel", {"sum"}, True),
    ],
)
def test_libraries_serve_their_own_kind_of_problem(symbol: str, operators: set[str], allowed: bool) -> None:
    assert bool(needless_library([symbol], operators)) is not allowed
