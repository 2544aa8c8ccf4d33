"""The teacher: a program that answers the quickstart's problems, as a text engine and as a source of demonstrations.

It reads the statements of a problem's `forward` and writes `kernels/kernel.cpp` (light binding) and `model_new.py` in a
named style. Every statement is one fixed line of C++ on a row buffer `v` of `n` floats, the same line in every style, so
that a policy that learns the texts learns one mapping, and the styles differ in a handful of lines around it:

    serial_passes    one pass over the whole tensor per operator, scalar loops, one thread: correct and slow
    fused_serial     one pass over the rows, all operators on a row while it is in cache, vector loops, one thread
    fused_parallel   the same with the rows shared out to all threads: fast

Problems outside the fixed form (a statement that `LINES` does not hold, rows longer than `ROW_LIMIT`) raise ProblemError in
`kernel_source`; as an engine the teacher answers them with a message without tool calls.
"""

import random
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal, get_args

from cuda_agent.engines.messages import Message, ToolCall, ToolSpec
from cuda_agent.errors import ProblemError

Style = Literal["serial_passes", "fused_serial", "fused_parallel"]
STYLES: tuple[Style, ...] = get_args(Style)

CHECK_COMMAND = "bash utils/compile.sh && python3 -m utils.verification"
DONE = "The kernel is correct."
GAVE_UP = "I can't write this kernel."
BUILT = "[PASS] compile success"
PASSED = "[PASS] verify success"
ATTEMPTS = 3  # kernels the engine writes before it gives up
ROW_LIMIT = 8192  # floats in a row buffer

