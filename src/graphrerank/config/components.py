"""Components by name: what ``encoder="minilm"`` means, in a notebook and for every command.

A name is a file of ``conf/<group>``, ours or an installed extension's. :class:`ComponentFactory` composes its settings,
builds it, and prepares data sets with it. Every argument that takes a name also takes the object itself.
"""

import logging
import re
import warnings
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

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
from graphrerank.data.candidates import PreparedDataset, prepare, with_cross_encoder
from graphrerank.data.dataset import Dataset
from graphrerank.data.vector_cache import PairCache, VectorCache
from graphrerank.models.manifest import GroupEntry
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.utils.checks import UserError
from graphrerank.utils.redaction import redact

LOGGER = logging.getLogger(__name__)
Settings = Mapping[str, Any]  # of a group of conf: plain settings, and the classes to build as `_target_`
PipelineFactory = Callable[..., Pipeline]  # called with settings of conf/pipeline, and changes of them by name


@dataclass(frozen=True)
class ConfiguredComponent:
    """A component and the settings that it is built from, or an object that the caller has built.

    Attributes:
        settings: Resolved settings with a ``_target_``. None for an object that the caller has built.
        choice: File of ``conf/<group>`` that the settings come from. None if they come from no file.
        instance: Object that the caller has built. None if there are settings.
    """

    settings: DictConfig | None = None
    choice: str | None = None
    instance: Any = None

    @cached_property
    def name(self) -> str:
        """Name in notes and manifests: the file of ``conf``, otherwise the class."""
        if self.choice is not None:
            return self.choice
        if self.settings is not None:
            return str(self.settings._target_).rpartition(".")[2]
        return type(self.instance).__name__

    @cached_property
    def arguments(self) -> dict[str, Any]:
        """Settings as a manifest holds them, without Hydra's keys. Empty for an object that the caller has built."""
        return {} if self.settings is None else plain_arguments(self.settings)

    def build(self, *args: Any, **arguments: Any) -> Any:
        """Build the component, or return the object that the caller has built.

        Args:
            *args: Positional arguments of the constructor, before the settings.
            **arguments: Keyword arguments of the constructor, which override settings.

        Returns:
            The component. For settings with ``_partial_: true`` a factory of it.
        """
        return self.instance if self.settings is None else build_component(self.settings, *args, **arguments)


def build_component(settings: Settings, *args: Any, **arguments: Any) -> Any:
    """Build the object that settings describe. Its constructor gets plain values, no part of a configuration.

    Args:
        settings: Settings with a ``_target_``.
        *args: Positional arguments of the constructor.
        **arguments: Keyword arguments of the constructor, which override settings.

    Returns:
        The object. For settings with ``_partial_: true`` a factory of it.

    Raises:
        ValueError: If the class refuses an argument. Errors of the class are raised as they are, without Hydra's
            error around them; so are ``ImportError`` and ``OSError``.
    """
    try:
        return instantiate(settings, *args, _convert_="all", **arguments)
    except InstantiationException as error:
        if isinstance(error.__cause__, ValueError | ImportError | OSError):
            raise error.__cause__ from None
        raise


