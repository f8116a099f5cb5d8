"""Construction of components by name, such as ``encoder="minilm"``, for the Python API and every command.

A name is that of a file of ``conf/<group>``, in this project or in an installed plugin. :class:`ComponentFactory`
composes the settings of the file, builds the component, and prepares data sets with it. Every argument that accepts a
name also accepts the object itself.
"""

import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, cast

import torch
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from graphrerank.config.compose import complete_settings, compose_root, flatten_settings, group_choices
from graphrerank.config.compose import register_settings as _register_settings
from graphrerank.config.dataset_checks import check_vectors, warn_without_edges
from graphrerank.config.manifest_guard import check_no_code, plain_arguments, portable_arguments, trusted_arguments
from graphrerank.core import Encoder, RetrieverFactory
from graphrerank.corpus_store.opening import is_corpus_folder
from graphrerank.data.candidate_table import AddFeatures, prepare_on_disk
from graphrerank.data.candidates import PreparedDataset, prepare, with_cross_encoder
from graphrerank.data.dataset import Dataset
from graphrerank.data.vector_cache import PairCache, VectorCache
from graphrerank.models.manifest import GroupEntry
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.utils.checks import UserError
from graphrerank.utils.redaction import redact

LOGGER = logging.getLogger(__name__)
#: Settings of a group of ``conf``: plain settings, and the classes to build as ``_target_``.
Settings = Mapping[str, Any]
#: Function of a pipeline (a name of ``conf/pipeline`` or its settings) and of keyword arguments that change settings.
PipelineFactory = Callable[..., Pipeline]


@dataclass(frozen=True)
class ConfiguredComponent:
    """Configured component: either settings to build it from, or an object.

    Attributes:
        settings: Resolved settings with a ``_target_``. None for an object.
        choice: Name of the file of ``conf/<group>`` that the settings come from. None if they do not come from a file.
        instance: Object that the caller has built. None for settings.
    """

    settings: DictConfig | None = None
    choice: str | None = None
    instance: Any = None

    @cached_property
    def name(self) -> str:
        """Name in messages and manifests: the name of the file in ``conf``, otherwise the name of the class."""
        if self.choice is not None:
            return self.choice
        if self.settings is not None:
            return str(self.settings._target_).rpartition(".")[2]
        return type(self.instance).__name__

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Settings as a manifest stores them, without Hydra's keys. Empty if the component is an object."""
        return {} if self.settings is None else plain_arguments(self.settings)

    def build(self, *args: Any, **arguments: Any) -> Any:
        """Build the component from its settings, or return the object.

        Args:
            *args: Positional arguments of the constructor.
            **arguments: Keyword arguments of the constructor. They override settings of the same name.

        Returns:
            The component, or a factory of the component if the settings have ``_partial_: true``.
        """
        return self.instance if self.settings is None else build_component(self.settings, *args, **arguments)


def build_component(settings: Settings, *args: Any, **arguments: Any) -> Any:
    """Build the object that settings describe. The constructor receives plain values instead of configuration nodes.

    Args:
        settings: Settings with a ``_target_``.
        *args: Positional arguments of the constructor.
        **arguments: Keyword arguments of the constructor. They override settings of the same name.

    Returns:
        The object, or a factory of the object if the settings have ``_partial_: true``.

    Raises:
        ValueError: If an argument is invalid. A ``ValueError``, ``ImportError`` or ``OSError`` of the constructor is
            raised directly instead of as the cause of Hydra's ``InstantiationException``.
    """
    try:
        return instantiate(settings, *args, _convert_="all", **arguments)
    except InstantiationException as error:
        if isinstance(error.__cause__, ValueError | ImportError | OSError):
            raise error.__cause__ from None
        raise


class LoadedDataset(NamedTuple):
    """Data set with the components that search it.

    Attributes:
        dataset: The data set.
        encoder: Text encoder. None if neither the model, the retriever nor the edges to nearest neighbours require
            vectors.
        build_retriever: Factory of the retriever.
    """

    dataset: Dataset
    encoder: Encoder | None
    build_retriever: RetrieverFactory


