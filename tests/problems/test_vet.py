"""Candidates in real sandboxed children. One vetter serves all: its children must survive, or be replaced, each time."""

import asyncio
import json
import zipfile
from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from cuda_agent.config import DatasetExecution, DatasetScience, JudgeConfig
from cuda_agent.errors import DeviceError
from cuda_agent.judge import inductor, machine, nvml
from cuda_agent.problems.company import Company
from cuda_agent.problems.problem import Problem, VettedProblem
from cuda_agent.problems.similarity import Twins
from cuda_agent.problems.vet import Vetter, _Place
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.store.session import cache_folder
from tests.problems.texts import LEGAL_ONLY_AFTER_SIGMOID, text

pytestmark = pytest.mark.asyncio(loop_scope="session")
SCIENCE = DatasetScience(count=8, eager_ms_min=0.0, eager_ms_max=50.0)
EXECUTION = DatasetExecution(workers=1, candidate_seconds=45.0, candidate_memory_mb=1_500)


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def vetter(warm: ForkServer) -> AsyncIterator[Vetter]:
    async with Vetter(SCIENCE, EXECUTION, cache_dir=cache_folder(), server=warm) as started:
        yield started


async def verdict(vetter: Vetter, code: str, position: int = 0) -> VettedProblem:
    return await vetter.vet(position, Problem(("x",), "test", code))


def has_compiled_code(found: VettedProblem) -> bool:
    with zipfile.ZipFile(inductor.bundle_path(cache_folder() / "inductor", found.code_sha256)) as bundle:
        return any(name.endswith(".so") for name in bundle.namelist())


async def test_a_good_problem_is_accepted_with_its_times_and_compiled_code(vetter: Vetter) -> None:
    good = await verdict(vetter, text("x = torch.relu(x)\nx = torch.softmax(x, dim=-1)"))
    assert good.accepted, good.reason
    assert good.eager_ms and good.compile_ms and good.facts["outputs"] == [["float32", [64, 256]]]
    json.dumps(dict(good.facts), allow_nan=False)
    assert has_compiled_code(good)


async def test_a_kernel_that_two_problems_share_is_in_the_bundles_of_both(vetter: Vetter) -> None:
    code = text("x = torch.relu(x)\nx = torch.softmax(x, dim=-1)")
    for place, note in enumerate(("# one", "# another")):
        found = await verdict(vetter, f"{code}\n{note}", place)
        assert found.accepted and has_compiled_code(found), found.reason


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def neighbours(warm: ForkServer) -> AsyncIterator[Vetter]:
    """A vetter that shares its device out, as on a GPU, but without one."""
    science, execution = SCIENCE.model_copy(update={"tensor_mb": 64}), EXECUTION.model_copy(update={"workers": 2})
    company = Company(4 * 2**30, 4 * 2**30, workers=2)
    vetter = Vetter(science, execution, cache_dir=cache_folder(), server=warm)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(vetter, "_places", lambda: [_Place(company), _Place(company)])
        async with vetter:
            yield vetter


async def test_neighbours_on_one_device_get_the_same_verdicts(neighbours: Vetter) -> None:
    codes = (
        "x = torch.relu(x)\nx = torch.softmax(x, dim=-1)",
        "x = torch.tanh(x) * (3.0 + float(x.abs().max()))",
        "x = x.clone()",
    )
    found = await asyncio.gather(*(verdict(neighbours, text(code), place) for place, code in enumerate(codes)))
    assert [one.rule for one in found] == [None, None, "not_trivial"], [one.reason for one in found]
    assert all(one.eager_ms and one.compile_ms for one in found[:2])
    assert {"size", "pace", "time_compiled", "rest"} <= set(found[0].facts["stage_seconds"])


async def test_what_is_too_large_for_a_device_is_not_even_drawn(neighbours: Vetter) -> None:
    large = await verdict(neighbours, text("x = torch.tanh(x)", inputs="torch.randn(4096, 2049)"))
    assert large.rule == "memory" and set(large.facts["stage_seconds"]) == {"size"}, large.reason


async def test_lack_of_memory_counts_only_if_it_comes_with_all_of_it(neighbours: Vetter) -> None:
    lacking = "raise torch.OutOfMemoryError('CUDA out of memory. Tried to allocate 1 GiB')"
    always = await verdict(neighbours, text(lacking))
    assert always.rule == "runs_eager" and "out of memory" in str(always.reason)
    once = f"if x.is_cpu and not hasattr(torch, 'lacked'):\n    torch.lacked = True\n    {lacking}\nx = torch.tanh(x)"
    assert (found := await verdict(neighbours, text(once))).accepted, found.reason
    assert found.facts["had_all"] is True and always.facts["had_all"] is True


