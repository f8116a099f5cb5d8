"""The root of each door's configuration: a key that is not here is refused by name."""

from dataclasses import dataclass, field, fields
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig


@dataclass
class Paths:
    """Folders.

    Attributes:
        cache: Vectors and candidate lists.
        datasets: Data set folders that come from no registry package.
        runs: Parent of all run folders.
        run_dir: This run's folder.
    """

    cache: str = MISSING
    datasets: str = MISSING
    runs: str = MISSING
    run_dir: str = MISSING


@dataclass
class RestartProb:
    """One frozen operator's knob; None: chosen on the validation split."""

    restart_prob: float | None = None


@dataclass
class Operators:
    """The frozen baselines."""

    gcs: RestartProb = field(default_factory=RestartProb)
    ppr: RestartProb = field(default_factory=RestartProb)


@dataclass
class Features:
    """What the reranker reads; see ``GATv2Reranker``, and ``TextMatch`` for the scores that ``text_match`` adds."""

    mode: str = MISSING
    text_match: bool = False
    num_layers: int = MISSING
    residual: bool = True


@dataclass
class Batches:
    """Arguments of ``CandidateDataModule`` and ``MixtureDataModule``."""

    batch_size: int = MISSING
    seed: int = MISSING
    train_split: str = "train"
    val_split: str = "val"


@dataclass
class Augmentation:
    """Arguments of ``CandidateAugmentation``."""

    base_swap: float = 0.0
    score_dropout: float = 0.0
    edge_dropout: float = 0.0


@dataclass
class Grid:
    """The settings that ``Tables`` tries."""

    learning_rate: list[float] = MISSING
    weight_decay: list[float] = MISSING
    max_epochs: list[int] = MISSING


@dataclass
class Tables:
    """The plan of ``experiment=grapher_tables``; see there."""

    report: str = MISSING
    judge: str = MISSING
    grid: Grid = field(default_factory=Grid)
    test: list[str] = MISSING
    features: list[str] = MISSING
    seeds: list[int] = MISSING
    ablated: str = MISSING
    ablations: list[str] = MISSING
    workers: int | None = None


@dataclass
class AdapterPlan:
    """The plan of ``model=complexity_adapter``; see ``conf/rows/complexity_adapter.yaml``."""

    dense: str = MISSING
    graph: str = MISSING
    data: dict[str, Any] = MISSING
    right: str = MISSING
    language_model: Any = None
    syntax: str = MISSING
    stanza_folder: str | None = None
    validation_share: float = MISSING
    price: float = MISSING
    settings: dict[str, Any] = field(default_factory=dict)
    num_folds: int | None = None
    num_inner_folds: int = MISSING
    curve_shares: list[float] = MISSING


@dataclass
class TrainConfig:
    """``conf/train.yaml``; groups of ``conf`` are open, everything else is typed."""

    data: Any = MISSING
    mix: Any = None
    shares: Any = None
    augmentation: Augmentation = field(default_factory=Augmentation)
    encoder: Any = None
    pair_encoder: Any = None
    retriever: Any = MISSING
    features: Features = field(default_factory=Features)
    model: Any = MISSING
    loss: Any = MISSING
    operator: Operators = field(default_factory=Operators)
    trainer: Any = MISSING
    callbacks: Any = MISSING
    logger: Any = None
    module: Any = MISSING
    batches: Batches = field(default_factory=Batches)
    ablations: dict[str, Any] = field(default_factory=dict)
    paths: Paths = field(default_factory=Paths)
    tables: Tables | None = None
    adapter: AdapterPlan | None = None
    experiment: Any = None
    debug: Any = None
    seed: int = MISSING
    system: str = MISSING
    calibration: str | None = None
    calibrate: str | None = None
    ckpt_path: str | None = None
    num_threads: int = 1
    device: str | None = None
    test_split: str = "test"


@dataclass
class CurvesPlan:
    """The plan of ``experiment=fastinsight_curves``; see there."""

    pipelines: list[str] = MISSING
    budgets: list[int] = MISSING
    settings: dict[str, list[float]] = field(default_factory=dict)


@dataclass
class RoutingPlan:
    """The plan of ``experiment=ea_benchmark``; see there."""

    single_hop: dict[str, Any] = MISSING
    multi_hop: dict[str, Any] = MISSING
    graph: str | None = None
    draws: int = MISSING
    seed: int = MISSING


@dataclass
class KETPlan:
    """The plan of ``experiment=ket_solutions``; see there."""

    data: str = MISSING
    titles: bool = False
    join: bool = True
    solutions: list[str] = MISSING
    versions: list[dict[str, int]] = MISSING
    sweeps: Any = None
    rerank: Any = None
    language_model: Any = None


