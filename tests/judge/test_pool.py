"""Real submissions through the real sandbox: honest, broken and hostile ones, and that none spoils the next verdict."""

import asyncio
import time
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cuda_agent.config import JudgeConfig
from cuda_agent.errors import ConfigError
from cuda_agent.judge import doubts, problem_host
from cuda_agent.judge.device import Device
from cuda_agent.judge.doubts import TWICE, near_step
from cuda_agent.judge.evaluation import Evaluation
from cuda_agent.judge.pool import JudgePool, profile_text
from cuda_agent.judge.verdict import Submission, Verdict
from cuda_agent.store.session import cache_folder
from tests.judge.texts import (
    GOOD,
    KERNEL,
    LINEAR,
    LINEAR_KERNEL,
    LINEAR_MODEL,
    MODEL,
    PROBLEM,
    changed,
    submission,
    with_body,
)

pytestmark = pytest.mark.asyncio(loop_scope="module")
CONFIG = JudgeConfig(
    run_seconds=5.0, build_seconds=170.0, min_repetitions=5, max_repetitions=15, timing_seconds=1.0, memory_mb=2_000
)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def pool() -> AsyncIterator[JudgePool]:
    async with JudgePool(CONFIG, cache_dir=cache_folder()) as opened:
        yield opened


async def test_correct_submission_gets_times_and_a_reward(pool: JudgePool) -> None:
    verdict = await pool.judge(PROBLEM, GOOD)
    assert verdict.status == "correct", verdict
    assert verdict.reward in (1.0, 2.0, 3.0)
    assert verdict.candidate_ms and verdict.eager_ms and verdict.compile_ms
    assert set(verdict.phases) >= {"queue", "build", "load", "verify", "time", "total"}
    assert verdict.environment["threads"] >= 1 and verdict.environment["rounds"] >= 5
    assert await pool.judge(PROBLEM, GOOD) is verdict or near_step(verdict, CONFIG.milestone)


async def test_same_submission_at_the_same_time_is_judged_once(pool: JudgePool) -> None:
    other = with_body("y = torch.empty_like(x)", "cpu_extension.run(x, y)", "return y  # the same")
    one, two = await asyncio.gather(pool.judge(PROBLEM, other), pool.judge(PROBLEM, other))
    assert one is two and one.status == "correct"


async def test_weights_and_init_arguments_reach_the_candidate(pool: JudgePool) -> None:
    assert (await pool.verify(LINEAR, submission(LINEAR_MODEL, LINEAR_KERNEL))).status == "correct"
    wrong = changed(LINEAR_KERNEL, "float s = c[j]", "float s = 0.0f")
    assert (await pool.verify(LINEAR, submission(LINEAR_MODEL, wrong))).status == "wrong_output"


@pytest.mark.parametrize("inputs", [1, 2, 3])
async def test_few_inputs_still_judge_a_problem_with_weights(
    pool: JudgePool, monkeypatch: pytest.MonkeyPatch, inputs: int
) -> None:
    assert pool._bench is not None
    monkeypatch.setattr(pool._bench, "config", CONFIG.model_copy(update={"inputs": inputs}))
    verdict = await pool.judge(LINEAR, submission(LINEAR_MODEL, LINEAR_KERNEL), fresh=True)
    assert verdict.status == "correct", verdict