class ComponentFactory:
    """Build components by their names, and prepare data sets with them.

    Args:
        datasets: Folder of the data set folders that come from no registry package. If None, the folder in
            ``conf/paths`` is used.
        cache: Folder of cached vectors, candidate lists and replies. If None, the folder in ``conf/paths`` is used.
        device: Device on which models run. If None, ``cuda`` if available, else ``cpu``.
        num_threads: Number of torch threads.
        seed: Seed of components that draw random numbers.
        paths: Further folders of ``conf/paths``, such as a command's ``run_dir``.
        on_dataset: Function called with each data set that is loaded.

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
            run_dir: Folder of a run. If None, the one in ``paths`` is used.
            system: Name of the model within the run. None if there is no run.

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
            name: Name of the file without ``.yaml``. In the group ``data`` it may also be the path of a data set folder
                or a corpus folder.
            **changes: Settings to change.

        Returns:
            Resolved settings, with a ``_target_``.

        Raises:
            ValueError: If there is no such file or setting, or a setting without a default is missing.
        """
        if group == "data" and ("/" in name or "\\" in name):
            changes = {"path": name, **changes}
            name = "corpus_folder" if is_corpus_folder(name) else "folder"
        return complete_settings(self._compose_file(group, name), group, name, changes)

    def choices(self, group: str) -> list[str]:
        """Return the names of the files of ``conf/<group>``, including those of installed extensions.

        Args:
            group: Name of the group.

        Returns:
            Names that :meth:`settings` accepts.
        """
        return group_choices(group)

    def _compose_file(self, group: str, name: str) -> DictConfig:
        if not re.fullmatch(r"[\w-]+", name):
            raise UserError(f"`{group}` must name a file of conf/{group}, got {name!r}")
        return self.compose(f"+{group}={name}")

    def component(self, group: str, description: Any, /, **changes: Any) -> ConfiguredComponent:
        """Return a component with its settings, without building it.

        Args:
            group: Name of the group of ``conf``.
            description: Name of a file of the group, settings with a ``_target_``, a built object, or a component,
                which is returned as it is.
            **changes: Settings to change. Ignored for built objects.

        Returns:
            The component.

        Raises:
            ValueError: If there is no such file or setting.
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
        """Return :meth:`component`, under its name before 0.4.0.

        Args:
            group: Name of the group of ``conf``.
            description: Name, settings, built object or component.
            **changes: Settings to change.

        Returns:
            The component.
        """
        warnings.warn("part is named component; the old name goes in 0.5.0", DeprecationWarning, stacklevel=2)
        return self.component(group, description, **changes)

    def build(self, group: str, description: Any, /, **changes: Any) -> Any:
        """Build a component.

        Args:
            group: Name of the group of ``conf``.
            description: Name, settings, built object or component, as :meth:`component` takes it; or None.
            **changes: Settings to change.

        Returns:
            The built object, or None for None.

        Raises:
            ValueError: If there is no such file or setting, or the class refuses a setting.
        """
        return None if description is None else self.component(group, description, **changes).build()

    def from_manifest(self, group: str, entry: GroupEntry) -> ConfiguredComponent:
        """Return the component that a manifest describes.

        Classes, packages, folders and the device come from ``conf``, never from the manifest. A manifest may name
        models of the hub and the path of a data set.

        Args:
            group: Name of the group of ``conf``.
            entry: Choice of a file of the group, and plain arguments.

        Returns:
            The component with the arguments of the manifest.

        Raises:
            ValueError: If the manifest names another path, an address, a package or an unknown setting.
        """
        name = str(entry.choice)
        composed = self._compose_file(group, name)
        arguments = trusted_arguments(group, entry.arguments, composed[group])
        return ConfiguredComponent(complete_settings(composed, group, name, arguments), name)

    def dataset(self, description: Any, /, **changes: Any) -> Dataset:
        """Load a data set.

        Args:
            description: Name of a file of ``conf/data``, path of a folder, settings, or the data set itself.
            **changes: Settings to change.

        Returns:
            The data set.

        Raises:
            ValueError: If there is no such data set or setting, or a file of it is invalid.
        """
        dataset: Dataset = self.build("data", description, **changes)
        self._on_dataset(dataset)
        return dataset

    def text_encoder(self, description: Any) -> VectorCache | None:
        """Return a text encoder with a cache of vectors on disk, built at the first call.

        Args:
            description: Name, settings, built encoder or component, as :meth:`component` takes it; or None.

        Returns:
            Encoder, the same one for equal descriptions; or None for None.
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
        """Counts of requests to encoders behind an endpoint, summed over the encoders. Empty if there is none."""
        total: Counter[str] = Counter()
        for _, encoder in self._encoders:
            total.update(encoder.counts)
        return dict(total)

    def load(
        self, data: Any, *, encoder: Any, retriever: Any, reads_vectors: bool = True, splits: Sequence[str] = ()
    ) -> tuple[Dataset, Encoder | None, RetrieverFactory]:
        """Load a data set, and build the encoder and the retriever that prepare it.

        Args:
            data: Data set, as :meth:`dataset` takes it.
            encoder: Text encoder, as :meth:`component` takes it; or None to run without vectors.
            retriever: Retriever of the candidates, as :meth:`component` takes it.
            reads_vectors: Whether the model reads vectors of queries and passages.
            splits: Splits that the data set must have.

        Returns:
            The data set; its encoder, or None if neither the model, the retriever nor edges to nearest neighbours read
            vectors; and the factory of its retriever.

        Raises:
            ValueError: If vectors are read and there is no encoder, or a split is missing.
        """
        data_component, build_retriever = self.component("data", data), self.build("retriever", retriever)
        dataset = self.dataset(data_component)
        dataset.check_splits(*splits)
        warn_without_edges(dataset, build_retriever)
        is_encoded = check_vectors(
            dataset, build_retriever, has_encoder=encoder is not None, model_reads_vectors=reads_vectors
        )
        LOGGER.info("%s", dataset.summary(encoded=encoder is not None))
        return dataset, self.text_encoder(encoder) if is_encoded else None, build_retriever

    def prepare(
        self,
        data: Any,
        *,
        retriever: Any,
        encoder: Any = None,
        reads_vectors: bool = True,
        splits: Sequence[str] = (),
        keep_retriever: bool = False,
    ) -> PreparedDataset:
        """Load, encode and rank a data set, from the caches where possible.

        Args:
            data: Data set, as :meth:`dataset` takes it; or a prepared one, which is returned as it is.
            retriever: Retriever of the candidates, as :meth:`component` takes it.
            encoder: Text encoder, as :meth:`component` takes it; or None to run without vectors.
            reads_vectors: Whether the model reads vectors of queries and passages.
            splits: Splits that the data set must have.
            keep_retriever: Whether the result holds the retriever, for queries that come later.

        Returns:
            The data set with its vectors and candidates.

        Raises:
            ValueError: If vectors are read and there is no encoder, or a split is missing.
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
        )

    def pair_encoder(self, description: Any, *, label: str | None = None) -> PairCache:
        """Build a cross-encoder with a cache of its vectors on disk.

        Args:
            description: Name, settings, built cross-encoder or component, as :meth:`component` takes it.
            label: Title of the progress bar. If None, there is none.

        Returns:
            The cross-encoder.
        """
        encoder = self.build("pair_encoder", description)
        return encoder if isinstance(encoder, PairCache) else PairCache(encoder, self.cache / "pairs", label=label)

    def with_pair_encoder(self, prepared: PreparedDataset, description: Any) -> PreparedDataset:
        """Return a prepared data set with a cross-encoder, which reads pairs on demand.

        Args:
            prepared: Prepared data set.
            description: Cross-encoder, as :meth:`component` takes it.

        Returns:
            A copy with the cross-encoder.
        """
        return replace(prepared, pair_encoder=self.pair_encoder(description))

    def with_cross_encoder(
        self, prepared: PreparedDataset, description: Any, queries: Tensor, *, top_k: int
    ) -> PreparedDataset:
        """Return a prepared data set with a cross-encoder's scores as features, from the cache where possible.

        Args:
            prepared: Prepared data set.
            description: Cross-encoder, as :meth:`component` takes it.
            queries: Numbers of the queries whose candidates are scored.
            top_k: Number of top candidates per query that are scored.

        Returns:
            A copy with the scores.
        """
        torch.set_num_threads(self.num_threads)
        cross_encoder = self.pair_encoder(description, label=f"reading pairs of {prepared.dataset.name}")
        return with_cross_encoder(prepared, cross_encoder, queries, top_k=top_k)

    def pipeline_factory(self, prepared: PreparedDataset, *, retriever: Any, encoder: Any = None) -> PipelineFactory:
        """Return a factory of pipelines over a data set's graph, on the device.

        Args:
            prepared: Prepared data set.
            retriever: Retriever of search steps that name none, as :meth:`component` takes it.
            encoder: Text encoder, as :meth:`component` takes it; or None if no step encodes texts.

        Returns:
            Function of a pipeline (a file of ``conf/pipeline`` or its settings) and of settings to change.
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
        warnings.warn(f"{__name__}.{name} is now {new}; the old name goes in 0.5.0", DeprecationWarning, stacklevel=2)
        return renamed