async def test_what_a_text_leaves_behind_on_paper_is_gone_when_it_runs(neighbours: Vetter) -> None:
    once = text("x = torch.ops.paper.twice(x)", head="torch.library.define('paper::twice', '(Tensor x) -> Tensor')")
    once += "\ntorch.library.impl('paper::twice', 'CompositeExplicitAutograd', lambda x: 2.0 * torch.tanh(x))\n"
    found = await verdict(neighbours, once)
    assert "multiple times" not in str(found.reason), found.reason


async def test_a_question_that_costs_the_device_is_left_out_by_the_next_child(neighbours: Vetter) -> None:
    """As a GPU's context is lost by an assertion of a kernel: here each failing question counts as such."""
    lossy = "import cuda_agent.judge.child_device as device\ndevice.ChildDevice.is_spent = lambda self: True"
    found = await verdict(neighbours, text(LEGAL_ONLY_AFTER_SIGMOID, head=lossy))
    assert found.accepted, found.reason
    assert found.facts["unasked"] == ["operator torch.sigmoid(x)"] and "lost_by" not in found.facts


class Gpus:
    """GPUs with so many free gigabytes of 100, as `machine` and `nvml` tell of them."""

    def __init__(self, patch: pytest.MonkeyPatch, *free: float) -> None:
        found = tuple(machine.Gpu("H200", "sm_90a", "580", f"GPU-{number}") for number in range(len(free)))
        memory = {gpu.uuid: (round(gb * 2**30), 100 * 2**30) for gpu, gb in zip(found, free, strict=True)}
        patch.setattr(machine, "gpus", lambda: found)
        patch.setattr(nvml, "free_and_total", memory.__getitem__)
        patch.delenv("CUDA_VISIBLE_DEVICES", raising=False)

    def places(self, workers: int) -> list[_Place]:
        execution = EXECUTION.model_copy(update={"workers": workers})
        return Vetter(SCIENCE, execution, cache_dir=cache_folder(), judge=JudgeConfig(backend="cuda"))._places()


async def test_candidates_are_spread_over_gpus_as_their_memory_allows(monkeypatch: pytest.MonkeyPatch) -> None:
    def names(places: list[_Place]) -> list[str]:
        return [place.environment.get("CUDA_VISIBLE_DEVICES", "") for place in places]

    assert names(Gpus(monkeypatch, 80).places(2)) == ["", ""]
    assert names(Gpus(monkeypatch, 80).places(100)) == [""] * 13
    two = Gpus(monkeypatch, 80, 80).places(3)
    assert names(two) == ["GPU-0", "GPU-0", "GPU-1"] and two[0].company is two[1].company is not two[2].company
    assert names(Gpus(monkeypatch, 80, 3).places(2)) == ["GPU-0", "GPU-0"]
    alone = Gpus(monkeypatch, 80)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    assert names(alone.places(1)) == ["GPU-0"], "a child inherits nothing of the environment"


async def test_a_full_gpu_is_told_before_any_candidate_is_refused_for_it(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeviceError, match=r"0\.5 GB of the GPU's memory are free"):
        Gpus(monkeypatch, 0.5).places(4)


def two(second: str, body: str) -> str:
    """A problem with another input, y."""
    return text(body, inputs=f"torch.randn(64, 256), {second}").replace("(self, x)", "(self, x, y)")


