"""The teacher: a program that answers the quickstart's problems, as a text engine and as a source of demonstrations.

It reads the statements of a problem's `forward` and writes `kernels/kernel.cpp` (light binding) and `model_new.py` in a
named style. Every statement is one fixed line of C++ on a row buffer `v` of `n` floats, the same line in every style, so
that a policy that learns the texts learns one mapping, and the styles differ in a handful of lines around it:

    serial_passes    one pass over the whole tensor per operator, one thread: correct and slow
    fused_serial     one pass over the rows, all operators on a row while it is in cache, one thread
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
PASSED = "[PASS] verify success"
ATTEMPTS = 3  # kernels the engine writes before it gives up
ROW_LIMIT = 8192  # floats in a row buffer

# One line per statement. EACH, SUM and MAX are loops over the row (see HEADER). Branch-free forms, because g++ does not
# vectorise a loop with both a branch and a call while floating-point traps and errno count.
LINES: Mapping[str, str] = {
    "x = torch.relu(x)": "EACH v[i] = v[i] > 0 ? v[i] : 0;",
    "x = torch.sigmoid(x)": "EACH v[i] = 1 / (1 + expf(-v[i]));",
    "x = torch.tanh(x)": "EACH v[i] = 1 - 2 / (1 + expf(2 * v[i]));",
    "x = nn.functional.silu(x)": "EACH v[i] = v[i] / (1 + expf(-v[i]));",
    'x = nn.functional.gelu(x, approximate="tanh")': (
        "EACH v[i] = v[i] / (1 + expf(-1.5957691f * (v[i] + 0.044715f * v[i] * v[i] * v[i])));"
    ),
    "x = nn.functional.leaky_relu(x, negative_slope=0.1)": "EACH v[i] = 0.55f * v[i] + 0.45f * fabsf(v[i]);",
    "x = nn.functional.elu(x)": "EACH v[i] = 0.5f * (v[i] + fabsf(v[i])) + expf(0.5f * (v[i] - fabsf(v[i]))) - 1;",
    "x = nn.functional.softplus(x)": "EACH v[i] = 0.5f * (v[i] + fabsf(v[i])) + logf(1 + expf(-fabsf(v[i])));",
    "x = nn.functional.softsign(x)": "EACH v[i] = v[i] / (1 + fabsf(v[i]));",
    "x = torch.clamp(x, min=-0.5, max=1.5)": "EACH v[i] = v[i] > -0.5f ? v[i] : -0.5f; EACH v[i] = v[i] < 1.5f ? v[i] : 1.5f;",
    "x = nn.functional.hardtanh(x)": "EACH v[i] = v[i] > -1 ? v[i] : -1; EACH v[i] = v[i] < 1 ? v[i] : 1;",
    "x = nn.functional.hardsigmoid(x)": "EACH v[i] = (fabsf(v[i] + 3) - fabsf(v[i] - 3) + 6) / 12;",
    "x = nn.functional.hardswish(x)": "EACH v[i] *= (fabsf(v[i] + 3) - fabsf(v[i] - 3) + 6) / 12;",
    "x = torch.abs(x)": "EACH v[i] = fabsf(v[i]);",
    "x = torch.square(x)": "EACH v[i] = v[i] * v[i];",
    "x = torch.neg(x)": "EACH v[i] = -v[i];",
    "x = torch.exp(torch.clamp(x, max=3.0))": "EACH v[i] = v[i] < 3 ? v[i] : 3; EACH v[i] = expf(v[i]);",
    "x = torch.sqrt(torch.abs(x))": "EACH v[i] = sqrtf(fabsf(v[i]));",
    "x = torch.sin(x)": "EACH v[i] = sinf(v[i]);",
    "x = x * 0.5": "EACH v[i] = v[i] * 0.5f;",
    "x = x + 1.0": "EACH v[i] = v[i] + 1;",
    "x = torch.softmax(x, dim=-1)": (
        "{ float m = v[0], s = 0; MAX m = v[i] > m ? v[i] : m; EACH v[i] = expf(v[i] - m); SUM s += v[i]; EACH v[i] /= s; }"
    ),
    "x = torch.log_softmax(x, dim=-1)": (
        "{ float m = v[0], s = 0; MAX m = v[i] > m ? v[i] : m; SUM s += expf(v[i] - m); m += logf(s); EACH v[i] -= m; }"
    ),
    "x = nn.functional.layer_norm(x, x.shape[-1:])": (
        "{ float m, s = 0; SUM s += v[i]; m = s / n; s = 0; SUM s += (v[i] - m) * (v[i] - m); s = sqrtf(s / n + 1e-5f);"
        " EACH v[i] = (v[i] - m) / s; }"
    ),
    "x = nn.functional.normalize(x, dim=-1)": (
        "{ float s = 0; SUM s += v[i] * v[i]; s = sqrtf(s); s = s > 1e-12f ? s : 1e-12f; EACH v[i] /= s; }"
    ),
    "x = torch.sum(x, dim=-1, keepdim=True)": "{ float s = 0; SUM s += v[i]; v[0] = s; n = 1; }",
    "x = torch.mean(x, dim=-1, keepdim=True)": "{ float s = 0; SUM s += v[i]; v[0] = s / n; n = 1; }",
    "x = torch.amax(x, dim=-1, keepdim=True)": "{ float m = v[0]; MAX m = v[i] > m ? v[i] : m; v[0] = m; n = 1; }",
    # Four columns at a time: one dot product alone waits on its own additions.
    "x = self.linear(x)": (
        "{ float u[8192]; const float *a = w.f32(), *b = c.f32(); long k = w.rows(); for (long j = 0; j < k; j += 4, a += 4 * n)"
        " { float s = 0, t = 0, p = 0, q = 0; SUM4 { s += v[i] * a[i]; t += v[i] * a[n + i]; p += v[i] * a[2 * n + i];"
        " q += v[i] * a[3 * n + i]; } u[j] = s; u[j + 1] = t; u[j + 2] = p; u[j + 3] = q; } n = k; EACH v[i] = u[i] + b[i]; }"
    ),
}
LINEAR = "x = self.linear(x)"
ONE_COLUMN = tuple(statement for statement in LINES if "keepdim" in statement)

HEADER = (
    '#include "binding_registry.h"',
    '#define EACH _Pragma("omp simd") for (long i = 0; i < n; ++i)',
    '#define SUM _Pragma("omp simd reduction(+ : s)") for (long i = 0; i < n; ++i)',
    '#define MAX _Pragma("omp simd reduction(max : m)") for (long i = 0; i < n; ++i)',
)
SUM4 = '#define SUM4 _Pragma("omp simd reduction(+ : s, t, p, q)") for (long i = 0; i < n; ++i)'


@dataclass(frozen=True)
class Demonstration:
    """What stands after the user's message: assistant and tool messages in turn; `unlearnt` are indexes of wrong attempts."""

    messages: tuple[Message, ...]
    unlearnt: frozenset[int] = frozenset()


