"""What stands in the ring's memory, and that the judge notices when it is changed."""

from pathlib import Path

import numpy as np
import pytest

from cuda_agent.judge import glue
from cuda_agent.judge.memory import HostMemory, Mix
from cuda_agent.judge.ring import Layout, Ring, Sources, Way, ring_sets
from cuda_agent.judge.timing import MAX_BATCH
from cuda_agent.judge.values import leaves, widen
from cuda_agent.store.session import cache_folder


def tensor(array: np.ndarray, strides: list[int] | None = None) -> list:
    steps = strides or [step // array.itemsize for step in array.strides]
    return ["tensor", array.dtype.name, list(array.shape), np.ascontiguousarray(array), steps]


LIBRARY = Path(glue.prepare(cache_folder()).folder) / "refresh.so"
FLOATS = np.arange(12, dtype=np.float32).reshape(3, 4)
INDICES = np.array([3, 1, 2], np.int64)
INPUTS = ["list", [tensor(FLOATS), ["dict", [["i", tensor(INDICES)]]], ["scalar", 2]]]


def ring_of(inputs: list, sets: int) -> Ring:
    ways = tuple(Way(True, leaf[3].size) if leaf[1].startswith("float") else Way(False, 1) for leaf in leaves(inputs))
    return Ring(Sources((inputs,), ways), sets, HostMemory(Layout.of(inputs, sets).size, LIBRARY))


def stored(ring: Ring, number: int, leaf: int) -> np.ndarray:
    return ring.layout.leaves[leaf].over(ring.memory.view, number * ring.layout.pitch)


def test_placed_inputs_stand_there_until_someone_writes() -> None:
    ring = ring_of(INPUTS, 3)
    ring.place(1, INPUTS)
    assert np.array_equal(stored(ring, 1, 0), FLOATS) and np.array_equal(stored(ring, 1, 1), INDICES)
    assert not ring.changed(1, INPUTS)
    stored(ring, 1, 0)[2, 3] += 1
    assert ring.changed(1, INPUTS)
    ring.close()


def test_refreshed_floats_are_new_and_indices_stay_valid() -> None:
    many = np.arange(3_000, dtype=np.float32).reshape(60, 50)  # of a few, a draw may repeat another
    ring = ring_of(["list", [tensor(many), tensor(INDICES)]], 2)
    seen = [many]
    for _ in range(20):
        ring.refresh(0)
        found = stored(ring, 0, 0).copy()
        assert not any(np.array_equal(found, before) for before in seen)
        seen.append(found)
        assert found.min() >= 0.0 and found.max() <= many.max()
        assert np.array_equal(stored(ring, 0, 1), INDICES)


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "bfloat16"])
@pytest.mark.parametrize(("count", "shift"), [(1, 0), (2, 1), (7, 3), (1_000, 1), (1_000, 999), (4_096, 64), (5_003, 2_500)])
def test_fresh_values_are_a_mix_of_the_kept_ones(dtype: str, count: int, shift: int) -> None:
    values = np.round(np.linspace(-32, 32, count)).astype("float32" if dtype == "bfloat16" else dtype)
    held = (values.view(np.uint32) >> 16).astype(np.uint16) if dtype == "bfloat16" else values
    memory = HostMemory(held.nbytes + 64, LIBRARY)
    kept = memory.keep(held.view(np.uint8))
    for offset in (0, held.itemsize):
        memory.renew(offset, Mix(kept, kept, shift, 0, 0.5), held.nbytes, dtype)  # halves of integers are exact in every type
        found = memory.taken(offset, held.nbytes).view(held.dtype)
        assert np.array_equal(widen(dtype, found), 0.5 * np.roll(widen(dtype, held), shift) + 0.5 * widen(dtype, held))


@pytest.mark.parametrize("array", [np.arange(1_003, dtype=np.int64), np.arange(257) % 3 == 0, np.arange(700, dtype=np.float16)])
def test_rolled_values_are_a_sources_in_another_place(array: np.ndarray) -> None:
    inputs = ["list", [tensor(array)]]
    ring = Ring(Sources((inputs, inputs), (Way(False, array.size),)), 2, HostMemory(Layout.of(inputs, 2).size, LIBRARY))
    found = []
    for _ in range(5):
        ring.refresh(1)
        found.append(stored(ring, 1, 0).copy())
    assert all(any(np.array_equal(values, np.roll(array, by)) for by in range(len(array))) for values in found)
    assert len({values.tobytes() for values in found}) > 1


def test_values_mixed_in_place_keep_what_all_sources_have() -> None:
    triangles = [np.triu(np.random.default_rng(seed).random((40, 40), np.float32)) for seed in range(3)]
    sources = tuple(["list", [tensor(triangle)]] for triangle in triangles)
    ring = Ring(Sources(sources, (Way(True, 1, 1.0),)), 2, HostMemory(Layout.of(sources[0], 2).size, LIBRARY))
    ring.refresh(0)
    found = stored(ring, 0, 0)
    assert found.max() <= 1.0
    assert not np.tril(found, -1).any() and (found[np.triu_indices(40)] > 0).all()
    assert not any(np.array_equal(found, triangle) for triangle in triangles)


def test_bent_answers_are_no_combination_of_earlier_ones() -> None:
    rng = np.random.default_rng(0)
    sources = tuple(["list", [tensor(np.tril(rng.normal(size=(40, 40))).astype(np.float32))]] for _ in range(3))
    ring = Ring(Sources(sources, (Way(True, 1, 3.0),)), 2, HostMemory(Layout.of(sources[0], 2).size, LIBRARY))

    def fresh() -> np.ndarray:
        ring.refresh(0)
        return stored(ring, 0, 0).astype(np.float64).reshape(-1)

    seen = np.stack([fresh() for _ in range(MAX_BATCH)])  # then new draws take over
    for _ in range(5):
        new = fresh()
        left = new - np.linalg.lstsq(seen.T, new, rcond=None)[0] @ seen
        assert np.abs(left).max() > 2e-3  # twenty times what float32 is allowed at a spread of 1


