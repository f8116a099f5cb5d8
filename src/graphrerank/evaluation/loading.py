"""Load the systems of an evaluation: checkpoints, settings of pipelines, the retriever and the encoders."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from graphrerank._moved import moved_names
from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.evaluation.baselines import BASELINES
from graphrerank.evaluation.plan import CHECKPOINT, PIPELINE, PlannedEvaluation, SystemSpec
from graphrerank.evaluation.runners.checkpoint import CheckpointGroup
from graphrerank.models.checkpoint import Checkpoint, load_checkpoints
from graphrerank.models.manifest import RerankerManifest
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.utils.checks import UserError

__getattr__ = moved_names(__name__)

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
        pair_encoder: Cross-encoder that the caller passed. If None, each checkpoint uses that of its manifest.
    """

    checkpoints: Mapping[str, CheckpointGroup]
    pipelines: Mapping[str, ConfiguredComponent | Pipeline]
    retriever: ResolvedComponent
    encoder: ResolvedComponent
    pair_encoder: ConfiguredComponent | None = None

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
    choices = {"retriever": (retriever, "dense"), "encoder": (encoder, "minilm" if pipelines else None)}
    resolved = {
        group: resolve_component(components, group, argument, manifests, default)
        for group, (argument, default) in choices.items()
    }
    return LoadedSystems(
        groups,
        pipelines,
        resolved["retriever"],
        resolved["encoder"],
        pair_encoder=None if pair_encoder is None else components.component("pair_encoder", pair_encoder),
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


def candidate_notes(loaded: LoadedSystems) -> list[str]:
    """Say in a report where the candidates of checkpoints come from.

    Args:
        loaded: Systems of the evaluation.

    Returns:
        One sentence, or none without checkpoints.
    """
    if not loaded.checkpoints:
        return []
    note = f"candidates: {loaded.retriever.description}"
    if loaded.encoder.component is not None:
        note += f", vectors: {loaded.encoder.description}"
    depths = [group.cross_encoder_top_k for group in loaded.checkpoints.values() if group.cross_encoder_top_k]
    if depths and loaded.pair_encoder is not None:
        note += f", {loaded.pair_encoder.name} on the first {depths[0]}, whose time is in no stage"
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