@pytest.mark.parametrize(
    ("rule", "code"),
    [
        ("contract", "class Model: pass"),
        ("runs_eager", text("raise ValueError('no')")),
        ("runs_eager", text("exit(0)")),
        ("runs_eager", text("x = x @ x")),
        ("runs_eager", text("x = x", head="import package_that_is_not_there")),
        ("runs_eager", text("raise KeyboardInterrupt")),
        ("self_contained", text("open('/tmp/file', 'w').write('x')")),
        ("self_contained", text("import os\nos.open('/tmp/file', os.O_CREAT | os.O_WRONLY)")),
        ("self_contained", text("import socket\nsocket.socket()")),
        ("self_contained", text("import subprocess\nsubprocess.run(['true'])")),
        ("self_contained", text("import os\nos.fork()")),
        ("comparable", text("x = torch.max(x, dim=-1)")),
        ("comparable", text("x = torch.tanh(x)", inputs="torch.randn(4, 4), object()").replace("(self, x)", "(self, x, y)")),
        ("not_trivial", text("x = x.tolist()")),
        ("finite", text("x = torch.log(x)")),
        ("finite", text("x = torch.log(x.abs() * (x[0, 0] < -0.1))")),  # for one draw of four
        ("deterministic", text("x = x + torch.rand_like(x)")),
        ("deterministic", text("x = torch.dropout(x, 0.5, True)")),
        ("deterministic", text("self.n += 1\nx = torch.tanh(x) + self.n", init="self.n = 0")),
        ("inputs_kept", text("x += 1.0\nx = torch.tanh(x)")),
        ("varies", text("x = torch.tanh(x) * 0.0")),
        ("varies", text("x = torch.tanh(x)", inputs="torch.ones(64, 256)")),
        ("varies", text("x = torch.tanh(x), torch.ones_like(x)")),
        ("not_trivial", text("x = x.clone()")),
        ("not_trivial", text("x = 1.0 + 1e-6 * torch.tanh(x)")),
        ("not_trivial", text("x = torch.tanh(x), x > 100")),
        ("not_trivial", text("x = torch.tanh(x) + 1e-9 * torch.argsort(x, 0), torch.argsort(x * 0.0 + torch.arange(256.0))")),
        ("not_saturated", text("x = torch.relu(x - 3.0)")),
        ("inputs_matter", two("torch.randn(64, 256)", "x = torch.tanh(x)")),
        ("inputs_matter", two("torch.ones(64, 256)", "x = torch.tanh(x)")),
        ("inputs_matter", two("0.5", "x = torch.tanh(x)")),
        ("inputs_matter", two("{'used': torch.randn(256), 'not': torch.randn(3)}", "x = torch.tanh(x) + y['used']")),
        ("weights_matter", text("x = torch.tanh(x)", init="self.layer = nn.Linear(4, 4)")),
        ("weights_matter", text("x = torch.tanh(x)", init="self.register_buffer('table', torch.arange(9))")),
        (
            "weights_matter",
            text("x = torch.tanh(x) + 1e-9 * self.layer(x)", init="self.layer = nn.Linear(256, 256)"),
        ),
        ("no_dead_operator", text("x = torch.sigmoid(x)\nx = torch.relu(x)")),
        ("no_dead_operator", text("x = torch.relu(torch.sigmoid(x))")),
        ("no_dead_operator", text("x = torch.neg(x)\nx = torch.neg(x)\nx = torch.tanh(x)")),
        ("no_dead_operator", text("x = nn.functional.dropout(torch.tanh(x), 0.5, self.training)")),
        ("no_dead_operator", text("x = self.norm(torch.tanh(x))", init="self.norm = nn.BatchNorm1d(256)")),  # as initialised
        ("value_range", text("x = torch.tanh(x)", inputs="torch.rand(64, 256)")),
        ("well_conditioned", text("x = (x + 1e6) - 1e6")),
        (
            "well_conditioned",
            text("x = torch.remainder(self.layer(x) * 3000.0, 1.0)", init="self.layer = nn.Linear(256, 256)"),
        ),
    ],
)
async def test_a_bad_problem_is_refused_by_its_rule(vetter: Vetter, rule: str, code: str) -> None:
    bad = await verdict(vetter, code)
    assert (bad.rule, bad.accepted) == (rule, False), bad.reason
    assert bad.reason and bad.compile_ms is None


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        ("crash", "import ctypes; ctypes.string_at(0)"),
        ("crash", "import os; os._exit(0)"),
        ("oom", "x = torch.zeros(10**12)"),
    ],
)
async def test_a_crash_refuses_that_candidate_only(vetter: Vetter, kind: str, body: str) -> None:
    bad = await verdict(vetter, text(body))
    assert bad.rule == "runs_eager" and (kind in bad.reason or "memory" in bad.reason)
    assert (await verdict(vetter, text("x = x.clone()"))).rule == "not_trivial"


