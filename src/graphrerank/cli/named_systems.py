"""What ``systems=[...]`` and ``checkpoint=[...]`` name: pipelines, run files and checkpoints, with short names."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig, OmegaConf

RUN_ENDINGS = (".trec", ".run", ".txt", ".tsv", ".jsonl", ".gz")
DATASET = "{dataset}"  # in a run file's path: the name of the data set


@dataclass(frozen=True)
class Named:
    """A system as the command named it.

    Attributes:
        label: Its name in reports.
        kind: ``pipeline``, ``run`` or ``checkpoint``.
        source: What the command says.
    """

    label: str
    kind: str
    source: str


def name_systems(cfg: DictConfig) -> list[Named]:
    """Tell what ``systems`` and ``checkpoint`` name: a file of ``conf/pipeline``, else a run file, else a checkpoint.

    Raises:
        ValueError: If there is none, or one is named twice.
    """
    sources = [str(source) for source in cfg.systems]
    if not OmegaConf.is_missing(cfg, "checkpoint"):
        listed = cfg.checkpoint if OmegaConf.is_list(cfg.checkpoint) else [cfg.checkpoint]
        sources += [str(source) for source in listed]
    if not sources or len(set(sources)) != len(sources):
        raise ValueError(f"`systems` and `checkpoint` must name one system or more, and none twice, got {sources}")
    pipelines = GlobalHydra.instance().config_loader().get_group_options("pipeline")
    kinds = [_kind(source, pipelines) for source in sources]
    return [Named(*entry) for entry in zip(short_names(sources), kinds, sources, strict=True)]


def short_names(sources: Sequence[str]) -> list[str]:
    """Name paths by as many of their last parts as tell them apart, without the endings of run files and checkpoints.

    Example:
        >>> short_names(["base", "runs/1", "more/1", "out/{dataset}.bm25.trec"])
        ['base', 'runs-1', 'more-1', 'out-bm25']
    """
    parts = [Path(source.replace(DATASET, "").rstrip("/")).parts for source in sources]
    for count in range(1, max(map(len, parts)) + 1):
        names = ["-".join(_bare(part) for part in path[-count:]) for path in parts]
        if len(set(names)) == len(names):
            return names
    raise ValueError(f"`systems` must have different names, got {list(sources)}")


def check_run_files(named: Sequence[Named], datasets: Sequence[str]) -> None:
    """Refuse the run file of one data set where several are judged.

    Raises:
        ValueError: If there is one.
    """
    for one in named:
        if one.kind == "run" and DATASET not in one.source and len(datasets) > 1:
            raise ValueError(
                f"`systems`: the run file {one.source} is of one data set, `datasets` names {len(datasets)}; write its "
                f"path with {DATASET} in the place of the name"
            )


def _kind(source: str, pipelines: Sequence[str]) -> str:
    if source in pipelines:
        return "pipeline"
    path = Path(source)
    if source.endswith(RUN_ENDINGS) or DATASET in source or (path.is_file() and path.suffix != ".ckpt"):
        return "run"
    return "checkpoint"


def _bare(part: str) -> str:
    for ending in (*RUN_ENDINGS[::-1], ".ckpt"):
        part = part.removesuffix(ending)
    return part.strip(".-_") or part
