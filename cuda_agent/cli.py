"""The command line. Short commands that guess the common case; an error is one sentence and an exit status.

Exit status: 0 done, 2 bad usage or settings, 3 an infrastructure error, 130 after Ctrl-C. Heavy imports happen inside the
commands, and what a command starts it stops, also when it is interrupted.
"""

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from types import FrameType
from typing import Annotated, Any, Literal
from uuid import UUID

import typer

from cuda_agent.errors import CudaAgentError

QUICKSTART = Path(__file__).resolve().parents[1] / "infra" / "campaigns" / "quickstart.yaml"

app = typer.Typer(no_args_is_help=True, add_completion=False, rich_markup_mode=None, help="Train agents that write GPU kernels.")
stack_app = typer.Typer(no_args_is_help=True, help="The embedded services: Postgres, Prefect server, worker.")
campaign_app = typer.Typer(no_args_is_help=True, help="Whole campaigns.")
problems_app = typer.Typer(no_args_is_help=True, help="Problem sets.")
rollouts_app = typer.Typer(no_args_is_help=True, help="Batches of episodes.")
app.add_typer(stack_app, name="stack")
app.add_typer(campaign_app, name="campaign")
app.add_typer(problems_app, name="problems")
app.add_typer(rollouts_app, name="rollouts")

Port = Annotated[int | None, typer.Option(min=0, max=65_535, help="Dashboard's port; 0 picks a free one.")]


def main() -> None:
    """Entry of the console script `cuda-agent`."""
    signal.signal(signal.SIGTERM, _terminate)
    try:
        status = app(standalone_mode=False)  # what an Exit carried; Ctrl-C comes as 130
    except CudaAgentError as error:
        sys.exit(_complain(str(error), error.exit_status))
    except (KeyboardInterrupt, typer.Abort):
        status = 130
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(141)
    except Exception as error:
        if status := _usage_status(error):
            sys.exit(status)
        raise
    if status == 130:
        _complain("interrupted; what was started has been stopped", 130)
    sys.exit(status if isinstance(status, int) else 0)


def _usage_status(error: Exception) -> int:
    """Show a usage error of the command line as it would itself; 0 for any other error."""
    show = getattr(error, "show", None)
    if show is None:
        return 0
    show()
    return int(getattr(error, "exit_code", 2))


def _terminate(number: int, frame: FrameType | None) -> None:
    """SIGTERM unwinds like Ctrl-C, so that services are stopped."""
    raise KeyboardInterrupt


def _tell(line: str) -> None:
    """Progress goes to stderr: stdout is for results."""
    print(line, file=sys.stderr, flush=True)


def _complain(sentence: str, status: int) -> int:
    _tell(f"cuda-agent: {sentence}")
    return status


@contextmanager
def _services(*names: str, port: int | None = None, meanwhile: Callable[[], object] | None = None) -> Iterator[None]:
    """The named services for the time of a block."""
    from infra.stack import Stack

    with Stack.from_environment(port).running(names, _tell, meanwhile):
        yield


# --- machine and services --------------------------------------------------------------------------------------------


@app.command()
def setup() -> None:
    """Compile what the judge needs once per machine; quick when it is done."""
    from cuda_agent.judge.glue import prepare
    from cuda_agent.store.session import cache_folder

    _tell("checking the judge's glue (the first time compiles it, about half a minute) …")
    prepare(cache_folder())
    if not any((cache_folder() / "inductor" / "headers").glob("*")):
        _tell("compiling torch.compile's header for this machine (about half a minute) …")
        _warm_up(cache_folder())
    print("ready; next: make quickstart, or cuda-agent doctor to check this machine")


def _warm_up(cache: Path) -> None:
    """Start a fork server once: what inductor compiles for all problems alike is then on disk."""
    import asyncio

    from cuda_agent.judge.inductor import warm_server

    async def once() -> None:
        await (await warm_server(cache)).close()

    asyncio.run(once())


@app.command()
def doctor() -> None:
    """Check this machine: one line for each thing that is needed, with the mend."""
    from infra.doctor import diagnose, exit_status
    from infra.settings import StackSettings

    findings = diagnose(StackSettings.from_environment())
    for finding in findings:
        print(finding.line())
    raise typer.Exit(exit_status(findings))


