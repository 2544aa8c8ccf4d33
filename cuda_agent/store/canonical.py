"""Canonical JSON: the one text of a value, so that equal settings have equal digests; and texts that Postgres takes."""

import hashlib
import json
from collections.abc import Mapping
from datetime import datetime
from enum import Enum
from pathlib import Path
from typing import Any
from uuid import UUID

from pydantic import BaseModel


def jsonable(value: Any) -> Any:
    """`value` in JSON's own types: models and mappings as objects, ids and paths as text, sequences as lists.

    Raises:
        TypeError: something has no JSON form.
    """
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Mapping):
        return {str(key): jsonable(entry) for key, entry in value.items()}
    if isinstance(value, list | tuple):
        return [jsonable(entry) for entry in value]
    if isinstance(value, set | frozenset):
        return sorted(jsonable(entry) for entry in value)
    if isinstance(value, UUID | Path):
        return str(value)
    if isinstance(value, datetime):
        return value.isoformat()
    if isinstance(value, Enum):
        return value.value
    if value is None or isinstance(value, str | int | float | bool):
        return value
    raise TypeError(f"{type(value).__name__} has no JSON form")


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces; NaN and infinities are refused (ValueError)."""
    return json.dumps(jsonable(value), sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def digest(value: Any) -> str:
    """sha256 (hex) of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def clean(text: str) -> str:
    """Postgres text holds neither NUL nor lone surrogates; a program's output may: both are shown as U+FFFD."""
    return text.replace("\x00", "\ufffd").encode("utf-8", "replace").decode("utf-8")


def clean_json(value: Any) -> Any:
    """JSON types with every text in them cleaned."""
    if isinstance(value, str):
        return clean(value)
    if isinstance(value, list):
        return [clean_json(entry) for entry in value]
    if isinstance(value, dict):
        return {clean(key): clean_json(entry) for key, entry in value.items()}
    return value