def test_shifts_go_by_whole_blocks() -> None:
    rows = np.arange(24, dtype=np.float32).reshape(6, 4)
    inputs = ["list", [tensor(rows)]]
    ring = Ring(Sources((inputs,), (Way(False, 6),)), 2, HostMemory(Layout.of(inputs, 2).size, LIBRARY))
    for _ in range(10):
        ring.refresh(0)
        assert any(np.array_equal(stored(ring, 0, 0), np.roll(rows, by, 0)) for by in range(6))


def test_taken_inputs_are_those_that_stand_there() -> None:
    ring = ring_of(INPUTS, 2)
    ring.place(1, INPUTS)
    taken = ring.taken(1)
    assert not ring.changed(1, taken)
    assert [leaf[1:3] for leaf in leaves(taken)] == [leaf[1:3] for leaf in leaves(INPUTS)]
    stored(ring, 1, 0)[0, 0] += 1
    assert ring.changed(1, taken)


def test_transposed_tensors_keep_their_strides() -> None:
    inputs = ["list", [tensor(np.ascontiguousarray(FLOATS.T), [1, 4])]]
    ring = ring_of(inputs, 2)
    ring.place(0, inputs)
    assert np.array_equal(stored(ring, 0, 0), FLOATS.T)
    assert stored(ring, 0, 0).strides == (4, 16)
    assert not ring.changed(0, inputs)


@pytest.mark.parametrize("strides", [[0, 1], [8, 1], [2, 2]])
def test_expanded_or_gapped_tensors_are_laid_out_contiguously(strides: list[int]) -> None:
    layout = Layout.of(["list", [tensor(FLOATS, strides)]], 2)
    assert layout.leaves[0].strides == (4, 1)


def test_empty_and_single_elements_are_no_special_case() -> None:
    inputs = ["list", [tensor(np.empty((0, 3), np.float32)), tensor(np.array(5.0, np.float32)), tensor(np.ones((1, 1, 4), bool))]]
    ring = ring_of(inputs, 2)
    ring.place(0, inputs)
    assert not ring.changed(0, inputs)


def test_sets_come_in_no_order_each_once_and_as_many_as_fit() -> None:
    ring = ring_of(INPUTS, 3)
    taken = {tuple(ring.take(2)) for _ in range(200)}
    assert taken == {(0, 1), (0, 2), (1, 0), (1, 2), (2, 0), (2, 1)}
    assert sorted(ring.take(5)[:3]) == [0, 1, 2]
    assert ring_sets(INPUTS, 16, 2**29) == 16
    large = ["list", [["tensor", "float32", [2**26], np.empty(0, np.float32), [1]]]]
    assert ring_sets(large, 16, 2**29) == 2


def test_what_comes_as_it_was_drawn_bounds_a_batch_by_its_draws() -> None:
    assert ring_of(["list", [tensor(FLOATS)]], 3).room == 3
    assert ring_of(INPUTS, 3).room == 1


def test_some_sets_are_draws_of_their_own_none_of_them_twice() -> None:
    sources = [["list", [tensor(np.random.default_rng(number).normal(size=64).astype(np.float32))]] for number in range(3)]
    ring = Ring(Sources(tuple(sources), (Way(True, 64),)), 2, HostMemory(Layout.of(sources[0], 2).size, LIBRARY))
    drawn = {number: np.sort(source[1][0][3]) for number, source in enumerate(sources)}

    def found() -> list[int]:
        seen = []
        for _ in range(200):
            ring.refresh(0)
            values = np.sort(stored(ring, 0, 0))
            seen += [number for number, own in drawn.items() if np.array_equal(values, own)]
        return seen

    assert sorted(found()) == [0, 1, 2] and found() == []
    ring.draw_from(sources)
    assert sorted(found()) == [0, 1, 2]


def test_layout_travels_as_text() -> None:
    layout = Layout.of(INPUTS, 4)
    assert Layout.read(layout.text) == layout


def test_a_batch_takes_each_source_once_and_new_ones_take_over() -> None:
    sources = [["list", [tensor(np.full(6, float(number), np.float32))]] for number in range(8)]
    ring = Ring(Sources(tuple(sources[:4]), (Way(False, 1),)), 4, HostMemory(Layout.of(sources[0], 4).size, LIBRARY))

    def batch() -> set[float]:
        for number in range(4):
            ring.refresh(number)
        return {float(stored(ring, number, 0)[0]) for number in range(4)}

    assert ring.room == 4
    assert batch() == batch() == {0.0, 1.0, 2.0, 3.0}
    ring.draw_from(sources[4:])
    assert batch() == {4.0, 5.0, 6.0, 7.0}


@pytest.mark.parametrize(
    ("way", "endless"),
    [(Way(True, 12), True), (Way(True, 3, 11.0), True), (Way(True, 1), False), (Way(True, 3), False), (Way(False, 12), False)],
)
def test_few_draws_last_only_where_mixtures_are_shifted_anywhere_or_bent(way: Way, endless: bool) -> None:
    inputs = ["list", [tensor(FLOATS)]]
    ring = Ring(Sources((inputs, inputs), (way,)), 2, HostMemory(Layout.of(inputs, 2).size, LIBRARY))
    assert ring.is_endless is endless
    ring.close()
