"""Training of a reranker, from data sets to a calibrated model, in steps that can be called separately."""

import inspect
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from hydra.utils import get_object
from lightning.pytorch.callbacks import Callback
from torch import nn

from graphrerank.config.components import ComponentFactory, ConfiguredComponent, build_component
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.data.augmentation import CandidateAugmentation
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.datamodule import CandidateDataModule
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.encoder_checks import own_encoder
from graphrerank.evaluation.reranking import trained_system
from graphrerank.models.checkpoint import Checkpoint, build_model, load_checkpoint, load_primary, start_from, train_only
from graphrerank.models.granker_layers import GRankerLayers, granker_arguments
from graphrerank.models.manifest import parse_manifest, write_manifest
from graphrerank.operators.cross_encoder import CrossEncoder
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.training.calibrate import calibrate_system
from graphrerank.training.checks import (
    check_data,
    check_first_batch,
    check_logger,
    check_model,
    check_trainer_arguments,
)
from graphrerank.training.defaults import CALLBACK_SETS
from graphrerank.training.distillation import build_teacher, check_loss_and_teacher
from graphrerank.training.joint import wait_for_all
from graphrerank.training.manifest import RESUMED_ENTRIES, optimization_entries, training_entry, training_manifest
from graphrerank.training.optimizers import accepted_arguments
from graphrerank.training.reranker_module import RerankerModule
from graphrerank.training.resume import run_folder
from graphrerank.training.schedules import cosine
from graphrerank.training.session import TrainerArguments, TrainingSession
from graphrerank.training.settings import FitSettings
from graphrerank.training.training_checks import check_modes
from graphrerank.training.training_data import TrainingData, declared_inputs, prepare_training
from graphrerank.training.tuning import tune_restart_probs
from graphrerank.training.weighted_loss import WeightedLoss
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import claim_folder
from graphrerank.utils.processes import is_first_process

#: Callable that receives the model, the loss and keyword arguments, and returns the Lightning module.
ModuleFactory = Callable[..., RerankerModule]
#: Folder, in that of a model, of the cross-encoder whose last layers were trained.
FINE_TUNED_FOLDER = "cross_encoder"


@dataclass(frozen=True, eq=False)
class BuiltTraining:
    """Prepared data, model and manifest of a training run, before or after optimisation.

    Attributes:
        data: The prepared data sets.
        network: The model to train.
        arguments: Arguments that the model was built with. Empty if the caller passed a model object.
        start: Checkpoint to initialise the weights from. If None, the weights are random.
        manifest: Content of ``manifest.json``, which describes the training.
    """

    data: TrainingData
    network: nn.Module
    arguments: Mapping[str, Any]
    start: Checkpoint | None
    manifest: Mapping[str, Any]


