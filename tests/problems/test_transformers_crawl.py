"""The crawl of transformers: real modules in real sandboxed children, a few families only."""

import ast
from collections.abc import AsyncIterator
from pathlib import Path
from typing import NamedTuple

import pytest
import pytest_asyncio

from cuda_agent.errors import ProblemError
from cuda_agent.problems import transformers_crawl as crawl
from cuda_agent.problems.problem import read_contract
from cuda_agent.problems.seeds import CrawlReport, ModuleSeed
from cuda_agent.problems.transformers_source import digests, family, modules
from cuda_agent.problems.transformers_text import Argument, Draw, Recipe, Setting, render
from cuda_agent.sandbox.forkserver import ForkServer
from cuda_agent.sandbox.limits import Limits

ACTIVATIONS = "transformers.activations"
LLAMA = "transformers.models.llama.modeling_llama"
MISTRAL = "transformers.models.mistral.modeling_mistral"
BERT = "transformers.models.bert.modeling_bert"
MIXTRAL = "transformers.models.mixtral.modeling_mixtral"
FEW = (ACTIVATIONS, LLAMA, MISTRAL, BERT, MIXTRAL)


class Crawled(NamedTuple):
    report: CrawlReport
    server: ForkServer
    cache_dir: Path


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def crawled(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Crawled]:
    cache_dir = tmp_path_factory.mktemp("cache")
    async with ForkServer((f"{crawl.CHILD}:preload",), crawl.ENVIRONMENT) as server:
        yield Crawled(await crawl.crawl_transformers(server, cache_dir, modules=FEW), server, cache_dir)


def codes(report: CrawlReport, name: str) -> tuple[str, ...]:
    seed = report.seeds[name]
    assert isinstance(seed, ModuleSeed)
    return seed.codes


def test_layers_of_each_kind_become_seeds(crawled: Crawled) -> None:
    names = {
        f"{ACTIVATIONS}.NewGELUActivation": "other",
        f"{LLAMA}.LlamaRMSNorm": "norm",
        f"{LLAMA}.LlamaMLP": "mlp",
        f"{LLAMA}.LlamaAttention": "attention",
        f"{LLAMA}.LlamaRotaryEmbedding": "embedding",
        f"{LLAMA}.LlamaDecoderLayer": "layer",
        f"{BERT}.BertEmbeddings": "embedding",
        f"{BERT}.BertOutput": "other",
        f"{MIXTRAL}.MixtralExperts": "mlp",
    }
    assert {name: crawl.kind(name) for name in names if name in crawled.report.seeds} == names


def test_every_seed_has_three_texts_of_the_contract_with_different_shapes(crawled: Crawled) -> None:
    for name, seed in crawled.report.seeds.items():
        assert len(set(codes(crawled.report, name))) == 3, name
        contracts = [read_contract(code) for code in codes(crawled.report, name)]
        assert all(contract.inputs == "get_inputs" and contract.forward_parameters for contract in contracts), name
        assert seed.problem(0).data_source == "transformers"


def test_an_attention_states_its_implementation_and_takes_rotary_embeddings(crawled: Crawled) -> None:
    code = codes(crawled.report, f"{LLAMA}.LlamaAttention")[0]
    assert 'config._attn_implementation = "sdpa"' in code.replace("'", '"')
    assert "position_embeddings=(cos, sin)" in code
    assert "vocab_size" not in code, "what the class does not read is left out"


def test_a_copy_under_another_name_is_refused_and_names_the_original(crawled: Crawled) -> None:
    assert crawled.report.refused[f"{MISTRAL}.MistralRMSNorm"] == f"a copy of {LLAMA}.LlamaRMSNorm"
    assert f"{MISTRAL}.MistralRMSNorm" not in crawled.report.seeds


def test_whatever_was_tried_is_either_a_seed_or_refused_with_a_reason(crawled: Crawled) -> None:
    assert not crawled.report.seeds.keys() & crawled.report.refused.keys()
    assert all(reason and "\n" not in reason for reason in crawled.report.refused.values())
    assert len(crawled.report.seeds) > 30


