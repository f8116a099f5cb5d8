"""Load what an evaluation needs: checkpoints, settings of pipelines, the retriever and the encoder, and data sets."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import torch
from omegaconf import DictConfig, OmegaConf

from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.corpus.filters import Filter
from graphrerank.data.candidates import PreparedDataset
from graphrerank.evaluation.baselines import BASELINES
from graphrerank.evaluation.measuring import judged_queries
from graphrerank.evaluation.plan import CHECKPOINT, PIPELINE, PlannedEvaluation, SystemSpec
from graphrerank.evaluation.runners.base import RankingTask
from graphrerank.evaluation.runners.checkpoint import CheckpointGroup
from graphrerank.models.checkpoint import Checkpoint, load_checkpoints
from graphrerank.models.manifest import RerankerManifest
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.utils.checks import UserError

NO_ENCODER = "none"  # the argument `encoder` that runs without vectors


@dataclass(frozen=True)
class ResolvedComponent:
    """A component that an evaluation uses.

    Attributes:
        component: The component, or None if there is none.
        description: Its name and origin, for the report. Empty if there is none.
    """

    component: ConfiguredComponent | None
    description: str


@dataclass(frozen=True, eq=False)
class LoadedSystems:
    """Systems that are ready to be run.

    Attributes:
        checkpoints: Groups of checkpoints by label.
        pipelines: Settings of pipelines, or built ones, by label.
        retriever: Retriever of the candidates.
        encoder: Text encoder. Its component is None if nothing is encoded.
    """

    checkpoints: Mapping[str, CheckpointGroup]
    pipelines: Mapping[str, ConfiguredComponent | Pipeline]
    retriever: ResolvedComponent
    encoder: ResolvedComponent

    @property
    def manifests(self) -> dict[str, RerankerManifest]:
        """Manifests of the checkpoints, by label."""
        return {label: group.manifest for label, group in self.checkpoints.items()}

    @property
    def reads_vectors(self) -> bool:
        """Whether a system reads vectors of texts."""
        if self.pipelines and self.encoder.component is not None:
            return True
        return any(group.reads_vectors for group in self.checkpoints.values())


def load_systems(
    planned: PlannedEvaluation,
    components: ComponentFactory,
    *,
    retriever: Any = None,
    encoder: Any = None,
    pair_encoder: Any = None,
    cross_encoder_top_k: int = 20,
) -> LoadedSystems:
    """Load checkpoints, and resolve the components of an evaluation.

    Args:
        planned: Checked arguments of the evaluation.
        components: Builds components by their names.
        retriever: Retriever of the candidates. If None, that of the first checkpoint, otherwise ``dense``.
        encoder: Text encoder. If None, that of the first checkpoint, otherwise ``minilm`` for pipelines.
        pair_encoder: Cross-encoder, or None.
        cross_encoder_top_k: Number of candidates that ``pair_encoder`` scores for checkpoints that read its scores.

    Returns:
        The loaded systems.

    Raises:
        ValueError: If a checkpoint cannot be loaded, or settings of a pipeline do not fit.
    """
    groups = {
        spec.label: CheckpointGroup(spec.source, load_models(spec, keep_names=planned.only_checkpoint))
        for spec in planned.of_kind(CHECKPOINT)
    }
    if pair_encoder is not None:
        for label, group in groups.items():
            if group.manifest.reads_cross_encoder:
                groups[label] = replace(group, cross_encoder_top_k=cross_encoder_top_k)
    pipelines = {
        spec.label: resolve_pipeline(spec, planned.pipeline_settings.get(spec.label, {}), components)
        for spec in planned.of_kind(PIPELINE)
    }
    manifests = {label: group.manifest for label, group in groups.items()}
    return LoadedSystems(
        groups,
        pipelines,
        resolve_component(components, "retriever", retriever, manifests, "dense"),
        resolve_component(components, "encoder", encoder, manifests, "minilm" if pipelines else None),
    )


def load_models(spec: SystemSpec, *, keep_names: bool) -> dict[str, Checkpoint]:
    """Load a checkpoint's models.

    Args:
        spec: Specification of the checkpoint.
        keep_names: Whether the models keep the names in their manifests. If False, their names begin with the
            specification's label.

    Returns:
        Checkpoints by their row name in the result tables. The last one is the primary model.

    Raises:
        ValueError: If there is no such checkpoint, it is no reranker, or it has the name of a baseline.
    """
    checkpoint = spec.argument.checkpoint if isinstance(spec.argument, GraphReranker) else spec.argument
    if isinstance(checkpoint, Checkpoint):
        models = {checkpoint.manifest.name: checkpoint}
    else:
        models = load_checkpoints(checkpoint)
    for name, model in models.items():
        if not isinstance(model.manifest, RerankerManifest):
            raise UserError(
                f"{spec.source}: {model.manifest.model.name} is no reranker; pipeline=ea_graphrag "
                "pipeline.steps.0.adapter.checkpoint=RUN routes by it, experiment=ea_benchmark judges it"
            )
        if keep_names and name in BASELINES:
            raise UserError(
                f"{spec.source}: holds a system of the name {name!r}, which a baseline has; 'checkpoint=[RUN]' "
                "names it by its folder"
            )
    if keep_names:
        return models
    return {spec.label if len(models) == 1 else f"{spec.label}-{name}": model for name, model in models.items()}


def resolve_pipeline(
    spec: SystemSpec, changes: Mapping[str, Any], components: ComponentFactory
) -> ConfiguredComponent | Pipeline:
    """Return a built pipeline as it is, and any other one with its changed settings.

    Args:
        spec: Specification of the pipeline.
        changes: Changed settings.
        components: Composes settings by their names.

    Returns:
        The pipeline, or its settings.

    Raises:
        ValueError: If settings are unknown or missing. The message names ``settings.LABEL.KEY``.
    """
    if isinstance(spec.argument, Pipeline):
        return spec.argument
    try:
        return components.component("pipeline", spec.argument, **changes)
    except ValueError as error:
        raise UserError(re.sub(r"^`(?=\w+[.[`])", f"`settings.{spec.label}.", str(error))) from error


def resolve_component(
    components: ComponentFactory,
    group: str,
    argument: Any,
    manifests: Mapping[str, RerankerManifest],
    default: str | None,
) -> ResolvedComponent:
    """Choose a component: the caller's, otherwise that of the first checkpoint with one, otherwise the default.

    Args:
        components: Builds components by their names.
        group: ``retriever`` or ``encoder``.
        argument: Component as the caller passed it, ``none`` for none, or None if the caller passed nothing.
        manifests: Manifests of checkpoints by label.
        default: Name of the default. If None, there is none.

    Returns:
        The component and its description.
    """
    if argument == NO_ENCODER:
        return ResolvedComponent(None, "")
    if argument is not None:
        component = components.component(group, argument)
        return ResolvedComponent(component, component.name)
    for label, manifest in manifests.items():
        entry = manifest.retriever if group == "retriever" else manifest.encoder
        if entry is not None:  # an encoder is None where nothing was encoded
            return ResolvedComponent(components.from_manifest(group, entry), f"{entry.choice} of {label}")
    return (
        ResolvedComponent(None, "")
        if default is None
        else ResolvedComponent(components.component(group, default), default)
    )


def resolve_dataset(
    components: ComponentFactory, data: Any, manifests: Mapping[str, RerankerManifest]
) -> ConfiguredComponent:
    """Return the settings of a data set, as the first checkpoint that was trained on it had them.

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


