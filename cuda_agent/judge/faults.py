"""A submission's faults on their way to a verdict: `Rejected`, and how a child's failure is put in words for the agent."""

import re

from cuda_agent.judge.proof import SEALED, SEALED_CODE
from cuda_agent.judge.verdict import Status
from cuda_agent.sandbox.forkserver import ChildFailed

LOAD_KINDS = {"MissingClass": "missing_class", "InitSignature": "init_signature", "StateDict": "state_dict"}
REFUSAL = "is not for submissions"  # in what the candidate's audit hook raises
LAUNCH = "kernel launch failed"  # how the glue reports one
IMPORT_ERRORS = ("ImportError", "ModuleNotFoundError", "SyntaxError")


class Rejected(Exception):
    """A submission's fault: status, kind and message of its verdict."""

    def __init__(self, status: Status, kind: str | None, message: str) -> None:
        """Name the fault."""
        super().__init__(message)
        self.status, self.kind, self.message = status, kind, message


def load_fault(failure: ChildFailed) -> Rejected:
    """What failed before the first call."""
    if failure.kind == "exception" and REFUSAL not in failure.detail:
        kind = LOAD_KINDS.get(failure.name, "import" if failure.name in IMPORT_ERRORS else "exception")
        return Rejected("load_error", kind, _own_lines(failure))
    return run_fault(failure)


def run_fault(failure: ChildFailed) -> Rejected:
    """What failed in a call."""
    if failure.kind == "timeout":
        return Rejected("timeout", None, failure.detail)
    if failure.kind == "exception":
        if LAUNCH in failure.detail:
            return Rejected("launch_failure", None, _own_lines(failure))
        if REFUSAL in failure.detail:
            return Rejected("hack", "forbidden_op", _own_lines(failure))
        if SEALED in failure.detail:
            operator = failure.detail.rpartition(SEALED)[2].split()[0]
            return Rejected("hack", "forbidden_op", f"torch's operator {operator} does the work; only kernels/ may compute")
        return Rejected("runtime_error", re.sub(r"\W", "", failure.name, flags=re.ASCII)[:60] or None, _own_lines(failure))
    if failure.kind == "crash" and SEALED_CODE in failure.trace:
        return Rejected("hack", "forbidden_op", "forward runs another library's code, such as numpy's; only kernels/ may compute")
    output = failure.trace.strip()[-500:] if failure.kind == "crash" else ""
    return Rejected("runtime_error", failure.kind, failure.detail + (f"; it printed: {output}" if output else ""))


def _own_lines(failure: ChildFailed) -> str:
    """The part of a traceback that lies in the submission's files, then the error."""
    lines, kept = failure.trace.splitlines(), []
    for number, line in enumerate(lines):
        if "/tmp/work/" in line:
            kept += [line.strip().replace("/tmp/work/", ""), *(text.strip() for text in lines[number + 1 : number + 2])]
    return "\n".join([*kept[-6:], failure.detail])
