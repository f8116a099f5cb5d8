"""The root of each command's configuration: a key that is not here is refused by name."""

from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from graphrerank.extensions import settings_folders


@dataclass
class Paths:
    """Folders."""

    cache: str = MISSING  # vectors and candidate lists
    datasets: str = MISSING  # data set folders that come from no registry package
    runs: str = MISSING  # parent of all run folders
    run_dir: str = MISSING  # this run's folder


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
    """Inputs of the reranker; see ``GATv2Reranker``, and ``TextMatch`` for the scores that ``text_match`` adds.

    ``cross_encoder_top_k`` candidates of a query are read by a cross-encoder (``with_cross_encoder``); 0: none.
    """

    mode: str = MISSING
    text_match: bool = MISSING
    cross_encoder_top_k: int = MISSING
    cross_encoder_dropout: float = MISSING
    num_edge_types: int = MISSING
    num_words: int = MISSING
    num_layers: int = MISSING
    residual: bool = MISSING
    pair_head: bool = MISSING


@dataclass
class Batches:
    """Arguments of ``CandidateDataModule``, ``MixtureDataModule`` and, with ``buffer``, ``StreamedDataModule``."""

    batch_size: int = MISSING
    seed: int = MISSING
    train_split: str = "train"
    val_split: str = "val"
    buffer: int | None = None


@dataclass
class Augmentation:
    """Arguments of ``CandidateAugmentation`` and ``TypeAugmentation``."""

    base_swap: float = 0.0
    score_dropout: float = 0.0
    cross_encoder_dropout: float = 0.0
    edge_dropout: float = 0.0
    type_merge: float = 0.0
    type_swap: float = 0.0
    type_dropout: float = 0.0


@dataclass
class TrainConfig:
    """``conf/train.yaml``; groups of ``conf`` and the job's plan are open, everything else is typed."""

    job: Any = MISSING
    data: Any = MISSING
    mix: Any = None
    shares: Any = None
    cross_encoder_queries: Any = None
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
    experiment: Any = None
    debug: Any = None
    seed: int = MISSING
    system: str = MISSING
    scorers: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)
    calibration: str | None = None
    calibrate: str | None = None
    calibrate_queries: int | None = None
    ckpt_path: str | None = None
    start: str | None = None
    train_only: list[str] | None = None
    num_threads: int = 1
    device: str | None = None
    test_split: str = "test"


@dataclass
class EvaluateConfig:
    """``conf/evaluate.yaml``."""

    job: Any = MISSING
    checkpoint: Any = MISSING
    models: list[str] = field(default_factory=list)
    scorer: Any = None
    scorers: list[str] = field(default_factory=list)
    systems: list[str] = field(default_factory=list)
    settings: dict[str, Any] = field(default_factory=dict)
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
    cross_encoder_top_k: int = 20
    retriever: Any = None
    data: Any = None
    pipeline: Any = None
    answers: Any = None
    shared: Any = None  # parts that the files of conf/pipeline refer to
    pipelines: list[str] = field(default_factory=list)
    num_queries: int | None = None
    report: list[str] = field(default_factory=list)
    verify: str | None = None
    diagnose: str | None = None
    prepare: str | None = None
    engine: Any = None
    add: str | None = None
    replace: bool = False
    remove: str | None = None
    compact: bool = False
    vectors: str = "float16"
    index: str | None = None
    build: str | None = None
    files: list[str] = field(default_factory=list)
    out: str | None = None
    options: dict[str, Any] = field(default_factory=dict)
    experiment: Any = None
    paths: Paths = field(default_factory=Paths)
    num_threads: int = 1
    device: str | None = None


@dataclass
class ServiceLimits:
    """See ``graphrerank.serving.limits.Limits``."""

    body_bytes: int = MISSING
    json_nodes: int = MISSING
    documents: int = MISSING
    edges: int = MISSING
    entities: int = MISSING
    fields: int = MISSING
    query_chars: int = MISSING
    text_chars: int = MISSING
    request_chars: int = MISSING
    explained_edges: int = MISSING
    work_seconds: float = MISSING
    request_seconds: float = MISSING
    queue_seconds: float = MISSING
    body_seconds: float = MISSING
    header_seconds: float = MISSING
    answer_seconds: float = MISSING
    waiting: int = MISSING
    connections: int = MISSING
    held_bytes: int = MISSING


@dataclass
class BenchPlan:
    """Settings of ``mode=bench``; see ``graphrerank.serving.bench``."""

    candidates: int = MISSING
    edges: int = MISSING
    batch_queries: int = MISSING
    rounds: int = MISSING


@dataclass
class ServeConfig:
    """``conf/serve.yaml``; of the service also ``graphrerank.serving.settings.ServiceSettings``."""

    mode: str = "http"
    checkpoint: str | None = None
    artifact: str | None = None
    revision: str | None = None
    format: str | None = None
    formats: list[str] = MISSING
    bench: BenchPlan = field(default_factory=BenchPlan)
    index: str | None = None
    compare: list[str] = field(default_factory=list)
    language: str = "auto"
    page: bool = True
    browser: bool = True
    documents: bool = True
    service: dict[str, Any] = field(default_factory=dict)
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
    vector_cache_bytes: int = 1 << 28
    device: str | None = None
    api_key: str | None = None
    allow_no_key: bool = False
    cors_origins: list[str] = MISSING
    shutdown_seconds: int = MISSING
    limits: ServiceLimits = field(default_factory=ServiceLimits)


@cache
def register() -> None:
    """Make the schemas and the folders of extensions known to Hydra; call before ``@hydra.main`` composes."""
    OmegaConf.register_new_resolver("graphrerank_extensions", _extension_paths, replace=True)
    store = ConfigStore.instance()
    store.store(name="train_schema", node=TrainConfig)
    store.store(name="evaluate_schema", node=EvaluateConfig)
    store.store(name="serve_schema", node=ServeConfig)


def _extension_paths() -> list[str]:
    return [f"file://{folder}" for folder in settings_folders()]


def check_keys(cfg: DictConfig, schema: type) -> None:
    """Refuse root keys that a ``+key=...`` override added; the ValueError names the first."""
    known = {f.name for f in fields(schema)}
    unknown = sorted(str(key) for key in cfg if key not in known)
    if unknown:
        raise ValueError(f"unknown setting {unknown[0]!r}; the settings are {sorted(known)}")
