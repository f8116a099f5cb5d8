from collections.abc import Mapping
from dataclasses import replace
from functools import partial

import pytest

from graphrerank import GraphReranker
from graphrerank.config.components import ComponentFactory
from graphrerank.evaluation.loading import (
    LoadedSystems,
    ResolvedComponent,
    candidate_notes,
    endpoint_notes,
    load_models,
    load_systems,
    resolve_component,
)
from graphrerank.evaluation.plan import SystemSpec, plan_evaluation
from graphrerank.evaluation.runners.checkpoint import CheckpointGroup
from graphrerank.models.checkpoint import Checkpoint, load_primary
from graphrerank.models.manifest import RerankerManifest

NOTHING = ResolvedComponent(None, "")


def manifests() -> Mapping[str, RerankerManifest]:
    return {"base": load_primary("base").reranker}


def test_one_checkpoint_keeps_its_models_names_and_others_take_the_label() -> None:
    spec = SystemSpec("mine", "checkpoint", "base", "base")
    assert list(load_models(spec, keep_names=True)) == ["gatv2"]
    assert list(load_models(spec, keep_names=False)) == ["mine"]
    loaded = GraphReranker.from_pretrained("base")
    (model,) = load_models(replace(spec, argument=loaded), keep_names=False).values()
    assert model is loaded.checkpoint


def test_the_models_of_a_run_folder_begin_with_its_label(monkeypatch: pytest.MonkeyPatch) -> None:
    checkpoint = load_primary("base")
    models = {"mlp": checkpoint, "gatv2": checkpoint}
    monkeypatch.setattr("graphrerank.evaluation.loading.load_checkpoints", lambda _: models)
    spec = SystemSpec("run", "checkpoint", "runs/run", "runs/run")
    assert list(load_models(spec, keep_names=False)) == ["run-mlp", "run-gatv2"]
    assert list(load_models(spec, keep_names=True)) == ["mlp", "gatv2"]


def test_a_model_with_the_name_of_a_baseline_is_refused_where_it_keeps_it(monkeypatch: pytest.MonkeyPatch) -> None:
    models: dict[str, Checkpoint] = {"gcs": load_primary("base")}
    monkeypatch.setattr("graphrerank.evaluation.loading.load_checkpoints", lambda _: models)
    spec = SystemSpec("run", "checkpoint", "runs/run", "runs/run")
    with pytest.raises(ValueError, match="runs/run: the system name 'gcs' is reserved for a baseline"):
        load_models(spec, keep_names=True)
    assert list(load_models(spec, keep_names=False)) == ["run"]


def test_components_are_the_callers_then_the_checkpoints_then_the_default(components: ComponentFactory) -> None:
    trained = manifests()
    resolve = partial(resolve_component, components, "retriever")
    assert resolve("bm25", trained, "dense").description == "bm25"
    assert resolve(None, trained, "dense").description == "hybrid_expand of base"
    assert resolve(None, {}, "dense").description == "dense"
    assert resolve(None, {}, None) == NOTHING
    assert resolve_component(components, "encoder", "none", trained, "minilm") == NOTHING


def test_a_cross_encoder_is_only_for_checkpoints_that_read_its_scores(components: ComponentFactory) -> None:
    planned = plan_evaluation(["base", "attack"], "x", pipeline_names=[])
    loaded = load_systems(planned, components, pair_encoder=object(), cross_encoder_top_k=7)
    reads = {label: group.manifest.reads_cross_encoder for label, group in loaded.checkpoints.items()}
    assert reads == {"base": True, "attack": False}
    top_k = {label: group.cross_encoder_top_k for label, group in loaded.checkpoints.items()}
    assert top_k == {"base": 7, "attack": None}
    note, *_ = candidate_notes(loaded)
    assert note.endswith(", object on the first 7, whose time is in no stage")


def test_the_origin_of_candidates_is_noted(components: ComponentFactory) -> None:
    loaded = load_systems(plan_evaluation(["base"], "x", pipeline_names=[]), components)
    assert loaded.checkpoints["base"].cross_encoder_top_k is None  # no cross-encoder was passed
    assert candidate_notes(loaded) == [
        "candidates: hybrid_expand of base, vectors: minilm of base",
        "restart probabilities PPR 0.7, GCS 0.1, chosen on the validation split of base",
    ]
    assert candidate_notes(replace(loaded, checkpoints={})) == []


def test_an_encoder_is_only_needed_where_a_system_reads_vectors() -> None:
    checkpoint = load_primary("base")
    group = CheckpointGroup("base", {"base": checkpoint})
    encoder = ResolvedComponent(object(), "mine")  # type: ignore[arg-type]
    assert not LoadedSystems({"base": group}, {}, NOTHING, encoder).reads_vectors
    assert LoadedSystems({}, {"gar": object()}, NOTHING, encoder).reads_vectors  # type: ignore[dict-item]
    assert not LoadedSystems({}, {"gar": object()}, NOTHING, NOTHING).reads_vectors  # type: ignore[dict-item]


def test_settings_of_a_pipeline_that_do_not_fit_are_named_with_its_label(components: ComponentFactory) -> None:
    planned = plan_evaluation(
        ["vector_search"], "x", pipeline_names=["vector_search"], pipeline_settings={"vector_search": {"depth": 5}}
    )
    with pytest.raises(ValueError, match=r"are invalid for conf/pipeline/vector_search.yaml: Key 'depth'"):
        load_systems(planned, components)


def test_counts_of_an_endpoint_are_noted() -> None:
    assert endpoint_notes({}) == []
    assert endpoint_notes({"texts_sent": 1234}) == ["the encoder's endpoint, so far in this run: 1,234 texts sent"]
