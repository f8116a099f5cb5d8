"""Configuration of commands that train: the run folder, the models of the run and their data."""

import logging
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, nullcontext
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf, open_dict

from graphrerank.cli.command import CommandContext, portable_config
from graphrerank.cli.joint_training import folder_is_named
from graphrerank.config.components import ConfiguredComponent, build_component
from graphrerank.data.readers.judgements import TEST, VAL, qrels_files
from graphrerank.data.teachers import Teacher
from graphrerank.evaluation.baselines import BASELINES
from graphrerank.models.manifest import MANIFEST
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.training.checks import check_trainer_arguments
from graphrerank.training.distillation import build_teacher, check_loss_and_teacher
from graphrerank.training.fit import built_trainer, module_factory
from graphrerank.training.resume import resume_arguments, run_folder
from graphrerank.training.session import PRUNING, TrainingPlan
from graphrerank.training.settings import FitSettings
from graphrerank.training.trainer import built_callbacks
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import sole_use
from graphrerank.utils.processes import is_first_process

LOGGER = logging.getLogger(__name__)
# settings of `conf/train.yaml` that are fields of `FitSettings`, except `seed` and the settings in `batches`
FURTHER = (
    "test_split",
    "shares",
    "augmentation",
    "cross_encoder_queries",
    "num_queries",
    "start",
    "train_only",
    "calibration",
)
# the only trainer whose arguments are known
LIGHTNING_TRAINER = "lightning.Trainer"
# groups that are built separately for each model of a run
BUILT_GROUPS = ("loss", "optimizer", "scheduler", "module", "callbacks", "trainer")


@dataclass(frozen=True, eq=False)
class ModelRow:
    """Model to train, which is one row of the result table.

    Attributes:
        config: Configuration of the command for this model, with the model's folders.
        recorded: Configuration to record in the manifest.
        model: Configured model, which is built when the sizes of its data are known.
        groups: Plain settings of the groups ``loss``, ``optimizer``, ``scheduler``, ``module``, ``callbacks`` and
            ``trainer``.
    """

    config: DictConfig
    recorded: Mapping[str, Any]
    model: ConfiguredComponent
    groups: Mapping[str, Any]

    def built_groups(self) -> dict[str, Any]:
        """Build the loss, the factories of optimiser, schedule and module, the callbacks and the trainer's arguments.

        Returns:
            Keyword arguments of :class:`~graphrerank.training.trainer.RerankerTrainer`.
        """
        return {
            "loss": build_component(self.groups["loss"]),
            "optimizer": build_component(self.groups["optimizer"]),
            "scheduler": build_component(self.groups["scheduler"]),
            "module": module_factory(self.groups["module"]),
            "callbacks": built_callbacks(self.groups["callbacks"]),
            "trainer": built_trainer(self.groups["trainer"]),
        }


@dataclass(frozen=True, eq=False)
class TrainRun:
    """Configuration of a run of ``graphrerank train``, which is read once, before the data are loaded.

    Attributes:
        rows: Models to train by name: the ablations, and the primary model last.
        data: Configured data sets by name. The result table is computed on the first one.
        settings: Settings of the training, which are the same for all models.
        retriever: Retriever that produces the candidates.
        encoder: Text encoder. If None, nothing is encoded.
        pair_encoder: Cross-encoder. If None, no cross-encoder is used.
        teacher: Teacher for distillation losses. If None, the training uses judgements alone.
        features: Settings of ``conf/features``.
        restart_probs: Restart probabilities of ``gcs`` and ``ppr``. None for a probability to tune on the validation
            split.
        table_split: Split of the result table.
    """

    rows: Mapping[str, ModelRow]
    data: Mapping[str, ConfiguredComponent]
    settings: FitSettings
    retriever: ConfiguredComponent
    encoder: ConfiguredComponent | None
    pair_encoder: ConfiguredComponent | None
    teacher: Teacher | None
    features: Mapping[str, Any]
    restart_probs: Mapping[str, float | None]
    table_split: str

    def fit_settings(self, rerankers: Mapping[str, GraphReranker]) -> FitSettings:
        """Return the settings for the next model of the run.

        Args:
            rerankers: Models that have already been trained. The restart probabilities that were tuned for the first
                model are used for all models.

        Returns:
            Settings with restart probabilities.
        """
        first = next(iter(rerankers.values()), None)
        chosen = self.restart_probs if first is None else dict(first.checkpoint.reranker.operators)
        return self.settings.with_changes(restart_probs=chosen)


