import inspect
import itertools
import random
import subprocess
import sys
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from graphrerank import GraphReranker, RerankedList, RerankInput
from graphrerank.core import Queries
from graphrerank.core.retriever import CROSS_ENCODER_FEATURES
from graphrerank.corpus import CorpusGraph, candidate_edges
from graphrerank.features.feature_columns import cross_encoder_columns
from graphrerank.models.checkpoint import PRETRAINED
from graphrerank.operators.bm25 import BM25
from graphrerank.operators.expand import HybridExpandRetriever
from graphrerank.operators.hybrid import HybridRetriever
from tests.support.device import made_up_device

QUERY = "who wrote the red book"
PASSAGES = ["the red book", "a green pear", "who is who", "the author wrote it", "the red book", "."]
SCORES = [0.5, 3.0, -1.0, 0.25, 0.0, 2.0]
EDGES = [(3, 0), (3, 4), (1, 2), (0, 3)]
QUERY_VECTOR = torch.randn(8, generator=torch.Generator().manual_seed(1))
VECTORS = torch.randn(6, 8, generator=torch.Generator().manual_seed(2))
COMPLETE = {"scores": SCORES, "edges": EDGES, "query_vector": QUERY_VECTOR, "vectors": VECTORS}


def in_order_given(ranking: RerankedList) -> Tensor:
    scores = torch.full((len(ranking),), float("nan"))
    scores[ranking.indices] = ranking.scores
    return scores


def random_input(seed: int, count: int, **more: object) -> RerankInput:
    generator = torch.Generator().manual_seed(seed)
    edges = torch.randint(count, (3 * count, 2), generator=generator)
    return RerankInput(
        QUERY,
        [PASSAGES[i % len(PASSAGES)] for i in range(count)],
        scores=torch.rand(count, generator=generator),
        edges=(edges := edges[edges[:, 0] != edges[:, 1]].tolist()),  # as a tensor, two would be unclear
        edge_types=[("reference", "knn", "likes")[place % 3] for place in range(len(edges))],
        query_vector=torch.randn(8, generator=generator),
        vectors=torch.randn(count, 8, generator=generator),
        **more,
    )


@pytest.mark.parametrize("features", ["scores", "paper", "full"])
@pytest.mark.parametrize("scores", [None, SCORES])
def test_against_the_model_by_hand(make_checkpoint, features, scores) -> None:
    checkpoint = make_checkpoint(features=features)
    reranker = GraphReranker(checkpoint)
    bm25 = BM25(PASSAGES).score_all([QUERY])[0]
    bm25 = bm25 / bm25.max()
    query, nodes = torch.nn.functional.normalize(QUERY_VECTOR[None]), torch.nn.functional.normalize(VECTORS)
    dense = nodes @ query[0]
    base = 0.4 * bm25 + 0.6 * dense if scores is None else torch.tensor(scores)
    x = torch.stack([base, bm25, dense, *torch.zeros(4, 6)], dim=1)
    edge_index = torch.tensor([[3, 2, 1, 0, 4, 3], [0, 1, 2, 3, 3, 4]])
    weight = torch.tensor([2.0, 0.5, 0.5, 2.0, 1.0, 1.0])
    with torch.no_grad():
        expected = checkpoint.model(x, query, nodes, edge_index, weight, torch.tensor([0, 6]))

    arguments = COMPLETE | {"scores": scores, "edge_weights": [1, 1, 0.5, 2]}
    ranking = reranker.rerank(QUERY, PASSAGES, **arguments)
    torch.testing.assert_close(in_order_given(ranking), expected, rtol=0, atol=1e-5)
    assert ranking.indices.tolist() == sorted(range(6), key=lambda i: (-expected[i].item(), i))
    assert ranking.ids == tuple(ranking.indices.tolist())