class RerankerTrainer:
    """Train a reranker on one or several data sets, select the best epoch, and calibrate the scores.

    :meth:`train` runs all steps. Each step can also be called on its own with the result of the previous step::

        data = trainer.prepare()                     # retrieve candidates and compute features
        training = trainer.build(data)               # build the model and the manifest
        training = trainer.optimize(training)        # train with Lightning, or resume
        calibration = trainer.calibrate(training)    # calibrate scores on the validation split
        reranker = trainer.save(training, calibration)

    Each component can be passed as a name of ``conf``, as settings in the form of a file of ``conf``, or as an object.

    Args:
        model: A name of ``conf/model``, an ``nn.Module`` whose ``inputs`` name the tensors of its ``forward``, or a
            class of such modules. If the constructor of a class has an argument ``num_scores`` or ``embedding_dim``,
            it receives the number of score features or the width of the vectors.
        settings: Number of epochs, learning rate, seed, splits and similar settings. If None, the defaults are used.
        data: A :class:`~graphrerank.Dataset`, the name of a data set or the path of a data set folder. A mapping from
            name to data set trains on several data sets jointly. Prepared
            :class:`~graphrerank.training.training_data.TrainingData` can be passed as well; ``retriever``, ``encoder``,
            ``pair_encoder`` and ``teacher`` are then ignored, and ``features`` only configures a named model.
        retriever: Retriever that produces the candidates.
        encoder: Text encoder for queries and passages. If None, nothing is encoded; the model and the retriever must
            then work without vectors.
        pair_encoder: Cross-encoder. Required by features that contain its scores and by models that encode
            (query, passage) pairs. If None, no cross-encoder is used.
        features: Node features of the model: a name of ``conf/features`` or its settings.
        loss: A name of ``conf/loss``, a function or ``nn.Module`` of padded scores, relevance and mask, each
            ``[B, K]``, that returns a scalar, or a mapping from losses to weights
            (:class:`~graphrerank.training.weighted_loss.WeightedLoss`).
        teacher: Teacher for distillation losses (``kl``, ``margin_mse``): a name of ``conf/teacher``, its settings, a
            :class:`~graphrerank.data.teachers.Teacher`, or a cross-encoder. The model is then also trained on queries
            without judgements. If None, the training uses judgements alone.
        optimizer: A name of ``conf/optimizer``, or a callable that receives parameter groups and returns an optimiser:
            a class of ``torch.optim``, or a ``functools.partial`` of it. Keywords ``lr`` and ``weight_decay`` of a
            partial replace those of ``settings``.
        scheduler: A name of ``conf/scheduler``, or a callable that receives the optimiser and returns a learning-rate
            schedule: a function of :mod:`graphrerank.training.schedules`, or a class of ``torch.optim.lr_scheduler``.
        measures: Validation measures to log after each epoch, such as ``PR@10``. The default callbacks select the epoch
            by ``nDCG@10``. If None, the defaults of the module are used.
        module: Callable that builds the Lightning module:
            :class:`~graphrerank.training.reranker_module.RerankerModule`, a subclass, or a ``functools.partial`` with
            additional arguments, such as ``partial(RerankerModule, divergence=0.15)``.
        trainer: Arguments of ``lightning.Trainer`` in the form that
            :class:`~graphrerank.training.session.TrainingSession` accepts. If None,
            :func:`~graphrerank.training.defaults.default_trainer_arguments` are used.
        callbacks: A sequence of Lightning callbacks to add to
            :func:`~graphrerank.training.defaults.default_callbacks`, which save the best and the last checkpoint and
            stop early. A mapping from name to callback, or the name of a file of ``conf/callbacks``, replaces the
            default callbacks instead.
        logger: A Lightning logger or a sequence of loggers. If None, nothing is logged.
        run_dir: Folder of the run. The model is written to the subfolder ``name``. If None, a new folder in
            ``runs/fit`` is used.
        name: Name of the model in result tables and of its folder. If None, the name of ``model`` is used.
        resume: Folder of a training run with the same arguments, or one of its ``.ckpt`` files. An interrupted run
            continues where it stopped, and a finished one is trained further if the maximum number of epochs is larger
            than before. If None, a new training run starts.
        parts: Factory that builds components by name; it also sets the device, the number of threads and the cache. If
            None, a factory with the folders of ``conf/paths`` is used.
        config: Configuration to record in the manifest. If None, the seed and the validation split are recorded.

    Attributes:
        settings: Settings of the training.
        name: Name of the model in result tables and of its folder.

    Raises:
        ValueError: If a component is unknown or invalid, or ``resume`` is not a run folder. The steps raise it for
            invalid data, for example if no training query has a relevant candidate.

    Example:
        >>> from graphrerank import Dataset, FitSettings, RerankerTrainer
        >>> settings = FitSettings(max_epochs=2, learning_rate=1e-3)
        >>> trainer = RerankerTrainer("gatv2", settings, "attack_paths", loss="lambdaloss", features="scores")
        >>> trainer.name, trainer.settings.batch_size
        ('gatv2', 32)
        >>> reranker = trainer.train()  # doctest: +SKIP
    """

    def __init__(
        self,
        model: Any,
        settings: FitSettings | None,
        data: Any,
        *,
        retriever: Any = "hybrid_expand",
        encoder: Any = "minilm",
        pair_encoder: Any = None,
        features: str | Mapping[str, Any] = "scores_match",
        loss: Any = "listwise",
        teacher: Any = None,
        optimizer: Any = torch.optim.AdamW,
        scheduler: Any = cosine,
        measures: Sequence[str] | None = None,
        module: ModuleFactory = RerankerModule,
        trainer: TrainerArguments | None = None,
        callbacks: str | Sequence[Callback] | Mapping[str, Callback] = (),
        logger: Any = None,
        run_dir: str | Path | None = None,
        name: str | None = None,
        resume: str | Path | None = None,
        parts: ComponentFactory | None = None,
        config: Mapping[str, Any] | None = None,
    ) -> None:
        self.settings = settings or FitSettings()
        if not isinstance(data, TrainingData):
            check_data(data)
        if isinstance(model, nn.Module):
            check_model(model)
        check_logger(logger)
        if isinstance(trainer, Mapping):
            check_trainer_arguments(trainer)
        elif isinstance(trainer, partial) and trainer.func is L.Trainer:
            check_trainer_arguments(trainer.keywords)
        if not isinstance(callbacks, str):
            check_modes(callbacks)
        self._parts = parts or ComponentFactory()
        self._model, self._features = named_model(self._parts, model, features)
        self.name = name or str(self._model.name)
        self._data = data
        self._retriever, self._encoder, self._pair_encoder = retriever, encoder, pair_encoder
        self._loss, self._teacher, self._measures, self._module = loss, teacher, measures, module
        self._optimizer, self._scheduler = optimizer, scheduler
        self._trainer, self._callbacks, self._logger = trainer, callbacks, logger
        self._resume = resume
        self._run_dir = run_dir if resume is None else run_folder(resume)
        self._config = config

    @cached_property
    def session(self) -> TrainingSession:
        """Lightning training in the run folder. The first access creates the folder if ``run_dir`` is None."""
        run_dir = self._run_dir or claim_folder(Path("runs", "fit", time.strftime("%Y-%m-%d_%H-%M-%S")))
        callbacks = self._callbacks
        if isinstance(callbacks, str):
            callbacks = named_callbacks(self._parts, callbacks, Path(run_dir), self.name)
        return TrainingSession(
            run_dir,
            self.name,
            trainer=self._trainer,
            max_epochs=self.settings.max_epochs,
            callbacks=callbacks,
            logger=self._logger,
            resume=self._resume,
        )

    def train(self) -> GraphReranker:
        """Run all steps: prepare, build, optimise, calibrate and save.

        Returns:
            Reranker with the weights of the best epoch. Its ``source`` is the path of the checkpoint, which every
            command can load. In distributed training, every process returns the reranker.
        """
        training = self.optimize(self.build(self.prepare()))
        return self.save(training, self.calibrate(training))

    def prepare(self) -> TrainingData:
        """Load and encode the data sets, retrieve candidates and compute features, using caches where possible.

        Returns:
            Prepared data sets. If the caller passed prepared data, these are returned unchanged.
        """
        if isinstance(self._data, TrainingData):
            return self._data
        parts = self._parts
        teacher = build_teacher(parts, self._teacher, self._pair_encoder)
        check_loss_and_teacher(self._built_loss(), has_teacher=teacher is not None)
        return prepare_training(
            parts,
            data_parts(parts, self._data),
            [self._model],
            retriever=parts.component("retriever", self._retriever),
            encoder=None if self._encoder is None else parts.component("encoder", self._encoder),
            pair_encoder=None if self._pair_encoder is None else parts.component("pair_encoder", self._pair_encoder),
            features=self._features,
            settings=self.settings,
            teacher=teacher,
        )

    def build(self, data: TrainingData) -> BuiltTraining:
        """Build the model with the seed of the settings, and the manifest.

        Restart probabilities of GCS and PPR that the settings do not fix are tuned here, on the validation split.

        Args:
            data: Result of :meth:`prepare`.

        Returns:
            Training with the initial model.
        """
        torch.set_num_threads(self._parts.num_threads)
        operators = tune_restart_probs(data.first, self.settings.val_split, self.settings.restart_probs)
        L.seed_everything(self.settings.seed, verbose=False)  # an earlier training run must not influence the weights
        arguments = model_arguments(self._model, data.first)
        network = self._model.build(**arguments)
        start = None if self.settings.start is None else load_primary(self.settings.start)
        manifest = training_manifest(
            self.name,
            network,
            arguments,
            data,
            self.settings,
            operators=operators,
            config=self._config,
            start=start,
            loss=loss_name(self._loss),
        )
        if self._is_named:
            parsed = parse_manifest(manifest, self.session.folder)
            with torch.device("meta"):
                build_model(parsed)  # fail before training if it cannot be loaded
        return BuiltTraining(data, network, arguments, start, manifest)

    def optimize(self, training: BuiltTraining) -> BuiltTraining:
        """Train the weights with Lightning. A resumed training run continues from its last checkpoint.

        Args:
            training: Result of :meth:`build`.

        Returns:
            Training with the manifest of the best epoch, whose weights are in ``session.best``. If the resumed run has
            already finished, it is trained further if the maximum number of epochs is larger than before; otherwise
            nothing is trained.
        """
        module = self.build_module(training)
        described = {"training": training_entry(self.settings, module), **optimization_entries(module)}
        manifest = {**training.manifest, **described}
        if earlier := self.session.earlier_results(manifest, RESUMED_ENTRIES):
            return replace(training, manifest={**manifest, **earlier})
        self.initialize(training)
        if self._model.choice is None or not self._loss_is_named:  # defined by the caller, not by a file of conf
            self._check_first_batch(module, training)
        manifest = self.session.train(module, self.build_batches(training), manifest)
        return replace(training, manifest=manifest)

    def _check_first_batch(self, module: RerankerModule, training: BuiltTraining) -> None:
        """Check a custom model or loss on the first batch of separate data loaders."""
        graphs = next(iter(self.build_batches(training).train_dataloader()))
        check_first_batch(module, graphs, training.data.first.feature_names)

    def initialize(self, training: BuiltTraining) -> None:
        """Initialise the weights from the cross-encoder or from the checkpoint in ``training.start``, if any.

        Parameters that ``settings.train_only`` does not select are frozen.

        Args:
            training: Result of :meth:`build`.

        Raises:
            ValueError: If no training query has a relevant candidate, or the checkpoint belongs to a different model.
        """
        split = self.settings.train_split
        if not any(len(prepared.training_queries(split)) for prepared in training.data.prepared.values()):
            raise UserError(
                f"no query of split {split!r} has a relevant candidate, so there is nothing to learn: "
                "check the judgements, or use a retriever with higher recall "
                "(retriever=hybrid_expand, data.edges=auto)"
            )
        network: Any = training.network
        if network.inputs.reads_pairs:
            network.start_from(own_encoder(training.data.first))
        if training.start is not None:
            start_from(network, training.arguments, training.data.first.feature_names, training.start)
        if self.settings.train_only is not None:
            train_only(network, self.settings.train_only)

    def build_module(self, training: BuiltTraining) -> RerankerModule:
        """Build the Lightning module from the model, the loss and the settings.

        Args:
            training: Result of :meth:`build`.

        Returns:
            Module to train.
        """
        settings, data = self.settings, training.data
        arguments = {
            "seed": settings.seed,
            "learning_rate": settings.learning_rate,
            "weight_decay": settings.weight_decay,
            "warmup_steps": settings.warmup_steps,
            **self._optimization(),
            **({} if self._measures is None else {"measures": self._measures}),
            **(self._module.keywords if isinstance(self._module, partial) else {}),
            "val_names": list(data.judged) if len(data.prepared) > 1 else [],
        }
        loss = self._built_loss()
        check_loss_and_teacher(loss, has_teacher=any(part.teacher is not None for part in data.prepared.values()))
        return self._module(training.network, loss, **arguments)

    @property
    def _loss_is_named(self) -> bool:
        """Whether the loss comes from a file of ``conf``."""
        return isinstance(self._loss, str) or (
            isinstance(self._loss, ConfiguredComponent) and self._loss.choice is not None
        )

    def _optimization(self) -> dict[str, Any]:
        """Build the optimiser and schedule factories, and return them with the parameter groups.

        A module of the caller may have a constructor without these arguments. The defaults are not passed to it.
        """
        arguments = {
            "optimizer": self._parts.build("optimizer", self._optimizer),
            "scheduler": self._parts.build("scheduler", self._scheduler),
            "parameter_groups": self.settings.parameter_groups,
        }
        defaults = {"optimizer": torch.optim.AdamW, "scheduler": cosine, "parameter_groups": None}
        accepted = accepted_arguments(self._module, arguments)
        for name, argument in arguments.items():
            is_default = getattr(argument, "func", argument) is defaults[name]
            if name not in accepted and not is_default:
                raise UserError(f"`{name}` must be an argument of the module's constructor, got {self._module!r}")
        return accepted

    def _built_loss(self) -> Any:
        """Return the loss, built from its name, settings or weights if necessary."""
        if isinstance(self._loss, Mapping) and "_target_" not in self._loss:
            return WeightedLoss(self._loss, parts=self._parts)
        if isinstance(self._loss, str | Mapping | ConfiguredComponent):
            return self._parts.build("loss", self._loss)
        return self._loss

    def build_batches(self, training: BuiltTraining) -> CandidateDataModule:
        """Build the data module that serves the training and validation batches.

        Args:
            training: Result of :meth:`build`.

        Returns:
            Data module with the batch size, splits, shares and augmentation of the settings.
        """
        settings, data = self.settings, training.data
        network: Any = training.network
        augmentation = None
        if any(settings.augmentation.values()):
            augmentation = CandidateAugmentation(data.first.feature_names, **settings.augmentation)
        return CandidateDataModule(
            data.prepared,
            batch_size=settings.batch_size,
            seed=settings.seed,
            inputs=network.inputs,
            train_split=settings.train_split,
            val_split=settings.val_split,
            test_split=settings.test_split,
            tested=[next(iter(data.prepared))],
            shares=settings.shares,
            augmentation=augmentation,
            validated=list(data.judged),
            num_workers=settings.num_workers,
            prefetch=settings.prefetch,
            max_nodes=settings.max_nodes,
            max_edges=settings.max_edges,
            buffer=settings.buffer,
        )

    def calibrate(self, training: BuiltTraining) -> dict[str, Any]:
        """Calibrate the scores of the best epoch on the validation split.

        Args:
            training: Result of :meth:`optimize`.

        Returns:
            Manifest entries ``calibration`` and, if there are enough ranked lists, ``list_confidence``. Empty if the
            setting ``calibration`` is not ``"logistic"``, or if a teacher labelled the validation split. In distributed
            training, only the first process calibrates; all others return an empty dictionary.
        """
        if self.settings.calibration != "logistic" or not is_first_process():
            return {}
        if training.data.teacher_labels_validation:
            return {}
        best = load_checkpoint(self.session.best, model=self._network_of_caller(training))
        system = trained_system(self.name, best.model, self._parts.device)
        return calibrate_system(training.data.judged, self.settings.val_split, system)

    def save(self, training: BuiltTraining, calibration: Mapping[str, Any]) -> GraphReranker:
        """Add the calibration to the manifest, and return the reranker of the best epoch.

        A cross-encoder whose last layers were trained is written to the folder ``cross_encoder`` of the model.

        In distributed training, the other processes wait until the first process has written the checkpoint, and then
        load it from the same path.

        Args:
            training: Result of :meth:`optimize`.
            calibration: Result of :meth:`calibrate`.

        Returns:
            Reranker of the best epoch.

        Raises:
            ValueError: If the checkpoint does not exist, for example because the processes do not share the folder.
        """
        entries = {**calibration, **self._save_fine_tuned(training)}
        if entries:
            write_manifest(self.session.folder, {**training.manifest, **entries})
        wait_for_all()
        checkpoint = load_checkpoint(self.session.best, model=self._network_of_caller(training))
        return GraphReranker(checkpoint, device=self._parts.device)

    def _save_fine_tuned(self, training: BuiltTraining) -> dict[str, Any]:
        """Write the cross-encoder with the trained layers and head of the best epoch, and return its manifest entry.

        Empty if no layer of a cross-encoder was trained, and in all processes except the first.
        """
        if not isinstance(training.network, GRankerLayers) or not is_first_process():
            return {}
        model = load_checkpoint(self.session.best, model=self._network_of_caller(training)).model
        assert isinstance(model, GRankerLayers)
        start, folder = own_encoder(training.data.first), self.session.folder / FINE_TUNED_FOLDER
        start.save_trained(folder, model.layers, model.granker.head)
        trained = CrossEncoder(folder, max_length=start.max_length, dtype=start.dtype)
        return {"fine_tuned": {"folder": FINE_TUNED_FOLDER, "fingerprint": trained.fingerprint}}

    @property
    def _is_named(self) -> bool:
        """Whether the model can be rebuilt from its manifest. False if the caller passed a model object."""
        return self._model.settings is not None

    def _network_of_caller(self, training: BuiltTraining) -> nn.Module | None:
        return None if self._is_named else training.network