OTHER = {
    "wrong value": (submission(kernel=changed(KERNEL, "b[i] *= q", "b[i] *= 1.001f * q")), "wrong_output", None, "differ"),
    "zeros": (submission(kernel=changed(KERNEL, "b[i] *= q", "b[i] = 0.0f")), "wrong_output", None, "expected"),
    "nan": (submission(kernel=changed(KERNEL, "b[i] *= q", "b[i] = 0.0f / 0.0f")), "wrong_output", None, "finite"),
    "half precision": (
        submission(kernel=changed(KERNEL, "b[i] *= q", "b[i] = (float)(_Float16)(b[i] * q)")),
        "wrong_output",
        None,
        "allowed",
    ),
    "wrong type": (with_body("y = torch.empty_like(x)", "cpu_extension.run(x, y)", "return (y,)"), "wrong_output", None, "tuple"),
    "wrong shape": (
        with_body("y = torch.empty_like(x)", "cpu_extension.run(x, y)", "return y[:1]"),
        "wrong_output",
        None,
        "shape",
    ),
    "shared buffer": (
        submission(
            changed(
                changed(MODEL, "super().__init__()", "super().__init__()\n        self.y = None"),
                "y = torch.empty_like(x)",
                "self.y = y = torch.empty_like(x) if self.y is None else self.y",
            )
        ),
        "wrong_output",
        None,
        "another call",
    ),
    "compile error": (submission(kernel="int broken(\n"), "build_error", None, "kernels/kernel.cpp:1"),
    "syntax error": (submission("def broken(:\n"), "load_error", "import", "SyntaxError"),
    "missing model": (Submission({"kernels/kernel.cpp": KERNEL}), "load_error", "missing_file", "model_new.py"),
    "nothing": (Submission.empty, "load_error", "missing_file", "model_new.py"),
    "no class": (submission("import cpu_extension\n"), "load_error", "missing_class", "ModelNew"),
    "init": (submission(changed(MODEL, "__init__(self)", "__init__(self, width)")), "load_error", "init_signature", "width"),
    "state": (
        submission(changed(MODEL, "super().__init__()", "super().__init__()\n        self.l = nn.Linear(2, 2)")),
        "load_error",
        "state_dict",
        "l.weight",
    ),
    "no kernel file": (Submission({"model_new.py": MODEL}), "hack", "no_custom_kernel", "kernels/"),
    "kernel not called": (with_body("return torch.empty_like(x)"), "hack", "no_custom_kernel", "never called"),
    "torch does the work": (with_body("return torch.softmax(torch.relu(x), dim=-1)"), "hack", "forbidden_op", "relu"),
    "torch helps": (
        with_body("y = torch.empty_like(x)", "cpu_extension.run(x, y)", "return y * 1.0"),
        "hack",
        "forbidden_op",
        "mul",
    ),
    "input mutated": (
        submission(kernel=changed(KERNEL, "b[i] *= q;", "{ b[i] *= q; ((float*)a)[i] = 0; }")),
        "hack",
        "input_mutated",
        "",
    ),
    "binary": (Submission({"model_new.py": MODEL, "kernels/k.so": "x"}), "hack", "illegal_file", "k.so"),
    "raises": (with_body("raise ValueError('no luck')"), "runtime_error", "ValueError", "no luck"),
    "wrong argument": (with_body("cpu_extension.run(x, 3)", "return x"), "runtime_error", "TypeError", "argument 1"),
    "segfault": (
        submission(kernel=changed(KERNEL, "float m = 0.0f;", "float m = *(volatile float*)8;")),
        "runtime_error",
        "crash",
        "SIGSEGV",
    ),
    "exit in forward": (with_body("import os", "os._exit(0)"), "runtime_error", "crash", "exit code 0"),
    "exit on import": (submission("import os\nos._exit(7)\n"), "runtime_error", "crash", "exit code 7"),
    "hang": (with_body("while True: pass"), "timeout", None, "5 s"),
    "memory": (with_body("b = bytearray(2**33)", "return x"), "runtime_error", "oom", ""),
    "network": (with_body("import socket", "socket.create_connection(('127.0.0.1', 1))"), "hack", "forbidden_op", "socket"),
}


@pytest.mark.parametrize("name", OTHER)
async def test_other_submissions_get_their_status_and_spoil_nothing(pool: JudgePool, name: str) -> None:
    bad, status, kind, words = OTHER[name]
    verdict = await pool.verify(PROBLEM, bad)
    assert verdict.status == status, verdict
    assert kind is None or verdict.kind == kind, verdict
    assert words in verdict.message and len(verdict.message) <= 4_096, verdict
    assert verdict.reward == -1.0 and verdict.feedback().startswith("[FAIL] " + status)


async def test_verdict_after_all_of_them_is_right(pool: JudgePool) -> None:
    verdict = await pool.judge(PROBLEM, GOOD, fresh=True)
    assert verdict.status == "correct"
    assert (await pool.verify(PROBLEM, GOOD)).feedback() == "[PASS] verify success"


async def test_profile_names_three_times(pool: JudgePool) -> None:
    verdict = await pool.profile_verdict(PROBLEM, GOOD)
    text = profile_text(verdict)
    assert text.startswith("[PASS] candidate ") and "eager" in text and "compile" in text


async def test_answer_right_only_while_verified_is_caught_while_timed(pool: JudgePool) -> None:
    lazy = with_body(
        "self.n = getattr(self, 'n', 0) + 1",
        "y = torch.empty_like(x)",
        "cpu_extension.run(x, y) if self.n < 9 else None",
        "return y",
    )
    assert (await pool.judge(PROBLEM, lazy)).status == "wrong_output"


async def test_forged_clock_is_caught(pool: JudgePool) -> None:
    forged = submission(
        "import cuda_agent.judge.child_device as s\ns.perf_counter_ns = lambda: 7\n"
        + changed(MODEL, "return y", "\n        ".join(["import time", "time.sleep(0.003)", "return y"]))
    )
    verdict = await pool.judge(PROBLEM, forged)
    assert (verdict.status, verdict.kind) == ("hack", "clock"), verdict


@pytest.mark.parametrize("code", ["x = 1\n", "raise SystemExit(3)\n", changed(PROBLEM, "x = torch.relu(x)", "x = x.nothing()")])
async def test_faulty_problem_is_not_the_submissions_fault(pool: JudgePool, code: str) -> None:
    verdict = await pool.judge(code, GOOD)
    assert verdict.status == "problem_invalid" and verdict.reward is None