@dataclass(frozen=True)
class ToolTexts:
    """What the workspace's checks print, so that demonstrations look like the episodes they stand for."""

    wrote: str = "wrote {path}"
    passed: str = f"[OK] build success\n{PASSED}"
    failed: str = "[OK] build success\n[FAIL] verify failed: wrong_output"


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
    body = _passes(program) if style == "serial_passes" else _fused(program, parallel=style == "fused_parallel")
    linear = LINEAR in program
    weights = "TensorView w, TensorView c, " if linear else ""
    header = (*HEADER, SUM4) if linear else HEADER
    return "\n".join([*header, f"static void run(TensorView x, {weights}TensorView y) {{", *body, "}", "REGISTER_LIGHT(run)", ""])


def _fused(program: Sequence[str], *, parallel: bool) -> list[str]:
    return [
        *(["    #pragma omp parallel for"] if parallel else []),
        "    for (long r = 0; r < x.rows(); ++r) {",
        f"        float v[{ROW_LIMIT}]; long n = x.cols(); EACH v[i] = x.f32()[r * n + i];",
        *(f"        {LINES[statement]}" for statement in program),
        "        EACH y.f32()[r * n + i] = v[i];",
        "    }",
    ]


def _passes(program: Sequence[str]) -> list[str]:
    lines = [
        f"    float* t = new float[x.rows() * {ROW_LIMIT}]; long n = x.cols();",
        f"    for (long r = 0; r < x.rows(); ++r) EACH t[r * {ROW_LIMIT} + i] = x.f32()[r * n + i];",
    ]
    for statement in program:
        lines += [
            f"    for (long r = 0, k = n; r < x.rows(); ++r) {{ float* v = t + r * {ROW_LIMIT}; n = k;",
            f"        {LINES[statement]}",
            "    }",
        ]
    lines += [f"    for (long r = 0; r < x.rows(); ++r) EACH y.f32()[r * n + i] = t[r * {ROW_LIMIT} + i];", "    delete[] t;"]
    return lines


