"""Every setting of a campaign: frozen pydantic models that are the YAML file, the CLI input and the dashboard form.

Each stage has `science` (what changes results; part of the stage key) and `execution` (workers, limits and paths; never
part of it). Nothing here imports torch, Prefect or SQLAlchemy, so that a config is checked in milliseconds.
"""

from pathlib import Path
from typing import Annotated, Any, Literal, Self, get_args

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator

from cuda_agent.errors import ConfigError

Backend = Literal["cpu", "cuda"]
Share = Annotated[float, Field(ge=0.0, le=1.0)]
Rate = Annotated[float, Field(gt=0.0, le=1.0)]
Seconds = Annotated[float, Field(gt=0.0, le=86_400.0)]


class Frozen(BaseModel):
    """Base of all settings: immutable, and an unknown key is an error."""

    model_config = ConfigDict(frozen=True, extra="forbid")


# --- sampling and episodes -------------------------------------------------------------------------------------------


class SamplingConfig(Frozen):
    """How tokens are drawn. Training needs the defaults: the log-probs must be those of the full vocabulary."""

    temperature: float = Field(1.0, ge=0.0, le=2.0, description="softmax temperature; 0 is greedy")
    top_p: float = Field(1.0, gt=0.0, le=1.0, description="nucleus mass; 1 keeps the full vocabulary")
    top_k: int = Field(0, ge=0, description="0 keeps the full vocabulary")


ToolName = Literal[
    "Bash", "BashOutput", "KillBash", "Read", "Write", "Edit", "MultiEdit", "NotebookEdit", "Glob", "Grep", "TodoWrite"
]


class EpisodeConfig(Frozen):
    """Bounds of one episode of the agent."""

    max_turns: int = Field(150, ge=1, le=1_000, description="assistant messages (paper: 150, in evaluation 200)")
    context_tokens: int = Field(131_072, ge=64, description="tokens of prompt, answers and tool output together")
    turn_tokens: int = Field(8_192, ge=16, description="tokens one assistant message may have")
    invalid_tool_calls: int = Field(3, ge=1, description="malformed or unknown tool calls in a row that end the episode")
    repeated_turns: int = Field(3, ge=2, description="identical assistant messages in a row that end it as no_progress")
    tool_seconds: Seconds = Field(60.0, description="wall-clock limit of one tool call")
    tool_output_chars: int = Field(8_000, ge=200, description="tool output beyond this is cut, with a note")
    skill: Literal["full", "short"] = Field(
        "full", description="which SKILL text the system prompt carries; short suits small models"
    )
    tools: tuple[ToolName, ...] = Field(get_args(ToolName), min_length=1, description="tools that the agent is offered")


# --- stages ----------------------------------------------------------------------------------------------------------


# The paper's table 3, as shares of its torch problems.
PAPER_MIX = {1: 0.034, 2: 0.8377, 3: 0.0762, 4: 0.028, 5: 0.0123}
MIXES = {"paper": PAPER_MIX, "balanced": {2: 0.25, 3: 0.25, 4: 0.25, 5: 0.25}}


class DatasetScience(Frozen):
    """What the problem set is made of."""

    count: int = Field(6_000, ge=1, le=1_000_000, description="accepted problems wanted, held-out ones included")
    held_out: int = Field(0, ge=0, description="of these, problems kept for evaluation; split by operator sequence")
    composer: Literal["sampler", "catalogue", "llm"] = Field(
        "sampler",
        description="sampler: crawled operators of torch; catalogue: the few that the small model learns; llm: an engine",
    )
    families: tuple[str, ...] = Field(
        ("elementwise", "reduction", "matmul"), min_length=1, description="operator families of the catalogue to compose from"
    )
    operator_mix: dict[int, Share] = Field(
        default_factory=lambda: dict(PAPER_MIX),
        description="share of torch problems by number of operators, or a preset: paper (its table 3), balanced (2 to 5 evenly)",
    )
    transformers_share: Share = Field(0.0118, description="share of problems that are a transformers module (paper: 1.18 %)")
    eager_ms_min: float = Field(1.0, ge=0.0, description="shortest eager time accepted, milliseconds")
    eager_ms_max: float = Field(100.0, gt=0.0, description="longest eager time accepted, milliseconds")
    time_margin: float = Field(
        1.25,
        ge=1.0,
        le=2.0,
        description="how far inside the window of eager times a new problem must be, as a factor: a later run, on another day, "
        "then finds it inside too; vetting a given set asks for the window itself",
    )
    effect_margin: float = Field(
        2.5,
        ge=1.0,
        le=10.0,
        description="the same for differences that depend on the draw: another input's effect, and torch.compile's",
    )
    one_sign: bool = Field(
        False,
        description="accept problems whose inputs are never negative though they could be; a fact of the problem then tells it",
    )
    max_similarity: Share = Field(0.9, description="AST similarity to any evaluation problem above which one is refused")
    max_self_similarity: Share = Field(
        0.98,
        description="AST similarity to an accepted problem of the set, on inputs of the same shape, above which one is refused",
    )
    tensor_mb: int | None = Field(
        None,
        ge=1,
        le=1_048_576,
        description="inputs, outputs and weights of one problem together, at most; empty: 1,024 on cpu, 4,096 on cuda",
    )
    seed: int = Field(0, ge=0, description="seed of the sampler")

    @field_validator("operator_mix", mode="before")
    @classmethod
    def _preset(cls, value: Any) -> Any:
        return MIXES.get(value, value) if isinstance(value, str) else value

    @property
    def window(self) -> tuple[float, float]:
        """Shortest and longest eager time accepted with the margin, milliseconds."""
        return self.eager_ms_min * self.time_margin, self.eager_ms_max / self.time_margin

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.held_out >= self.count:
            raise ValueError(f"held_out ({self.held_out}) must be smaller than count ({self.count})")
        if self.eager_ms_min >= self.eager_ms_max:
            raise ValueError("eager_ms_min must be smaller than eager_ms_max")
        if self.window[0] >= self.window[1]:
            raise ValueError(
                f"between eager_ms_min and eager_ms_max nothing is left with a time_margin of {self.time_margin:g} at both ends; "
                "widen them, or lower time_margin"
            )
        if not self.operator_mix or not set(self.operator_mix) <= {1, 2, 3, 4, 5} or sum(self.operator_mix.values()) <= 0:
            raise ValueError("operator_mix maps 1..5 operators to shares that do not sum to zero")
        return self


