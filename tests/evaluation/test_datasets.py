from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from omegaconf import OmegaConf

from graphrerank.config.components import ComponentFactory
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.datasets import DatasetLoader, resolve_dataset, with_edges, with_trained_splits
from graphrerank.evaluation.loading import LoadedSystems, ResolvedComponent
from graphrerank.models.checkpoint import load_primary
from graphrerank.models.manifest import RerankerManifest
from graphrerank.operators.bm25 import BM25Retriever
from graphrerank.operators.hybrid import HybridRetriever
from tests.support.encoders import HashEncoder
from tests.support.folders import write_dataset

NOTHING = ResolvedComponent(None, "")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Three passages, two queries with one relevant passage each."""
    corpus = [{"_id": f"p{i}", "text": f"word{i}", "metadata": {"even": i % 2 == 0}} for i in range(3)]
    queries = [{"_id": f"q{i}", "text": f"word{i}"} for i in range(2)]
    return write_dataset(tmp_path / "toy", corpus=corpus, queries=queries, test=[("q0", "p0"), ("q1", "p1")])


def manifests() -> Mapping[str, RerankerManifest]:
    return {"base": load_primary("base").reranker}


def test_a_data_set_has_the_splits_that_the_first_model_trained_on_it_had(tmp_path: Path) -> None:
    manifest = manifests()["base"]
    arguments = {"path": str(tmp_path / "mine"), "splits": "auto"}
    trained = manifest.model_copy(update={"data": manifest.data.model_copy(update={"arguments": arguments})})
    same = OmegaConf.create({"path": f"{tmp_path}/./mine", "splits": None})
    assert with_trained_splits(same, [trained]).splits == "auto"
    assert same.splits is None
    other = OmegaConf.create({"path": f"{tmp_path}/other", "splits": None})
    assert with_trained_splits(other, [trained]) is other
    own = OmegaConf.create({"path": f"{tmp_path}/mine", "splits": "given"})
    assert with_trained_splits(own, [trained]).splits == "given"


def test_a_data_set_by_the_name_in_a_manifest_has_its_settings(components: ComponentFactory, folder: Path) -> None:
    manifest = manifests()["base"]
    resolved = resolve_dataset(components, manifest.data.choice, {"base": manifest})
    assert resolved.choice == manifest.data.choice
    assert resolve_dataset(components, str(folder), {}).settings.path == str(folder)  # type: ignore[union-attr]


def loader(components: ComponentFactory, **settings: Any) -> DatasetLoader:
    retriever = components.component("retriever", partial(BM25Retriever, top_k=2))
    return DatasetLoader(components, LoadedSystems({}, {}, ResolvedComponent(retriever, "bm25"), NOTHING), **settings)


def test_data_sets_are_prepared_only_where_a_runner_needs_it(components: ComponentFactory, folder: Path) -> None:
    (bare,) = loader(components, prepare=False).resolve([str(folder)])
    task = loader(components, prepare=False).load(bare)
    assert (task.dataset.name, task.prepared, task.queries.tolist(), task.is_filtered) == ("toy", None, [0, 1], False)
    task = loader(components, num_queries=1).load(bare)
    assert task.queries.tolist() == [0]
    assert task.required_preparation.ranking.nodes.shape == (2, 2)


@pytest.mark.parametrize(("settings", "queries"), [({}, [1, 3]), ({"num_queries": 1}, [1]), ({"split": "val"}, [2])])
def test_only_the_queries_to_evaluate_are_encoded(
    components: ComponentFactory, tmp_path: Path, settings: dict[str, Any], queries: list[int]
) -> None:
    corpus = [{"_id": f"p{i}", "text": f"passage {i}"} for i in range(3)]
    texts = [f"question {i}" for i in range(4)]
    judged = {"train": [("q0", "p0")], "test": [("q1", "p1"), ("q3", "p0")], "val": [("q2", "p2")]}
    rows = [{"_id": f"q{i}", "text": text} for i, text in enumerate(texts)]
    folder = write_dataset(tmp_path / "toy", corpus=corpus, queries=rows, **judged)
    encoder = HashEncoder()
    retriever = components.component("retriever", partial(HybridRetriever, top_k=2))
    encoding = ResolvedComponent(components.component("encoder", encoder), "hash")
    systems = LoadedSystems({}, {}, ResolvedComponent(retriever, "hybrid"), encoding)
    loading = DatasetLoader(components, systems, **settings)
    (data,) = loading.resolve([str(folder)])
    task = loading.load(data)
    assert task.queries.tolist() == queries
    assert sorted(encoder.asked) == sorted([f"passage {i}" for i in range(3)] + [texts[query] for query in queries])


def test_a_filter_leaves_out_passages_and_refuses_prepared_data_sets(
    components: ComponentFactory, folder: Path, prepared: PreparedDataset
) -> None:
    filtering = loader(components, filter={"even": True}, prepare=False)
    (data,) = filtering.resolve([Dataset.from_folder(folder)])
    task = filtering.load(data)
    assert (list(task.dataset.graph.node_ids), task.queries.tolist(), task.is_filtered) == (["p0", "p2"], [0], True)
    with pytest.raises(ValueError, match="`filter` must be null for a prepared data set"):
        filtering.load(prepared)


def test_a_prepared_data_set_stays_as_it_is(components: ComponentFactory, prepared: PreparedDataset) -> None:
    (data,) = loader(components, split="val").resolve([prepared])
    task = loader(components, split="val").load(data)
    assert task.prepared is prepared
    assert loader(components, split="val", prepare=False).load(prepared).dataset is prepared.dataset


def test_threads_are_those_of_the_components(components: ComponentFactory, prepared: PreparedDataset) -> None:
    before = torch.get_num_threads()
    loader(components, split="val").load(prepared)
    assert torch.get_num_threads() == components.num_threads == 1
    torch.set_num_threads(before)


def test_edges_can_be_asked_for_with_several_data_sets(components: ComponentFactory, folder: Path) -> None:
    loaded = LoadedSystems({}, {}, NOTHING, NOTHING)
    loader = DatasetLoader(components, loaded, edges="auto", prepare=False)
    for data in loader.resolve([f"{folder}/", f"{folder}/"]):
        assert data.settings.edges == "auto"
        assert loader.load(data).dataset.knn == 10  # only edges=auto has them


def test_edges_of_a_data_set_that_is_loaded_cannot_be_changed(components: ComponentFactory, folder: Path) -> None:
    dataset = Dataset.from_folder(folder)
    with pytest.raises(ValueError, match="`edges` must be null for 'Dataset', whose edges are fixed"):
        with_edges(components.component("data", dataset), "auto")
