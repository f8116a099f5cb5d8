"""What ``conf/train.yaml`` says: the models of a run, their data sets, and the settings of a training."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.command import CommandContext
from graphrerank.cli.training_run import model_config, resolved
from graphrerank.config.components import ConfiguredComponent
from graphrerank.core.model_inputs import QUERIES
from graphrerank.evaluation.baselines import BASELINES
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.training.settings import FitSettings
from graphrerank.training.training_data import declared_inputs
from graphrerank.utils.checks import UserError

# settings of `conf/train.yaml` that are fields of `FitSettings`, in addition to `seed` and those of `batches`
FURTHER = ("shares", "augmentation", "cross_encoder_queries", "num_queries", "start", "train_only", "calibration")


def model_rows(cfg: DictConfig, run_dir: Path) -> dict[str, DictConfig]:
    """Return the configuration of each model of a run by its name: the ablations, and the primary model last.

    Args:
        cfg: Configuration of the command.
        run_dir: Folder of the run, in which each model has a folder.

    Raises:
        ValueError: If two rows of the table have one name.
    """
    rows = {}
    for name, changes in row_changes(cfg).items():
        row = rows[name] = model_config(cfg, run_dir, name)
        OmegaConf.set_struct(row.model, True)
        row.model = OmegaConf.merge(row.model, changes)
    return rows


def row_changes(cfg: DictConfig) -> dict[str, Mapping[str, Any]]:
    """Return the models to train by name, with their changes of the model's settings; the primary one last."""
    rows: dict[str, Mapping[str, Any]] = {}
    for name, changes in cfg.ablations.items():
        if unknown := [key for key in changes or () if key not in cfg.model]:
            print(f"no row {name}: the model has no setting {unknown[0]}")
        elif changes is not None:
            rows[str(name)] = changes
    if cfg.system in (*BASELINES, *rows):
        raise UserError(
            f"`system` names the trained model, so it must not be one of {[*BASELINES, *rows]}, got {cfg.system!r}"
        )
    return {**rows, str(cfg.system): {}}


def fit_settings(cfg: DictConfig) -> FitSettings:
    """Return the settings of a training; epochs and learning rate are those of ``trainer`` and ``module``."""
    batches = {name: setting for name, setting in cfg.batches.items() if name != "seed"}
    return FitSettings(seed=cfg.seed, **batches, **{name: resolved(cfg[name]) for name in FURTHER})


def restart_probs(cfg: DictConfig, rerankers: Mapping[str, GraphReranker]) -> dict[str, float | None]:
    """Return the restart probabilities of the frozen operators: those that the first model of the run chose, if any."""
    for reranker in rerankers.values():
        return dict(reranker.checkpoint.reranker.operators)
    return {name: cfg.operator[name].restart_prob for name in ("gcs", "ppr")}


def data_sets(command: CommandContext) -> dict[str, ConfiguredComponent]:
    """Return ``data`` and the data sets of ``mix``, by name.

    Raises:
        ValueError: If the model scores queries, not candidates, or ``mix`` names ``data``.
    """
    cfg = command.cfg
    if declared_inputs(ConfiguredComponent(cfg.model)) == QUERIES:
        choice = command.choice("model")
        raise UserError(f"`model` must score candidates, {choice} scores queries; experiment={choice} trains it")
    first = command.choice("data")
    data: dict[str, ConfiguredComponent] = {first: ConfiguredComponent(cfg.data, first)}
    for name, entry in (cfg.mix or {}).items():
        if name == first:
            raise UserError(f"`mix` must name other data sets than `data`, got {first!r}, which `data` is")
        changes = dict(entry or {})
        data[str(name)] = command.parts.component("data", str(changes.pop("data", name)), **changes)
    return data