def test_against_the_retriever_and_its_induced_edges(reranker) -> None:
    """What training saw: the hybrid retriever's scores, and the corpus graph's edges among the candidates."""
    unit = torch.nn.functional.normalize(VECTORS)
    graph = CorpusGraph.from_edges(list("abcdef"), PASSAGES, torch.tensor(EDGES)).with_embedding(unit)
    retriever = HybridRetriever(graph, top_k=6, bm25_weight=0.4, dense_weight=0.6)
    query = torch.nn.functional.normalize(QUERY_VECTOR[None])
    ranking = retriever.retrieve(Queries(["q"], [QUERY], query))
    x = torch.empty(6, 3)
    x[ranking.nodes[0]] = ranking.features[0]

    graphs = reranker.candidate_graphs(
        [RerankInput(QUERY, PASSAGES, edges=EDGES, query_vector=QUERY_VECTOR, vectors=VECTORS)]
    )
    torch.testing.assert_close(graphs.x[:, :3], x, rtol=0, atol=1e-6)
    assert not graphs.x[:, 3:].any()
    edge_index, weight, ptr, _ = candidate_edges(graph, torch.arange(6)[None])
    assert torch.equal(graphs.edge_index, edge_index)
    assert torch.equal(graphs.edge_attr, weight)
    assert torch.equal(graphs.ptr, ptr)


def test_a_batch_equals_one_by_one(any_reranker) -> None:
    inputs = [random_input(seed, count) for seed, count in enumerate([1, 7, 40, 2, 100])]
    together = any_reranker.rerank_batch(inputs)
    for given, ranking in zip(inputs, together, strict=True):
        (alone,) = any_reranker.rerank_batch([given])
        torch.testing.assert_close(in_order_given(ranking), in_order_given(alone), rtol=0, atol=1e-6)
        assert sorted(ranking.indices.tolist()) == list(range(given.num_passages))
    assert any_reranker.rerank_batch([]) == []


def test_walk_features_are_zero_unless_given(reranker) -> None:
    plain = reranker.rerank(QUERY, PASSAGES, scores=SCORES)
    walk = HybridExpandRetriever.feature_names[3:]
    zeros = reranker.rerank(QUERY, PASSAGES, scores=SCORES, features={name: np.zeros(6) for name in walk})
    assert torch.equal(plain.scores, zeros.scores)
    given = [RerankInput(QUERY, PASSAGES, scores=SCORES, features={"hops": [0, 1, 0, 0, 2, 1], "bm25_score": SCORES})]
    graphs = reranker.candidate_graphs(given)
    assert graphs.x[:, reranker.feature_names.index("hops")].tolist() == [0, 1, 0, 0, 2, 1]
    assert graphs.x[:, reranker.feature_names.index("bm25_score")].tolist() == SCORES
    assert not torch.allclose(reranker.rerank_batch(given)[0].scores, plain.scores)


def test_without_passages_or_without_scores(reranker) -> None:
    graphs = reranker.candidate_graphs([RerankInput(QUERY, scores=SCORES)])
    assert graphs.x[:, 0].tolist() == SCORES
    assert not graphs.x[:, 1:].any()
    graphs = reranker.candidate_graphs([RerankInput(QUERY, PASSAGES)])
    assert torch.equal(graphs.x[:, 0], graphs.x[:, 1])  # BM25 alone
    assert graphs.x[:, 1].max() == 1
    assert reranker.rerank(QUERY, PASSAGES[:1]).ids == (0,)


def test_scores_of_a_cross_encoder_against_the_columns_of_training(make_checkpoint) -> None:
    checkpoint = make_checkpoint(("base_score", *CROSS_ENCODER_FEATURES))
    reranker = GraphReranker(checkpoint)
    scores, read = torch.tensor([-9.0, 3.0, 0.0, 0.0, -3.0, 5.0]), torch.tensor([True, True, False, False, True, True])
    for columns, given in (
        (cross_encoder_columns(scores, read), [-9, 3, None, None, -3, 5]),
        (cross_encoder_columns(scores, read), torch.where(read, scores, torch.nan)),
        (cross_encoder_columns(scores, read), torch.where(read, scores, torch.nan).numpy()),
        (torch.zeros(6, 3), None),
        (torch.zeros(6, 3), [None] * 6),
        (cross_encoder_columns(scores, ~torch.zeros_like(read)), scores.tolist()),
    ):
        x = torch.cat([torch.tensor(SCORES).unsqueeze(1), columns], dim=1)
        edges = torch.zeros(2, 0, dtype=torch.int64), torch.zeros(0)
        with torch.no_grad():
            expected = checkpoint.model(x, torch.zeros(0, 0), torch.zeros(0, 0), *edges, torch.tensor([0, 6]))
        found = in_order_given(reranker.rerank(QUERY, PASSAGES, scores=SCORES, cross_encoder_scores=given))
        torch.testing.assert_close(found, expected, rtol=0, atol=1e-5)


