import time
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cuda_agent.errors import ProblemError
from cuda_agent.problems.compose import compose
from cuda_agent.problems.similarity import Match, Twins, fingerprint, most_similar, similarity
from tests.problems.texts import catalogue, text

PRINTS = [fingerprint(p.code, str(n)) for n, p in enumerate(islice(compose(catalogue(eager_ms_min=0.05, seed=5)), 40))]
PAIR = st.tuples(st.sampled_from(PRINTS), st.sampled_from(PRINTS))


@settings(max_examples=60, deadline=None)
@given(PAIR)
def test_symmetric_and_bounded(pair: tuple) -> None:
    value = similarity(*pair)
    assert 0.0 <= value <= 1.0 and value == similarity(*reversed(pair))
    assert similarity(pair[0], pair[0]) == 1.0


def test_names_comments_shapes_and_docstrings_do_not_count() -> None:
    plain = text("x = torch.relu(x)\nx = torch.softmax(x, dim=-1)")
    dressed = plain.replace("(self, x)", "(self, value: torch.Tensor) -> torch.Tensor").replace("x = torch.", "value = torch.")
    dressed = (
        dressed.replace("relu(x)", "relu(value)  # first")
        .replace("softmax(x", "softmax(value")
        .replace("return x", "return value")
    )
    dressed = dressed.replace("64, 256", "9, 99").replace("        super()", '        """Words."""\n        super()')
    assert similarity(fingerprint(plain), fingerprint(dressed)) == 1.0


def test_how_a_function_is_imported_does_not_count() -> None:
    left, right = text("x = nn.functional.silu(x)"), text("x = F.silu(x)", head="import torch.nn.functional as F")
    assert similarity(fingerprint(left), fingerprint(right)) == 1.0


def test_another_operator_or_constant_counts() -> None:
    base = fingerprint(text("x = torch.relu(x)\nx = torch.tanh(x)"))
    assert similarity(base, fingerprint(text("x = torch.relu(x)\nx = torch.sin(x)"))) < 0.9
    assert similarity(base, fingerprint(text("x = torch.sin(x)\nx = torch.exp(x)"))) < 0.5
    assert similarity(fingerprint(text("x = x * 0.5")), fingerprint(text("x = x * 0.25"))) < 1.0


def test_most_similar_finds_the_twin_and_respects_the_threshold() -> None:
    assert most_similar(PRINTS[3], PRINTS).similarity == 1.0
    assert most_similar(PRINTS[3], PRINTS[4:8], threshold=1.0) is None
    assert most_similar(PRINTS[3], []) is None


def test_the_bound_never_hides_the_best_match() -> None:
    for candidate in PRINTS[:10]:
        others = [other for other in PRINTS if other is not candidate]
        best = max(similarity(candidate, other) for other in others)
        match = most_similar(candidate, others)
        assert (match.similarity if match else 0.0) == best


def test_a_text_without_model_is_refused() -> None:
    with pytest.raises(ProblemError, match="no class Model"):
        fingerprint("x = 1")


def test_helpers_beside_the_model_count() -> None:
    one = text("x = Block()(x)", head="class Block(nn.Module):\n    def forward(self, x):\n        return torch.relu(x)")
    other = one.replace("torch.relu(x)", "torch.tanh(torch.sin(x))")
    assert similarity(fingerprint(one), fingerprint(other)) < 0.9


def test_twins_are_found_by_text_whatever_the_facts_and_by_likeness_on_the_same_shapes() -> None:
    twins, facts = Twins(), {"inputs": [["float32", [4, 4]]], "outputs": [["float32", [4, 4]]]}
    twins.add(text("x = torch.relu(x)"), facts, "3")
    assert twins.find(text("x = torch.relu(x)  # again"), {}, 0.98) == Match("3", 1.0)
    renamed = text("y = torch.relu(x)\nx = y")
    assert twins.find(renamed, facts, 0.98) == Match("3", 1.0)
    assert twins.find(renamed, facts | {"outputs": [["float32", [4]]]}, 0.98) is None
    assert twins.find(renamed, {}, 0.98) is None
    assert twins.find(text("x = torch.sin(x)"), facts, 0.98) is None


def test_twins_among_six_thousand_are_found_quickly() -> None:
    twins, facts = Twins(), {"inputs": [["float32", [4, 4]]], "outputs": [["float32", [4, 4]]]}
    stream = compose(catalogue(eager_ms_min=0.05, seed=3, operator_mix={3: 0.5, 5: 0.5}))
    codes = [problem.code for problem, _ in zip(stream, range(600), strict=False)]
    for number, code in enumerate(codes):
        for copy in range(10):
            twins.add(f"{code}# {copy}", facts, f"{number}")
    started = time.process_time()
    assert twins.find(codes[-1].replace("x = ", "y = x = "), facts, 0.98) == Match("599", 1.0)
    assert time.process_time() - started < 0.5
