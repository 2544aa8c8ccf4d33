"""A crawl of a few operators in real sandboxed children; the whole of torch takes minutes and is measured, not tested."""

from pathlib import Path

import pytest
import pytest_asyncio

from cuda_agent.errors import ProblemError
from cuda_agent.problems import recipes, torch_crawl
from cuda_agent.problems.problem import read_contract
from cuda_agent.problems.recipes import Parameter
from cuda_agent.problems.seeds import CrawlReport, TorchSeed
from cuda_agent.problems.torch_crawl import crawl_torch
from cuda_agent.sandbox.forkserver import ForkServer

pytestmark = pytest.mark.asyncio(loop_scope="session")
BUILT = {
    *("torch.relu", "torch.log", "torch.acos", "torch.sum", "torch.matmul", "torch.where", "torch.eq", "torch.fft.fft"),
    *("nn.Linear", "nn.Conv2d", "nn.LayerNorm", "nn.functional.avg_pool2d", "torch.linalg.inv", "torch.special.bessel_j0"),
}
REFUSED = {
    "torch.relu_": "left out",
    "torch.rand_like": "left out",
    "torch.argmax": "type",
    "torch.clone": "identity",
    "torch.reshape": "no recipe runs",
    "torch.flatten": "view",
    "torch.isnan": "dead",
    "torch.absolute": "alias",
    "nn.ReLU": "alias",
    "torch.special.expit": "alias",
    "torch.lu_unpack": "no recipe runs",
}
OTHERS = {"torch.abs", "torch.sigmoid"}  # what two of the aliases stand for


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def report(warm: ForkServer, tmp_path_factory: pytest.TempPathFactory) -> CrawlReport:
    wanted = BUILT | set(REFUSED) | OTHERS
    return await crawl_torch(warm, tmp_path_factory.mktemp("crawl"), only=lambda name: name in wanted)


async def test_operators_of_every_kind_become_seeds(report: CrawlReport) -> None:
    assert set(report.seeds) == (BUILT - {"torch.eq"}) | OTHERS
    assert report.versions["torch"]


async def test_what_cannot_be_built_stands_with_its_reason(report: CrawlReport) -> None:
    assert {name: report.refused[name].partition(":")[0] for name in REFUSED} == REFUSED
    assert report.refused["nn.ReLU"] == "alias: runs the same as torch.relu"


async def test_every_seed_has_three_small_and_three_large_settings_that_keep_the_contract(report: CrawlReport) -> None:
    for seed in report.seeds.values():
        assert isinstance(seed, TorchSeed)
        assert len({call.shape for call in seed.calls}) >= 3 and len({call.shape for call in seed.large}) >= 3
        assert len(seed.out) == len(seed.calls) and {dtype for _, dtype in seed.out} == {"float32"}
        for setting in range(3):
            read_contract(seed.problem(setting).code)
            read_contract(seed.problem(setting, large=True).code)


async def test_a_restricted_domain_is_made_legal_for_negative_values(report: CrawlReport) -> None:
    for name in ("torch.log", "torch.acos"):
        seed = report.seeds[name]
        assert isinstance(seed, TorchSeed)
        assert seed.calls[0].expression.count("{x}") == 1 and seed.calls[0].expression != f"{name}({{x}})"


async def test_a_seed_knows_on_which_values_it_is_dead(report: CrawlReport) -> None:
    relu = report.seeds["torch.relu"]
    assert isinstance(relu, TorchSeed)
    assert relu.leaves["normal"] == "sparse"
    assert not {"positive", "negative", "unit", "sparse", "deep"} & set(relu.leaves)


async def test_products_and_convolutions_are_heavy(report: CrawlReport) -> None:
    heavy = {name for name, seed in report.seeds.items() if isinstance(seed, TorchSeed) and seed.heavy}
    assert heavy == {"torch.matmul", "nn.Linear", "nn.Conv2d", "torch.linalg.inv"}


async def test_a_child_that_hangs_or_dies_is_replaced(warm: ForkServer, monkeypatch: pytest.MonkeyPatch) -> None:
    async with torch_crawl._Crew(warm, 1) as crew:
        with monkeypatch.context() as hurried:
            hurried.setattr(torch_crawl, "OPERATOR_SECONDS", 0.0001)
            assert (await crew.ask("build", {"name": "torch.sin"}))["refused"].startswith("timeout")
        assert "templates" in await crew.ask("build", {"name": "torch.sin"})
        child = crew._idle.get_nowait()
        assert child is not None
        child.kill()
        crew._idle.put_nowait(child)
        assert "templates" in await crew.ask("build", {"name": "torch.sin"})


async def test_a_kept_report_is_read_again_and_a_broken_one_is_not(warm: ForkServer, tmp_path: Path, report: CrawlReport) -> None:
    path = tmp_path / "report.json"
    torch_crawl._write(path, report)
    assert torch_crawl._read(path) == report
    path.write_text(path.read_text()[:100])
    assert torch_crawl._read(path) is None


async def test_no_seed_at_all_is_one_clear_error(warm: ForkServer, tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="yielded no seed"):
        await crawl_torch(warm, tmp_path, only=lambda name: name == "torch.clone")


async def test_guesses_go_by_name_and_keep_further_tensors_apart() -> None:
    signature = [Parameter("input", "tensor"), Parameter("dim", "int", required=False), Parameter("index", "tensor")]
    first = next(recipes.function_templates("torch.f", signature))
    assert first.expression == "torch.f({x}, -1, {y0})" and first.extras == ("torch.randint(0, {last}, ({shape}))",)


async def test_names_tell_what_is_left_alone_and_how_many_dimensions_there_are() -> None:
    assert recipes.excluded("relu_") and recipes.excluded("rand_like") and recipes.excluded("set_num_threads")
    assert not recipes.excluded("relu") and not recipes.excluded("gradient") and not recipes.excluded("tensordot")
    assert recipes.likely_ranks("conv2d") == (4,) and recipes.likely_ranks("relu") == (2, 3, 4)