@pytest.mark.parametrize(
    ("code", "facts"),
    [
        (
            text("x = {'best': torch.argmax(x, -1), 'all': (torch.softmax(x, -1), [x.sum()])}").replace(
                "x.sum()", "x.cumsum(-1)"
            ),
            {"outputs": [["int64", [64]], ["float32", [64, 256]], ["float32", [64, 256]]], "value_range": "both"},
        ),
        (
            text(
                "x = self.norm(torch.log(x))",
                inputs="torch.rand(64, 256) + 0.1",
                init="self.norm = nn.BatchNorm1d(256)\nself.norm.running_mean += 0.5",
            ),
            {"value_range": "needed", "train_differs": True, "weights": 4},
        ),
        (
            two("torch.randint(0, 9, (64,))", "if x.dim() == 2:\n    x = x / (x.norm() + 1e-6) * self.table(y)").replace(
                "super().__init__()\n", "super().__init__()\n        self.table = nn.Embedding(9, 256)\n"
            ),
            {"operators_unasked": "forward is no chain of statements", "train_differs": False, "weights": 1},
        ),
    ],
)
async def test_several_outputs_states_and_indices_are_judged_by_what_they_are(vetter: Vetter, code: str, facts: dict) -> None:
    good = await verdict(vetter, code)
    assert good.accepted, good.reason
    assert {name: good.facts[name] for name in facts} == facts


async def test_too_large_a_problem_is_refused(vetter: Vetter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vetter, "_science", SCIENCE.model_copy(update={"tensor_mb": 1}))
    large = await verdict(vetter, text("x = torch.tanh(x)", inputs="torch.randn(512, 512)"))
    assert (large.rule, large.reason) == ("memory", "inputs, outputs and weights take 2 MB, allowed are 1 MB")


async def test_a_twin_of_the_set_is_refused_before_it_is_compiled(vetter: Vetter) -> None:
    twins = Twins()
    code = text("x = torch.tanh(x)\nx = torch.softmax(x, dim=-1)")
    first = await vetter.vet(0, Problem(("x",), "test", code), twins)
    twins.add(code, first.facts, "0")
    second = await vetter.vet(1, Problem(("x",), "test", code.replace("x = torch.tanh", "x = torch.nn.functional.tanh")), twins)
    assert first.accepted and second.rule == "near_duplicate" and "compile_seconds" not in second.facts


async def test_a_forged_answer_ends_its_process_only(vetter: Vetter) -> None:
    forging = "import sys\nsys.modules['cuda_agent.problems.probe_child'].Probe.pace = lambda *_: {'eager_ms': float('nan')}"
    bad = await verdict(vetter, text(f"{forging}\nx = torch.tanh(x)"))
    assert (bad.rule, bad.reason) == ("runs_eager", "crash: pace answered with nonsense")
    assert (await verdict(vetter, text("x = x.clone()"))).rule == "not_trivial"


async def test_a_hang_is_cut_off(vetter: Vetter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vetter, "_execution", DatasetExecution(workers=1, candidate_seconds=1.0))
    bad = await verdict(vetter, text("while True: pass"))
    assert (bad.rule, bad.facts["failure"]) == ("runs_eager", "timeout")


async def test_printing_and_grabbing_the_output_disturb_nothing(vetter: Vetter) -> None:
    noisy = text("for _ in range(300): print('{}' * 5_000_000)\nimport os\nos.write(1, b'x' * 1000)\nx = x.clone()")
    assert (await verdict(vetter, noisy)).rule == "not_trivial"


async def test_a_difference_under_torch_compile_is_seen(vetter: Vetter) -> None:
    body = "x = torch.sin(x) if torch.compiler.is_compiling() else torch.tanh(x)"
    assert (await verdict(vetter, text(body))).rule == "compiled_agrees"


async def test_what_torch_compile_refuses_is_named_and_tampering_ends_with_a_fresh_child(
    vetter: Vetter, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vetter, "_fresh", True)
    broken = text(
        "x = torch.sinh(x)", head="import torch._inductor.config as c\nc.cpp.cxx = ('no-such-compiler',)\nimport torch.nn as nn"
    )
    bad = await verdict(vetter, broken)
    assert bad.rule == "runs_compiled" and bad.eager_ms is not None
    assert (await verdict(vetter, text("x = torch.cosh(x)"))).accepted


async def test_outside_the_window_is_refused_before_compiling(vetter: Vetter, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vetter, "_science", DatasetScience(count=8, eager_ms_min=40.0, eager_ms_max=80.0))
    fast = await verdict(vetter, text("x = torch.tanh(x)"))
    assert fast.rule == "eager_time" and "compile_seconds" not in fast.facts
