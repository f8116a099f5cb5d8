"""Train a reranker step by step: :class:`RerankerTrainer`, from data sets to a calibrated reranker."""

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
from graphrerank.models.granker import head_arguments
from graphrerank.models.manifest import parse_manifest, write_manifest
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.training.calibrate import calibrate_system
from graphrerank.training.defaults import CALLBACK_SETS
from graphrerank.training.joint import wait_for_all
from graphrerank.training.manifest import RESUMED_ENTRIES, training_manifest
from graphrerank.training.reranker_module import RerankerModule
from graphrerank.training.resume import run_folder
from graphrerank.training.session import TrainerArguments, TrainingSession
from graphrerank.training.settings import FitSettings
from graphrerank.training.training_data import TrainingData, declared_inputs, prepare_training
from graphrerank.training.tuning import tune_restart_probs
from graphrerank.utils.checks import UserError
from graphrerank.utils.files import claim_folder
from graphrerank.utils.processes import is_first_process

ModuleFactory = Callable[..., RerankerModule]  # called with the model, the loss and keyword arguments


@dataclass(frozen=True, eq=False)
class BuiltTraining:
    """A training whose model is built, before or after its weights are trained.

    Attributes:
        data: The prepared data sets.
        network: The model to train.
        arguments: Arguments that the model was built with; empty for a model that the caller built.
        start: Checkpoint whose weights the training begins with. None for random weights.
        manifest: Description of the training, as it is written to ``manifest.json``.
    """

    data: TrainingData
    network: nn.Module
    arguments: Mapping[str, Any]
    start: Checkpoint | None
    manifest: Mapping[str, Any]