@stack_app.command("up")
def stack_up(
    port: Port = None, deploy: Annotated[bool, typer.Option(help="Register the stages of prefect.yaml.")] = True
) -> None:
    """Start what is not running yet, and leave it running."""
    print(f"dashboard: {_bring_up(port, deploy)}")


def _bring_up(port: int | None, deploy: bool) -> str:
    """Start all services and deploy; returns the dashboard's address."""
    from infra.deployments import deploy_all
    from infra.stack import Stack

    stack = Stack.from_environment(port)
    variables = stack.up(tell=_tell)
    if deploy and not stack.external_api:
        _tell("registering the stages …")
        deploy_all(stack.settings.run / "deployed", variables)
    return (stack.external_api or stack.prefect.api_url).removesuffix("/api")


@stack_app.command("status")
def stack_status(env: Annotated[bool, typer.Option("--env", help="Print export lines for a shell instead.")] = False) -> None:
    """Show what runs; status 3 if something does not."""
    from infra.stack import Stack

    stack = Stack.from_environment()
    states = stack.status()
    if env:
        import shlex

        for name, value in stack.environment().items():
            print(f"export {name}={shlex.quote(value)}")
    else:
        for state in states:
            print(f"{state.name:<9} {'running' if state.running else 'stopped':<8} {state.detail}")
    raise typer.Exit(0 if all(state.running for state in states) else 3)


@stack_app.command("down")
def stack_down() -> None:
    """Stop the services; their data stays."""
    from infra.stack import Stack

    if not Stack.from_environment().down(_tell):
        _tell("nothing was running")


@app.command()
def dashboard(port: Port = None) -> None:
    """Start the services, register the stages, and print the dashboard's address."""
    print(f"dashboard: {_bring_up(port, deploy=True)}\nstop it with: cuda-agent stack down")


