import numpy as np
import pytest

from cuda_agent.problems.catalogue import BY_STATEMENT, OPERATORS, Operator, family, linear_reference


@pytest.mark.parametrize("operator", [o for o in OPERATORS if not o.init], ids=lambda o: o.name)
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_the_statement_computes_what_the_reference_says(operator: Operator, scale: float) -> None:
    import torch
    from torch import nn

    x = np.random.default_rng(0).standard_normal((8, 64)) * scale
    names = {"torch": torch, "nn": nn, "x": torch.from_numpy(x)}
    exec(operator.statement, names)
    np.testing.assert_allclose(names["x"].numpy(), operator.reference(x), rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda o: o.name)
def test_a_reference_keeps_float32_and_its_shape_rule(operator: Operator) -> None:
    output = operator.reference(np.ones((4, 16), np.float32))
    assert output.dtype == np.float32
    assert output.shape == (4, 1 if operator.columns == "one" else 16)


def test_statements_and_names_are_unique_single_lines() -> None:
    assert len(BY_STATEMENT) == len({o.name for o in OPERATORS}) == len(OPERATORS)
    assert all(o.statement.startswith("x = ") and "\n" not in o.statement for o in OPERATORS)


def test_families_have_the_sizes_the_quickstart_counts_on() -> None:
    assert [len(family(name)) for name in ("elementwise", "reduction", "matmul")] == [21, 7, 1]


def test_linear_draws_weights_as_torch_does() -> None:
    output = linear_reference(np.random.default_rng(0).standard_normal((64, 256)), 32)
    assert output.shape == (64, 32)
    assert output.std() == pytest.approx(3**-0.5, rel=0.1)  # 256 inputs of variance 1, weights of variance 1 / (3 * 256)