class DatasetExecution(Frozen):
    """How the problem set is made."""

    workers: int = Field(2, ge=1, le=1_024, description="candidates vetted at once")
    candidate_seconds: Seconds = Field(60.0, description="wall-clock limit for one candidate")
    candidate_memory_mb: int = Field(3_000, ge=256, description="memory limit for one candidate")


class DatasetConfig(Frozen):
    """Stage `dataset`."""

    science: DatasetScience = DatasetScience()
    execution: DatasetExecution = DatasetExecution()


class BasePolicyScience(Frozen):
    """The policy that training starts from: a checkpoint, or a small model made on the spot."""

    checkpoint: str | None = Field(None, description="folder or hub name of a causal LM; empty makes the small model")
    vocabulary: int = Field(1_024, ge=300, le=65_536, description="entries of the byte-pair tokenizer")
    width: int = Field(192, ge=32, le=4_096, description="hidden size")
    layers: int = Field(4, ge=1, le=64, description="transformer layers")
    heads: int = Field(4, ge=1, le=64, description="attention heads")
    context_tokens: int = Field(1_024, ge=128, description="positions of the small model")
    demonstrations: int = Field(2_000, ge=16, description="teacher episodes written for pretraining")
    steps: int = Field(900, ge=0, description="AdamW steps of pretraining")
    batch: int = Field(16, ge=1, description="episodes per step")
    rate: Rate = Field(2e-3, description="peak learning rate")
    seed: int = Field(0, ge=0)


class TrainExecution(Frozen):
    """How a training process runs."""

    processes: int = Field(1, ge=1, le=1_024, description="accelerate processes (devices)")
    device: Literal["auto", "cpu", "cuda"] = Field("auto", description="where training runs")
    dtype: Literal["float32", "bfloat16"] = Field("float32", description="parameter and compute type")
    micro_tokens: int = Field(16_384, ge=256, description="padded tokens per forward pass; bounds memory")
    timeout_seconds: Seconds = Field(7_200.0, description="limit of one training step, start of the process included")
    accelerate_config: str | None = Field(None, description="file of `accelerate config` (FSDP, machines); empty: data parallel")


class BasePolicyConfig(Frozen):
    """Stage `base_policy`."""

    science: BasePolicyScience = BasePolicyScience()
    execution: TrainExecution = TrainExecution()


class RolloutScience(Frozen):
    """Which episodes are sampled."""

    engine: Literal["transformers", "vllm", "openai", "teacher"] = Field("transformers", description="who answers")
    single_turn: bool = Field(False, description="one message of Write calls, judged once, instead of the agent loop")
    episodes: int = Field(128, ge=1, le=1_000_000, description="episodes in the batch")
    samples_per_problem: int = Field(1, ge=1, le=1_024, description="episodes on each drawn problem")
    split: Literal["train", "held_out"] = Field("train", description="side of the dataset that problems are drawn from")
    sampling: SamplingConfig = SamplingConfig()
    episode: EpisodeConfig = EpisodeConfig()
    seed: int = Field(0, ge=0)