class ComponentFactory:
    """Build components by name, and prepare data sets with them.

    Args:
        datasets: Folder of local data sets. Data sets that are installed as packages do not need it. If None, the
            folder in ``conf/paths`` is used.
        cache: Folder of cached vectors, candidate lists and replies. If None, the folder in ``conf/paths`` is used.
        device: Device of models. If None, ``cuda`` is used if available, otherwise ``cpu``.
        num_threads: Number of torch threads.
        seed: Random seed of components.
        paths: Additional folders of ``conf/paths``, such as the ``run_dir`` of a command. If None, there are none.
        on_dataset: Function that is called with each data set after it has been loaded.

    Example:
        >>> ComponentFactory().settings("retriever", "hybrid", top_k=50).top_k
        50
    """

    def __init__(
        self,
        *,
        datasets: str | Path | None = None,
        cache: str | Path | None = None,
        device: str | torch.device | None = None,
        num_threads: int = 1,
        seed: int = 0,
        paths: Mapping[str, Any] | None = None,
        on_dataset: Callable[[Dataset], None] = lambda _: None,
    ) -> None:
        self._paths = dict(paths or {})
        self._paths |= {key: str(path) for key, path in (("datasets", datasets), ("cache", cache)) if path is not None}
        self._device = None if device is None else str(device)
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.num_threads, self.seed = num_threads, seed
        self._on_dataset = on_dataset
        self._encoders: list[tuple[Any, VectorCache]] = []  # by description; descriptions need not be hashable

    @property
    def cache(self) -> Path:
        """Folder of cached vectors, candidate lists and replies."""
        return Path(str(self._paths.get("cache") or self.compose().paths.cache))

    def compose(self, *overrides: str, run_dir: str | Path | None = None, system: str | None = None) -> DictConfig:
        """Compose groups of ``conf`` with the folders, the device, the threads and the seed of this factory.

        Args:
            *overrides: Overrides in Hydra's syntax, such as ``+encoder=minilm``.
            run_dir: Folder of a run. If None, the folder in ``paths`` is used.
            system: Name of the model in the run. None if there is no run.

        Returns:
            Composed configuration.

        Raises:
            ValueError: If an override names a file that does not exist.
        """
        composed = compose_root(*overrides)
        OmegaConf.set_struct(composed.paths, False)
        composed.paths.merge_with(self._paths)
        if run_dir is not None:
            composed.paths.run_dir = str(run_dir)
        composed.device, composed.num_threads, composed.seed = self._device, self.num_threads, self.seed
        composed.system = system
        OmegaConf.set_struct(composed, True)
        return composed

    def settings(self, group: str, name: str, /, **changes: Any) -> DictConfig:
        """Compose the settings of one file of ``conf/<group>``.

        Args:
            group: Name of the group.
            name: Name of the file without ``.yaml``. In the group ``data``, the path of a data set folder or a corpus
                folder is accepted as well.
            **changes: Settings to change.

        Returns:
            Resolved settings, with a ``_target_``.

        Raises:
            ValueError: If the file or a setting does not exist, or a required setting is missing.
        """
        if group == "data" and ("/" in name or "\\" in name):
            changes = {"path": name, **changes}
            name = "corpus_folder" if is_corpus_folder(name) else "folder"
        return complete_settings(self._compose_file(group, name), group, name, changes)

    def choices(self, group: str) -> list[str]:
        """Return the names of the files of ``conf/<group>``, including those of installed plugins.

        Args:
            group: Name of the group.

        Returns:
            Names that :meth:`settings` accepts.
        """
        return group_choices(group)

    def _compose_file(self, group: str, name: str) -> DictConfig:
        if not re.fullmatch(r"[\w-]+", name):
            raise UserError(f"`{group}` must be the name of a file of conf/{group}, got {name!r}")
        return self.compose(f"+{group}={name}")

    def component(self, group: str, description: Any, /, **changes: Any) -> ConfiguredComponent:
        """Return a configured component without building it.

        Args:
            group: Name of the group of ``conf``.
            description: Name of a file of the group, settings with a ``_target_``, an object, or a configured
                component.
            **changes: Settings to change. Ignored for objects and configured components.

        Returns:
            The configured component.

        Raises:
            ValueError: If the file or a setting does not exist.
        """
        if isinstance(description, ConfiguredComponent):
            return description
        if isinstance(description, str | Path):
            return ConfiguredComponent(self.settings(group, str(description), **changes), str(description))
        if OmegaConf.is_dict(description) or isinstance(description, Mapping):
            plain = OmegaConf.create(dict(description) if isinstance(description, dict) else description)
            settings = OmegaConf.merge(plain, changes)
            OmegaConf.resolve(settings)
            return ConfiguredComponent(cast(DictConfig, settings))
        if group == "retriever" and isinstance(description, type):
            description = partial(description)  # the corpus graph is passed later, as for settings with `_partial_`
        return ConfiguredComponent(instance=description)

    def part(self, group: str, description: Any, /, **changes: Any) -> ConfiguredComponent:
        """Return the result of :meth:`component`. Deprecated name, which will be removed in 0.5.0.

        Args:
            group: Name of the group of ``conf``.
            description: Name, settings, object or configured component.
            **changes: Settings to change.

        Returns:
            The configured component.
        """
        warnings.warn(
            "`part` is deprecated and will be removed in 0.5.0. Use `component`", DeprecationWarning, stacklevel=2
        )
        return self.component(group, description, **changes)

    def build(self, group: str, description: Any, /, **changes: Any) -> Any:
        """Build a component.

        Args:
            group: Name of the group of ``conf``.
            description: Any description that :meth:`component` accepts, or None.
            **changes: Settings to change.

        Returns:
            The object. None if ``description`` is None.

        Raises:
            ValueError: If the file or a setting does not exist, or a setting is invalid.
        """
        return None if description is None else self.component(group, description, **changes).build()

    def from_manifest(self, group: str, entry: GroupEntry) -> ConfiguredComponent:
        """Return the configured component that a manifest describes.

        Classes, packages, folders and the device always come from ``conf``, because a manifest is not trusted. A
        manifest may contain the ids of hub models and the path of a data set.

        Args:
            group: Name of the group of ``conf``.
            entry: Name of a file of the group, and plain arguments.

        Returns:
            The configured component with the arguments of the manifest.

        Raises:
            ValueError: If the manifest contains any other path, an address, a package or an unknown setting.
        """
        name = str(entry.choice)
        composed = self._compose_file(group, name)
        arguments = trusted_arguments(group, entry.arguments, composed[group])
        return ConfiguredComponent(complete_settings(composed, group, name, arguments), name)

    def dataset(self, description: Any, /, **changes: Any) -> Dataset:
        """Load a data set.

        Args:
            description: Name of a file of ``conf/data``, path of a folder, settings, or a data set.
            **changes: Settings to change.

        Returns:
            The data set.

        Raises:
            ValueError: If the data set or a setting does not exist, or a file of the data set is invalid.
        """
        dataset: Dataset = self.build("data", description, **changes)
        self._on_dataset(dataset)
        return dataset

    def text_encoder(self, description: Any) -> VectorCache | None:
        """Return a text encoder with a cache of its vectors on disk.

        Args:
            description: Any description that :meth:`component` accepts, or None.

        Returns:
            The encoder. Equal descriptions return the same object. None if ``description`` is None.
        """
        if description is None or isinstance(description, VectorCache):
            return description
        for known_description, encoder in self._encoders:
            if known_description == description:
                return encoder
        encoder = VectorCache(self.build("encoder", description), self.cache / "vectors")
        self._encoders.append((description, encoder))
        return encoder

    @property
    def encoder_counts(self) -> dict[str, int]:
        """Numbers of requests to encoders behind an endpoint, summed over all encoders. Empty without such encoders."""
        total: Counter[str] = Counter()
        for _, encoder in self._encoders:
            total.update(encoder.counts)
        return dict(total)

    def load(
        self, data: Any, *, encoder: Any, retriever: Any, reads_vectors: bool = True, splits: Sequence[str] = ()
    ) -> LoadedDataset:
        """Load a data set, and build its encoder and the factory of its retriever.

        Args:
            data: Any description that :meth:`dataset` accepts.
            encoder: Any description of a text encoder that :meth:`component` accepts, or None to run without vectors.
            retriever: Any description of a retriever that :meth:`component` accepts.
            reads_vectors: Whether vectors of queries and passages are inputs of the model.
            splits: Names of splits that the data set must have.

        Returns:
            The data set with its encoder and the factory of its retriever.

        Raises:
            ValueError: If vectors are required and there is no encoder, or a split is missing.
        """
        data_component = self.component("data", data)
        build_retriever = self.build("retriever", retriever)
        dataset = self.dataset(data_component)
        dataset.check_splits(*splits)
        warn_without_edges(dataset, build_retriever)
        is_encoded = check_vectors(
            dataset, build_retriever, has_encoder=encoder is not None, model_reads_vectors=reads_vectors
        )
        LOGGER.info("%s", dataset.summary(encoded=encoder is not None))
        return LoadedDataset(dataset, self.text_encoder(encoder) if is_encoded else None, build_retriever)

    def prepare(
        self,
        data: Any,
        *,
        retriever: Any,
        encoder: Any = None,
        reads_vectors: bool = True,
        splits: Sequence[str] = (),
        keep_retriever: bool = False,
        select_queries: Callable[[Dataset], Tensor] | None = None,
    ) -> PreparedDataset:
        """Load and encode a data set, and retrieve the candidates of its queries, using caches where possible.

        Args:
            data: Any description that :meth:`dataset` accepts, or a prepared data set, which is returned unchanged.
            retriever: Any description of a retriever that :meth:`component` accepts.
            encoder: Any description of a text encoder that :meth:`component` accepts, or None to run without vectors.
            reads_vectors: Whether vectors of queries and passages are inputs of the model.
            splits: Names of splits that the data set must have.
            keep_retriever: Whether the result keeps the retriever, to retrieve candidates for new queries.
            select_queries: Function that returns the numbers of the queries to prepare, such as those of one split. Any
                other query of the result raises an error when it is used. If None, all queries are prepared.

        Returns:
            The data set with its vectors and candidates.

        Raises:
            ValueError: If vectors are required and there is no encoder, or a split is missing.
        """
        if isinstance(data, PreparedDataset):
            return data
        dataset, text_encoder, build_retriever = self.load(
            data, encoder=encoder, retriever=retriever, reads_vectors=reads_vectors, splits=splits
        )
        return prepare(
            dataset,
            encoder=text_encoder,
            build_retriever=build_retriever,
            cache=self.cache / "candidates",
            keep_retriever=keep_retriever,
            queries=None if select_queries is None else select_queries(dataset),
        )

    def prepare_on_disk(
        self,
        data: Any,
        *,
        retriever: Any,
        encoder: Any,
        reads_vectors: bool,
        splits: Sequence[str],
        add_features: AddFeatures,
        features: str,
    ) -> PreparedDataset:
        """Load and encode a data set, and write the candidates of its queries to files that are mapped.

        Args:
            data: Any description that :meth:`dataset` accepts.
            retriever: Any description of a retriever that :meth:`component` accepts.
            encoder: Any description of a text encoder that :meth:`component` accepts, or None to run without vectors.
            reads_vectors: Whether vectors of queries and passages are inputs of the model.
            splits: Names of splits that the data set must have.
            add_features: Function that adds features to the candidates of a block of queries.
            features: Description of ``add_features`` for the key of the cache.

        Returns:
            Result of :func:`~graphrerank.data.candidate_table.prepare_on_disk`.

        Raises:
            ValueError: If the data set is already prepared, vectors are required and there is no encoder, or a split is
                missing.
        """
        if isinstance(data, PreparedDataset):
            raise UserError("`buffer` must be None for a data set whose candidates are already in memory")
        dataset, text_encoder, build_retriever = self.load(
            data, encoder=encoder, retriever=retriever, reads_vectors=reads_vectors, splits=splits
        )
        return prepare_on_disk(
            dataset,
            encoder=text_encoder,
            build_retriever=build_retriever,
            cache=self.cache / "candidates",
            add_features=add_features,
            features=features,
        )

    def pair_encoder(self, description: Any, *, label: str | None = None) -> PairCache:
        """Build a cross-encoder with a cache of its vectors on disk.

        Args:
            description: Any description that :meth:`component` accepts.
            label: Title of the progress bar. If None, no progress bar is shown.

        Returns:
            The cross-encoder.
        """
        encoder = self.build("pair_encoder", description)
        return encoder if isinstance(encoder, PairCache) else PairCache(encoder, self.cache / "pairs", label=label)

    def with_pair_encoder(self, prepared: PreparedDataset, description: Any) -> PreparedDataset:
        """Return a prepared data set with a cross-encoder, which encodes (query, passage) pairs on demand.

        Args:
            prepared: Prepared data set.
            description: Any description of a cross-encoder that :meth:`component` accepts.

        Returns:
            A copy with the cross-encoder.
        """
        return replace(prepared, pair_encoder=self.pair_encoder(description))

    def with_cross_encoder(
        self, prepared: PreparedDataset, description: Any, queries: Tensor, *, top_k: int
    ) -> PreparedDataset:
        """Return a prepared data set with the scores of a cross-encoder as features, using the cache where possible.

        Args:
            prepared: Prepared data set.
            description: Any description of a cross-encoder that :meth:`component` accepts.
            queries: Indices of the queries whose candidates are scored.
            top_k: Number of top candidates per query to score.

        Returns:
            A copy with the scores.
        """
        torch.set_num_threads(self.num_threads)
        cross_encoder = self.pair_encoder(description, label=f"scoring pairs of {prepared.dataset.name}")
        return with_cross_encoder(prepared, cross_encoder, queries, top_k=top_k)

    def pipeline_factory(self, prepared: PreparedDataset, *, retriever: Any, encoder: Any = None) -> PipelineFactory:
        """Return a factory of pipelines over the graph of a data set, which is moved to the device.

        Args:
            prepared: Prepared data set.
            retriever: Any description of a retriever that :meth:`component` accepts. Search steps that do not name a
                retriever use it.
            encoder: Any description of a text encoder that :meth:`component` accepts. None if no step encodes texts.

        Returns:
            Function of a pipeline (a name of ``conf/pipeline`` or its settings) and of keyword arguments that change
            settings.
        """
        torch.set_num_threads(self.num_threads)
        graph = prepared.dataset.graph.to(self.device)
        shared = {
            "retriever": self.build("retriever", retriever),
            "pair_encoder": prepared.pair_encoder,
            "text_encoder": self.text_encoder(encoder),
        }

        def build(description: Any, **settings: Any) -> Pipeline:
            pipeline: Pipeline = self.build("pipeline", description, **settings)(graph, **shared)
            return pipeline

        return build


_RENAMED = {  # names before 0.4.0
    "Part": ConfiguredComponent,
    "Parts": ComponentFactory,
    "build": build_component,
    "check_plain": check_no_code,
    "dotted_settings": flatten_settings,
    "portable_arguments": portable_arguments,
    "register_settings": _register_settings,
    "shown": redact,
}


if not TYPE_CHECKING:  # otherwise a type checker would accept any name

    def __getattr__(name):
        """Return an object by the name that it had before 0.4.0, with a ``DeprecationWarning``."""
        if name not in _RENAMED:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        renamed = _RENAMED[name]
        new = f"{renamed.__module__}.{renamed.__name__}"
        message = f"{__name__}.{name} is deprecated and will be removed in 0.5.0. Use {new}"
        warnings.warn(message, DeprecationWarning, stacklevel=2)
        return renamed
