from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphrerank.corpus import EntityIncidence
from graphrerank.data.dataset import Dataset, Qrels
from tests.support.folders import write_dataset

NUM_QUERIES, NUM_NODES = 12, 15
NAMES = [["a", "b"]] * 2 + [["b"]] + [[]] * 57


def random_qrels(seed: int) -> tuple[Qrels, dict[tuple[int, int], float]]:
    generator = torch.Generator().manual_seed(seed)
    pairs = torch.randperm(NUM_QUERIES * NUM_NODES, generator=generator)[:40]  # in no order
    gain = torch.randint(1, 4, (40,), generator=generator).float()
    query, node = pairs // NUM_NODES, pairs % NUM_NODES
    judged = dict(zip(zip(query.tolist(), node.tolist(), strict=True), gain.tolist(), strict=True))
    return Qrels(query, node, gain), judged


@pytest.mark.parametrize("seed", range(4))
def test_relevance_against_naive_dict(seed: int) -> None:
    qrels, judged = random_qrels(seed)
    generator = torch.Generator().manual_seed(seed + 100)
    queries = torch.randperm(NUM_QUERIES, generator=generator)[:7]
    nodes = torch.randint(-1, NUM_NODES, (7, 9), generator=generator)
    expected = [
        [judged.get((query, node), 0.0) for node in row]
        for query, row in zip(queries.tolist(), nodes.tolist(), strict=True)
    ]
    assert qrels.relevance(queries, nodes, num_nodes=NUM_NODES).tolist() == expected
    assert sum(map(sum, expected)) > 0
    last = Qrels(torch.tensor([0]), torch.tensor([NUM_NODES - 1]), torch.ones(1))
    found = last.relevance(torch.tensor([1, 0]), torch.tensor([[-1], [-1]]), num_nodes=NUM_NODES)
    assert found.tolist() == [[0.0], [0.0]]  # -1 of query 1 is next to the last node of query 0


@pytest.mark.parametrize("seed", range(4))
def test_gains_against_naive_dict(seed: int) -> None:
    qrels, judged = random_qrels(seed)
    queries = torch.tensor([3, 0, 11, 3, 7])
    found = qrels.gains(queries)
    for row, query in zip(found.tolist(), queries.tolist(), strict=True):
        assert sorted(g for g in row if g > 0) == sorted(gain for (q, _), gain in judged.items() if q == query)
    assert found.shape[1] == max(sum(q == query for q, _ in judged) for query in queries.tolist())
    assert qrels.gains(queries[:0]).shape == (0, 0)
    assert qrels.gains(torch.tensor([NUM_QUERIES])).shape == (1, 0)


@pytest.mark.parametrize(
    ("splits", "remedy"),
    [
        (["all"], '{train: "all[:80%]", val: "all[80%:90%]", test: "all[90%:]"}\' (in Python: splits="auto")'),
        (["train", "dev"], '{train: "train[:90%]", val: "train[90%:]", test: dev}'),
        (["train", "test"], '{train: "train[:90%]", val: "train[90%:]", test: test}'),
        (["a", "b"], "got the splits ['a', 'b']"),
    ],
)
def test_a_split_that_is_missing_can_be_made(dataset: Dataset, splits: list[str], remedy: str) -> None:
    judged = dict(zip(splits, dataset.splits.values(), strict=False))
    with pytest.raises(ValueError) as error:  # noqa: PT011
        replace(dataset, splits=judged).check_splits(splits[0], "val")
    assert str(error.value).rstrip("'").endswith(remedy.rstrip("'"))


@pytest.mark.parametrize(
    ("split", "drafted"), [("train", "train on drafted ones"), ("test", "data.drafted=1500 split=val")]
)
def test_a_data_set_without_judged_questions_says_what_to_do(dataset: Dataset, split: str, drafted: str) -> None:
    with pytest.raises(ValueError, match="has no judged questions") as error:
        replace(dataset, splits={}).check_splits(split)
    assert "graphrerank judge FOLDER" in str(error.value)
    assert drafted in str(error.value)
    assert "in Python: drafted=1500" in str(error.value)


def test_only_drafted_questions_are_no_test(dataset: Dataset) -> None:
    with pytest.raises(ValueError, match="only drafted questions are judged") as error:
        replace(dataset, splits={"train": dataset.split("train")}, drafted=True).check_splits("test")
    assert "test_split=val" in str(error.value)