def model_source(program: Sequence[str]) -> str:
    """`model_new.py` for a list of statements: the same for every style."""
    linear = LINEAR in program
    columns = "1" if program[-1] in ONE_COLUMN else "self.linear.out_features" if linear else "x.shape[1]"
    return "\n".join([
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
    ])


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
    return ToolCall("Write", {"path": path, "content": content})


def _check() -> ToolCall:
    return ToolCall("Bash", {"command": CHECK_COMMAND})


def demonstrate(
    problem_code: str,
    style: Style,
    rng: random.Random,
    *,
    single_turn: bool = False,
    mistake: bool = False,
    texts: ToolTexts | None = None,
) -> Demonstration:
    """One episode as the teacher would play it, with the tools' answers filled in.

    `single_turn` keeps the Write calls of the first message only; `mistake` makes the first kernel wrong (not to be learnt)
    and the second right. Raises ProblemError.
    """
    texts = texts or ToolTexts()
    program = statements(problem_code)
    kernel = _write("kernels/kernel.cpp", kernel_source(program, style))
    model = _write("model_new.py", model_source(program))
    if single_turn:
        return Demonstration((Message("assistant", "", (kernel, model)),))
    results = [Message("tool", texts.wrote.format(path=path)) for path in ("kernels/kernel.cpp", "model_new.py")]
    right, done = Message("tool", texts.passed), Message("assistant", DONE)
    if not mistake:
        return Demonstration((Message("assistant", "", (kernel, model, _check())), *results, right, done))
    wrong = _write("kernels/kernel.cpp", kernel_source(damaged(program, rng), style))
    first = Message("assistant", "", (wrong, model, _check()))
    second = Message("assistant", "", (kernel, _check()))
    return Demonstration((first, *results, Message("tool", texts.failed), second, results[0], right, done), frozenset({0}))


@dataclass(frozen=True)
class Teacher:
    """The teacher as a text engine: writes and checks, then declares itself done or tries again.

    `styles` are weights of the styles; `error_rate` is the chance that a kernel it writes is wrong.
    """

    styles: Mapping[Style, float] = field(default_factory=lambda: dict.fromkeys(STYLES, 1.0))
    error_rate: float = 0.0
    single_turn: bool = False

    async def chat(self, messages: Sequence[Message], tools: Sequence[ToolSpec], seed: int) -> Message:
        """The next assistant message; equal arguments give equal answers."""
        rng = random.Random(f"teacher:{seed}")
        style = rng.choices(list(self.styles), list(self.styles.values()))[0]
        attempt = sum(message.role == "assistant" for message in messages)
        if attempt and PASSED in messages[-1].text:
            return Message("assistant", DONE)
        try:
            program = statements(next(message.text for message in messages if message.role == "user"))
            return Message("assistant", GAVE_UP) if attempt >= ATTEMPTS else self._attempt(program, style, attempt, rng)
        except ProblemError:
            return Message("assistant", GAVE_UP)

    def _attempt(self, program: list[str], style: Style, attempt: int, rng: random.Random) -> Message:
        wrong = [rng.random() < self.error_rate for _ in range(attempt + 1)][attempt]
        kernel = _write("kernels/kernel.cpp", kernel_source(damaged(program, rng) if wrong else program, style))
        model = () if attempt else (_write("model_new.py", model_source(program)),)
        return Message("assistant", "", (kernel, *model, *(() if self.single_turn else (_check(),))))

    async def close(self) -> None:
        """Nothing to free."""