class RerankerTrainer:
    """Train a reranker on one data set or several, keep the best epoch, and calibrate it.

    :meth:`train` takes all steps. Each step can also be called alone, with the result of the one before::

        data = trainer.prepare()                     # candidates and features of every query
        training = trainer.build(data)               # the model, its first weights, and the manifest
        training = trainer.optimize(training)        # Lightning: the best epoch, or the training that is resumed
        calibration = trainer.calibrate(training)    # probabilities of relevance, on the validation split
        reranker = trainer.save(training, calibration)

    ComponentFactory are names of ``conf``, settings in the form of a file of ``conf``, or built objects.

    Args:
        model: A name of ``conf/model``, an ``nn.Module`` whose ``inputs`` name the tensors of its ``forward``, or a
            class of such modules. If its constructor takes ``num_scores`` or ``embedding_dim``, a class gets these
            sizes of the data.
        settings: Epochs, learning rate, seed, splits and the like. None for the defaults.
        data: A data set, its name or the path of its folder; or several by name, which are trained on together. Or
            :class:`~graphrerank.training.training_data.TrainingData`, which are prepared: ``retriever``, ``encoder``,
            ``pair_encoder`` and ``features`` are then not read.
        retriever: Retriever that produces the candidates.
        encoder: Encoder of texts. None for models and retrievers that read no vectors.
        pair_encoder: Cross-encoder, for features that read its scores and for models that read pairs. None for none.
        features: Features that the model reads: a name of ``conf/features`` or its settings.
        loss: A name of ``conf/loss``, or a function of padded scores, relevance and mask, each ``[B, K]``, that
            returns a scalar.
        measures: Measures of the validation split that are logged after each epoch, such as ``PR@10``. The default
            callbacks choose the epoch by ``nDCG@10``. None for those of the module.
        module: Builds the Lightning module: :class:`~graphrerank.training.reranker_module.RerankerModule`, a subclass,
            or a ``functools.partial`` with further arguments, such as ``partial(RerankerModule, divergence=0.15)``.
        trainer: Arguments of ``lightning.Trainer``, as :class:`~graphrerank.training.session.TrainingSession` takes
            them. None for :func:`~graphrerank.training.defaults.default_trainer_arguments`.
        callbacks: Lightning callbacks in addition to :func:`~graphrerank.training.defaults.default_callbacks`; or
            callbacks by name, which replace these; or the name of a file of ``conf/callbacks``.
        logger: A Lightning logger or several. None for none.
        run_dir: Folder of the run, in which the model gets a folder with its name. None for a new one below
            ``runs/fit``.
        name: Name of the model in tables and of its folder. None for that of ``model``.
        resume: Run folder of an interrupted training with the same arguments, or one of its ``.ckpt`` files. None
            starts a new training.
        parts: Builds parts by their names, and says where they run. None for the folders of ``conf/paths``.
        config: Configuration that the manifest records. None for the seed and the validation split.

    Raises:
        ValueError: If a part is unknown or does not fit, ``resume`` is no run, or no training query has a relevant
            candidate. Each step raises it for what it reads.

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
        self._parts = parts or ComponentFactory()
        self._model, self._features = named_model(self._parts, model, features)
        self.name = name or str(self._model.name)
        self._data = data
        self._retriever, self._encoder, self._pair_encoder = retriever, encoder, pair_encoder
        self._loss, self._measures, self._module = loss, measures, module
        self._trainer, self._callbacks, self._logger = trainer, callbacks, logger
        self._resume = resume
        self._run_dir = run_dir if resume is None else run_folder(resume)
        self._config = config

    @cached_property
    def session(self) -> TrainingSession:
        """The training by Lightning, with its folder, which is claimed here if the caller named none."""
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
        """Prepare, build, optimise, calibrate and save.

        Returns:
            The reranker with the weights of the best epoch; ``source`` is its checkpoint, which every command loads.
            Each process of a joint training returns it.
        """
        training = self.optimize(self.build(self.prepare()))
        return self.save(training, self.calibrate(training))

    def prepare(self) -> TrainingData:
        """Load and encode the data sets, and find the candidates and features of their queries.

        Caches are used where possible. Data that the caller prepared are returned as they are.
        """
        if isinstance(self._data, TrainingData):
            return self._data
        parts = self._parts
        return prepare_training(
            parts,
            data_parts(parts, self._data),
            [self._model],
            retriever=parts.component("retriever", self._retriever),
            encoder=None if self._encoder is None else parts.component("encoder", self._encoder),
            pair_encoder=None if self._pair_encoder is None else parts.component("pair_encoder", self._pair_encoder),
            features=self._features,
            settings=self.settings,
        )

    def build(self, data: TrainingData) -> BuiltTraining:
        """Build the model from the settings' seed, and describe the training.

        The restart probabilities of GCS and PPR that the settings leave open are chosen here, on the validation split.

        Args:
            data: What :meth:`prepare` returned.
        """
        torch.set_num_threads(self._parts.num_threads)
        operators = tune_restart_probs(data.first, self.settings.val_split, self.settings.restart_probs)
        L.seed_everything(self.settings.seed, verbose=False)  # no earlier training must decide the weights
        arguments = model_arguments(self._model, data.first)
        network = self._model.build(**arguments)
        start = None if self.settings.start is None else load_primary(self.settings.start)
        manifest = training_manifest(
            self.name, network, arguments, data, self.settings, operators=operators, config=self._config, start=start
        )
        if self._is_named:
            with torch.device("meta"):
                build_model(parse_manifest(manifest, self.session.folder))  # refused before training if not loadable
        return BuiltTraining(data, network, arguments, start, manifest)

    def optimize(self, training: BuiltTraining) -> BuiltTraining:
        """Train the weights with Lightning, from the last checkpoint of a training that is resumed.

        Args:
            training: What :meth:`build` returned.

        Returns:
            The training with the manifest of the best epoch, whose weights are in ``session.best``. Nothing is trained
            where the training to resume had finished.
        """
        earlier = self.session.earlier_results(training.manifest, RESUMED_ENTRIES)
        if not earlier:
            self.initialize(training)
            manifest = self.session.train(self.build_module(training), self.build_batches(training), training.manifest)
            return replace(training, manifest=manifest)
        return replace(training, manifest={**training.manifest, **earlier})

    def initialize(self, training: BuiltTraining) -> None:
        """Set the first weights: those of the cross-encoder, of the checkpoint to start from, or the random ones.

        Parameters that ``settings.train_only`` leaves out are frozen.

        Args:
            training: What :meth:`build` returned.

        Raises:
            ValueError: If no training query has a relevant candidate, or the checkpoint does not fit.
        """
        split = self.settings.train_split
        if not any(len(prepared.answerable(split)) for prepared in training.data.prepared.values()):
            raise UserError(
                f"no query of split {split!r} has a relevant candidate, so there is nothing to learn: "
                "check the judgements, or take a retriever that finds more (retriever=hybrid_expand, data.edges=auto)"
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
            training: What :meth:`build` returned.
        """
        settings, data = self.settings, training.data
        arguments = {
            "seed": settings.seed,
            "learning_rate": settings.learning_rate,
            "weight_decay": settings.weight_decay,
            "warmup_steps": settings.warmup_steps,
            **({} if self._measures is None else {"measures": self._measures}),
            **(self._module.keywords if isinstance(self._module, partial) else {}),
            "val_names": list(data.judged) if len(data.prepared) > 1 else [],
        }
        return self._module(training.network, self._built_loss(), **arguments)

    def _built_loss(self) -> Any:
        """Return a loss that the caller built, or build it from its name or its settings."""
        if isinstance(self._loss, str | Mapping | ConfiguredComponent):
            return self._parts.build("loss", self._loss)
        return self._loss

    def build_batches(self, training: BuiltTraining) -> CandidateDataModule:
        """Build the batches for training and validation.

        Args:
            training: What :meth:`build` returned.
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
            shares=settings.shares,
            augmentation=augmentation,
            validated=list(data.judged),
        )

    def calibrate(self, training: BuiltTraining) -> dict[str, Any]:
        """Fit the probabilities of the best epoch's scores on the validation split.

        Args:
            training: What :meth:`optimize` returned.

        Returns:
            The manifest's entries ``calibration`` and, where the lists allow it, ``list_confidence``. Empty if the
            settings ask for no fit, and in all processes of a joint training but the first.
        """
        if self.settings.calibration != "logistic" or not is_first_process():
            return {}
        best = load_checkpoint(self.session.best, model=self._network_of_caller(training))
        system = trained_system(self.name, best.model, self._parts.device)
        return calibrate_system(training.data.judged, self.settings.val_split, system)

    def save(self, training: BuiltTraining, calibration: Mapping[str, Any]) -> GraphReranker:
        """Add the calibration to the manifest, and return the reranker of the best epoch.

        Args:
            training: What :meth:`optimize` returned.
            calibration: What :meth:`calibrate` returned.

        Returns:
            The reranker. The other processes of a joint training wait until the first one has written it, and load it
            too; a ValueError says where there is none, such as in a folder that they do not share.
        """
        if calibration:
            write_manifest(self.session.folder, {**training.manifest, **calibration})
        wait_for_all()
        checkpoint = load_checkpoint(self.session.best, model=self._network_of_caller(training))
        return GraphReranker(checkpoint, device=self._parts.device)

    @property
    def _is_named(self) -> bool:
        """Whether the model can be built again from its manifest: it was named, not built by the caller."""
        return self._model.settings is not None

    def _network_of_caller(self, training: BuiltTraining) -> nn.Module | None:
        return None if self._is_named else training.network


def named_model(parts: ComponentFactory, model: Any, features: Any) -> tuple[ConfiguredComponent, Mapping[str, Any]]:
    """Return the model as a part, and the settings of the features, which a named model's settings depend on.

    Args:
        parts: Composes files of ``conf`` by name.
        model: A name of ``conf/model``, its settings, the model, or its class.
        features: A name of ``conf/features``, or its settings.
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
    """Return settings that build a class of models with its own defaults.

    Args:
        model_class: Subclass of ``torch.nn.Module`` at the top level of a module, a script or a notebook.

    Returns:
        Settings with the class as ``_target_``.

    Raises:
        ValueError: If the class is no model, or is defined within a function.

    Example:
        >>> class_settings(torch.nn.Linear)
        {'_target_': 'torch.nn.modules.linear.Linear'}
    """
    if not issubclass(model_class, nn.Module):
        raise UserError(f"`model` must be a subclass of torch.nn.Module, got {model_class.__name__}")
    if "<locals>" in model_class.__qualname__:
        raise UserError(
            f"`model` must be a class at the top level of a module, got {model_class.__qualname__}, which is defined "
            "in a function. Move the class, or pass an object of it"
        )
    return {"_target_": f"{model_class.__module__}.{model_class.__qualname__}"}