def test_weights_of_the_base_score(make_checkpoint) -> None:
    given = RerankInput(QUERY, PASSAGES, query_vector=QUERY_VECTOR, vectors=VECTORS)
    for settings, bm25, dense in (({}, 0.4, 0.6), ({"choice": "run", "hybrid": False}, 0.3, 0.7)):
        x = GraphReranker(make_checkpoint(**settings)).candidate_graphs([given]).x
        torch.testing.assert_close(x[:, 0], bm25 * x[:, 1] + dense * x[:, 2])
    for weights, got in ((False, "None"), ("much", "'much'")):  # a hybrid retriever without weights has no default
        with pytest.raises(ValueError, match=rf"`retriever\.arguments\.bm25_weight` must be a number, got {got}"):
            GraphReranker(make_checkpoint(hybrid=weights))


def test_top_n_and_ties_by_place(make_checkpoint) -> None:
    checkpoint = make_checkpoint(features="paper")
    torch.nn.init.zeros_(checkpoint.model.lin_out.weight)  # every score is the bias
    reranker = GraphReranker(checkpoint)
    assert reranker.rerank(QUERY, PASSAGES, ids=list("abcdef"), top_n=4, **COMPLETE).ids == tuple("abcd")
    assert len(reranker.rerank(QUERY, PASSAGES, top_n=50, **COMPLETE)) == 6


def test_threads_answer_as_one_does(any_reranker) -> None:
    inputs = [random_input(seed, 5 + seed % 7) for seed in range(48)]
    expected = [any_reranker.rerank_batch([given])[0].scores for given in inputs]
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda given: any_reranker.rerank_batch([given])[0].scores, inputs))
    assert all(torch.equal(one, other) for one, other in zip(found, expected, strict=True))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"query": ""}, "`query` must be a non-blank string, got ''"),
        ({"passages": None, "scores": None}, "`passages` or `scores` is required"),
        ({"ids": [1, 2, 3, 4, 5, 1]}, "`ids` must be unique, got 1 2 times"),
        ({"ids": torch.tensor([1, 2, 3, 4, 5, 1])}, "`ids` must be unique, got 1 2 times"),
        ({"ids": [[1], 2, 3, 4, 5, 6]}, "`ids` must be strings, numbers or other hashable"),
        ({"passages": "text"}, "`passages` must be a sequence of strings, got the string 'text'"),
        ({"passages": {str(n): "a" for n in range(6)}}, "`passages` must be a sequence of strings, got dict"),
        ({"scores": [*SCORES[:5], "much"]}, "`scores` must contain numbers"),
        ({"scores": [*SCORES[:5], [1.0]]}, "`scores` must be an array of numbers"),
        ({"scores": [*SCORES[:5], 1e31]}, r"`scores` must be at most 1e\+30 in size, got 1e\+31 at index 5"),
        ({"passages": None, "scores": [None, float("nan")]}, "`scores` must contain a finite number, got none among 2"),
        ({"passages": ["a", 3, *"bcde"]}, "`passages` must contain strings, got int at index 1"),
        ({"scores": 1.0}, "`scores` must be a sequence or an array, got float"),
        ({"scores": SCORES[:5]}, r"`scores` must have one entry per passage \(6\), got 5"),
        ({"edges": [(0, 6)]}, r"`edges` must join passages with indices 0 to 5, got \[0, 6\] at index 0"),
        ({"edge_types": ["other"]}, "`edge_types` requires `edges`"),
        ({"edges": EDGES, "edge_types": ["other"]}, r"`edge_types` must have one name per edge \(4\), got 1"),
        ({"edges": EDGES, "edge_types": ["knn", 3, "a", "b"]}, "`edge_types` must contain names, got int at index 1"),
        ({"edges": EDGES, "edge_weights": [1, 1, 0, 1]}, r"`edge_weights` must be in .*, got 0.0 at index 2"),
        ({"entities": [["a"]] * 5 + ["abc"]}, "`entities` must contain a list .* got 'abc' at index 5"),
        ({"entities": [["a"]] * 5 + [[{"name": "a"}]]}, "`entities` must contain names, .* got dict at index 5"),
        ({"entities": [["a"]] * 5 + [{"name": "a"}]}, "`entities` must contain a list .* at index 5"),
        ({"entities": [["a"]] * 5 + [[1.5]]}, "`entities` must contain names, .* got float at index 5"),
        ({"entities": [["a"]] * 5 + [[True]]}, "`entities` must contain names, .* got bool at index 5"),
        ({"doc_ids": list("aabbcc")}, "`doc_ids` and `chunk_ids` must be passed together, got only `doc_ids`"),
        ({"doc_ids": list("aabbcc"), "chunk_ids": [0] * 6}, "`chunk_ids` must be unique .* got 0 twice in 'a'"),
        ({"vectors": VECTORS}, "`query_vector` and `vectors` must be passed together, got only `vectors`"),
        ({"query_vector": VECTORS[0], "vectors": VECTORS[:, :5]}, r"`vectors` must have shape \[6, 8\], got \[6, 5\]"),
        ({"features": {"hop": SCORES}}, r"`features` must be features of the model, .*'hops'.*, got 'hop'"),
        ({"features": {"base_score": SCORES}}, r"got 'base_score'\. Pass it as `scores`"),
        ({"cross_encoder_scores": SCORES}, "`cross_encoder_scores` require a model that was trained with them"),
        (
            {"scores": dict.fromkeys(range(6), 0.5)},
            "`scores` must be a sequence .* in the order of the passages, got dict",
        ),
        ({"passages": {*PASSAGES}}, "`passages` must be a sequence .* in the order of the passages, got set"),
        ({"ids": dict.fromkeys(range(6), 1)}, "`ids` must be a sequence or an array in the order .*, got dict"),
        ({"edges": {(0, 1): 0.5}}, "`edges` must be a list of edges .* or a networkx graph, got dict"),
        ({"edges": 5}, "`edges` must be a list of edges .* or a networkx graph, got int"),
        ({"edges": [(0, 1, np.ones(2))]}, "each of `edges` must have a weight .* at index 0"),
        ({"edges": EDGES, "edge_types": iter(["other"] * 4)}, "`edge_types` must be a sequence .*, got list_iterator"),
        ({"language": ["german"]}, r"`language` must be auto or the name of a language, got \['german'\]"),
        ({"top_n": 0}, "`top_n` must be a positive integer, got 0"),
    ],
)
def test_bad_arguments_are_refused_by_name(reranker, change, message) -> None:
    with pytest.raises(ValueError, match=message):
        reranker.rerank(**{"query": QUERY, "passages": PASSAGES, **change})


NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("bad", "repaired"),
    [
        ([0.4, None, 0.9, NAN, 0.1, 0.2], [0.4, 0.1, 0.9, 0.1, 0.1, 0.2]),
        ([0.4, INF, 0.9, -INF, 0.1, 0.2], [0.4, 0.9, 0.9, 0.1, 0.1, 0.2]),
        (torch.tensor([NAN, 3, 2, 1, INF, 0]), [0, 3, 2, 1, 3, 0]),
        (np.array([NAN, 3, 2, 1, None, 0], dtype=object), [0, 3, 2, 1, 0, 0]),
        (np.array(["nan", "3", "2", "1", "inf", "0"]), [0, 3, 2, 1, 3, 0]),
        (np.ma.masked_equal([9, 3, 2, 1, 9, 0], 9), [0, 3, 2, 1, 0, 0]),
    ],
    ids=["missing", "infinite", "tensor", "array of objects", "array of texts", "masked array"],
)
def test_bad_scores_become_the_lowest_or_highest(reranker, bad, repaired) -> None:
    with pytest.warns(UserWarning, match="not finite, which become the lowest or highest finite score: 2"):
        ranking = reranker.rerank(QUERY, PASSAGES, scores=bad)
    expected = reranker.rerank(QUERY, PASSAGES, scores=repaired)
    assert (ranking.ids, ranking.scores.tolist()) == (expected.ids, expected.scores.tolist())


def test_scores_of_which_none_is_finite_are_ignored(reranker) -> None:
    with pytest.warns(UserWarning, match="which are ignored because none is finite: 6"):
        ranking = reranker.rerank(QUERY, PASSAGES, scores=[None, NAN, INF] * 2)
    assert ranking.scores.tolist() == reranker.rerank(QUERY, PASSAGES).scores.tolist()


