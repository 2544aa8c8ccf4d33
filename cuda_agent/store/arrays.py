"""Token arrays of an episode and their bytes.

Invariant: the four arrays have equal length and the dtypes of the trajectory contract (int32, float32, uint8, int16), stored
little-endian; log-prob is 0 where the mask is 0. Packed form: token_id, logprob, mask, turn one after another.
"""

from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from cuda_agent.errors import StoreError

DTYPES: dict[str, np.dtype[Any]] = {
    "token_id": np.dtype("<i4"),
    "logprob": np.dtype("<f4"),
    "mask": np.dtype("u1"),
    "turn": np.dtype("<i2"),
}
BYTES_PER_TOKEN = sum(dtype.itemsize for dtype in DTYPES.values())


@dataclass(frozen=True)
class TokenArrays:
    """One episode's final context, each array of shape [tokens]."""

    token_id: NDArray[np.int32]
    logprob: NDArray[np.float32]
    mask: NDArray[np.uint8]  # 1 for the policy's own tokens, end-of-turn included
    turn: NDArray[np.int16]  # index of the message that a token belongs to

    def __post_init__(self) -> None:
        """Check shapes.

        Raises:
            StoreError: the arrays are not four vectors of one length.
        """
        shapes = {getattr(self, field.name).shape for field in fields(self)}
        if len(shapes) != 1 or len(next(iter(shapes))) != 1:
            raise StoreError(f"token arrays must be vectors of one length, not of shapes {sorted(shapes)}")

    def __len__(self) -> int:
        """Tokens of the context."""
        return int(self.token_id.shape[0])

    def to_columns(self) -> dict[str, bytes]:
        """Little-endian bytes of each array, by column name."""
        return {name: np.ascontiguousarray(getattr(self, name), dtype=dtype).tobytes() for name, dtype in DTYPES.items()}

    def pack(self) -> bytes:
        """All four arrays as one blob."""
        return b"".join(self.to_columns().values())

    @classmethod
    def from_columns(cls, columns: dict[str, bytes]) -> Self:
        """Arrays from their bytes (read-only views)."""
        arrays: dict[str, NDArray[Any]] = {name: np.frombuffer(columns[name], dtype=dtype) for name, dtype in DTYPES.items()}
        return cls(**arrays)

    @classmethod
    def unpack(cls, data: bytes, tokens: int) -> Self:
        """Arrays from one blob of `tokens` tokens.

        Raises:
            StoreError: the blob has another length.
        """
        if len(data) != tokens * BYTES_PER_TOKEN:
            raise StoreError(f"a blob of {tokens} tokens must have {tokens * BYTES_PER_TOKEN} bytes, not {len(data)}")
        columns, start = {}, 0
        for name, dtype in DTYPES.items():
            stop = start + tokens * dtype.itemsize
            columns[name] = data[start:stop]
            start = stop
        return cls.from_columns(columns)