def candidate_notes(
    loaded: LoadedSystems, components: ComponentFactory, *, pair_encoder: Any = None, cross_encoder_top_k: int = 20
) -> list[str]:
    """Say in a report where the candidates of checkpoints come from.

    Args:
        loaded: Systems of the evaluation.
        components: Names the cross-encoder.
        pair_encoder: Cross-encoder that the caller passed, or None.
        cross_encoder_top_k: Number of candidates that it scores.

    Returns:
        One sentence, or none without checkpoints.
    """
    if not loaded.checkpoints:
        return []
    note = f"candidates: {loaded.retriever.description}"
    if loaded.encoder.component is not None:
        note += f", vectors: {loaded.encoder.description}"
    if any(group.cross_encoder_top_k is not None for group in loaded.checkpoints.values()):
        reader = components.component("pair_encoder", pair_encoder).name
        note += f", {reader} on the first {cross_encoder_top_k}, whose time is in no stage"
    return [note]


def endpoint_notes(counts: Mapping[str, int]) -> list[str]:
    """Say in a report how often an encoder behind an endpoint was used.

    Args:
        counts: Counts by name, such as ``encoded_texts``.

    Returns:
        One sentence, or none without counts.

    Example:
        >>> endpoint_notes({"texts_sent": 1200, "requests": 3})
        ["the encoder's endpoint, so far in this run: 1,200 texts sent, 3 requests"]
    """
    if not counts:
        return []
    listed = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    return [f"the encoder's endpoint, so far in this run: {listed}"]


class DatasetLoader:
    """Loads, filters and prepares the data sets of an evaluation.

    Args:
        components: Builds data sets, and encodes and searches them.
        loaded: Systems of the evaluation, whose retriever and encoder prepare the data sets.
        split: Split whose judgements are used.
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
        filter: Filter | None = None,
        num_queries: int | None = None,
        prepare: bool = True,
    ) -> None:
        self.components = components
        self.loaded = loaded
        self.split = split
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
            ValueError: If a data set is unknown, or a filter is used with a prepared one.
        """
        manifests = self.loaded.manifests
        return [
            each if isinstance(each, PreparedDataset) else resolve_dataset(self.components, each, manifests)
            for each in data
        ]

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
                raise UserError("`filter` must be null for a prepared data set, whose candidates are ranked: filter it")
            data = ConfiguredComponent(instance=self.components.build("data", data).where(self.filter))
        prepared = self._prepared(data) if self.prepare else None
        if prepared is not None:
            dataset = prepared.dataset
        elif isinstance(data, PreparedDataset):
            dataset = data.dataset
        else:
            dataset = self.components.dataset(data)
        queries = judged_queries(dataset, self.split, self.num_queries)
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
        )
