"""Old import paths of public names."""

import importlib
import importlib.util

import pytest

from graphrerank import _moved

MOVED_FROM_SERVING = [
    ("graphrerank.serving.callers", "PermissionSettings", "graphrerank.serving.auth"),
    ("graphrerank.serving.batches", "Batcher", "graphrerank.serving.batching"),
    ("graphrerank.serving.rerank_request", "RerankRequest", "graphrerank.serving.schemas.rerank"),
    ("graphrerank.serving.search_engine", "SearchRequest", "graphrerank.serving.schemas.search"),
    ("graphrerank.serving.search_engine", "InspectEngine", "graphrerank.serving.engines.inspection"),
    ("graphrerank.serving.feedback", "Recorder", "graphrerank.serving.recorder"),
]
MOVED_FROM_EVALUATION = [
    ("graphrerank.api", "evaluate", "graphrerank.evaluation.evaluate"),
    ("graphrerank.evaluation.ranking", "rerank", "graphrerank.evaluation.reranking"),
    ("graphrerank.evaluation.ranking", "run_pipelines", "graphrerank.evaluation.runners.pipeline"),
    ("graphrerank.evaluation.ranking", "tune_restart_probs", "graphrerank.training.tuning"),
    ("graphrerank.evaluation.cost", "peak_memory_mib", "graphrerank.evaluation.memory"),
    ("graphrerank.evaluation.sequential", "preference_evidence", "graphrerank.evaluation.sequential_test"),
    ("graphrerank.evaluation.exposure", "crossing_edges", "graphrerank.evaluation.permission_leakage"),
    ("graphrerank.evaluation.analysis", "break_down", "graphrerank.evaluation.comparisons"),
]
MOVED_FROM_READERS = [
    ("graphrerank.data.enrichment.knn", "nearest_neighbor_edges", "graphrerank.data.enrichment.neighbours"),
    ("graphrerank.data.enrichment.random_edges", "random_edges", "graphrerank.data.enrichment.neighbours"),
    ("graphrerank.data.enrichment.shared_entities", "entity_names", "graphrerank.data.folder"),
    ("graphrerank.data.readers.attack", "load_attack", "graphrerank.data.loaders.attack"),
    ("graphrerank.data.readers.folder", "read_corpus", "graphrerank.data.folder"),
    ("graphrerank.data.readers.merged", "load_merged", "graphrerank.data.loaders.merged"),
    ("graphrerank.data.readers.named", "load_named", "graphrerank.data.loaders.named"),
]
MOVED_FROM_MODULES_THAT_STAY = [
    ("graphrerank.data.readers.documents", "read_edges", "graphrerank.data.readers.edges"),
    ("graphrerank.corpus.metadata", "check_record", "graphrerank.corpus.metadata_fields"),
    ("graphrerank.corpus.metadata", "resembles_principals", "graphrerank.corpus.permissions"),
    ("graphrerank.corpus.metadata", "OPERATORS", "graphrerank.corpus.filters"),
    ("graphrerank.corpus.passages", "Postings", "graphrerank.corpus.inverted_index"),
    ("graphrerank.corpus_store.preparation", "with_words", "graphrerank.corpus_store.word_columns"),
    ("graphrerank.evaluation.evaluate", "short_names", "graphrerank.evaluation.plan"),
    ("graphrerank.evaluation.evaluate", "read_run_file", "graphrerank.evaluation.runners.run_file"),
    ("graphrerank.evaluation.dataset_result", "break_down", "graphrerank.evaluation.comparisons"),
    ("graphrerank.serving.limits", "QueryRequest", "graphrerank.serving.schemas.requests"),
    ("graphrerank.serving.deployment", "DeployedEngine", "graphrerank.serving.deployment.deployed_engine"),
]


MOVED_FROM_GRAPHS = [
    ("graphrerank.graphs.metadata", "check_filter", "graphrerank.corpus.filters"),
    ("graphrerank.graphs.metadata", "Metadata", "graphrerank.corpus.metadata"),
    ("graphrerank.graphs.passages", "Postings", "graphrerank.corpus.inverted_index"),
    ("graphrerank.graphs.passages", "NodeVectors", "graphrerank.corpus.passages"),
    ("graphrerank.graphs.pair_encoder", "PairEncoder", "graphrerank.core.encoder"),
    ("graphrerank.graphs.routes", "choose_routes", "graphrerank.pipelines.router"),
    ("graphrerank.graphs.word_index", "WordIndex", "graphrerank.corpus.inverted_index"),
]


@pytest.mark.parametrize(
    ("old", "name", "new"),
    [
        *MOVED_FROM_EVALUATION,
        *MOVED_FROM_GRAPHS,
        *MOVED_FROM_READERS,
        *MOVED_FROM_SERVING,
        *MOVED_FROM_MODULES_THAT_STAY,
    ],
)
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_path_gives_the_same_object(old: str, name: str, new: str) -> None:
    assert getattr(importlib.import_module(old), name) is getattr(importlib.import_module(new), name)


@pytest.mark.parametrize(("old", "name", "new"), MOVED_FROM_MODULES_THAT_STAY)
def test_a_name_that_left_a_module_warns(old: str, name: str, new: str) -> None:
    module = importlib.import_module(old)
    with pytest.warns(
        DeprecationWarning, match=f"{old}.{name} has moved to {new}. The old path will be removed in 0.5.0"
    ):
        getattr(module, name)
    with pytest.raises(AttributeError, match=f"module '{old}' has no attribute 'nothing'"):
        _ = module.nothing


@pytest.mark.parametrize(("old", "name"), sorted(_moved.RENAMED))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_an_old_name_gives_the_renamed_object(old: str, name: str) -> None:
    targets = [importlib.import_module(new) for new in _moved.new_homes(old)]
    renamed = [getattr(module, _moved.RENAMED[old, name], None) for module in targets]
    assert getattr(importlib.import_module(old), name) in [entry for entry in renamed if entry is not None]


@pytest.mark.parametrize("new", sorted({new for targets in _moved.MOVED.values() for new in targets}))
def test_every_new_path_exists(new: str) -> None:
    assert importlib.util.find_spec(new) is not None


@pytest.mark.parametrize("module", sorted({module for module, _ in _moved.RENAMED}))
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_a_module_with_renamed_names_refuses_others(module: str) -> None:
    with pytest.raises(AttributeError, match=f"module '{module}' has no attribute 'nothing'"):
        _ = importlib.import_module(module).nothing