def loss_name(loss: Any) -> str:
    """Return the name of a loss for the manifest.

    Args:
        loss: Name of ``conf/loss``, settings, or a function.

    Returns:
        The name, the class of the settings, or the name of the function or of its class.
    """
    if isinstance(loss, ConfiguredComponent):
        loss = loss.instance if loss.settings is None else loss.settings
    if isinstance(loss, Mapping):
        return str(loss.get("_target_", "loss"))
    return loss if isinstance(loss, str) else str(getattr(loss, "__name__", type(loss).__name__))


def named_model(parts: ComponentFactory, model: Any, features: Any) -> tuple[ConfiguredComponent, Mapping[str, Any]]:
    """Return the configured model and the settings of its features.

    A model and features that are both passed by name are composed together, because the settings of a model can refer
    to those of the features.

    Args:
        parts: Factory that composes files of ``conf`` by name.
        model: A name of ``conf/model``, the model's settings, a model object, or a model class.
        features: A name of ``conf/features``, or its settings.

    Returns:
        The model and the settings of the features.
    """
    if isinstance(model, type):
        model = class_settings(model)
    if isinstance(model, ConfiguredComponent) and not isinstance(features, str):
        return model, features
    choices = {group: name for group, name in (("features", features), ("model", model)) if isinstance(name, str)}
    if not choices:
        return parts.component("model", model), features
    composed = parts.compose(*(f"+{group}={name}" for group, name in choices.items()))
    part = ConfiguredComponent(composed.model, model) if isinstance(model, str) else parts.component("model", model)
    return part, composed.features if isinstance(features, str) else features


