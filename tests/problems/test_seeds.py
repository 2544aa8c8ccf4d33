import json

import pytest

from cuda_agent.problems.problem import read_contract
from cuda_agent.problems.seeds import Call, CrawlReport, ModuleSeed, Template, TorchSeed, render, seed_from_json

LINEAR = Template((2, 3), "{m}({x}) + {y0}", "nn.Linear({last}, {half})", ("torch.randn({half})",))


def report() -> CrawlReport:
    calls = tuple(LINEAR.call((rows, 8)) for rows in (2, 3, 4))
    seed = TorchSeed("nn.Linear", calls, large=calls[:2], templates=(LINEAR,), heavy=True, leaves={"normal": "signed"})
    module = ModuleSeed("transformers.X", ("a", "b", "c"))
    return CrawlReport({seed.name: seed, module.name: module}, {"torch.relu_": "left out: in place"}, {"torch": "2"})


def test_a_template_becomes_a_call_with_the_sizes_of_a_shape() -> None:
    assert LINEAR.call((4, 8)) == Call((4, 8), "{m}({x}) + {y0}", "nn.Linear(8, 4)", ("torch.randn(4)",))


def test_all_sizes_can_be_named() -> None:
    template = Template((3,), "f({x}, {s0}, {s1}, {last}, {prev}, {double})", extras=("g({flipped})", "g({batch}{last}, {last})"))
    call = template.call((2, 3, 5))
    assert call.expression == "f({x}, 2, 3, 5, 3, 10)"
    assert call.extras == ("g(2, 5, 3)", "g(2, 5, 5)")


@pytest.mark.parametrize(("shape", "square", "fits"), [((4, 8), False, True), ((4, 8), True, False), ((8, 8), True, True)])
def test_a_template_takes_its_ranks_and_square_ones_only_where_asked(shape: tuple[int, ...], square: bool, fits: bool) -> None:
    assert Template((2,), "{x}", square=square).fits(shape) is fits
    assert not Template((3,), "{x}", square=square).fits(shape)


def test_a_report_survives_json() -> None:
    assert CrawlReport.from_json(json.loads(json.dumps(report().to_json()))) == report()


def test_a_seed_written_without_the_later_fields_is_read() -> None:
    seed = seed_from_json(
        {"name": "torch.abs", "calls": [[[2, 2], "torch.abs({x})", "", []]], "x": "torch.randn({shape})", "out": []}
    )
    assert isinstance(seed, TorchSeed) and not seed.templates and not seed.heavy


def test_further_inputs_of_a_chain_are_numbered_through() -> None:
    add = Call((2, 4), "torch.add({x}, {y0})", extras=("torch.randn(2, 4)",))
    code = render([add, LINEAR.call((2, 4)), add], "torch.randn(2, 4)")
    assert read_contract(code).forward_parameters == ("x", "y0", "y1", "y2")
    assert "x = torch.add(x, y2)" in code and "x = self.layer1(x) + y1" in code


def test_small_and_large_settings_give_problems_of_their_own() -> None:
    seed = report().seeds["nn.Linear"]
    assert isinstance(seed, TorchSeed)
    assert seed.problem(2).ops == ("nn.Linear",) and "torch.randn(4, 8)" in seed.problem(2).code
    assert seed.problem(1, large=True).data_source == "torch#1"