def read_train_run(command: CommandContext, run_dir: Path) -> TrainRun:
    """Read the configuration of ``graphrerank train``.

    Args:
        command: Running command.
        run_dir: Folder of the run. Each model has a subfolder.

    Returns:
        Models to train, their data and their settings.

    Raises:
        ValueError: If two rows of the table have the same name, a setting is invalid, or only one of a teacher and a
            distillation loss is set.
    """
    cfg = command.cfg
    split = table_split(cfg)
    configs = model_configs(cfg, run_dir)
    settings = fit_settings(cfg)
    groups = {name: {group: resolved(config[group]) for group in BUILT_GROUPS} for name, config in configs.items()}
    for groups_of_model in groups.values():
        trainer = groups_of_model["trainer"]
        if trainer.get("_target_") == LIGHTNING_TRAINER:
            check_trainer_arguments(trainer)
    model_choice = command.choice("model")
    rows = {
        name: ModelRow(config, portable_config(config), ConfiguredComponent(config.model, model_choice), groups[name])
        for name, config in configs.items()
    }
    data_choice = command.choice("data")
    data = {data_choice: ConfiguredComponent(cfg.data, data_choice), **command.mixed_data()}
    encoder = command.chosen("encoder")
    pair_encoder = command.chosen("pair_encoder")
    retriever = ConfiguredComponent(cfg.retriever, command.choice("retriever"))
    teacher_component = command.chosen("teacher")
    teacher = None
    if teacher_component is not None:
        teacher = build_teacher(command.parts, teacher_component, pair_encoder)
    check_loss_and_teacher(build_component(resolved(cfg.loss)), has_teacher=teacher is not None)
    return TrainRun(
        rows=rows,
        data=data,
        settings=settings,
        retriever=retriever,
        encoder=encoder,
        pair_encoder=pair_encoder,
        teacher=teacher,
        features=resolved(cfg.features),
        restart_probs={name: cfg.operator[name].restart_prob for name in ("gcs", "ppr")},
        table_split=split,
    )


def table_split(cfg: DictConfig) -> str:
    """Return the split of the result table: ``test_split``, or ``val`` if only drafted questions are judged.

    Args:
        cfg: Configuration of the command.
    """
    data = cfg.data
    test_split = str(cfg.test_split)
    only_drafts = data.get("drafted") and data.get("splits") is None and "path" in data
    if only_drafts and test_split == TEST and TEST not in qrels_files(Path(str(data.path))):
        LOGGER.warning(
            "%s has no judged questions, so the table is computed on drafted questions of the split %s", data.path, VAL
        )
        return VAL
    return test_split


@contextmanager
def training_folder(command: CommandContext) -> Iterator[Path]:
    """Yield the run folder of the training: that of the run to resume (``ckpt_path``), which is locked, or a new one.

    After Ctrl+C or SIGTERM, the command that resumes the run is printed.

    Args:
        command: Running command.

    Yields:
        Run folder.
    """
    resume = command.cfg.ckpt_path
    run_dir = command.run_dir if resume is None else run_folder(resume)
    is_first = is_first_process()
    if resume is not None and is_first and folder_is_named(HydraConfig.get()) and run_dir != command.run_dir:
        print(f"continuing in {run_dir}; hydra.run.dir={command.run_dir} is not used", flush=True)
    with nullcontext() if resume is None or not is_first else sole_use(run_dir):
        try:
            yield run_dir
        except KeyboardInterrupt:
            if is_first:
                print_resume_command(run_dir)
            raise


def print_resume_command(run_dir: Path) -> None:
    """Print the command that resumes the running command to standard error, if a model was trained.

    Args:
        run_dir: Folder of the run.
    """
    if any(run_dir.glob(f"*/{MANIFEST}")):
        print(f"to resume: {resume_command(run_dir)}", file=sys.stderr, flush=True)


def resume_command(run_dir: Path) -> str:
    """Return the command that resumes the running command.

    Args:
        run_dir: Folder of the run.

    Returns:
        Command with the settings of the running one and ``ckpt_path``, quoted for a shell.
    """
    script = Path(sys.argv[0])
    program = f"python {script}" if script.suffix == ".py" and script.stem != "main" else "graphrerank train"
    return f"{program} {resume_arguments(HydraConfig.get().overrides.task, run_dir)}"