VLLM_PYTHON_VARIABLE = "CUDA_AGENT_VLLM_PYTHON"  # of the environment: the python that has vLLM


class VllmExecution(Frozen):
    """How engine `vllm` serves."""

    dtype: Literal["float32", "bfloat16", "float16", "auto"] = Field(
        "auto", description="of the served weights; auto is the file's"
    )
    memory_share: float = Field(0.5, gt=0.0, le=1.0, description="of the GPU's memory, for weights and cache")
    context_tokens: int | None = Field(None, ge=64, description="longest sequence; empty is the model's own")
    sequences: int = Field(256, ge=1, le=65_536, description="sequences decoded at once; more wait")
    tensor_parallel: int = Field(1, ge=1, le=64, description="GPUs that share each layer")
    enforce_eager: bool = Field(False, description="start sooner and generate slower, without CUDA graphs")
    start_seconds: Seconds = Field(600.0, description="limit until the server is ready")
    arguments: tuple[str, ...] = Field((), description="further arguments of the server, as on its command line")


class RolloutExecution(Frozen):
    """How episodes are run."""

    concurrency: int = Field(32, ge=1, le=4_096, description="episodes under way at once in a shard")
    shard: int = Field(128, ge=1, le=128, description="episodes in one shard (a flow run)")
    attempts: int = Field(3, ge=1, le=10, description="attempts of an episode that ends in an infrastructure error")
    work_pool: str | None = Field(None, description="deploy shards to this pool; empty runs them in process")
    vllm: VllmExecution = VllmExecution()


class RolloutConfig(Frozen):
    """Stage `rollouts`."""

    science: RolloutScience = RolloutScience()
    execution: RolloutExecution = RolloutExecution()


class RftScience(Frozen):
    """Rejection fine-tuning: which trajectories stay, and how they are learnt."""

    min_reward: float = Field(0.0, ge=-1.0, le=3.0, description="keep trajectories with a reward above this (paper: 0)")
    max_repeated_calls: int = Field(2, ge=1, description="identical tool calls in a row that mark a loop")
    engines: tuple[str, ...] = Field(("transformers", "vllm"), min_length=1, description="engines whose trajectories are taken")
    epochs: int = Field(2, ge=1, le=100)
    batch: int = Field(16, ge=1, description="trajectories per optimiser step")
    rate: Rate = Field(1e-5, description="learning rate")
    max_grad_norm: float = Field(1.0, gt=0.0, description="gradient clipping")
    seed: int = Field(0, ge=0)


class RftConfig(Frozen):
    """Stage `rft`."""

    science: RftScience = RftScience()
    execution: TrainExecution = TrainExecution()


class CriticScience(Frozen):
    """Critic pretraining on all trajectories, failures included (paper section 3.3, equations 3 and 4)."""

    gamma: Share = Field(1.0, description="discount")
    lam: Share = Field(0.95, description="lambda of GAE")
    epochs: int = Field(2, ge=1, le=100)
    batch: int = Field(16, ge=1, description="trajectories per optimiser step")
    rate: Rate = Field(6e-6, description="learning rate")
    max_grad_norm: float = Field(1.0, gt=0.0, description="gradient clipping")
    seed: int = Field(0, ge=0)


class CriticConfig(Frozen):
    """Stage `critic`."""

    science: CriticScience = CriticScience()
    execution: TrainExecution = TrainExecution()


class PpoScience(Frozen):
    """PPO with asymmetric clipping (paper section 3.3, equation 5)."""

    steps: int = Field(150, ge=1, le=100_000, description="rollout batches, each followed by an update")
    clip_low: Share = Field(0.2, description="the ratio is clipped from below at 1 - clip_low")
    clip_high: Share = Field(0.28, description="the ratio is clipped from above at 1 + clip_high")
    gamma: Share = Field(1.0, description="discount")
    lam: Share = Field(0.95, description="lambda of GAE")
    actor_rate: Rate = Field(3e-6, description="actor's learning rate")
    critic_rate: Rate = Field(6e-6, description="critic's learning rate")
    epochs: int = Field(1, ge=1, le=32, description="passes over each rollout batch")
    critic_only_steps: int = Field(
        0, ge=0, le=1_000, description="first steps that train the critic alone; a new critic's advantages say nothing yet"
    )
    minibatch: int = Field(1_024, ge=1, description="trajectories per optimiser step (paper: the whole batch)")
    normalise_advantages: bool = Field(False, description="whiten advantages over the batch's policy tokens")
    max_grad_norm: float = Field(1.0, gt=0.0, description="gradient clipping")
    max_logprob_gap: float = Field(
        0.5, gt=0.0, description="mean |log-prob of trainer - of engine| beyond which training stops: the two disagree"
    )
    rollouts: RolloutScience = RolloutScience()
    seed: int = Field(0, ge=0)


