"""The decode loop of the transformers engine: sequences join and leave a running batch at every step.

Each sequence owns a row of a preallocated key/value cache; a row's column is the token's position, so rows of different
lengths share a step without padding between their tokens. An answer depends on its own prompt, sampling and seed, and on
the batch around it only through floating-point rounding. Keys and values of finished sequences are kept for a while: the
next turn of the same episode then computes only what is new. Imports torch: for child processes only.
"""

import inspect
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import AttentionInterface, PreTrainedModel
from transformers.cache_utils import Cache, CacheLayerMixin

from cuda_agent.engines.base import Generation, Sampling

_PREFILL_TOKENS = 8_192  # padded tokens of one prefill pass, so that a burst of long prompts keeps memory bounded
_KEPT_TOKENS = 65_536  # tokens of finished sequences whose keys and values are kept
_SHORTEST_KEPT = 16  # a shorter common prefix is computed again rather than looked up


@dataclass
class Row:
    """One sequence under way; `ids` is prompt and answer, `computed` of them have keys and values in the cache."""

    key: int
    ids: list[int]
    prompt: int
    sampling: Sampling
    computed: int = 0
    logprobs: list[float] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)
    _uniform: list[float] = field(default_factory=list)
    _generator: torch.Generator | None = None

    def uniform(self) -> float:
        """The next number in [0, 1) of this sequence's own stream."""
        if not self._uniform:
            if self._generator is None:
                self._generator = torch.Generator().manual_seed(self.sampling.seed % 2**63)
            self._uniform = torch.rand(64, generator=self._generator, dtype=torch.float64).tolist()[::-1]
        return self._uniform.pop()


@dataclass(frozen=True)
class Finished:
    """A sequence that ended, under the key its request came with."""

    key: int
    generation: Generation


class _Layer(CacheLayerMixin):  # type: ignore[no-untyped-call]
    """Keys and values of one layer, [rows, heads, columns, width]; the last column takes what padding writes."""

    def __init__(self, slots: "_Slots") -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.slots = slots

    def lazy_initialization(self, key_states: torch.Tensor, value_states: torch.Tensor) -> None:
        rows, columns = self.slots.rows, self.slots.columns
        self.keys = key_states.new_zeros(rows, key_states.shape[1], columns, key_states.shape[3])
        self.values = value_states.new_zeros(rows, value_states.shape[1], columns, value_states.shape[3])
        self.is_initialized = True

    def update(
        self, key_states: torch.Tensor, value_states: torch.Tensor, *args: Any, **kwargs: Any
    ) -> tuple[torch.Tensor, torch.Tensor]:
        if not self.is_initialized:
            self.lazy_initialization(key_states, value_states)
        assert self.keys is not None and self.values is not None
        window, at = self.slots.window, (self.slots.row_index, slice(None), self.slots.column_index)
        self.keys[at] = key_states.transpose(1, 2)
        self.values[at] = value_states.transpose(1, 2)
        return self.keys[window], self.values[window]

    def get_mask_sizes(self, query_length: int) -> tuple[int, int]:
        return self.slots.width, 0

    def get_seq_length(self) -> int:
        return self.slots.width

    def get_max_length(self) -> int:
        return self.slots.columns

    def grow(self, rows: int, columns: int) -> None:
        """Move into larger tensors; the old last column held nothing of use."""
        if not self.is_initialized:
            return
        for name in ("keys", "values"):
            old = getattr(self, name)
            new = old.new_zeros(rows, old.shape[1], columns, old.shape[3])
            new[: old.shape[0], :, : old.shape[2] - 1] = old[:, :, :-1]
            setattr(self, name, new)