# One line per statement. An elementwise statement acts on `a`, one number of the row, inside a loop that OPEN begins and CLOSE
# ends, so that a chain of them stays in registers; a reduction closes that loop, works on the row `v`, and opens it again.
# STEP is empty in fused kernels; with one pass per operator it ends a pass over the tensor and begins the next. The forms have
# no branches (relu is half of a + |a|): g++ does not vectorise a loop with both a branch and a call. powf(..., 0.5f) becomes the
# square root instruction, sqrtf in a loop would not, because of errno.
LINES: Mapping[str, str] = {
    "x = torch.relu(x)": "STEP a = 0.5f * (a + fabsf(a));",
    "x = torch.sigmoid(x)": "STEP a = 1 / (1 + expf(-a));",
    "x = torch.tanh(x)": "STEP a = 1 - 2 / (1 + expf(2 * a));",
    "x = nn.functional.silu(x)": "STEP a = a / (1 + expf(-a));",
    'x = nn.functional.gelu(x, approximate="tanh")': "STEP a = a / (1 + expf(-1.5957691f * (a + 0.044715f * a * a * a)));",
    "x = nn.functional.leaky_relu(x, negative_slope=0.1)": "STEP a = 0.55f * a + 0.45f * fabsf(a);",
    "x = nn.functional.elu(x)": "STEP a = 0.5f * (a + fabsf(a)) + expf(0.5f * (a - fabsf(a))) - 1;",
    "x = nn.functional.softplus(x)": "STEP a = 0.5f * (a + fabsf(a)) + logf(1 + expf(-fabsf(a)));",
    "x = nn.functional.softsign(x)": "STEP a = a / (1 + fabsf(a));",
    "x = torch.clamp(x, min=-0.5, max=1.5)": "STEP a = 0.5f * (fabsf(a + 0.5f) - fabsf(a - 1.5f) + 1);",
    "x = nn.functional.hardtanh(x)": "STEP a = 0.5f * (fabsf(a + 1) - fabsf(a - 1));",
    "x = nn.functional.hardsigmoid(x)": "STEP a = (fabsf(a + 3) - fabsf(a - 3) + 6) * (1 / 12.0f);",
    "x = nn.functional.hardswish(x)": "STEP a *= (fabsf(a + 3) - fabsf(a - 3) + 6) * (1 / 12.0f);",
    "x = torch.abs(x)": "STEP a = fabsf(a);",
    "x = torch.square(x)": "STEP a = a * a;",
    "x = torch.neg(x)": "STEP a = -a;",
    "x = torch.exp(torch.clamp(x, max=3.0))": "STEP a = expf(0.5f * (a + 3 - fabsf(a - 3)));",
    "x = torch.sqrt(torch.abs(x))": "STEP a = powf(fabsf(a), 0.5f);",
    "x = torch.sin(x)": "STEP a = sinf(a);",
    "x = x * 0.5": "STEP a = a * 0.5f;",
    "x = x + 1.0": "STEP a = a + 1;",
    "x = torch.softmax(x, dim=-1)": (
        "STEP CLOSE { float m = v[0], s = 0; MAX m = v[i] > m ? v[i] : m; EACH v[i] = expf(v[i] - m); SUM s += v[i]; s ="
        " 1 / s; EACH v[i] *= s; } OPEN"
    ),
    "x = torch.log_softmax(x, dim=-1)": (
        "STEP CLOSE { float m = v[0], s = 0; MAX m = v[i] > m ? v[i] : m; SUM s += expf(v[i] - m); m += logf(s); EACH"
        " v[i] -= m; } OPEN"
    ),
    "x = nn.functional.layer_norm(x, x.shape[-1:])": (
        "STEP CLOSE { float m, s = 0; SUM s += v[i]; m = s / n; s = 0; SUM s += (v[i] - m) * (v[i] - m); s = 1 / sqrtf(s"
        " / n + 1e-5f); EACH v[i] = (v[i] - m) * s; } OPEN"
    ),
    "x = nn.functional.normalize(x, dim=-1)": (
        "STEP CLOSE { float s = 0; SUM s += v[i] * v[i]; s = sqrtf(s); s = 1 / (s > 1e-12f ? s : 1e-12f); EACH v[i] *= s; } OPEN"
    ),
    "x = torch.sum(x, dim=-1, keepdim=True)": "STEP CLOSE { float s = 0; SUM s += v[i]; v[0] = s; n = 1; } OPEN",
    "x = torch.mean(x, dim=-1, keepdim=True)": "STEP CLOSE { float s = 0; SUM s += v[i]; v[0] = s / n; n = 1; } OPEN",
    "x = torch.amax(x, dim=-1, keepdim=True)": (
        "STEP CLOSE { float m = v[0]; MAX m = v[i] > m ? v[i] : m; v[0] = m; n = 1; } OPEN"
    ),
    # Four columns at a time: one dot product alone waits on its own additions.
    "x = self.linear(x)": (
        "STEP CLOSE { float u[8192]; const float *p = w.f32(), *b = c.f32(); long k = w.rows(); for (long j = 0; j < k;"
        " j += 4, p += 4 * n) { float s = 0, t = 0, q = 0, h = 0; SUM4 { s += v[i] * p[i]; t += v[i] * p[n + i]; q +="
        " v[i] * p[2 * n + i]; h += v[i] * p[3 * n + i]; } u[j] = s; u[j + 1] = t; u[j + 2] = q; u[j + 3] = h; } n = k;"
        " EACH v[i] = u[i] + b[i]; } OPEN"
    ),
}
LINEAR = "x = self.linear(x)"
ONE_COLUMN = tuple(statement for statement in LINES if "keepdim" in statement)

_ROW = "for (long i = 0; i < n; ++i)"
_LOOPS = {"EACH": "", "SUM": " reduction(+ : s)", "MAX": " reduction(max : m)", "SUM4": " reduction(+ : s, t, q, h)"}
INCLUDE = '#include "binding_registry.h"'
VECTOR_LOOPS = {name: f'#define {name} _Pragma("omp simd{clause}") {_ROW}' for name, clause in _LOOPS.items()}
SCALAR_LOOPS = {name: f"#define {name} {_ROW}" for name in _LOOPS}
SCALAR = '#pragma GCC optimize("no-tree-vectorize")'
BOUNDS = ("#define OPEN EACH { float a = v[i];", "#define CLOSE v[i] = a; }")
FUSED_STEP = "#define STEP"
PASS_STEP = f"#define STEP CLOSE }} for (long r = 0, d = n; r < x.rows(); ++r) {{ v = t + r * {ROW_LIMIT}; n = d; OPEN"


@dataclass(frozen=True)
class Demonstration:
    """What stands after the user's message: assistant and tool messages in turn; `unlearnt` are indexes of wrong attempts."""

    messages: tuple[Message, ...]
    unlearnt: frozenset[int] = frozenset()


def passed_text() -> str:
    """What `CHECK_COMMAND` prints for a right submission."""
    return f"{BUILT}\n{PASSED}"


