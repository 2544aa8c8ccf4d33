"""The report's picture: what each evaluated policy reaches on held-out problems, and the reward during training.

Three panels on white: mean reward, shares (pass, faster than eager, faster than compile), training reward by step; bars are
95 % intervals clustered by problem. Colours are those of Okabe and Ito, which colour-blind readers tell apart, and every
series has a marker of its own. Drawn with Agg: needs no display, keeps no global state.
"""

import base64
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.patheffects import withStroke
from matplotlib.ticker import MaxNLocator, PercentFormatter
from PIL import Image

from cuda_agent.report.grids import policy_name

Json = dict[str, Any]

BLUE, VERMILION, GREEN, PURPLE, GREY = "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#555555"
SHARES = (
    ("pass_rate", "passed", BLUE, "o", "-"),
    ("faster_than_eager", "faster than eager", VERMILION, "s", "--"),
    ("faster_than_compile", "faster than torch.compile", GREEN, "^", ":"),
)
TRAINING = (("warmup", "warm-up (single turn)", PURPLE, "D"), ("ppo", "agentic PPO", BLUE, "o"))


def curve_png(summary: Json, dpi: int = 140) -> bytes:
    """The picture of a campaign's summary as the bytes of a PNG (1,820 × 630 pixels at 140 dots per inch)."""
    figure = Figure(figsize=(13, 4.5), dpi=dpi, layout="constrained")
    FigureCanvasAgg(figure)
    reward, shares, training = figure.subplots(1, 3, width_ratios=(1, 1.25, 1))
    draw_reward(reward, summary["evaluations"])
    draw_shares(shares, summary["evaluations"])
    draw_training(training, summary["training_rewards"])
    figure.suptitle(f"Campaign {summary['campaign']['name']}", x=0.01, ha="left", fontsize=12, fontweight="bold")
    figure.supxlabel(footnote(summary["evaluations"]), x=0.01, ha="left", fontsize=8.5, color=GREY)
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png")
    return buffer.getvalue()


def curve_data_uri(summary: Json) -> str:
    """The picture as a `data:` address of about 40 KB (128 colours), which the dashboard shows within a page."""
    buffer = io.BytesIO()
    with Image.open(io.BytesIO(curve_png(summary, dpi=100))) as picture:
        picture.convert("RGB").quantize(128).save(buffer, format="PNG", optimize=True)
    return "data:image/png;base64," + base64.b64encode(buffer.getvalue()).decode()


def write_curve(summary: Json, path: Path) -> None:
    """Write the picture to `path`, whole or not at all; the folder is made if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    unfinished = path.with_name(f".{path.name}.partial")
    unfinished.write_bytes(curve_png(summary))
    unfinished.replace(path)


def footnote(evaluations: Sequence[Json]) -> str:
    """What the bars mean, for the picture's foot."""
    if not evaluations:
        return "no policy has been evaluated yet"
    return (
        f"Bars: 95 % intervals clustered by problem ({evaluations[0]['problems']} held-out problems, "
        f"{evaluations[0]['episodes']} episodes per policy). Training reward: mean over the batch that each step learnt from."
    )


def draw_reward(axes: Axes, evaluations: Sequence[Json]) -> None:
    """Mean reward of each policy."""
    _prepare(axes, "Mean reward, held-out problems", "reward (−1 … 3)")
    _series(axes, evaluations, "mean_reward", 0.0, {"color": BLUE, "marker": "o", "linestyle": "-"})
    for place, found in enumerate(evaluations):
        if found["mean_reward"] is not None:
            label = axes.annotate(
                f"{found['mean_reward']:.2f}", (place, found["mean_reward"]), (7, -13), textcoords="offset points"
            )
            label.set(fontsize=9, path_effects=[withStroke(linewidth=3, foreground="white")])
    axes.axhline(0, color=GREY, linewidth=0.6)
    _name_policies(axes, evaluations)


def draw_shares(axes: Axes, evaluations: Sequence[Json]) -> None:
    """Share of episodes that pass, and that are faster than each baseline."""
    _prepare(axes, "Shares of episodes, held-out problems", "share")
    for shift, (key, label, colour, marker, line) in zip((-0.08, 0.0, 0.08), SHARES, strict=True):
        _series(axes, evaluations, key, shift, {"color": colour, "marker": marker, "linestyle": line, "label": label})
    axes.set_ylim(-0.03, 1.03)
    axes.yaxis.set_major_formatter(PercentFormatter(1.0))
    _name_policies(axes, evaluations)
    if evaluations:
        axes.legend(frameon=False, fontsize=8.5, loc="upper center", bbox_to_anchor=(0.5, -0.08), ncols=len(SHARES))


def draw_training(axes: Axes, training: Sequence[Json]) -> None:
    """Mean reward of each PPO step's own batch, warm-up and agentic PPO on one axis."""
    _prepare(axes, "Training reward", "mean reward of the batch")
    first = 1
    for stage, label, colour, marker in TRAINING:
        points = [point for point in training if point["stage"] == stage and point["mean_reward"] is not None]
        if points:
            steps = range(first, first + len(points))
            axes.plot(steps, [point["mean_reward"] for point in points], color=colour, marker=marker, ms=4, label=label)
            first += len(points)
    axes.set_xlabel("PPO step", fontsize=9)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    if first > 1:
        axes.legend(frameon=False, fontsize=8.5, loc="best")
    else:
        _say_empty(axes, "no PPO step yet")


def _series(axes: Axes, evaluations: Sequence[Json], key: str, shift: float, style: Json) -> None:
    """One measure of every policy as points with error bars; policies without it are left out."""
    known = [(place, found[key], found[f"{key}_interval"]) for place, found in enumerate(evaluations) if found[key] is not None]
    if not known:
        return
    values = [value for _, value, _ in known]
    below = [value - interval[0] if interval else 0.0 for _, value, interval in known]
    above = [interval[1] - value if interval else 0.0 for _, value, interval in known]
    places = [place + shift for place, _, _ in known]
    axes.errorbar(places, values, yerr=[below, above], capsize=3, ms=5.5, linewidth=1.3, elinewidth=1.0, **style)


def _name_policies(axes: Axes, evaluations: Sequence[Json]) -> None:
    axes.set_xticks(range(len(evaluations)), [policy_name(found, evaluations) for found in evaluations])
    if evaluations:
        axes.set_xlim(-0.4, len(evaluations) - 0.4)
    else:
        _say_empty(axes, "no evaluation yet")


def _prepare(axes: Axes, title: str, unit: str) -> None:
    axes.set_title(title, fontsize=10.5, loc="left")
    axes.set_ylabel(unit, fontsize=9)
    axes.tick_params(labelsize=9)
    axes.grid(axis="y", color="#DDDDDD", linewidth=0.6)
    axes.spines[["top", "right"]].set_visible(False)
    axes.set_axisbelow(True)


def _say_empty(axes: Axes, message: str) -> None:
    axes.text(0.5, 0.5, message, transform=axes.transAxes, ha="center", va="center", color=GREY)
