"""The teacher's kernels against the catalogue's references (real g++, no torch), its demonstrations, and the engine."""

import ctypes
import random
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

from cuda_agent.engines.messages import Message, ToolSpec
from cuda_agent.engines.teacher import (
    ATTEMPTS,
    DONE,
    GAVE_UP,
    LINEAR,
    LINES,
    STYLES,
    Style,
    Teacher,
    damaged,
    demonstrate,
    failed_text,
    files,
    kernel_source,
    model_source,
    passed_text,
    statements,
)
from cuda_agent.errors import ProblemError
from cuda_agent.problems.catalogue import BY_NAME, BY_STATEMENT, Rows
from cuda_agent.problems.compose import Shape, render
from cuda_agent.workspace.template import TEMPLATE, episode_prompt

TOOLS = tuple(ToolSpec(name, "", {}) for name in ("Bash", "Write"))
FEATURES = 12
# Stands in for the glue: calls `run` with [rows, columns] float32 arrays.
ENTRY = """
extern "C" void light_register(LightEntry*) {}
extern "C" void light_fail(const char*) { __builtin_trap(); }
extern "C" void entry(float** data, long* sizes, int count) {
  LightArgument arguments[4];
  for (int i = 0; i < count; ++i) {
    long* s = sizes + 2 * i;
    arguments[i].tensor = TensorView{data[i], s, s, s[0] * s[1], 2, LIGHT_F32, -1, nullptr, true};
  }
  light::Caller<&run>::call(arguments);
}
"""


def code(*names: str, columns: int = 300) -> str:
    return render([BY_NAME[name] for name in names], Shape(10, columns, FEATURES))


def compiled(folder: Path, name: str, kernel: str) -> ctypes.CDLL:
    source = folder / f"{name}.cpp"
    source.write_text(kernel + ENTRY)
    flags = ["-O1", "-march=native", "-std=c++17", "-fopenmp", "-fPIC", "-shared", f"-I{TEMPLATE / 'common'}"]
    subprocess.run(["g++", *flags, str(source), "-o", str(source.with_suffix(".so")), "-lmvec", "-lm"], check=True)
    return ctypes.CDLL(str(source.with_suffix(".so")))


def called(library: ctypes.CDLL, *arrays: Rows) -> None:
    pointers = (ctypes.c_void_p * len(arrays))(*(array.ctypes.data for array in arrays))
    sizes = (ctypes.c_long * (2 * len(arrays)))(*(n for a in arrays for n in (a.shape if a.ndim == 2 else (1, len(a)))))
    library.entry(pointers, sizes, len(arrays))


def error_of(library: ctypes.CDLL, program: list[str]) -> float:
    """Largest error on random rows, relative to the root mean square of what is expected."""
    rng = np.random.default_rng(0)
    x = (2 * rng.standard_normal((10, 300))).astype(np.float32)
    weights: list[Rows] = []
    expected: Rows = x.astype(np.float64)
    for statement in program:
        if statement == LINEAR:
            w, b = (rng.standard_normal(s).astype(np.float32) for s in ((FEATURES, expected.shape[1]), (FEATURES,)))
            weights, expected = [w, b], expected @ w.T.astype(np.float64) + b
        else:
            expected = BY_STATEMENT[statement].reference(expected)
    y = np.full(expected.shape, np.nan, np.float32)
    called(library, x, *weights, y)
    return float(np.abs(y - expected).max() / np.sqrt(np.mean(expected**2)))


def test_every_statement_of_the_catalogue_has_a_line() -> None:
    assert set(LINES) == set(BY_STATEMENT)


@pytest.mark.parametrize("style", STYLES)
def test_every_operator_computes_what_torch_does(style: Style, tmp_path: Path) -> None:
    with ThreadPoolExecutor(2) as threads:
        programs = [[statement] for statement in LINES]
        built = list(threads.map(lambda i: compiled(tmp_path, f"op{i}", kernel_source(programs[i], style)), range(len(programs))))
    errors = {program[0]: error_of(library, program) for program, library in zip(programs, built, strict=True)}
    assert max(errors.values()) < 1e-4, errors


@pytest.mark.parametrize("style", STYLES)
def test_chains_change_their_columns_on_the_way(style: Style, tmp_path: Path) -> None:
    program = statements(code("gelu", "layer_norm", "linear", "relu", "sum"))
    assert error_of(compiled(tmp_path, "chain", kernel_source(program, style)), program) < 1e-4