async def test_a_text_runs_in_a_child_that_knows_nothing_of_the_crawl(crawled: Crawled) -> None:
    code = codes(crawled.report, f"{LLAMA}.LlamaDecoderLayer")[1]
    async with ForkServer() as server:
        child = await server.open("cuda_agent.problems.probe_child:open_probe", {}, Limits(wall_seconds=60.0))
        facts = await child.call("examine", {"code": code, "inputs": "get_inputs", "seed": 99}, 60.0)
        await child.close()
    assert facts["outputs"] == [["float32", [4, 64, 128]]]
    assert facts["deterministic"] and facts["finite"] and not facts["mutates_inputs"]


async def test_a_second_crawl_reads_the_cache_and_gives_other_scales_too(crawled: Crawled) -> None:
    unstarted = ForkServer()
    again = await crawl.crawl_transformers(unstarted, crawled.cache_dir, modules=FEW)
    assert again.to_json() == crawled.report.to_json() == CrawlReport.from_json(again.to_json()).to_json()
    both = await crawl.crawl_transformers(unstarted, crawled.cache_dir, modules=FEW, scales=("small", "medium"))
    norm = codes(both, f"{LLAMA}.LlamaRMSNorm")
    assert norm[:3] == codes(crawled.report, f"{LLAMA}.LlamaRMSNorm") and len(set(norm)) == 6
    assert "torch.randn(16, 256, 512)" in norm[3]


@pytest.mark.asyncio(loop_scope="module")
async def test_a_child_that_died_is_replaced(crawled: Crawled) -> None:
    hand = crawl._Hand(crawled.server)
    try:
        listed = await hand.call("classes", {"module": LLAMA}, 60.0)
        assert hand._child is not None
        hand._child.kill()
        assert await hand.call("classes", {"module": LLAMA}, 60.0) == listed
    finally:
        await hand.close()


async def test_an_unknown_module_is_named_with_an_example(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match=r"transformers\.models\.nothing is no module .*name one like"):
        await crawl.crawl_transformers(None, tmp_path, modules=["transformers.models.nothing"])


def test_modules_are_found_without_importing_transformers_well_known_families_first() -> None:
    found = modules()
    assert found[:2] == [ACTIVATIONS, LLAMA] and len(found) > 300
    assert [family(name) for name in found[:2]] == ["activations", "llama"]


PAIR = '''
class AlphaNorm(nn.Module):
    """Alpha's own."""

    def __init__(self, config: AlphaConfig):
        super().__init__()
        self.scale: int = 2

class AlphaLayer(nn.Module):
    def __init__(self, config):
        self.norm = AlphaNorm(config)

    def forward(self, x):
        raise ValueError("Alpha has no such layer")
'''


def test_classes_are_copies_whatever_their_names_and_messages() -> None:
    first, second = digests(PAIR), digests(PAIR.replace("Alpha", "Beta").replace("Beta's own.", "Other words."))
    assert list(first.values()) == list(second.values())


def test_a_class_is_no_copy_when_one_that_it_uses_differs() -> None:
    first, second = digests(PAIR), digests(PAIR.replace("= 2", "= 3"))
    assert first["AlphaNorm"] != second["AlphaNorm"] and first["AlphaLayer"] != second["AlphaLayer"]


def test_a_recipe_renders_constants_as_buffers_and_gives_unset_weights_values() -> None:
    recipe = Recipe(
        module="transformers.models.any.modeling_any",
        class_name="AnyLayer",
        config_class="transformers.models.any.configuration_any.AnyConfig",
        config={"hidden_size": "{H}"},
        build="config, layer_idx=0",
        call=(
            Argument("", "{}", (Draw("x", "randn", "{B}, {S}, {H}"),)),
            Argument("cu_seqlens", "{}", (Draw("cu_seqlens", "bounds", "{S}, {T}", constant=True),)),
        ),
        select="[0]",
        unset=("weight",),
    )
    code = render(recipe, Setting(batch=2, tokens=8, hidden=16, heads=4, image=32, patch=8))
    assert ast.parse(code) and read_contract(code).forward_parameters == ("x",)
    assert "config = AnyConfig(hidden_size=16)" in code
    assert 'self.register_buffer("cu_seqlens", torch.tensor([0, 8, 16], dtype=torch.int32), persistent=False)' in code
    assert "return self.layer(x, cu_seqlens=self.cu_seqlens)[0]" in code
    assert 'name.endswith("weight")' in code and "return [torch.randn(2, 8, 16)]" in code
