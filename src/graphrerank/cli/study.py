"""From judged systems to a study, and what a run of ``evaluate.py`` leaves behind of it."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from hydra.utils import instantiate
from omegaconf import DictConfig

from graphrerank.cli.compose import portable_config
from graphrerank.cli.session import Session
from graphrerank.cli.study_files import write_study_files
from graphrerank.data import PreparedDataset
from graphrerank.evaluation import DatasetResult, PipelinesResult, System, rerank
from graphrerank.evaluation.across import across_datasets
from graphrerank.evaluation.build_study import RankedSystem, StudyPlan
from graphrerank.evaluation.capsule import make_capsule, write_capsule
from graphrerank.evaluation.counterfactual import EDGES, OtherEdges
from graphrerank.evaluation.measuring import check_measures
from graphrerank.evaluation.study import Cost, DatasetStudy, Study
from graphrerank.evaluation.study_report import render_study
from graphrerank.evaluation.study_tables import study_tables
from graphrerank.files import hash_files, hash_json, write_text
from graphrerank.graphs.calibration import read_calibration
from graphrerank.models import Checkpoint
from graphrerank.models.checkpoint import library_versions, reads_pairs

TIMED_ALONE = 50  # queries that pipelines retrieve once more, one at a time
TESTED = ("nDCG@10", "PR@10", "CR@10")  # where `tested` names none: those of them that are measured
MACHINE_SETTINGS = ("seed", "paths", "device", "num_threads", "debug")  # of a training that do not tell what it learns


def study_plan(cfg: DictConfig, measures: Sequence[str]) -> StudyPlan:
    """Read what to measure and to test.

    Args:
        cfg: The door's configuration.
        measures: Where ``measures`` names none.

    Raises:
        ValueError: If a measure is unknown, or a number is out of range.
    """
    chosen = list(cfg.measures) or list(measures)
    check_measures(chosen)
    strangers = set(cfg.counterfactuals) - set(EDGES)
    if strangers:
        raise ValueError(f"`counterfactuals` must be of {EDGES}, got {sorted(strangers)}")
    if cfg.resamples < 1:
        raise ValueError(f"`resamples` must be a positive integer, got {cfg.resamples}")
    tested = list(cfg.tested) or [name for name in TESTED if name in chosen] or chosen[:1]
    return StudyPlan(chosen, tested, ties=cfg.ties, resamples=cfg.resamples, seed=cfg.seed)


def ranked_rows(
    cfg: DictConfig,
    prepared: PreparedDataset,
    result: DatasetResult,
    rows: Sequence[System],
    checkpoints: Mapping[str, Checkpoint],
    *,
    queries: torch.Tensor,
    source: str,
) -> list[RankedSystem]:
    """Turn reranked lists into rows of a study, with what the systems rank on other edges.

    Args:
        cfg: The door's configuration.
        prepared: The data set, as the systems read it.
        result: What they achieved.
        rows: The systems.
        checkpoints: Those that are trained, by their names in ``rows``.
        queries: ``[Q]`` int64, in the order of the rankings' rows.
        source: Where the trained ones came from.
    """
    edges = OtherEdges(prepared, seed=cfg.seed) if cfg.counterfactuals and prepared.state_encoder is None else None
    found = []
    for row in rows:
        entry, loaded = result.systems[row.name], checkpoints.get(row.name)
        manifest = {} if loaded is None else loaded.manifest
        reads = loaded is not None and reads_pairs(manifest)
        changed = {}
        if edges is not None and row.reads_graph:
            changed = {name: rerank(prepared, queries, edges.system(row, name)) for name in cfg.counterfactuals}
        found.append(
            RankedSystem(
                name=row.name,
                kind="operator" if loaded is None else "checkpoint",
                source=row.name if loaded is None else source,
                ranking=entry.ranking,
                cost=Cost(entry.stages_ms, float(prepared.top_k) if reads else None, None, entry.peak_memory_mib),
                config=training_config(manifest, row.name),
                seed=manifest.get("config", {}).get("seed"),
                fingerprint=None if loaded is None else hash_files([loaded.path]),
                calibration=read_calibration(manifest),
                on_other_edges=changed,
            )
        )
    return found


def training_config(manifest: Mapping[str, Any], system: str) -> str | None:
    """Hash what a model was trained with beside its seed; None where the manifest does not tell."""
    config = manifest.get("config")
    if not isinstance(config, Mapping):
        return None
    kept = {key: entry for key, entry in config.items() if key not in MACHINE_SETTINGS}
    return hash_json([manifest.get("name", system), kept, manifest.get("data")])


def ranked_pipelines(result: PipelinesResult) -> list[RankedSystem]:
    """Turn what pipelines retrieved into rows of a study."""
    return [
        RankedSystem(
            name=name,
            kind="pipeline",
            source=f"pipeline={name}",
            ranking=found.ranking,
            cost=Cost(found.latency_ms, found.encodings or None, None, found.peak_memory_mib),
        )
        for name, found in result.pipelines.items()
    ]


def conclude(cfg: DictConfig, datasets: Sequence[DatasetStudy], *, before: str = "") -> Study:
    """Compare over data sets, write all files of a study, its capsule and ``report.md``, and send tables to loggers.

    Args:
        cfg: The door's configuration.
        datasets: All that was judged.
        before: What the report begins with.
    """
    run_dir = Path(cfg.paths.run_dir)
    study = Study(
        command=Session(cfg).command,
        datasets={dataset.name: dataset for dataset in datasets},
        across=across_datasets(datasets, permutations=cfg.resamples, seed=cfg.seed),
        settings={"ties": cfg.ties, "resamples": cfg.resamples, "level": 0.95, "seed": cfg.seed},
    )
    write_study_files(run_dir, study)
    overrides, versions = HydraConfig.get().overrides.task, library_versions()
    capsule = make_capsule(run_dir, study, overrides=overrides, config=portable_config(cfg), versions=versions)
    write_capsule(run_dir, capsule)
    write_text(run_dir / "report.md", before + render_study(study))
    for logger in (cfg.logger or {}).values():
        log_study(instantiate(logger), study)
    return study


def log_study(logger: Any, study: Study) -> None:
    """Send the means to a Lightning logger, and all tables where it takes tables (W&B)."""
    logger.log_metrics(
        {
            f"{name}/{system}/{measure}".lower(): mean
            for name, dataset in study.datasets.items()
            for system, found in dataset.systems.items()
            for measure, mean in found.means.items()
        }
    )
    if hasattr(logger, "log_table"):
        for title, table in study_tables(study).items():
            rows = [[str(cell) for cell in row] for row in table.rows]
            logger.log_table(key=title, columns=list(table.header), data=rows)
    logger.log_hyperparams({"command": study.command, **study.settings})
    logger.finalize("success")