def failed_text(rng: random.Random) -> str:
    """What `CHECK_COMMAND` prints, more or less, for a kernel that computes something else."""
    size = rng.choice((1, 2, 4, 8)) * 65_536
    wrong, place = rng.randrange(1, size + 1), [rng.randrange(4), rng.randrange(32)]
    got, expected, error = (rng.gauss(0.0, 1.0) for _ in range(3))
    return (
        f"{BUILT}\n[FAIL] wrong_output: input set 1: output: {wrong} of {size} elements differ, first at {place}: "
        f"got {got:.6g}, expected {expected:.6g}; largest error {abs(error) * 4:.3g}, allowed {abs(error) * 1e-4:.1e}"
        "\n[exit code 1]"
    )


def statements(problem_code: str) -> list[str]:
    """The statements of `forward` between its signature and its return.

    Raises:
        ProblemError: the text has no `forward` of that form, or rows longer than the row buffer.
    """
    found = re.search(r"def forward\(self, x\):\n(.*?)\n +return x\b", problem_code, re.DOTALL)
    if found is None:
        raise ProblemError("the problem's forward is not of the teacher's form; use problems of the quickstart's families")
    sizes = re.search(r"torch\.randn\((\d+), (\d+)\)", problem_code)
    if sizes and int(sizes[2]) > ROW_LIMIT:
        raise ProblemError(f"rows of {sizes[2]} floats exceed the teacher's row buffer; use at most {ROW_LIMIT} columns")
    return [line.strip() for line in found[1].splitlines() if line.strip()]


def kernel_source(program: Sequence[str], style: Style) -> str:
    """`kernels/kernel.cpp` for a list of statements.

    Raises:
        ProblemError: a statement is not in `LINES`.
    """
    unknown = next((statement for statement in program if statement not in LINES), None)
    if unknown is not None:
        raise ProblemError(f"the teacher has no line for {unknown!r}; add one to LINES in engines/teacher.py")
    passes = style == "serial_passes"
    linear = LINEAR in program
    loops = [text for name, text in (SCALAR_LOOPS if passes else VECTOR_LOOPS).items() if linear or name != "SUM4"]
    header = [INCLUDE, *([SCALAR] if passes else []), *loops, *BOUNDS, PASS_STEP if passes else FUSED_STEP]
    signature = f"static void run(TensorView x, {'TensorView w, TensorView c, ' if linear else ''}TensorView y) {{"
    body = _passes(program) if passes else _fused(program, parallel=style == "fused_parallel")
    return "\n".join([*header, signature, *body, "}", "REGISTER_LIGHT(run)", ""])


def _fused(program: Sequence[str], *, parallel: bool) -> list[str]:
    return [
        *(["    #pragma omp parallel for"] if parallel else []),
        "    for (long r = 0; r < x.rows(); ++r) {",
        f"        float v[{ROW_LIMIT}], *out = y.f32() + r * y.cols(); long n = x.cols(); const float* in = x.f32() + r * n;",
        "        EACH { float a = in[i];",
        *(f"        {LINES[statement]}" for statement in program),
        "        out[i] = a; }",
        "    }",
    ]


def _passes(program: Sequence[str]) -> list[str]:
    row = f"v = t + r * {ROW_LIMIT};"
    return [
        f"    float *v, *t = new float[x.rows() * {ROW_LIMIT}]; long n = x.cols();",
        f"    for (long r = 0; r < x.rows(); ++r) {{ {row} const float* in = x.f32() + r * n; EACH {{ float a = in[i];",
        *(f"        {LINES[statement]}" for statement in program),
        "    CLOSE }",
        f"    for (long r = 0; r < x.rows(); ++r) {{ {row} float* out = y.f32() + r * n; EACH out[i] = v[i]; }}",
        "    delete[] t;",
    ]


def model_source(program: Sequence[str]) -> str:
    """`model_new.py` for a list of statements: the same for every style."""
    linear = LINEAR in program
    columns = "1" if program[-1] in ONE_COLUMN else "self.linear.out_features" if linear else "x.shape[1]"
    return "\n".join(
        [
            "import torch.nn as nn",
            "import cpu_extension",
            "",
            "class ModelNew(nn.Module):",
            f"    def __init__(self{', features, out_features' if linear else ''}):",
            "        super().__init__()",
            *(["        self.linear = nn.Linear(features, out_features)"] if linear else []),
            "",
            "    def forward(self, x):",
            f"        y = x.new_empty(x.shape[0], {columns})",
            f"        cpu_extension.run(x, {'self.linear.weight, self.linear.bias, ' if linear else ''}y)",
            "        return y",
            "",
        ]
    )


