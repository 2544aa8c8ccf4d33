"""What a child may say about where its answer lies, and what is refused before anything is read."""

from typing import Any

import numpy as np
import pytest
import torch

from cuda_agent.judge.answers import Misplaced, addresses, describe, locate
from cuda_agent.judge.values import pack

EXPECTED = pack((torch.zeros(4, 6), {"n": torch.zeros(3, dtype=torch.int64)}, 2.5))


def answer(**changed: Any) -> tuple[Any, ...]:
    value = {"first": torch.ones(4, 6), "inner": {"n": torch.ones(3, dtype=torch.int64)}, "scalar": 2.5} | changed
    return value["first"], value["inner"], value["scalar"]


def test_places_follow_the_tensors() -> None:
    value = answer()
    places = locate(EXPECTED, describe(value))
    assert [place.address for place in places] == addresses(value) == [value[0].data_ptr(), value[1]["n"].data_ptr()]
    assert [place.extent for place in places] == [96, 24]


def test_strided_views_of_larger_memory_are_fine() -> None:
    (first, _) = locate(EXPECTED, describe(answer(first=torch.ones(6, 4).t())))
    assert first.strides == (1, 4)
    (wide, _) = locate(EXPECTED, describe(answer(first=torch.ones(4, 12)[:, :6])))
    assert wide.extent == (3 * 12 + 6) * 4


def test_view_as_sparse_as_the_references_is_fine() -> None:
    last = torch.ones(32, 256, 64)[:, -1]
    assert locate(pack(last), describe(last))
    with pytest.raises(Misplaced, match="not backed"):
        locate(pack(last.contiguous()), describe(last))


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"first": torch.ones(6, 4)}, "shape"),
        ({"first": torch.ones(4, 6, dtype=torch.float64)}, "dtype"),
        ({"first": torch.ones(1, 1).expand(4, 6)}, "share memory"),
        ({"first": torch.arange(60.0).as_strided((4, 6), (7, 7))}, "share memory"),
        ({"first": torch.ones(4, 6, device="meta")}, "meta"),
        ({"inner": {"n": torch.ones(3, dtype=torch.int64), "more": 1}}, "keys"),
        ({"inner": torch.ones(3, dtype=torch.int64)}, "expected a dict"),
        ({"scalar": 2.0}, "expected 2.5"),
        ({"scalar": torch.tensor(2.5)}, "expected a scalar"),
    ],
)
def test_other_forms_are_named(changed: dict[str, Any], words: str) -> None:
    with pytest.raises(Misplaced, match=words):
        locate(EXPECTED, describe(answer(**changed)))


@pytest.mark.parametrize(
    "described",
    [
        None,
        [],
        ["tuple"],
        ["tuple", [["tensor", "float32", "cpu", [4, 6], [6, 1], -1]]],
        ["tuple", [["tensor", "float32", "cpu", [4, 6], [6, 1], 0], ["dict", [["n", []]]], ["scalar", 2.5]]],
        ["tuple", [["tensor", "float32", "cpu", [4, 6], [2**61, 1], 64], ["dict", []], ["scalar", 2.5]]],
        ["tuple", [["tensor", "float32", "cpu", [4, 6], "61", 64], ["dict", []], ["scalar", 2.5]]],
    ],
)
def test_nonsense_is_a_difference_not_an_error(described: Any) -> None:
    with pytest.raises(Misplaced):
        locate(EXPECTED, described)


class Lazy(torch.Tensor):
    pass


@pytest.mark.parametrize("value", [torch.ones(2).as_subclass(Lazy), torch.ones(2).to_sparse(), object(), {1, 2}])
def test_what_is_no_plain_tensor_cannot_be_described(value: Any) -> None:
    with pytest.raises(TypeError):
        describe(value)


def test_broadcast_is_accepted_where_the_reference_does_the_same() -> None:
    expected = pack(torch.ones(1, 6).expand(4, 6))
    assert expected[4] == [0, 1] and np.shape(expected[3]) == (4, 6)
    assert locate(expected, describe(torch.ones(1, 6).expand(4, 6)))