class _Slots:
    """The cache of all layers, and where the pass under way reads and writes."""

    def __init__(self, layers: int) -> None:
        self.rows, self.columns, self.width = 0, 1, 0
        self.layers = [_Layer(self) for _ in range(layers)]
        self.cache = Cache(layers=list(self.layers))
        self.window: tuple[slice, slice, slice] = (slice(0), slice(None), slice(0))
        self.row_index = self.column_index = torch.zeros(0, 0, dtype=torch.long)

    def reserve(self, rows: int, columns: int) -> None:
        """Make room for so many rows and columns (at least doubling, so that growth costs little)."""
        if rows <= self.rows and columns < self.columns:
            return
        if rows > self.rows:
            rows = max(rows, 2 * self.rows, 8)
        if columns >= self.columns:
            columns = max(columns + 1, 2 * self.columns, 256)
        self.rows, self.columns = max(rows, self.rows), max(columns, self.columns)
        for layer in self.layers:
            layer.grow(self.rows, self.columns)

    def aim(self, first: int, last: int, positions: torch.Tensor, real: torch.Tensor) -> None:
        """Let the next pass write rows first..last at `positions` [rows, tokens]; what is not `real` goes to the last column."""
        self.width = int(positions.max()) + 1
        self.window = (slice(first, last), slice(None), slice(self.width))
        self.row_index = torch.arange(first, last, device=positions.device)[:, None]
        self.column_index = torch.where(real, positions, self.columns - 1)

    def copy_row(self, source: int, target: int, length: int) -> None:
        """Copy the first `length` columns of one row over another's."""
        for layer in self.layers:
            for tensor in (layer.keys, layer.values):
                if tensor is not None:
                    tensor[target, :, :length] = tensor[source, :, :length]

    def take(self, row: int, length: int) -> list[tuple[torch.Tensor, torch.Tensor]]:
        """A copy of the first `length` columns of a row, layer by layer."""
        return [
            (layer.keys[row, :, :length].clone(), layer.values[row, :, :length].clone())
            for layer in self.layers
            if layer.keys is not None and layer.values is not None
        ]

    def put(self, row: int, length: int, states: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
        """Write the first `length` columns that `take` returned into a row."""
        for layer, (keys, values) in zip(self.layers, states, strict=True):
            assert layer.keys is not None and layer.values is not None
            layer.keys[row, :, :length] = keys[:, :length]
            layer.values[row, :, :length] = values[:, :length]


def _attend(
    module: torch.nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor,
    scaling: float | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention of [rows, heads, tokens, size] queries to the key/value heads of the cache, grouped queries unrepeated.

    On a CPU torch's fused attention copies strided keys; two batched products are twice as fast for one query token.
    """
    rows, heads, tokens, size = query.shape
    shared = heads // key.shape[1]
    grouped = query.reshape(rows, key.shape[1], shared * tokens, size) * (scaling or size**-0.5)
    scores = torch.matmul(grouped, key.transpose(2, 3)).view(rows, key.shape[1], shared, tokens, -1)
    weights = scores.masked_fill_(~attention_mask[:, :, None], float("-inf")).softmax(dim=-1, dtype=torch.float32)
    mixed = torch.matmul(weights.to(value.dtype).view(rows, key.shape[1], shared * tokens, -1), value)
    return mixed.view(rows, heads, tokens, size).transpose(1, 2), None


AttentionInterface.register("cuda_agent_slots", _attend)


class Decoder:
    """A model and the sequences it is answering; `step` moves all of them by one token."""

    def __init__(self, model: PreTrainedModel, *, stop_ids: frozenset[int], max_rows: int = 64) -> None:
        self.model: Any = model.eval()  # type: ignore[no-untyped-call]
        if model.device.type == "cpu":
            model.set_attn_implementation("cuda_agent_slots")
        self.stop_ids = stop_ids
        self.max_rows = max_rows
        config = model.config.get_text_config()
        self.context = int(config.max_position_embeddings)
        self._slots = _Slots(config.num_hidden_layers)
        self._cache_name = "cache" if "cache" in inspect.signature(model.forward).parameters else "past_key_values"
        self._waiting: deque[Row] = deque()
        self._rows: list[Row] = []
        self._kept: deque[tuple[list[int], list[tuple[torch.Tensor, torch.Tensor]]]] = deque()

    def add(self, key: int, prompt: list[int], sampling: Sampling) -> None:
        """Queue a prompt; it joins at the next step.

        Raises:
            ValueError: the prompt is empty, leaves no room in the model's context, or asks for no tokens.
        """
        if not prompt or len(prompt) >= self.context:
            raise ValueError(f"a prompt of {len(prompt)} tokens does not fit a context of {self.context}; shorten the episode")
        if sampling.max_new_tokens < 1:
            raise ValueError("max_new_tokens must be at least 1")
        self._waiting.append(Row(key, list(prompt), len(prompt), sampling))

    @torch.inference_mode()
    def cancel(self, key: int) -> None:
        """Forget a sequence; nothing happens if it has ended."""
        self._waiting = deque(row for row in self._waiting if row.key != key)
        for index, row in enumerate(self._rows):
            if row.key == key:
                self._drop(index)
                return

    def clear(self) -> None:
        """Forget every sequence and what was kept."""
        self._waiting.clear()
        self._rows.clear()
        self._kept.clear()

    @torch.inference_mode()
    def step(self) -> list[Finished]:
        """Let waiting sequences join, and draw one token for each sequence; returns those that ended."""
        finished = self._admit()
        if self._rows:
            finished += self._advance(0, [[row.ids[-1]] for row in self._rows])
        return finished

    def _admit(self) -> list[Finished]:
        first, longest = len(self._rows), 0
        while self._waiting and len(self._rows) < self.max_rows:
            ahead = self._waiting[0]
            longest = max(longest, len(ahead.ids))
            if len(self._rows) > first and longest * (len(self._rows) - first + 1) > _PREFILL_TOKENS:
                break
            row = self._waiting.popleft()
            self._rows.append(row)
            self._slots.reserve(len(self._rows), len(row.ids) + 1)
            self._recall(len(self._rows) - 1)
        if len(self._rows) == first:
            return []
        return self._advance(first, [row.ids[row.computed :] for row in self._rows[first:]])

    def _advance(self, first: int, new: list[list[int]]) -> list[Finished]:
        """Run `new` tokens of rows first.. through the model and draw each row's next token."""
        rows = self._rows[first:]
        logits = self._forward(first, new)
        ids, logprobs = draw(logits, rows)
        finished = []
        for index in range(len(rows) - 1, -1, -1):
            row = rows[index]
            row.computed = len(row.ids)
            row.ids.append(ids[index])
            row.logprobs.append(logprobs[index])
            finish = self._finish(row)
            if finish:
                finished.append(Finished(row.key, _generation(row, finish)))
                self._keep(first + index)
                self._drop(first + index)
        return finished

    def _finish(self, row: Row) -> str:
        if row.ids[-1] in self.stop_ids:
            return "stop"
        full = len(row.ids) - row.prompt >= row.sampling.max_new_tokens or len(row.ids) >= self.context
        return "length" if full else ""

    def _forward(self, first: int, new: list[list[int]]) -> torch.Tensor:
        """Logits [rows, vocabulary] after each row's last token; shorter rows are padded on the left."""
        device = self.model.device
        tokens = max(len(ids) for ids in new)
        padded = torch.tensor([[0] * (tokens - len(ids)) + ids for ids in new], device=device)
        ends = torch.tensor([row.computed + len(ids) for row, ids in zip(self._rows[first:], new, strict=True)], device=device)
        counts = torch.tensor([len(ids) for ids in new], device=device)
        back = torch.arange(tokens - 1, -1, -1, device=device)[None]
        real = back < counts[:, None]
        positions = (ends[:, None] - 1 - back).clamp(min=0)
        self._slots.reserve(first + len(new), int(ends.max()) + 1)
        self._slots.aim(first, first + len(new), positions, real)
        visible = torch.arange(self._slots.width, device=device) <= positions[:, None, :, None]
        output = self.model(
            input_ids=padded,
            attention_mask=visible,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
            **{self._cache_name: self._slots.cache},
        )
        logits: torch.Tensor = output.logits[:, -1]
        return logits.float()

    def _drop(self, index: int) -> None:
        """Free a row by moving the last one into its place."""
        last = len(self._rows) - 1
        if index != last:
            self._slots.copy_row(last, index, self._rows[last].computed)
            self._rows[index] = self._rows[last]
        self._rows.pop()

    def _keep(self, index: int) -> None:
        row = self._rows[index]
        self._kept.append((row.ids[: row.computed], self._slots.take(index, row.computed)))
        while sum(len(ids) for ids, _ in self._kept) > _KEPT_TOKENS:
            self._kept.popleft()

    def _recall(self, index: int) -> None:
        """Reuse the keys and values of an ended sequence that this prompt extends."""
        row = self._rows[index]
        best = max(range(len(self._kept)), key=lambda at: _common(self._kept[at][0], row.ids), default=None)
        if best is None:
            return
        ids, states = self._kept[best]
        length = _common(ids, row.ids)
        if length < _SHORTEST_KEPT or length < len(ids):
            return
        self._slots.put(index, length, states)
        row.computed = length
        del self._kept[best]


def _common(kept: list[int], ids: list[int]) -> int:
    """The length of `kept` when `ids` starts with it and goes on, else 0."""
    return len(kept) if len(kept) < len(ids) and ids[: len(kept)] == kept else 0


def _generation(row: Row, finish: Any) -> Generation:
    answer = tuple(row.ids[row.prompt :])
    return Generation(answer, tuple(row.logprobs), finish, time.monotonic() - row.started)


def draw(logits: torch.Tensor, rows: list[Row]) -> tuple[list[int], list[float]]:
    """One token for each row of `logits` [rows, vocabulary], by inverting the cumulative distribution at the row's own number.

    The log-probs are those of the full vocabulary at the row's temperature (at 1 for greedy rows), before top_k and top_p.
    """
    scale = torch.tensor([row.sampling.temperature or 1.0 for row in rows], device=logits.device)
    logprobs = torch.log_softmax(logits / scale[:, None], dim=-1)
    probs = logprobs.exp().double()
    for index, row in enumerate(rows):
        if row.sampling.top_k or row.sampling.top_p < 1.0:
            probs[index] = truncated(probs[index], row.sampling)
    cumulative = probs.cumsum(dim=-1)
    number = torch.tensor([row.uniform() for row in rows], dtype=torch.float64, device=logits.device)
    ids = torch.searchsorted(cumulative, number[:, None] * cumulative[:, -1:], right=True).clamp(max=logits.shape[-1] - 1)
    greedy = torch.tensor([row.sampling.temperature == 0.0 for row in rows], device=logits.device)
    ids = torch.where(greedy, logits.argmax(dim=-1), ids[:, 0])
    chosen = logprobs.gather(1, ids[:, None])[:, 0]
    return ids.tolist(), chosen.tolist()


def truncated(probs: torch.Tensor, sampling: Sampling) -> torch.Tensor:
    """Probabilities [vocabulary] with what top_k and top_p cut set to 0 (not normalised again)."""
    order = probs.argsort(descending=True)
    ranked = probs[order]
    kept = torch.ones_like(ranked, dtype=torch.bool)
    if sampling.top_k:
        kept[sampling.top_k :] = False
    if sampling.top_p < 1.0:
        kept &= ranked.cumsum(0) - ranked < sampling.top_p  # the token that crosses the mass stays
    return torch.zeros_like(probs).index_copy(0, order, torch.where(kept, ranked, 0.0))