def files(problem_code: str, style: Style) -> dict[str, str]:
    """The right submission in a style, by path. Raises ProblemError."""
    program = statements(problem_code)
    return {"kernels/kernel.cpp": kernel_source(program, style), "model_new.py": model_source(program)}


def damaged(program: Sequence[str], rng: random.Random) -> list[str]:
    """A program with one statement left out, doubled, replaced or moved: the mistakes that policies make."""
    wrong = list(program)
    place = rng.randrange(len(wrong))
    others = [s for s in LINES if s != wrong[place] and s != LINEAR and s not in ONE_COLUMN]
    kind = rng.choice(("drop", "swap", "replace", "replace"))
    if kind == "drop" and len(wrong) > 1 and wrong[place] != LINEAR:
        del wrong[place]
    elif kind == "swap" and place + 1 < len(wrong) and wrong[place] != wrong[place + 1]:
        wrong[place], wrong[place + 1] = wrong[place + 1], wrong[place]
    elif wrong[place] == LINEAR:
        wrong.insert(place, rng.choice(others))
    else:
        wrong[place] = rng.choice(others)
    return wrong


def _write(path: str, content: str) -> ToolCall:
    return ToolCall("Write", {"file_path": path, "content": content})


def _check() -> ToolCall:
    return ToolCall("Bash", {"command": CHECK_COMMAND})


def demonstrate(
    problem_code: str,
    style: Style,
    rng: random.Random,
    *,
    single_turn: bool = False,
    mistake: bool = False,
) -> Demonstration:
    """One episode as the teacher would play it, with the tools' answers filled in.

    `single_turn` keeps the Write calls of the first message only; `mistake` makes the first kernel wrong (not to be learnt)
    and the second right. Raises ProblemError.
    """
    program = statements(problem_code)
    kernel = _write("kernels/kernel.cpp", kernel_source(program, style))
    model = _write("model_new.py", model_source(program))
    if single_turn:
        return Demonstration((Message("assistant", "", (kernel, model)),))
    results = [Message("tool", f"wrote {path}") for path in ("kernels/kernel.cpp", "model_new.py")]
    right, done = Message("tool", passed_text()), Message("assistant", DONE)
    if not mistake:
        return Demonstration((Message("assistant", "", (kernel, model, _check())), *results, right, done))
    wrong = _write("kernels/kernel.cpp", kernel_source(damaged(program, rng), style))
    first = Message("assistant", "", (wrong, model, _check()))
    second = Message("assistant", "", (kernel, _check()))
    return Demonstration((first, *results, Message("tool", failed_text(rng)), second, results[0], right, done), frozenset({0}))


@dataclass(frozen=True)
class Teacher:
    """The teacher as a text engine: writes and checks, then declares itself done or tries again.

    `styles` are weights of the styles; `error_rate` is the chance that a kernel it writes is wrong. Where no Bash tool is offered
    (a single turn) it only writes.
    """

    styles: Mapping[Style, float] = field(default_factory=lambda: dict.fromkeys(STYLES, 1.0))
    error_rate: float = 0.0

    async def chat(self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int) -> Message:
        """The next assistant message; equal arguments give equal answers."""
        attempt = sum(message.role == "assistant" for message in messages)
        if attempt and PASSED in messages[-1].text:
            return Message("assistant", DONE)
        problem = next(message.text for message in messages if message.role == "user")
        try:
            calls = self._calls(statements(problem), attempt, random.Random(f"teacher:{seed}"))
        except ProblemError:
            return Message("assistant", GAVE_UP)
        if attempt >= ATTEMPTS:
            return Message("assistant", GAVE_UP)
        return Message("assistant", "", (*calls, *(_check() for tool in tools if tool.name == "Bash")))

    def _calls(self, program: list[str], attempt: int, rng: random.Random) -> tuple[ToolCall, ...]:
        style = rng.choices(list(self.styles), list(self.styles.values()))[0]
        right = kernel_source(program, style)  # raises for a statement that it does not know
        wrong = rng.random() < self.error_rate
        kernel = _write("kernels/kernel.cpp", kernel_source(damaged(program, rng), style) if wrong else right)
        return (kernel,) if attempt else (kernel, _write("model_new.py", model_source(program)))

    async def close(self) -> None:
        """Nothing to free."""