def test_missing_passages_and_names_are_left_out(reranker) -> None:
    bad = [["a", 7, None], None, ("7", NAN), {"a"}, iter(["b"]), ["b"]]
    with pytest.warns(UserWarning, match="blank passages, which rank last: 1; entities without a name, .*: 2"):
        ranking = reranker.rerank(QUERY, [*PASSAGES[:5], None], entities=bad)
    with pytest.warns(UserWarning, match="blank passages"):
        expected = reranker.rerank(QUERY, [*PASSAGES[:5], ""], entities=[["a", "7"], [], ["7"], ["a"], ["b"], ["b"]])
    assert (ranking.ids, ranking.scores.tolist()) == (expected.ids, expected.scores.tolist())
    assert ranking.ids[-1] == 5


def test_the_query_of_a_batch_is_named(reranker) -> None:
    inputs = [random_input(0, 3), RerankInput(QUERY, PASSAGES, edges=[(0, 9)])]
    with pytest.raises(ValueError, match=r"query 1: `edges` must join passages with indices 0 to 5"):
        reranker.rerank_batch(inputs)


@pytest.mark.parametrize("features", ["paper", "full"])
def test_models_that_read_vectors_ask_for_them(make_checkpoint, features) -> None:
    reranker = GraphReranker(make_checkpoint(features=features))
    assert reranker.inputs.reads_vectors
    with pytest.raises(ValueError, match=r"`query_vector` and `vectors` are required .* uses vectors of dimension 8"):
        reranker.rerank(QUERY, PASSAGES, scores=SCORES)
    with pytest.raises(ValueError, match=r"`query_vector` must have shape \[8\], got \[5\]"):
        reranker.rerank(QUERY, PASSAGES, query_vector=QUERY_VECTOR[:5], vectors=VECTORS[:, :5])


def test_scores_that_are_unknown_are_named(make_checkpoint) -> None:
    with pytest.raises(ValueError, match=r"somewhere.*got \['clicks'\]"):
        GraphReranker(make_checkpoint(("base_score", "clicks")))
    with pytest.raises(ValueError, match=r"must be 'base_score' followed by .*got \['bm25_score', 'base_score'\]"):
        GraphReranker(make_checkpoint(("bm25_score", "base_score")))


def test_what_ships_works_without_network_encoder_or_gpu(tmp_path: Path) -> None:
    names = sorted(folder.parent.name for folder in PRETRAINED.glob("*/manifest.json"))
    code = f"""
import socket, sys
def refuse(*arguments, **more):
    raise OSError("no network in this test")
socket.socket.connect = socket.create_connection = socket.getaddrinfo = refuse
from graphrerank import GraphReranker
for name in {names}:
    reranker = GraphReranker.from_pretrained(name)
    ranking = reranker.rerank({QUERY!r}, {PASSAGES!r}, scores={SCORES!r}, edges={EDGES!r}, entities=[["a"]] * 6)
    assert sorted(ranking.ids) == list(range(6)), ranking
heavy = "transformers sentence_transformers lightning torchmetrics hydra wandb fastapi torch_geometric sklearn pandas"
print(*[name for name in heavy.split() if name in sys.modules])
"""
    environment = {"PATH": "", "HOME": str(tmp_path), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, cwd=tmp_path)
    assert (done.returncode, done.stdout.split()) == (0, []), done.stderr
    assert list(tmp_path.iterdir()) == []  # nothing was written


def test_a_device_answers_as_the_cpu_does(make_checkpoint) -> None:
    inputs = [random_input(seed, 30) for seed in range(4)]
    expected = GraphReranker(make_checkpoint(features="full")).rerank_batch(inputs)
    with made_up_device() as device:
        found = GraphReranker(make_checkpoint(features="full"), device=device).rerank_batch(inputs)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(in_order_given(one), in_order_given(other), rtol=0, atol=1e-4)


def test_it_can_be_stopped_between_steps(reranker: GraphReranker) -> None:
    inputs = [RerankInput(QUERY, PASSAGES), RerankInput(QUERY, scores=[1.0, 2.0])]
    calls: list[None] = []
    ranked = reranker.rerank_batch(inputs, check=lambda: calls.append(None))
    assert [row.ids for row in ranked] == [row.ids for row in reranker.rerank_batch(inputs)]
    assert len(calls) > len(inputs)
    for place in range(len(calls)):
        left = iter(range(place))
        with pytest.raises(StopIteration):
            reranker.rerank_batch(inputs, check=lambda left=left: next(left))


