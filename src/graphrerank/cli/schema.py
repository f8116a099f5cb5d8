"""The root of each command's configuration: a key that is not here is refused by name."""

import re
from dataclasses import dataclass, field, fields
from functools import cache
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf
from pydantic import PydanticSchemaGenerationError, TypeAdapter, ValidationError

from graphrerank.checks import UserError
from graphrerank.conf_folder import conf_folder
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
    expect: str | None = None
    experiment: Any = None
    paths: Paths = field(default_factory=Paths)
    num_threads: int = 1
    device: str | None = None


@dataclass
class CommandConfig:
    """Settings that the smaller commands share."""

    paths: Paths = field(default_factory=Paths)
    num_threads: int = 1
    device: str | None = None
    seed: int = 0


@dataclass
class PrepareConfig(CommandConfig):
    """``conf/prepare.yaml``."""

    folder: str = MISSING
    data: Any = None
    encoder: Any = None
    engine: Any = None
    vectors: str = "float16"
    index: str | None = None
    add: str | None = None
    edge_meanings: Any = None
    replace: bool = False
    remove: str | None = None
    compact: bool = False


@dataclass
class CalibrateConfig(CommandConfig):
    """``conf/calibrate.yaml``."""

    checkpoint: str = MISSING
    method: str = "logistic"
    data: Any = None
    num_queries: int | None = None
    val_split: str = "val"
    retriever: Any = None
    encoder: Any = None
    logger: Any = None
    system: str = MISSING
    models: list[str] = field(default_factory=list)


@dataclass
class DoctorConfig(CommandConfig):
    """``conf/doctor.yaml``."""

    dataset: str = MISSING
    checkpoint: str = "base"
    data: Any = None
    encoder: Any = None
    retriever: Any = None
    split: str = "test"
    num_queries: int | None = None
    measures: list[str] = field(default_factory=list)
    tested: list[str] = field(default_factory=list)
    resamples: int = MISSING
    logger: Any = None
    system: str = MISSING
    scorers: list[str] = field(default_factory=list)
    models: list[str] = field(default_factory=list)


@dataclass
class ExportConfig(CommandConfig):
    """``conf/export.yaml``."""

    checkpoint: str = MISSING
    artifact: str | None = None
    revision: str | None = None
    formats: list[str] = MISSING


@dataclass
class ServeConfig:
    """``conf/serve.yaml``; of the service also ``graphrerank.serving.settings.ServiceSettings``."""

    mode: str = "http"
    artifact: str | None = None
    revision: str | None = None
    format: str | None = None
    bench: Any = MISSING
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
    limits: Any = MISSING


SCHEMAS = {
    "train": TrainConfig,
    "evaluate": EvaluateConfig,
    "serve": ServeConfig,
    "export": ExportConfig,
    "prepare": PrepareConfig,
    "calibrate": CalibrateConfig,
    "doctor": DoctorConfig,
}


@cache
def register() -> None:
    """Make the schemas, the folders of extensions and the help known to Hydra, before ``@hydra.main`` composes."""
    OmegaConf.register_new_resolver("graphrerank_extensions", _extension_paths, replace=True)
    OmegaConf.register_new_resolver("graphrerank_help", _help, replace=True)
    store = ConfigStore.instance()
    for name, node in SCHEMAS.items():
        store.store(name=f"{name}_schema", node=node)


def _extension_paths() -> list[str]:
    return [f"file://{folder}" for folder in settings_folders()]


def _help(name: str) -> str:
    """Return Hydra's template of ``--help``: a command's file of settings with its comments, and the groups."""
    folders = [conf_folder(), *settings_folders()]
    text = (folders[0] / f"{name}.yaml").read_text(encoding="utf-8").split("\nhydra:\n")[0]
    shown = [line for line in text.splitlines() if "- override " not in line and "_schema" not in line]
    choices = {
        group: sorted(path.stem for folder in folders for path in (folder / group).glob("*.yaml"))
        for group in re.findall(r"^  - (\w+):", "\n".join(shown), flags=re.MULTILINE)
    }
    listed = [f"  {group}: {', '.join(names)}" for group, names in choices.items()]
    advice = "GROUP=CHOICE takes another file of conf/GROUP; --cfg job --package GROUP shows its settings:"
    return "\n".join([*shown, "", advice, *listed, "", "--hydra-help: Hydra's flags"]).replace("$", "$$")


def check_keys(cfg: DictConfig, schema: type) -> None:
    """Refuse root keys that a ``+key=...`` override added; the ValueError names the first."""
    known = {f.name for f in fields(schema)}
    unknown = sorted(str(key) for key in cfg if key not in known)
    if unknown:
        raise ValueError(f"unknown setting {unknown[0]!r}; the settings are {sorted(known)}")


def check_type(setting: Any, needed: Any, key: str) -> None:
    """Refuse a setting of another type; the error names its ``key``. Types of built parts are not checked.

    Raises:
        UserError: If the type differs.
    """
    if OmegaConf.is_config(setting):
        setting = OmegaConf.to_container(setting, resolve=True)
    try:
        TypeAdapter(needed).validate_python(setting, strict=True)
    except PydanticSchemaGenerationError:
        return
    except ValidationError as error:
        first = error.errors()[0]
        raise UserError(f"`{key}`: {first['msg'].lower()}, got {first['input']!r}") from None
