"""Load the data sets of an evaluation: settings as of the training, filters, queries and candidates."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import DictConfig, OmegaConf
from torch import Tensor

from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.corpus.filters import Filter
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.loading import LoadedSystems
from graphrerank.evaluation.measuring import judged_queries
from graphrerank.evaluation.runners.base import RankingTask
from graphrerank.models.manifest import RerankerManifest
from graphrerank.utils.checks import UserError


def resolve_dataset(
    components: ComponentFactory, data: Any, manifests: Mapping[str, RerankerManifest]
) -> ConfiguredComponent:
    """Return the settings of a data set, taken from the first checkpoint that was trained on it.

    Args:
        components: Composes settings by their names.
        data: Name, path or settings of a data set, or the data set itself.
        manifests: Manifests of checkpoints by label.

    Returns:
        The data set with the settings of the first checkpoint that was trained on it, otherwise as it was passed.
    """
    for manifest in manifests.values():
        if isinstance(data, str) and manifest.data.choice == data:
            return components.from_manifest("data", manifest.data)
    part = components.component("data", data)
    settings = None if part.settings is None else with_trained_splits(part.settings, list(manifests.values()))
    return replace(part, settings=settings)


def with_trained_splits(data: DictConfig, manifests: Sequence[RerankerManifest]) -> DictConfig:
    """Return ``data`` with the splits recorded by the first model trained on it, if ``data`` defines none.

    Args:
        data: Settings of a data set folder.
        manifests: Manifests of models.

    Returns:
        The settings, copied where they changed.
    """
    if data.get("path") is None or data.get("splits", {}) is not None:
        return data
    for trained in (manifest.data.arguments for manifest in manifests):
        path, splits = trained.get("path"), trained.get("splits")
        if splits and isinstance(path, str) and Path(path).resolve() == Path(str(data.path)).resolve():
            return cast(DictConfig, OmegaConf.merge(data, {"splits": splits}))
    return data


def with_edges(data: PreparedDataset | ConfiguredComponent, edges: str) -> ConfiguredComponent:
    """Return the settings of a data set folder with other edges.

    Args:
        data: Settings of a data set folder.
        edges: New value of the setting ``edges``, such as ``auto``.

    Raises:
        UserError: If the data set has already been loaded, or has no setting ``edges``.
    """
    settings = data.settings if isinstance(data, ConfiguredComponent) else None
    if settings is None or "edges" not in settings:
        name = data.name if isinstance(data, ConfiguredComponent) else data.dataset.name
        raise UserError(f"`edges` must be null for {name!r}, whose edges are fixed when it is loaded, got {edges!r}")
    return replace(
        cast(ConfiguredComponent, data), settings=cast(DictConfig, OmegaConf.merge(settings, {"edges": edges}))
    )


class DatasetLoader:
    """Loads, filters and prepares the data sets of an evaluation.

    Args:
        components: Builds data sets, and encodes and searches them.
        loaded: Systems of the evaluation, whose retriever and encoder prepare the data sets.
        split: Split whose judgements are used.
        edges: Edges of all data set folders, such as ``auto``. If None, the settings of the data sets are used.
        filter: Metadata filter. Passages that do not match are removed from the corpus and the judgements.
        num_queries: Number of queries, the first ones by id. If None, all are used.
        prepare: Whether to encode data sets and search them for candidates.
    """

    def __init__(
        self,
        components: ComponentFactory,
        loaded: LoadedSystems,
        *,
        split: str = "test",
        edges: str | None = None,
        filter: Filter | None = None,
        num_queries: int | None = None,
        prepare: bool = True,
    ) -> None:
        self.components = components
        self.loaded = loaded
        self.split = split
        self.edges = edges
        self.filter = filter
        self.num_queries = num_queries
        self.prepare = prepare

    def resolve(self, data: Sequence[Any]) -> list[PreparedDataset | ConfiguredComponent]:
        """Compose the settings of all data sets, before the first one is read.

        Args:
            data: Data sets as the caller passed them.

        Returns:
            Prepared data sets as they are, and the settings of the others.

        Raises:
            ValueError: If a data set is unknown, a filter is used with a prepared one, or ``edges`` is set for a data
                set that is not a folder.
        """
        manifests = self.loaded.manifests
        resolved = [
            each if isinstance(each, PreparedDataset) else resolve_dataset(self.components, each, manifests)
            for each in data
        ]
        return resolved if self.edges is None else [with_edges(each, self.edges) for each in resolved]

    def load(self, data: PreparedDataset | ConfiguredComponent) -> RankingTask:
        """Load a data set, and choose its queries.

        Args:
            data: Data set as :meth:`resolve` returns it.

        Returns:
            The task for the runners.

        Raises:
            ValueError: If the split has no judgements, no passage matches the filter, or a prepared data set is to be
                filtered.
        """
        if self.filter:
            if isinstance(data, PreparedDataset):
                raise UserError(
                    "`filter` must be null for a prepared data set, whose candidates are already ranked. Filter the "
                    "data set before it is prepared"
                )
            data = ConfiguredComponent(instance=self.components.build("data", data).where(self.filter))
        prepared = self._prepared(data) if self.prepare else None
        if prepared is not None:
            dataset = prepared.dataset
        elif isinstance(data, PreparedDataset):
            dataset = data.dataset
        else:
            dataset = self.components.dataset(data)
        queries = self._queries(dataset)
        torch.set_num_threads(self.components.num_threads)
        return RankingTask(dataset, self.split, queries, prepared, is_filtered=bool(self.filter))

    def _prepared(self, data: PreparedDataset | ConfiguredComponent) -> PreparedDataset:
        return self.components.prepare(
            data,
            retriever=self.loaded.retriever.component,
            encoder=self.loaded.encoder.component,
            reads_vectors=self.loaded.reads_vectors,
            splits=[self.split],
            keep_retriever=bool(self.loaded.checkpoints),
            select_queries=self._queries,
        )

    def _queries(self, dataset: Dataset) -> Tensor:
        """Return the queries to evaluate, the only ones that are encoded and searched."""
        return judged_queries(dataset, self.split, self.num_queries)
