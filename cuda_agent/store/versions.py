"""Policy and critic versions: folders of weights become immutable rows, and rows become local folders again."""

import hashlib
from pathlib import Path
from uuid import UUID

from sqlalchemy import select

from cuda_agent.store.queries import get_critic, get_policy
from cuda_agent.store.session import Store, home_folder
from cuda_agent.store.tables import CriticVersion, PolicyVersion


def publish_policy(
    store: Store,
    folder: Path,
    *,
    stage: str,
    stage_run_id: UUID | None,
    parent_id: UUID | None,
    step: int = 0,
    dtype: str = "float32",
    follow_links: bool = False,
) -> UUID:
    """Store a Hugging Face folder (weights, tokenizer, chat template) as a policy version; `complete` is set last.

    `follow_links` is for checkpoints that a person names: the hub's cache consists of links.

    Raises:
        StoreError: the folder or the store is unusable.
    """
    blob = store.blobs.put_folder(folder, follow_links=follow_links)
    with store.session() as session:
        parent = session.get(PolicyVersion, parent_id) if parent_id else None
        version = PolicyVersion(
            parent_id=parent_id,
            stage_run_id=stage_run_id,
            stage=stage,
            step=step,
            base_sha256=parent.base_sha256 if parent else blob.sha256,
            weights_uri=blob.uri,
            weights_sha256=blob.sha256,
            tokenizer_sha256=_digest(folder / "tokenizer.json"),
            template_sha256=_digest(folder / "chat_template.jinja"),
            dtype=dtype,
        )
        session.add(version)
        session.flush()
        version.complete = True
        return version.id


def adopt_policy(store: Store, folder: Path, dtype: str) -> UUID:
    """The stored version with exactly this Hugging Face folder's files, else a new one. Raises StoreError as `publish_policy`."""
    blob = store.blobs.put_folder(folder, follow_links=True)
    same = (PolicyVersion.weights_sha256 == blob.sha256, PolicyVersion.complete)
    with store.session() as session:
        known = session.scalars(select(PolicyVersion.id).where(*same).limit(1)).first()
    return known or publish_policy(store, folder, stage="base", stage_run_id=None, parent_id=None, dtype=dtype, follow_links=True)


def publish_critic(
    store: Store, folder: Path, *, stage_run_id: UUID, policy_version_id: UUID, parent_id: UUID | None = None, step: int = 0
) -> UUID:
    """Store a critic's folder as a critic version. Raises StoreError as `publish_policy` does."""
    blob = store.blobs.put_folder(folder)
    with store.session() as session:
        version = CriticVersion(
            parent_id=parent_id,
            policy_version_id=policy_version_id,
            stage_run_id=stage_run_id,
            step=step,
            weights_uri=blob.uri,
            weights_sha256=blob.sha256,
        )
        session.add(version)
        session.flush()
        version.complete = True
        return version.id


def policy_folder(store: Store, policy_id: UUID) -> Path:
    """A local copy of a policy's folder, fetched once per machine.

    Raises:
        StoreError: there is no such complete version, or its blob is missing or damaged.
    """
    return _fetch(store, get_policy(store, policy_id))


def critic_folder(store: Store, critic_id: UUID) -> Path:
    """A local copy of a critic's folder. Raises StoreError as `policy_folder` does."""
    return _fetch(store, get_critic(store, critic_id))


def _fetch(store: Store, version: PolicyVersion | CriticVersion) -> Path:
    folder = home_folder() / "cache" / "weights" / version.weights_sha256
    return store.blobs.get_folder(version.weights_uri, folder, version.weights_sha256)


def _digest(path: Path) -> str:
    """The sha256 of a file, or of nothing when the checkpoint keeps that part elsewhere."""
    return hashlib.sha256(path.read_bytes() if path.is_file() else b"").hexdigest()