def test_an_empty_list_stays_empty() -> None:
    reranker = GraphReranker.from_pretrained("base")
    assert list(reranker.rerank("q", [])) == []
    assert list(reranker.rerank("q", scores=[], edges=[])) == []
    both = reranker.rerank_batch([RerankInput("q", []), RerankInput("q", ["a text", "two"])])
    assert [len(ranked) for ranked in both] == [0, 2]
    alone = reranker.rerank("q", ["a text", "two"])
    assert list(both[1]) == list(alone)
    assert (both[0].probabilities is None) == (alone.probabilities is None)


def test_help_and_representations_say_what_there_is() -> None:
    reranker = GraphReranker.from_pretrained("base")
    assert "reads base_score, " in repr(reranker)
    assert "title_coverage, cross_encoder_score, " in repr(reranker)
    assert ", query_word_1 to " in repr(reranker)
    shown = repr(reranker.rerank("q", [f"text {i}" for i in range(9)], top_n=7))
    assert shown.startswith("RerankedList(7 passages")
    assert len(shown) < 200


def test_bad_items_are_read_and_counted_in_one_warning() -> None:
    reranker = GraphReranker.from_pretrained("base")
    texts, edges = ["the red \ud83d book", " \n", "who wrote the red book", ""], [(0, 2), (2, 0), (1, 1)]
    with pytest.warns(UserWarning, match="blank") as caught:
        ranking = reranker.rerank("the red \udfff book", texts, scores=[0, 9, 1, 8], edges=edges)
    assert [str(warning.message) for warning in caught] == [
        "blank passages, which rank last: 2; texts with half a character, which is replaced: 2; "
        "self-loops, which are left out: 1; repeated edges, which are read once: 1"
    ]
    assert caught[0].filename == __file__
    assert (set(ranking.ids[:2]), ranking.ids[2:]) == ({0, 2}, (1, 3))
    assert ranking.probabilities[2:].tolist() == [0, 0]
    assert ranking.scores[1] > ranking.scores[2] == ranking.scores[3]
    whole = ["the red \ufffd book", ".", texts[2], "."]
    inputs = [
        RerankInput("the red \ufffd book", whole, scores=[0, 9, 1, 8], edges=[(0, 2)]),
        RerankInput("q", ["", "a"]),
    ]
    with warnings.catch_warnings(record=True) as silent:
        (expected,), _ = (reranker.rerank_batch(part, warns=False) for part in (inputs[:1], inputs))
    assert not silent
    assert in_order_given(ranking)[[0, 2]].tolist() == in_order_given(expected)[[0, 2]].tolist()
    with pytest.warns(UserWarning, match="^blank passages, which rank last: 1$"):
        reranker.rerank_batch(inputs)


def test_texts_match_in_every_form_of_their_characters() -> None:
    reranker = GraphReranker.from_pretrained("base")
    wide = "".join(chr(ord(letter) + 0xFEE0) for letter in "ABC123")
    for plain, other in (
        ("Caf\u00e9 Z\u00fcrich", "Cafe\u0301 Zu\u0308rich"),
        ("ABC123", wide),
        ("final", "\ufb01nal"),
    ):
        found = [reranker.rerank(plain, ["x", f"{text} opens", "y"]) for text in (plain, other)]
        assert list(found[0]) == list(found[1])
        assert found[0].ids[0] == 1


def test_a_data_frame_as_passages_is_refused() -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"text": ["cake", "USB"], "title": ["a", "b"]})
    with pytest.raises(
        ValueError, match=r"`passages` must be a sequence of strings, got DataFrame. Pass .* one column"
    ):
        GraphReranker.from_pretrained("base").rerank("USB", frame)


def test_a_batch_of_other_objects_is_refused() -> None:
    with pytest.raises(ValueError, match="`inputs` must contain RerankInput objects, got tuple at index 0"):
        GraphReranker.from_pretrained("base").rerank_batch([("USB", ["cake"])])


def test_a_batch_is_a_list(reranker) -> None:
    one = RerankInput(QUERY, PASSAGES)
    with pytest.raises(ValueError, match="`inputs` must be a list of RerankInput objects, got RerankInput"):
        reranker.rerank_batch(one)
    from_generator = reranker.rerank_batch(each for each in (one, one))
    assert [ranking.ids for ranking in from_generator] == [reranker.rerank(QUERY, PASSAGES).ids] * 2