class PpoExecution(TrainExecution):
    """How PPO runs: the trainer's settings and those of its rollouts."""

    rollouts: RolloutExecution = RolloutExecution()


class PpoConfig(Frozen):
    """Stages `warmup` (single turn) and `ppo` (agentic)."""

    science: PpoScience = PpoScience()
    execution: PpoExecution = PpoExecution()


class EvaluationScience(Frozen):
    """Evaluation on held-out problems; the best verdict of a trajectory counts."""

    engine: Literal["transformers", "vllm", "openai", "teacher"] = "transformers"
    samples_per_problem: int = Field(4, ge=1, le=256, description="episodes per held-out problem, the same seeds each time")
    sampling: SamplingConfig = SamplingConfig()
    episode: EpisodeConfig = EpisodeConfig(max_turns=200)
    seed: int = Field(0, ge=0)


class EvaluationConfig(Frozen):
    """Stage `evaluation`."""

    science: EvaluationScience = EvaluationScience()
    execution: RolloutExecution = RolloutExecution()


# --- judge and campaign ----------------------------------------------------------------------------------------------


class JudgeConfig(Frozen):
    """How submissions are judged. Everything but the limits is recorded with each verdict."""

    backend: Backend = Field("cpu", description="cuda on an NVIDIA GPU, cpu anywhere")
    threads: int = Field(0, ge=0, le=1_024, description="CPU threads of candidate, eager and compile alike; 0 is all cores")
    inputs: int = Field(5, ge=1, le=100, description="fresh random inputs each submission must answer (paper: 5)")
    min_repetitions: int = Field(15, ge=3, le=10_000, description="fewest timed rounds")
    max_repetitions: int = Field(200, ge=3, le=10_000, description="most timed rounds")
    timing_seconds: Seconds = Field(2.0, description="most seconds spent on timing one submission")
    precision: Share = Field(
        1.0, description="timing goes on until a reward step is clear and every ratio is known to this share (1: the step alone)"
    )
    build_seconds: Seconds = Field(120.0, description="wall-clock limit of a build")
    run_seconds: Seconds = Field(30.0, description="wall-clock limit of load and verification")
    memory_mb: int = Field(4_000, ge=256, description="address space of a submission's process")
    milestone: Share = Field(0.05, description="the share by which a reward step must be faster (paper: 5 %)")
    fast_math: bool = Field(False, description="the published flags: adds --use_fast_math (cuda)")
    tf32: bool = Field(False, description="allow TF32 for reference, baselines and candidates alike (cuda)")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.min_repetitions > self.max_repetitions:
            raise ValueError("min_repetitions must not exceed max_repetitions")
        return self


class CampaignConfig(Frozen):
    """A whole campaign: dataset, base policy, warm-up, rollouts, RFT, critic, PPO, with evaluations between."""

    name: str = Field("campaign", pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$", description="name shown in runs and reports")
    seed: int = Field(0, ge=0, description="added to every stage's own seed")
    judge: JudgeConfig = JudgeConfig()
    dataset: DatasetConfig = DatasetConfig()
    base_policy: BasePolicyConfig = BasePolicyConfig()
    warmup: PpoConfig = PpoConfig()
    rollouts: RolloutConfig = RolloutConfig()
    teacher_rollouts: RolloutConfig | None = Field(None, description="an extra batch by the teacher")
    rft: RftConfig = RftConfig()
    critic: CriticConfig = CriticConfig()
    ppo: PpoConfig = PpoConfig()
    evaluation: EvaluationConfig = EvaluationConfig()
    budget_minutes: dict[str, float] = Field(default_factory=dict, description="minutes planned per stage, for the report")


def load_campaign(path: Path) -> CampaignConfig:
    """Read a campaign file.

    Raises:
        ConfigError: the file is missing, is no YAML mapping, or breaks a rule; the message names the first key at fault.
    """
    try:
        data = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        example = "infra/campaigns/quickstart.yaml"
        raise ConfigError(f"campaign file {path}: {error.strerror}; name a file such as {example}") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise ConfigError(f"campaign file {path} is not YAML: {error}") from error
    if not isinstance(data, dict):
        raise ConfigError(f"campaign file {path} holds no mapping; start from infra/campaigns/quickstart.yaml")
    try:
        return CampaignConfig.model_validate(data)
    except ValidationError as error:
        raise ConfigError(f"campaign file {path}: {first_fault(error)}") from error


def first_fault(error: ValidationError) -> str:
    """One sentence for the first of pydantic's faults: the key, the reason and the value given."""
    fault = error.errors()[0]
    where = ".".join(str(part) for part in fault["loc"]) or "the file"
    if fault["type"] == "extra_forbidden":
        return f"{where} is not a known setting; remove it or check the spelling"
    return f"{where}: {fault['msg']} (got {fault['input']!r:.80})"