@dataclass
class ReTAGPlan:
    """The plan of ``experiment=retag_podcast``; see there."""

    data: str = MISSING
    titles: bool = False
    index: str | None = None
    levels: list[int] = MISSING
    scopes: list[str] = MISSING
    top_p: int = MISSING
    chosen_on: float = MISSING
    seed: int = MISSING
    num_keywords: list[int] = MISSING
    num_sentences: list[int] = MISSING
    keyword_weights: list[float] = MISSING
    bm25_weights: list[float] = MISSING
    checkpoint: str = MISSING
    rerank_depths: list[int] = MISSING
    answer_level: int = MISSING
    language_model: Any = None
    part_tokens: int = MISSING
    context_tokens: int = MISSING


@dataclass
class EvaluateConfig:
    """``conf/evaluate.yaml``."""

    checkpoint: Any = MISSING
    systems: list[str] = field(default_factory=list)
    datasets: list[str] = field(default_factory=list)
    split: str = "test"
    measures: list[str] = field(default_factory=list)
    tested: list[str] = field(default_factory=list)
    ties: str = "own"
    resamples: int = MISSING
    counterfactuals: list[str] = field(default_factory=list)
    counterfactual_pipelines: list[str] = field(default_factory=list)
    seed: int = 0
    logger: Any = None
    system: str = MISSING
    encoder: Any = None
    pair_encoder: Any = None
    retriever: Any = None
    data: Any = None
    pipeline: Any = None
    shared: Any = None  # parts that the files of conf/pipeline refer to
    pipelines: list[str] = field(default_factory=list)
    num_queries: int | None = None
    report: list[str] = field(default_factory=list)
    verify: str | None = None
    curves: CurvesPlan | None = None
    routing: RoutingPlan | None = None
    ket: KETPlan | None = None
    retag: ReTAGPlan | None = None
    experiment: Any = None
    paths: Paths = field(default_factory=Paths)
    num_threads: int = 1
    device: str | None = None


@dataclass
class ServiceLimits:
    """See ``graphrerank.serving.Limits``."""

    body_bytes: int = MISSING
    documents: int = MISSING
    edges: int = MISSING
    explained_edges: int = MISSING
    text_chars: int = MISSING
    request_seconds: float = MISSING
    body_seconds: float = MISSING
    waiting: int = MISSING


@dataclass
class BenchPlan:
    """What ``mode=bench`` times; see ``graphrerank.serving.bench``."""

    candidates: int = MISSING
    edges: int = MISSING
    batch_queries: int = MISSING
    rounds: int = MISSING


@dataclass
class ServeConfig:
    """``conf/serve.yaml``; of the service also ``graphrerank.serving.ServiceSettings``."""

    mode: str = "http"
    checkpoint: str | None = None
    artifact: str | None = None
    revision: str | None = None
    format: str | None = None
    formats: list[str] = MISSING
    bench: BenchPlan = field(default_factory=BenchPlan)
    index: str | None = None
    stanza_folder: str | None = None
    encoder: Any = None
    retriever: Any = None
    pipeline: Any = None
    shared: Any = None
    paths: Paths = field(default_factory=Paths)
    host: str = MISSING
    port: int = MISSING
    workers: int = MISSING
    http_processes: int = MISSING
    batch_requests: int = MISSING
    batch_candidates: int = MISSING
    num_threads: int = 1
    device: str | None = None
    api_key: str | None = None
    cors_origins: list[str] = MISSING
    shutdown_seconds: int = MISSING
    limits: ServiceLimits = field(default_factory=ServiceLimits)


def register() -> None:
    """Make the schemas known to Hydra; call before ``@hydra.main`` composes."""
    store = ConfigStore.instance()
    store.store(name="train_schema", node=TrainConfig)
    store.store(name="evaluate_schema", node=EvaluateConfig)
    store.store(name="serve_schema", node=ServeConfig)


def list_override(argument: str, key: str) -> str:
    """Write ``key=a,b`` as a list; Hydra would take it for a sweep.

    Example:
        >>> list_override("report=runs/a,runs/b", "report")
        "report=['runs/a','runs/b']"
    """
    name, _, listed = argument.partition("=")
    if name != key or listed.startswith("["):
        return argument
    quoted = ("'" + entry.replace("'", r"\'") + "'" for entry in listed.split(","))
    return f"{key}=[{','.join(quoted)}]"


def check_keys(cfg: DictConfig, schema: type) -> None:
    """Refuse root keys that a ``+key=...`` override added.

    Raises:
        ValueError: Naming the key.
    """
    known = {f.name for f in fields(schema)}
    unknown = sorted(str(key) for key in cfg if key not in known)
    if unknown:
        raise ValueError(f"unknown setting {unknown[0]!r}; the settings are {sorted(known)}")