def model_configs(cfg: DictConfig, run_dir: Path) -> dict[str, DictConfig]:
    """Return the configuration of each model of a run: the ablations, and the primary model last.

    Args:
        cfg: Configuration of the command.
        run_dir: Folder of the run. Each model has a subfolder.

    Returns:
        Changed copy of the configuration by name of the model.

    Raises:
        ValueError: If two rows of the table have the same name.
    """
    configs = {}
    for name, changes in row_changes(cfg).items():
        config = model_config(cfg, run_dir, name)
        configs[name] = config
        OmegaConf.set_struct(config.model, True)
        config.model = OmegaConf.merge(config.model, changes)
        if name != cfg.system:
            drop_pruning(config)
    return configs


def drop_pruning(config: DictConfig) -> None:
    """Remove the callback that reports to a trial of a hyperparameter search, which scores the primary model.

    Args:
        config: Configuration of an ablation, which is changed.
    """
    with open_dict(config):
        (config.callbacks or {}).pop(PRUNING, None)


def model_config(cfg: DictConfig, run_dir: Path, name: str) -> DictConfig:
    """Return a copy of a command's configuration with the name and the folders of one model.

    Args:
        cfg: Configuration of the command.
        run_dir: Folder of the run.
        name: Name of the model.
    """
    copied = deepcopy(cfg)
    copied.system = name
    copied.paths.run_dir = str(run_dir)
    return copied


def row_changes(cfg: DictConfig) -> dict[str, Mapping[str, Any]]:
    """Return the models to train: the ablations with their changes of the model's settings, and the primary model last.

    Args:
        cfg: Configuration of the command.

    Returns:
        Changes by name of the model. An ablation of a setting that the model does not have is skipped with a message.

    Raises:
        ValueError: If ``system`` has the name of a baseline or of an ablation.
    """
    rows: dict[str, Mapping[str, Any]] = {}
    for name, changes in cfg.ablations.items():
        if unknown := [key for key in changes or () if key not in cfg.model]:
            print(f"skipping ablation {name}: the model has no setting {unknown[0]}")
        elif changes is not None:
            rows[str(name)] = changes
    if cfg.system in (*BASELINES, *rows):
        raise UserError(
            f"`system` must not be the name of a baseline or an ablation, {[*BASELINES, *rows]}, got {cfg.system!r}"
        )
    return {**rows, str(cfg.system): {}}


def fit_settings(cfg: DictConfig) -> FitSettings:
    """Return the settings of a training run, without those that are in the groups ``trainer`` and ``module``.

    Args:
        cfg: Configuration of the command.
    """
    batches = {name: setting for name, setting in cfg.batches.items() if name != "seed"}
    return FitSettings(seed=cfg.seed, **batches, **{name: resolved(cfg[name]) for name in FURTHER})


def resolved(node: Any) -> Any:
    """Return settings as plain values, with interpolations resolved.

    Args:
        node: Node of a configuration, or a plain value, which is returned unchanged.
    """
    return OmegaConf.to_container(node, resolve=True) if OmegaConf.is_config(node) else node


def trainer_settings(cfg: DictConfig) -> dict[str, Any]:
    """Build the trainer's arguments and the callbacks from the groups ``trainer`` and ``callbacks``.

    Args:
        cfg: Configuration of one model, from :func:`model_config`.

    Returns:
        Keyword arguments ``trainer`` and ``callbacks`` of :class:`~graphrerank.training.session.TrainingSession`.
    """
    return {"trainer": built_trainer(resolved(cfg.trainer)), "callbacks": built_callbacks(resolved(cfg.callbacks))}


def training_plan(command: CommandContext) -> TrainingPlan:
    """Return the training plan of an experiment: its trainer, callbacks, loggers and run to resume.

    Args:
        command: Running command.
    """

    def settings(run_dir: Path, name: str) -> Mapping[str, Any]:
        return trainer_settings(model_config(command.cfg, run_dir, name))

    def loggers(run_dir: Path, name: str) -> list[Any]:
        return command.tracking.open(model_config(command.cfg, run_dir, name))

    return TrainingPlan(
        settings=settings, loggers=loggers, resume=command.cfg.ckpt_path, config=portable_config(command.cfg)
    )