def class_settings(model_class: type) -> dict[str, Any]:
    """Return settings that build a model class with its default arguments.

    Args:
        model_class: Subclass of ``torch.nn.Module``, defined at the top level of a module, a script or a notebook.

    Returns:
        Settings with the class as ``_target_``.

    Raises:
        ValueError: If the class is not a subclass of ``torch.nn.Module``, or is defined inside a function.

    Example:
        >>> class_settings(torch.nn.Linear)
        {'_target_': 'torch.nn.modules.linear.Linear'}
    """
    if not issubclass(model_class, nn.Module):
        raise UserError(f"`model` must be a subclass of torch.nn.Module, got {model_class.__name__}")
    if "<locals>" in model_class.__qualname__:
        raise UserError(
            f"`model` must be a class at the top level of a module, got {model_class.__qualname__}, which is defined "
            "inside a function. Move the class, or pass an instance of it"
        )
    return {"_target_": f"{model_class.__module__}.{model_class.__qualname__}"}


def named_callbacks(parts: ComponentFactory, name: str, run_dir: Path, system: str) -> dict[str, Callback]:
    """Build a named set of callbacks.

    Args:
        parts: Factory that composes files of ``conf`` by name.
        name: ``"default"``, ``"last_epoch"``, or the name of a file of ``conf/callbacks`` in a plugin.
        run_dir: Folder of the run.
        system: Name of the model in the run.

    Returns:
        Callbacks by name.
    """
    if name in CALLBACK_SETS:
        return CALLBACK_SETS[name](run_dir / system)
    return built_callbacks(parts.compose(f"+callbacks={name}", run_dir=run_dir, system=system).callbacks)