def named_callbacks(parts: ComponentFactory, name: str, run_dir: Path, system: str) -> dict[str, Callback]:
    """Build a set of callbacks by its name: ``default``, ``last_epoch``, or a file of ``conf/callbacks`` of a package.

    Args:
        parts: Composes files of ``conf`` by name.
        name: Name of the set.
        run_dir: Folder of the run.
        system: Name of the model in it.
    """
    if name in CALLBACK_SETS:
        return CALLBACK_SETS[name](run_dir / system)
    return built_callbacks(parts.compose(f"+callbacks={name}", run_dir=run_dir, system=system).callbacks)


def built_callbacks(nodes: Mapping[str, Any] | None) -> dict[str, Callback]:
    """Build the callbacks of settings by name; those that are null or have no ``_target_`` are left out."""
    return {str(name): build_component(node) for name, node in (nodes or {}).items() if node and "_target_" in node}


def data_parts(parts: ComponentFactory, data: Any) -> dict[str, ConfiguredComponent]:
    """Return one data set as a part, or several by name.

    Args:
        parts: Composes files of ``conf`` by name.
        data: As :class:`RerankerTrainer` takes it.
    """
    if isinstance(data, Mapping) and "_target_" not in data:
        return {str(name): parts.component("data", dataset) for name, dataset in data.items()}
    part = parts.component("data", data)
    return {data.name if isinstance(data, Dataset) else Path(str(part.name)).name: part}


def model_arguments(model: ConfiguredComponent, prepared: PreparedDataset) -> dict[str, Any]:
    """Return a model's settings, and the sizes that its data set or its cross-encoder gives.

    Args:
        model: The model's settings, or the model.
        prepared: The data set that it is trained on.
    """
    if model.settings is None:
        return model.arguments
    if declared_inputs(model).reads_pairs:
        return model.arguments | head_arguments(own_encoder(prepared))
    sizes = {"num_scores": len(prepared.feature_names)}
    if num_pair_scores := len(set(CROSS_ENCODER_FEATURES) & set(prepared.feature_names)):
        sizes["num_pair_scores"] = num_pair_scores
    if (embedding := prepared.dataset.graph.embedding) is not None:
        sizes["embedding_dim"] = embedding.shape[1]
    parameters = inspect.signature(get_object(model.settings._target_)).parameters
    takes_all = any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values())
    return model.arguments | {name: size for name, size in sizes.items() if takes_all or name in parameters}
