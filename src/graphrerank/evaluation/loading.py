"""Load the systems of an evaluation: checkpoints, settings of pipelines, the retriever and the encoders."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from graphrerank._moved import moved_names
from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.evaluation.baselines import BASELINES, restart_note
from graphrerank.evaluation.plan import CHECKPOINT, PIPELINE, PlannedEvaluation, SystemSpec
from graphrerank.evaluation.runners.checkpoint import CheckpointGroup
from graphrerank.models.checkpoint import Checkpoint, load_checkpoints
from graphrerank.models.manifest import RerankerManifest
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.rerank.graph_reranker import GraphReranker
from graphrerank.utils.checks import UserError

__getattr__ = moved_names(__name__)

NO_ENCODER = "none"  # value of the argument `encoder` to run without vectors


@dataclass(frozen=True)
class ResolvedComponent:
    """Component that an evaluation uses.

    Attributes:
        component: Settings of the component. None if the evaluation does not use one.
        description: Name and origin of the component, for the report. Empty if ``component`` is None.
    """

    component: ConfiguredComponent | None
    description: str


@dataclass(frozen=True, eq=False)
class LoadedSystems:
    """Systems that are ready to be run.

    Attributes:
        checkpoints: Groups of checkpoints by label.
        pipelines: Settings of pipelines, or built pipelines, by label.
        retriever: Retriever of the candidates.
        encoder: Text encoder. Its component is None if no texts are encoded.
        pair_encoder: Cross-encoder that the caller passed. If None, each checkpoint uses the cross-encoder that its
            manifest names.
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
        """Whether any system uses vectors of texts."""
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
        components: Factory of components.
        retriever: Retriever of the candidates. If None, the retriever of the first checkpoint, or ``dense`` without
            checkpoints.
        encoder: Text encoder. If None, the encoder of the first checkpoint that has one, or ``minilm`` if there are
            pipelines.
        pair_encoder: Cross-encoder that replaces those of the checkpoints, or None.
        cross_encoder_top_k: Number of candidates per query that ``pair_encoder`` scores. Only used by checkpoints with
            cross-encoder features.

    Returns:
        Loaded systems with their components.

    Raises:
        UserError: If a checkpoint cannot be loaded, or if settings of a pipeline are invalid.
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
        keep_names: Whether the models keep the names in their manifests. If False, their names begin with the label of
            ``spec``.

    Returns:
        Checkpoints by their row name in the result tables. The last one is the primary model.

    Raises:
        UserError: If there is no such checkpoint, if it is not a reranker, or if it has the name of a baseline.
    """
    checkpoint = spec.argument.checkpoint if isinstance(spec.argument, GraphReranker) else spec.argument
    if isinstance(checkpoint, Checkpoint):
        models = {checkpoint.manifest.name: checkpoint}
    else:
        models = load_checkpoints(checkpoint)
    for name, model in models.items():
        if not isinstance(model.manifest, RerankerManifest):
            raise UserError(
                f"{spec.source}: {model.manifest.model.name} is not a reranker. Use it for routing with "
                "pipeline=ea_graphrag pipeline.steps.0.adapter.checkpoint=RUN, or evaluate it with "
                "experiment=ea_benchmark"
            )
        if keep_names and name in BASELINES:
            raise UserError(
                f"{spec.source}: the system name {name!r} is reserved for a baseline. Use 'checkpoint=[RUN]' to name "
                "the model after its folder"
            )
    if keep_names:
        return models
    return {spec.label if len(models) == 1 else f"{spec.label}-{name}": model for name, model in models.items()}


def resolve_pipeline(
    spec: SystemSpec, changes: Mapping[str, Any], components: ComponentFactory
) -> ConfiguredComponent | Pipeline:
    """Apply overrides to the settings of a pipeline. A built pipeline is returned unchanged.

    Args:
        spec: Specification of the pipeline.
        changes: Overrides of settings.
        components: Factory of components, which reads the settings of named pipelines.

    Returns:
        Built pipeline, or its settings.

    Raises:
        UserError: If settings are unknown or missing. The message contains ``settings.LABEL.KEY``.
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
        components: Factory of components.
        group: ``retriever`` or ``encoder``.
        argument: Component as the caller passed it, or ``none`` to use no component. If None, the component is taken
            from the checkpoints or from the default.
        manifests: Manifests of checkpoints by label.
        default: Name of the default component. If None, there is no default.

    Returns:
        Component and its description.
    """
    if argument == NO_ENCODER:
        return ResolvedComponent(None, "")
    if argument is not None:
        component = components.component(group, argument)
        return ResolvedComponent(component, component.name)
    for label, manifest in manifests.items():
        entry = manifest.retriever if group == "retriever" else manifest.encoder
        if entry is not None:  # None if the checkpoint was trained without a text encoder
            return ResolvedComponent(components.from_manifest(group, entry), f"{entry.choice} of {label}")
    return (
        ResolvedComponent(None, "")
        if default is None
        else ResolvedComponent(components.component(group, default), default)
    )


def candidate_notes(loaded: LoadedSystems) -> list[str]:
    """Describe the origin of the checkpoints' candidates, for the report.

    Args:
        loaded: Systems of the evaluation.

    Returns:
        One sentence, and one for each choice of restart probabilities. Empty if there are no checkpoints.
    """
    if not loaded.checkpoints:
        return []
    note = f"candidates: {loaded.retriever.description}"
    if loaded.encoder.component is not None:
        note += f", vectors: {loaded.encoder.description}"
    depths = [group.cross_encoder_top_k for group in loaded.checkpoints.values() if group.cross_encoder_top_k]
    if depths and loaded.pair_encoder is not None:
        note += f", {loaded.pair_encoder.name} on the first {depths[0]}, whose time is in no stage"
    sources: dict[str, list[str]] = {}
    for label, group in loaded.checkpoints.items():
        sources.setdefault(restart_note(group.manifest.operators), []).append(label)
    return [
        note,
        *(f"{chosen}, chosen on the validation split of {', '.join(labels)}" for chosen, labels in sources.items()),
    ]


def endpoint_notes(counts: Mapping[str, int]) -> list[str]:
    """Describe the use of an encoder behind an endpoint, for the report.

    Args:
        counts: Counts by name, such as ``texts_sent``.

    Returns:
        One sentence. Empty if there are no counts.

    Example:
        >>> endpoint_notes({"texts_sent": 1200, "requests": 3})
        ["the encoder's endpoint, so far in this run: 1,200 texts sent, 3 requests"]
    """
    if not counts:
        return []
    listed = ", ".join(f"{count:,} {name.replace('_', ' ')}" for name, count in counts.items())
    return [f"the encoder's endpoint, so far in this run: {listed}"]
