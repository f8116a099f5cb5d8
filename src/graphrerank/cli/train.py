"""``python train.py``: train a reranker and its ablations, and evaluate them beside the frozen systems."""

from collections.abc import Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import torch

from graphrerank.cli.calibration import calibrate_system
from graphrerank.cli.joint_training import is_first_process, joint_training
from graphrerank.cli.systems import declared_inputs, with_frozen
from graphrerank.cli.train_model import CHECKPOINT, FROM_START, judged_parts, train_model
from graphrerank.cli.training_session import TrainingSession
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.build_study import build_study
from graphrerank.evaluation.cost import peak_memory_mib
from graphrerank.evaluation.measuring import judged_queries
from graphrerank.evaluation.metrics_json import write_metrics
from graphrerank.evaluation.ranked_system import RankedDataset
from graphrerank.evaluation.reranking import run_reranker
from graphrerank.evaluation.run_files import write_runs
from graphrerank.evaluation.study import DatasetStudy, Study
from graphrerank.evaluation.study_plan import RERANKER_MEASURES, StudyPlan
from graphrerank.evaluation.study_report import print_study, render_study
from graphrerank.evaluation.system import System
from graphrerank.files import sole_use, write_text
from graphrerank.models.checkpoint import load_checkpoint
from graphrerank.models.manifest import write_manifest
from graphrerank.training.score_calibration import calibration_method


def train(session: TrainingSession) -> Path:
    """Train the model and its ablations, evaluate them, and return the run folder."""
    cfg = session.cfg
    if cfg.calibration == FROM_START and cfg.start is None:
        raise ValueError("`calibration=start` needs a checkpoint whose calibration is kept, got start=null")
    if cfg.calibration not in (None, FROM_START):
        calibration_method(cfg.calibration)  # refused before training, not after
    run_dir = session.training_folder()
    with sole_use(run_dir) if session.resumed is not None and is_first_process() else nullcontext():
        return _train(session, run_dir)


def _train(session: TrainingSession, run_dir: Path) -> Path:
    cfg = session.cfg
    names = [*(name for name, settings in cfg.ablations.items() if settings is not None), cfg.system]
    rows_of = {name: session.ablation(name, run_dir) for name in names}
    inputs = [declared_inputs(row.cfg.model) for row in rows_of.values()]
    reads_vectors = any(declared.reads_vectors for declared in inputs)
    parts = {name: session.dataset(name, reads_vectors=reads_vectors) for name in session.training_names}
    if any(declared.reads_pairs for declared in inputs):
        parts = {name: session.with_pair_encoder(part, cfg.pair_encoder) for name, part in parts.items()}
    prepared = next(iter(parts.values()))
    torch.set_num_threads(session.num_threads)
    operators = session.tune_operators(prepared, cfg.batches.val_split)

    manifests: dict[str, dict[str, Any]] = {}
    with joint_training():
        for count, (name, row) in enumerate(rows_of.items(), 1):
            print(f"training {name} ({count} of {len(names)})", flush=True)
            loggers = session.tracking.open(row.cfg)
            manifests[name] = train_model(row.cfg, parts, operators, loggers, session.shards)
    if not is_first_process():
        return run_dir
    trained = {name: load_checkpoint(run_dir / name / CHECKPOINT).model for name in names}
    rows = session.systems(with_frozen(trained, prepared), operators)
    study = judge(prepared, cfg.test_split, rows)
    for system in rows:
        if system.name not in manifests:
            continue
        manifest = manifests[system.name]
        if cfg.calibration not in (None, FROM_START):
            manifest |= calibrate_system(cfg.calibration, judged_parts(parts), cfg.batches.val_split, system)
        metrics = {f"{study.name}/{study.split}": study.systems[system.name].means}
        write_manifest(run_dir / system.name, manifest | {"metrics": metrics})
    write_metrics(run_dir / "metrics.json", [study], encoder_counts=session.encoder_counts)
    write_runs(run_dir / "runs", study, prepared.dataset.graph.node_ids)
    report = Study(session.command, {study.name: study}, (), {"ties": "own"})
    write_text(run_dir / "report.md", render_study(report))
    print_study(study, ties="own")
    print(f"peak memory {peak_memory_mib() / 1024:.2f} GiB")
    return run_dir


def judge(prepared: PreparedDataset, split: str, systems: Sequence[System]) -> DatasetStudy:
    """Evaluate rerankers on a split as ``evaluate.py`` does; the last is compared with the others."""
    queries = judged_queries(prepared.dataset, split)
    ranked = [run_reranker(prepared, queries, system) for system in systems]
    candidates = prepared.ranking.select(queries)
    return build_study(
        RankedDataset(prepared.dataset, split, queries, ranked, candidates), StudyPlan(RERANKER_MEASURES)
    )