def built_callbacks(nodes: Mapping[str, Any] | None) -> dict[str, Callback]:
    """Build callbacks from their settings.

    Args:
        nodes: Settings of the callbacks by name. If None, there are no callbacks.

    Returns:
        Callbacks by name. Settings that are null or have no ``_target_`` are skipped.
    """
    return {str(name): build_component(node) for name, node in (nodes or {}).items() if node and "_target_" in node}


def data_parts(parts: ComponentFactory, data: Any) -> dict[str, ConfiguredComponent]:
    """Return the configured data sets by name.

    Args:
        parts: Factory that composes files of ``conf`` by name.
        data: Data set, its name, its settings or the path of its folder; or a mapping from name to any of these.

    Returns:
        Configured data sets by name.
    """
    if isinstance(data, Mapping) and "_target_" not in data:
        return {str(name): parts.component("data", dataset) for name, dataset in data.items()}
    part = parts.component("data", data)
    return {data.name if isinstance(data, Dataset) else Path(str(part.name)).name: part}


def model_arguments(model: ConfiguredComponent, prepared: PreparedDataset) -> dict[str, Any]:
    """Return the arguments of a model's constructor, including the sizes that depend on the data.

    Args:
        model: Configured model.
        prepared: Data set that the model is trained on.

    Returns:
        The configured arguments, and those of ``num_scores``, ``num_pair_scores`` and ``embedding_dim`` that the
        constructor accepts. A model that encodes (query, passage) pairs gets the sizes of its cross-encoder instead.
    """
    if model.settings is None:
        return model.arguments
    if declared_inputs(model).reads_pairs:
        return granker_arguments(model.arguments, own_encoder(prepared))
    sizes = {"num_scores": len(prepared.feature_names)}
    if num_pair_scores := len(set(CROSS_ENCODER_FEATURES) & set(prepared.feature_names)):
        sizes["num_pair_scores"] = num_pair_scores
    if (embedding := prepared.dataset.graph.embedding) is not None:
        sizes["embedding_dim"] = embedding.shape[1]
    parameters = inspect.signature(get_object(model.settings._target_)).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return model.arguments | {name: size for name, size in sizes.items() if takes_all or name in parameters}
