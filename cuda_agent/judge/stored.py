"""Verdicts that are stored already: the judge pool asks here before it judges the same submission again."""

from typing import cast

from cuda_agent.judge.verdict import Status, Verdict
from cuda_agent.store.session import Store
from cuda_agent.store.trajectories import find_verdict


class VerdictCache:
    """Looks verdicts up by the judge's cache key. Rollouts store what they were given, so `record` keeps nothing."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def lookup(self, key: str) -> Verdict | None:
        """The newest stored verdict with this key, or None."""
        with self._store.session() as session:
            row = find_verdict(session, key)
        return (
            None
            if row is None
            else Verdict(
                cast(Status, row.status),
                row.kind,
                row.message,
                row.reward,
                row.submission_sha256,
                row.candidate_ms,
                row.eager_ms,
                row.compile_ms,
                row.phases,
                row.environment,
            )
        )