def test_model_fits_the_problem() -> None:
    plain, linear, one = (model_source(statements(code(*names))) for names in (("relu",), ("linear",), ("linear", "mean")))
    assert "x.new_empty(x.shape[0], x.shape[1])" in plain and "features" not in plain
    assert "x.new_empty(x.shape[0], self.linear.out_features)" in linear and "self.linear.weight, self.linear.bias, y" in linear
    assert "x.new_empty(x.shape[0], 1)" in one
    assert all(compile(text, "model_new.py", "exec") for text in (plain, linear, one))


def test_statements_are_read_from_either_prompt() -> None:
    text = code("relu", "softmax")
    expected = ["x = torch.relu(x)", "x = torch.softmax(x, dim=-1)"]
    assert statements(text) == statements(episode_prompt(text, "cpu", "full").user) == expected


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("class Model: pass", "not of the teacher's form"),
        (code("relu").replace("torch.relu", "torch.erfinv"), "no line for"),
        (code("relu", columns=9_000), "row buffer"),
    ],
)
def test_other_problems_are_refused(text: str, reason: str) -> None:
    with pytest.raises(ProblemError, match=reason):
        files(text, "fused_serial")


def test_damage_is_never_the_program() -> None:
    rng = random.Random(0)
    for names in (("relu",), ("linear",), ("sin", "mean"), ("gelu", "linear", "softmax")):
        program = statements(code(*names))
        for _ in range(50):
            wrong = damaged(program, rng)
            assert wrong != program and set(wrong) <= set(LINES) and wrong.count(LINEAR) == program.count(LINEAR)


def test_demonstrations_show_an_episode() -> None:
    text = code("relu", "softmax")
    shown = demonstrate(text, "fused_parallel", random.Random(0))
    assert [message.role for message in shown.messages] == ["assistant", "tool", "tool", "tool", "assistant"]
    first, *results, last = shown.messages
    assert {call.arguments["file_path"]: call.arguments["content"] for call in first.tool_calls[:2]} == files(
        text, "fused_parallel"
    )
    assert first.tool_calls[2].name == "Bash" and results[2].text == passed_text() and last.text == DONE
    assert not shown.unlearnt


def test_mended_mistakes_are_marked_as_not_to_be_learnt() -> None:
    text = code("relu", "softmax")
    shown = demonstrate(text, "serial_passes", random.Random(0), mistake=True)
    first, second = (message for message in shown.messages[:-1] if message.role == "assistant")
    right = files(text, "serial_passes")["kernels/kernel.cpp"]
    assert first.tool_calls[0].arguments["content"] != right == second.tool_calls[0].arguments["content"]
    assert shown.unlearnt == {0} and "[FAIL] wrong_output" in shown.messages[3].text


def test_single_turn_demonstrations_only_write() -> None:
    (message,) = demonstrate(code("relu"), "fused_serial", random.Random(0), single_turn=True).messages
    assert [call.name for call in message.tool_calls] == ["Write", "Write"]


async def test_engine_writes_checks_and_stops_when_it_passes() -> None:
    messages = [Message("system", ""), Message("user", code("relu", "tanh"))]
    first = await Teacher().chat(messages, TOOLS, seed=1)
    assert first == await Teacher().chat(messages, TOOLS, seed=1)
    assert [call.name for call in first.tool_calls] == ["Write", "Write", "Bash"]
    last = await Teacher().chat([*messages, first, Message("tool", passed_text())], TOOLS, seed=2)
    assert last == Message("assistant", DONE)


async def test_engine_tries_again_and_then_gives_up() -> None:
    teacher = Teacher(error_rate=1.0)
    text = code("relu", "tanh")
    right = {files(text, style)["kernels/kernel.cpp"] for style in STYLES}
    messages = [Message("system", ""), Message("user", text)]
    for seed in range(ATTEMPTS):
        answer = await teacher.chat(messages, TOOLS, seed)
        assert answer.tool_calls[0].arguments["content"] not in right
        messages += [answer, Message("tool", failed_text(random.Random(seed)))]
    assert await teacher.chat(messages, TOOLS, seed=9) == Message("assistant", GAVE_UP)


async def test_engine_keeps_to_the_tools_and_problems_it_knows() -> None:
    only_write = await Teacher().chat([Message("user", code("relu"))], TOOLS[1:], seed=0)
    assert [call.name for call in only_write.tool_calls] == ["Write", "Write"]
    assert await Teacher().chat([Message("user", "Hello")], TOOLS, seed=0) == Message("assistant", GAVE_UP)


def test_styles_are_told_apart_by_what_they_use() -> None:
    kernels = {style: kernel_source(["x = torch.relu(x)"], style) for style in STYLES}
    assert "omp parallel for" in kernels["fused_parallel"] and "omp parallel" not in kernels["fused_serial"]
    assert "omp simd" not in kernels["serial_passes"]