@app.command()
def clean(yes: Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")] = False) -> None:
    """Stop the services and remove their state: database, dashboard, blobs, caches."""
    import shutil

    from infra.stack import Stack

    stack = Stack.from_environment()
    home = stack.settings.home
    if not home.exists():
        _tell(f"{home} does not exist; nothing to remove")
        return
    if not yes and sys.stdin.isatty():
        typer.confirm(f"Remove {home} with every campaign, policy and report in it?", abort=True)
    stack.down(_tell)
    shutil.rmtree(home)
    print(f"removed {home}")


# --- campaigns and stages --------------------------------------------------------------------------------------------


@campaign_app.command("run")
def campaign_run(
    file: Annotated[Path, typer.Argument(help="Campaign file.")] = QUICKSTART,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Print the resolved settings and stop.")] = False,
    resume: Annotated[bool, typer.Option(help="Go on from stored stages, or make every stage anew.")] = True,
    seed: Annotated[int | None, typer.Option(min=0, help="Another seed: an independent repetition.")] = None,
    port: Port = None,
) -> None:
    """Run a campaign here, from problems to report. Started again, it goes on where it stopped."""
    from cuda_agent.config import load_campaign

    config = load_campaign(file)
    if seed is not None:
        config = config.model_copy(update={"seed": seed})
    if dry_run:
        import yaml

        print(yaml.safe_dump(config.model_dump(mode="json"), sort_keys=False), end="")
        return
    if config.base_policy.science.checkpoint:
        from cuda_agent.learning.named_checkpoint import named_checkpoint

        named_checkpoint(config.base_policy.science.checkpoint)  # a wrong name is told now, not after the dataset
    with _services("postgres", "prefect", port=port, meanwhile=_import_flows):
        from flows.campaign import campaign

        _tell(f"dashboard while this runs: {os.environ['PREFECT_API_URL'].removesuffix('/api')}")
        outcome = _run_flow(campaign(config, refresh=not resume))
        campaign_id = UUID(outcome["campaign_id"])
        _report(campaign_id, as_json=False, png=_picture(config.name, campaign_id))


def _run_flow(flow: Any) -> Any:
    """Run a flow to its end. Prefect turns SIGTERM into an exception of its own, which is an interruption like any other."""
    import asyncio

    from prefect.exceptions import TerminationSignal

    try:
        return asyncio.run(flow)
    except TerminationSignal as interruption:
        raise KeyboardInterrupt from interruption


def _picture(name: str, campaign_id: UUID) -> Path:
    """Where a campaign's curve is written."""
    from cuda_agent.store.session import home_folder

    folder = home_folder() / "reports"
    folder.mkdir(parents=True, exist_ok=True)
    return folder / f"{name}-{str(campaign_id)[-12:]}.png"


def _import_flows() -> None:
    """Import flows while the server starts: both take seconds."""
    import flows.campaign  # noqa: F401


@rollouts_app.command("run")
def rollouts_run(
    file: Annotated[Path, typer.Argument(help="Campaign file whose `rollouts`, `judge` and `dataset` are used.")] = QUICKSTART,
    problems: Annotated[
        str | None, typer.Option(help="Parquet file, KernelBench checkout or dataset id (default: the file's own set).")
    ] = None,
    engine: Annotated[
        Literal["transformers", "vllm", "openai", "teacher"] | None, typer.Option(help="Who answers (default: the file's).")
    ] = None,
    policy: Annotated[UUID | None, typer.Option(help="Policy version id (default: the newest).")] = None,
    checkpoint: Annotated[str | None, typer.Option(help="Hugging Face folder or hub name, instead of a policy version.")] = None,
    endpoint: Annotated[str | None, typer.Option(help="Address for engine openai (default: OPENAI_BASE_URL).")] = None,
    model: Annotated[str | None, typer.Option(help="Model's name there (default: OPENAI_MODEL).")] = None,
    backend: Annotated[Literal["cpu", "cuda"] | None, typer.Option(help="Where submissions run (default: the file's).")] = None,
    episodes: Annotated[int | None, typer.Option(min=1, help="Episodes in the batch (default: the file's).")] = None,
    seed: Annotated[int | None, typer.Option(min=0, help="Seed of the draw of problems and of sampling.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    refresh: Annotated[bool, typer.Option(help="Sample again even if the same batch is stored.")] = False,
) -> None:
    """Sample a batch of episodes without a campaign. Started again, it goes on with what is missing."""
    import asyncio
    import json

    from cuda_agent.agent.rollouts import RolloutOrder, plan, run_rollouts, told
    from cuda_agent.config import load_campaign
    from cuda_agent.store.session import cache_folder, open_store

    changes = {"engine": engine, "episodes": episodes, "seed": seed}
    campaign = load_campaign(file)
    settings, judge, address = plan(campaign, changes, backend, endpoint, model)
    if checkpoint is not None:
        from cuda_agent.learning.named_checkpoint import named_checkpoint

        folder = named_checkpoint(checkpoint)
    with _services("postgres"):
        from cuda_agent.problems import cli
        from cuda_agent.store.versions import adopt_policy

        store = open_store()
        dataset = cli.wanted_set(store, problems, file, backend, _tell)
        if checkpoint is not None:
            policy = adopt_policy(store, folder, campaign.base_policy.execution.dtype)
        order = RolloutOrder.of(store, dataset, policy, settings, judge, address)
        found = asyncio.run(run_rollouts(store, order, cache_dir=cache_folder(), tell=_tell, refresh=refresh))
        print(json.dumps(found) if as_json else told(found))


@rollouts_app.command("show")
def rollouts_show(rollout: Annotated[UUID, typer.Argument(help="Rollout id, as the dashboard's page shows it.")]) -> None:
    """Print a rollout: outcome, verdicts and the whole transcript."""
    from cuda_agent.report.transcript import read_rollout, rollout_text
    from cuda_agent.store.session import open_store

    with _services("postgres"):
        print(rollout_text(read_rollout(open_store(), rollout)))


@app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True, "help_option_names": []})
def judge(context: typer.Context) -> None:
    """Judge workspaces: cuda-agent judge WORKSPACE... [--backend cuda|cpu] [--problem FILE] [--json]."""
    from cuda_agent.judge.cli import main as judge_main

    raise typer.Exit(judge_main(context.args) or 0)


# --- problems --------------------------------------------------------------------------------------------------------

Levels = Annotated[list[int] | None, typer.Option("--level", help="Level of a KernelBench checkout (default: 1, 2 and 3).")]
Evaluation = Annotated[list[Path] | None, typer.Option(help="Parquet file that no accepted problem may resemble.")]
Checkout = Annotated[Path | None, typer.Option(help="KernelBench checkout that no accepted problem may resemble.")]
Device = Annotated[Literal["cpu", "cuda"] | None, typer.Option(help="Where problems are timed (default: the file's, else cpu).")]
Least = Annotated[float | None, typer.Option(help="Shortest eager time, ms (default: 0.05 on cpu, 1 on cuda).")]
Most = Annotated[float | None, typer.Option(help="Longest eager time, ms (default: 5 on cpu, 100 on cuda).")]
Workers = Annotated[int | None, typer.Option(help="Candidates vetted at once (default: the file's, else all cores).")]
Tensors = Annotated[
    int | None,
    typer.Option(min=1, help="Most MB of a problem's inputs, outputs and weights (default: 1024 on cpu, 4096 on cuda)."),
]
Refresh = Annotated[bool, typer.Option(help="Do the work again even if its result is stored.")]


@problems_app.command("generate")
def problems_generate(
    file: Annotated[Path | None, typer.Argument(help="Campaign file whose `dataset` and `judge` are used.")] = None,
    count: Annotated[int | None, typer.Option(help="Accepted problems wanted (default: the file's, else 6000).")] = None,
    held_out: Annotated[int | None, typer.Option(help="Of these, kept for evaluation.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of the composer.")] = None,
    backend: Device = None,
    out: Annotated[
        Path | None, typer.Option("--out", "--output", help="Parquet file for the accepted ones, with a card.")
    ] = None,
    composer: Annotated[Literal["sampler", "catalogue", "llm"] | None, typer.Option(help="Who composes.")] = None,
    mix: Annotated[Literal["paper", "balanced"] | None, typer.Option(help="Shares by number of operators.")] = None,
    kernelbench: Checkout = None,
    level: Levels = None,
    evaluation: Evaluation = None,
    eager_ms_min: Least = None,
    eager_ms_max: Most = None,
    workers: Workers = None,
    tensor_mb: Tensors = None,
    endpoint: Annotated[str | None, typer.Option(help="For composer llm (default: $OPENAI_BASE_URL).")] = None,
    model: Annotated[str | None, typer.Option(help="For composer llm (default: $OPENAI_MODEL).")] = None,
    refresh: Refresh = False,
) -> None:
    """Compose problems, vet each by running it, store them, and print the dataset's id. Started again, it goes on."""
    from cuda_agent.engines.openai import Endpoint
    from cuda_agent.problems import cli
    from cuda_agent.problems.sources import evaluation_texts
    from cuda_agent.store.session import open_store

    cli.check_output(out)
    changes: dict[str, Any] = {"count": count, "held_out": held_out, "seed": seed, "composer": composer, "operator_mix": mix}
    changes |= {"eager_ms_min": eager_ms_min, "eager_ms_max": eager_ms_max, "tensor_mb": tensor_mb}
    texts = evaluation_texts(kernelbench, level or (), evaluation or ())
    order = cli.plan(file, changes, backend=backend, workers=workers, evaluation=texts)
    if order.science.composer == "llm":
        order = replace(order, endpoint=Endpoint.of(endpoint, model))
    with _services("postgres"):
        print(cli.generate(open_store(), order, out, _tell, refresh=refresh))


@problems_app.command("vet")
def problems_vet(
    source: Annotated[str, typer.Argument(help="Parquet file, KernelBench checkout, or a dataset's id.")],
    level: Levels = None,
    seed: Annotated[int, typer.Option(help="Seed of weights and inputs; another one is another vetting.")] = 0,
    backend: Device = None,
    kernelbench: Checkout = None,
    evaluation: Evaluation = None,
    eager_ms_min: Least = None,
    eager_ms_max: Most = None,
    workers: Workers = None,
    tensor_mb: Tensors = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object per problem on stdout, then the summary.")] = False,
    refresh: Refresh = False,
) -> None:
    """Put each problem through every rule, in a child of its own. Started again, it goes on."""
    from cuda_agent.problems import cli
    from cuda_agent.problems.sources import dataset_id, evaluation_texts, read_path
    from cuda_agent.store.session import open_store

    changes = cli.AT_THE_LIMITS | {"seed": seed, "eager_ms_min": eager_ms_min, "eager_ms_max": eager_ms_max}
    changes |= {"tensor_mb": tensor_mb}
    found = None if dataset_id(source) else read_path(Path(source), level or ())
    texts = evaluation_texts(kernelbench, (), evaluation or ())
    order = cli.plan(None, changes, backend=backend, workers=workers, evaluation=texts)
    with _services("postgres"):
        store = open_store()
        cli.vet(store, found or cli.read_source(store, source, level or ()), order, _tell, as_json=as_json, refresh=refresh)


@problems_app.command("import")
def problems_import(
    source: Annotated[
        Path, typer.Argument(help="Parquet file with columns ops, data_source and code, or a KernelBench checkout.")
    ],
    level: Levels = None,
    held_out: Annotated[int, typer.Option(min=0, help="Problems kept for evaluation, by operator sequence.")] = 0,
    seed: Annotated[int, typer.Option(min=0, help="Seed of the split.")] = 0,
    license: Annotated[str | None, typer.Option(help="License of the set, for its card (such as cc-by-4.0).")] = None,
) -> None:
    """Store a set's problems as a dataset, as they are; the judge refuses what is invalid. Prints its id."""
    from cuda_agent.problems import cli
    from cuda_agent.problems.sources import read_path
    from cuda_agent.store.session import open_store

    found = read_path(source, level or ())
    with _services("postgres"):
        print(cli.import_set(open_store(), found, held_out=held_out, seed=seed, license=license))


@problems_app.command("export")
def problems_export(
    output: Annotated[Path, typer.Argument(help="Parquet file to write; its card is written beside it.")],
    dataset: Annotated[UUID | None, typer.Option(help="Dataset id (default: the newest).")] = None,
) -> None:
    """Write a dataset's accepted problems as parquet (columns ops, data_source, code, then ours) with a card."""
    from cuda_agent.problems import cli
    from cuda_agent.store.session import open_store

    cli.check_output(output)
    with _services("postgres"):
        cli.export(open_store(), dataset, output, print)


@problems_app.command("show")
def problems_show(
    what: Annotated[str | None, typer.Argument(help="Dataset id, or a position in the newest set, or `all`.")] = None,
    position: Annotated[int | None, typer.Argument(help="Position of a problem in that dataset.")] = None,
) -> None:
    """Show a set's table, or a problem with its text, facts, rule and reason; `all` lists the sets."""
    from cuda_agent.problems import cli
    from cuda_agent.store.session import open_store

    with _services("postgres"):
        cli.show(open_store(), what, position)


# --- report ----------------------------------------------------------------------------------------------------------


@app.command()
def report(
    campaign: Annotated[UUID | None, typer.Argument(help="Campaign id (default: the last).")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on stdout.")] = False,
    png: Annotated[Path | None, typer.Option(help="Write the curve to this picture.")] = None,
    audit: Annotated[bool, typer.Option(help="Instead: the verdicts that the judge judged twice.")] = False,
) -> None:
    """Curves and tables of a campaign."""
    from cuda_agent.report.cli import print_audit
    from cuda_agent.store.session import open_store

    with _services("postgres"):
        if audit:
            print_audit(open_store(), campaign, as_json)
        else:
            _report(campaign, as_json, png)


def _report(campaign: UUID | None, as_json: bool, png: Path | None) -> None:
    from cuda_agent.report.cli import print_report
    from cuda_agent.store.session import open_store

    print_report(open_store(), campaign, as_json, png)


if __name__ == "__main__":
    main()