def test_fingerprint_changes_with_any_part(dataset: Dataset) -> None:
    graph, train = dataset.graph, dataset.split("train")
    changes: list[dict[str, object]] = [
        {"graph": graph.with_passages(texts=[*graph.texts[:-1], "other"])},
        {"graph": graph.with_passages(ids=[*graph.node_ids[:-1], "other"])},
        {"graph": replace(graph, weight=graph.weight * 2)},
        {"graph": graph.without_edges()},
        {"query_texts": [*dataset.query_texts[:-1], "other"]},
        {"query_ids": [*dataset.query_ids[:-1], "other"]},
        {"splits": dict(dataset.splits) | {"train": replace(train, gain=train.gain * 2)}},
        {"splits": dict(dataset.splits) | {"train": replace(train, node=train.node.flip(0))}},
        {"splits": {("dev" if name == "val" else name): qrels for name, qrels in dataset.splits.items()}},
        {"knn": 3},
        {"knn": 4},
        {"graph": graph.with_entities(EntityIncidence.from_names(NAMES))},
        {"graph": graph.with_entities(EntityIncidence.from_names(NAMES[::-1]))},
    ]
    fingerprints = [replace(dataset, **change).fingerprint for change in changes]
    assert len({dataset.fingerprint, *fingerprints}) == len(changes) + 1
    assert replace(dataset, graph=graph.with_embedding(torch.rand(60, 2))).fingerprint == dataset.fingerprint
    assert replace(dataset, name="other").fingerprint == dataset.fingerprint


def test_summary_counts_each_type_of_edge(dataset: Dataset) -> None:
    assert dataset.summary() == "ring: 60 nodes, 120 edges, queries: train 24, val 6, test 10"
    graph = dataset.graph.with_entities(EntityIncidence.from_names(NAMES))
    rich = replace(dataset, graph=graph, knn=3, edge_counts={"file": 100, "mentions": 30})
    assert rich.summary() == (
        "ring: 60 nodes, 120 edges (file 100, mentions 30), 2 shared entities, "
        "3 nearest neighbours of each passage to be added, "
        "queries: train 24, val 6, test 10"
    )
    done = rich.with_graph(graph.with_edges(torch.tensor([[0, 30]]), torch.ones(1)), nearest=1)
    assert "60 nodes, 121 edges (file 100, mentions 30, nearest 1), 2 shared entities, queries" in done.summary()
    assert done.fingerprint == rich.fingerprint


def judgements(query: list[int], node: list[int], gain: list[float] | None = None) -> Qrels:
    gains = torch.ones(len(query)) if gain is None else torch.tensor(gain)
    return Qrels(torch.tensor(query, dtype=torch.int64), torch.tensor(node, dtype=torch.int64), gains)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"knn": -1}, "`knn` must not be negative, got -1"),
        (
            {"query_ids": ["q"] * 40},
            r"`query_ids` must be unique and match .*, got 40 ids \(1 distinct\) and 40 texts",
        ),
        ({"query_texts": ["?"]}, "`query_ids` must be unique and match `query_texts`, got 40 ids .* and 1 texts"),
        ({"splits": {"train": judgements([], [])}}, "split 'train' of data set 'ring' has no judgements"),
        ({"splits": {"a": judgements([1], [2]), "b": judgements([1], [3])}}, "not share queries, got 'q1' in 'b'"),
        (
            {"splits": {"a": judgements([1, 40], [2, 2])}},
            "must contain query numbers 0 to 39, got query 40, node 2, gain",
        ),
        ({"splits": {"a": judgements([-1], [2])}}, "must contain query numbers 0 to 39, got query -1"),
        (
            {"splits": {"a": judgements([1], [60])}},
            "must contain node numbers 0 to 59, got query 1, node 60, .* in 'a'",
        ),
        ({"splits": {"a": judgements([1], [-1])}}, "must contain node numbers 0 to 59, got query 1, node -1"),
        ({"splits": {"a": judgements([1], [2], [0.0])}}, r"must contain positive gains, got .* gain 0\.0"),
        ({"splits": {"a": judgements([1], [2], [torch.nan])}}, "must contain positive gains"),
        (
            {"splits": {"a": judgements([1, 1], [2, 2])}},
            "must judge each pair of query and node at most once, got a duplicate in",
        ),
    ],
)
def test_data_set_that_does_not_fit_together_is_refused(
    changes: dict[str, object], message: str, dataset: Dataset
) -> None:
    with pytest.raises(ValueError, match=message):
        replace(dataset, **changes)


def test_a_notebook_shows_the_summary(tmp_path: Path) -> None:
    folder = write_dataset(
        tmp_path / "towns",
        corpus=[{"_id": "a", "text": "Metz"}],
        queries=[{"_id": "q", "text": "Metz?"}],
        test=[("q", "a", 1)],
    )
    assert repr(Dataset.from_folder(folder)) == "Dataset(towns: 1 nodes, 0 edges (file 0), queries: test 1)"
    (folder / "qrels" / "test.tsv").unlink()
    assert repr(Dataset.from_folder(folder)) == "Dataset(towns: 1 nodes, 0 edges (file 0), no judged queries)"