async def test_problem_that_does_not_compile_has_no_compile_time(pool: JudgePool) -> None:
    code = PROBLEM + "\ndef refuse(*_, **__):\n    raise RuntimeError('no')\n\ntorch.compile = refuse\n"
    verdict = await pool.judge(code, GOOD)
    assert verdict.status == "correct" and verdict.compile_ms is None and verdict.reward in (1.0, 2.0), verdict


@pytest.mark.slow
async def test_torch_header_binding_is_judged_too(pool: JudgePool) -> None:
    kernel = changed(KERNEL, '#include "binding_registry.h"', '#include <pybind11/pybind11.h>\n#include "binding_registry.h"')
    binding = (
        'static void bind(pybind11::module& m) { m.def("twice", [](long a) { return 2 * a; }); }\nREGISTER_BINDING(twice, bind)\n'
    )
    model = changed(MODEL, "return y", "assert cpu_extension.twice(4) == 8\n        return y")
    verdict = await pool.verify(PROBLEM, submission(model, kernel + binding))
    assert verdict.status == "correct", verdict


async def test_stored_verdicts_are_looked_up_and_recorded(pool: JudgePool, monkeypatch: pytest.MonkeyPatch) -> None:
    stored: dict[str, Verdict] = {}

    async def lookup(key: str) -> Verdict | None:
        return stored.get(key)

    monkeypatch.setattr(pool, "_lookup", lookup)
    monkeypatch.setattr(pool, "_record", stored.__setitem__)
    verdict = await pool.judge(PROBLEM, Submission.empty, fresh=True)
    assert list(stored.values()) == [verdict]
    pool._known.clear()
    assert await pool.judge(PROBLEM, Submission.empty) is verdict


async def test_stored_verdict_near_a_step_is_judged_again(pool: JudgePool, monkeypatch: pytest.MonkeyPatch) -> None:
    near = Verdict("correct", None, "", 1.0, GOOD.sha256, 0.96, 1.0, 1.5)
    clear = Verdict("correct", None, "", 1.0, GOOD.sha256, 1.1, 1.0, 1.5)
    for stored in (clear, near):
        pool._known.clear()
        monkeypatch.setattr(pool, "_lookup", lambda key, stored=stored: stored)
        verdict = await pool.judge(PROBLEM, GOOD)
        assert (verdict is stored) == (stored is clear) and verdict.status == "correct"


async def test_extraordinary_speed_up_is_judged_twice(pool: JudgePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doubts, "FEAT", 0.0)
    verdict = await pool.judge(PROBLEM, GOOD, fresh=True)
    one, other = verdict.environment[TWICE]
    assert one["seed"] != other["seed"] and verdict.reward == min(one["reward"], other["reward"])


WAIT = """    import time
    while time.time() < {until}:
        time.sleep(0.1)
    return [torch.randn"""
LATE = changed(PROBLEM, "    return [torch.randn", WAIT)


async def test_problem_late_once_is_asked_again(pool: JudgePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem_host, "ANSWER_SECONDS", 4.0)
    verdict = await pool.verify(LATE.replace("{until}", str(time.time() + 4.5)), GOOD)
    assert verdict.status == "correct", verdict


async def test_problem_late_twice_is_at_fault(pool: JudgePool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(problem_host, "ANSWER_SECONDS", 1.0)
    verdict = await pool.verify(LATE.replace("{until}", "1e12"), GOOD)
    assert verdict.status == "problem_invalid" and "2 times in a row" in verdict.message, verdict


async def test_cuda_without_a_gpu_is_one_sentence() -> None:
    with pytest.raises(ConfigError, match="NVIDIA GPU"):
        async with JudgePool(JudgeConfig(backend="cuda"), cache_dir=cache_folder()):
            pass


async def test_time_out_next_to_others_counts_where_it_happens_alone_too(
    pool: JudgePool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Device, "starves", property(lambda device: True))
    tried: list[tuple[str, bool]] = []
    real = JudgePool._tried

    async def noted(self: JudgePool, evaluation: Evaluation) -> Verdict:
        tried.append((evaluation.submission.sha256, evaluation.alone))
        return await real(self, evaluation)

    monkeypatch.setattr(JudgePool, "_tried", noted)
    hanging, quick = (
        with_body("while True: pass"),
        with_body("y = torch.empty_like(x)", "cpu_extension.run(x, y)", "return y  # quick"),
    )
    config = CONFIG.model_copy(update={"run_seconds": 2.0})
    async with JudgePool(config, cache_dir=cache_folder(), server=pool._server) as hasty:
        verdict, _ = await asyncio.gather(hasty.verify(PROBLEM, hanging), hasty.verify(PROBLEM, quick))
        assert verdict.status == "timeout" and [alone for name, alone in tried if name == hanging.sha256] == [False, True]
        lonely = with_body("while True: pass  # again")
        assert (await hasty.verify(PROBLEM, lonely)).status == "timeout" and tried[-1] == (lonely.sha256, False)