TIED_LISTS = {
    "equal texts": (["A pump leaks.", "A pump leaks.", "Bread is made of flour."], None, []),
    "constant scores": (
        ["The pump of hall one leaks.", "The pump of hall two leaks.", "Bread.", "The pump of hall three hums."],
        [1000.0] * 4,
        [(0, 3), (1, 3)],
    ),
    "scores tied in pairs": (
        ["The pump of hall one leaks.", "The seal of hall two leaks.", "The pump hums.", "Bread is made of flour."],
        [0.8, 0.8, 0.5, 0.5],
        [],
    ),
    "three scores tied": (
        ["The pump of hall one hums.", "The seal of hall two leaks.", "The pump is new.", "A pipe leaks water."],
        [0.8, 0.8, 0.8, 0.5],
        [(0, 1), (2, 3)],
    ),
}


@pytest.mark.parametrize("name", ["base", "attack"])
@pytest.mark.parametrize("case", TIED_LISTS)
def test_no_score_depends_on_the_order_of_the_request(name: str, case: str) -> None:
    passages, scores, edges = TIED_LISTS[case]
    shipped = GraphReranker.from_pretrained(name)

    def by_passage(order: Sequence[int]) -> dict[int, tuple[float, float]]:
        index_of = {passage: index for index, passage in enumerate(order)}
        ranking = shipped.rerank(
            "Which pump leaks?",
            [passages[index] for index in order],
            scores=None if scores is None else [scores[index] for index in order],
            edges=[(index_of[first], index_of[second]) for first, second in edges],
        )
        assert ranking.probabilities is not None
        pairs = zip(ranking.scores.tolist(), ranking.probabilities.tolist(), strict=True)
        return {order[index]: pair for index, pair in zip(ranking.indices.tolist(), pairs, strict=True)}

    expected = by_passage(range(len(passages)))
    for order in itertools.permutations(range(len(passages))):
        actual = by_passage(order)
        for index, pair in expected.items():
            assert actual[index] == pytest.approx(pair, abs=2e-6)


@pytest.mark.parametrize("num_passages", [2, 3, 4, 7, 20])
@pytest.mark.parametrize("linked", [False, True])
def test_passages_with_equal_inputs_get_equal_scores(num_passages: int, linked: bool) -> None:
    """To the last bit: otherwise they are ranked by their places."""
    rng, shipped = random.Random(num_passages), GraphReranker.from_pretrained("base")
    words = ["pump", "leaks", "bread", "water", "a film of Paris"]
    for _ in range(20):
        distinct = [" ".join(rng.sample(words, k)) for k in (1, 2, 3)]
        passages = [rng.choice(distinct) for _ in range(num_passages)]
        edges = [(i, j) for i, j in itertools.combinations(range(num_passages), 2) if passages[i] != passages[j]]
        rng.shuffle(edges)
        ranking = shipped.rerank("a pump leaks", passages, edges=edges if linked else [])
        of_passage: dict[str, set[float]] = {}
        for index, score in zip(ranking.ids, ranking.scores.tolist(), strict=True):
            of_passage.setdefault(passages[index], set()).add(score)
        assert {len(scores) for scores in of_passage.values()} == {1}


@pytest.mark.parametrize("num_passages", [6, 7, 50])
def test_passages_with_equal_texts_and_vectors_get_equal_scores(num_passages: int) -> None:
    """A matrix product of the vectors would round equal rows differently, so that they would have different ranks."""
    generator = torch.Generator().manual_seed(num_passages)
    vectors = torch.randn(num_passages, 384, generator=generator)
    passages = [f"passage {number}" for number in range(num_passages)]
    copies = [0, num_passages // 2, num_passages - 1]
    for copy in copies[1:]:
        vectors[copy], passages[copy] = vectors[0], passages[0]
    query_vector = torch.randn(384, generator=generator)
    ranking = GraphReranker.from_pretrained("base").rerank(
        "passage 0", passages, query_vector=query_vector, vectors=vectors
    )
    scores = dict(zip(ranking.ids, ranking.scores.tolist(), strict=True))
    assert [scores[copy] for copy in copies] == [scores[0]] * 3


def test_the_signature_of_rerank_can_be_read() -> None:
    """In a notebook, an array type was once a line of ``numpy.ndarray[tuple[typing.Any, ...], ...]``."""
    signature = str(inspect.signature(GraphReranker.rerank))
    assert "scores: torch.Tensor | numpy.ndarray | collections.abc.Sequence[float] | None" in signature
    assert "ndarray[" not in signature
