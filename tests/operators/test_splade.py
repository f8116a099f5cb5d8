from pathlib import Path

import pytest
import torch
from transformers import BertForMaskedLM

from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.operators import splade
from graphrerank.operators.splade import SpladeRetriever

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fox", "dog", "bird", "tree", "river", "stone"]
TEXTS = ["fox dog", "bird", "tree river stone fox", "", "dog dog bird", "fox dog"]
QUERIES = ["fox", "river bird", "zebra", "", "dog tree"]


def corpus(texts: list[str] = TEXTS) -> CorpusGraph:
    return CorpusGraph.from_edges([f"n{i}" for i in range(len(texts))], texts, torch.zeros(0, 2, dtype=torch.int64))


def queries(texts: list[str] = QUERIES) -> Queries:
    return Queries([f"q{i}" for i in range(len(texts))], texts)


def naive_vector(model: Path, text: str) -> torch.Tensor:
    """SPLADE's Eq. (2) with max pooling: ``max over tokens of ln(1 + relu(logit))``."""
    from sentence_transformers import SparseEncoder

    transformer = SparseEncoder(str(model), device="cpu")[0]
    masked = next(module for module in transformer.modules() if isinstance(module, BertForMaskedLM)).eval()
    tokens = torch.tensor([[2, *(WORDS.index(word) if word in WORDS else 1 for word in text.split()), 3]])
    with torch.no_grad():
        return torch.log1p(masked(input_ids=tokens).logits[0].relu()).amax(0)


@pytest.fixture
def model(sparse_encoder: Path) -> Path:
    return sparse_encoder


@pytest.mark.parametrize("block", [1, 2, 1000])
def test_against_splades_equation(model: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splade, "BLOCK_TEXTS", block)
    monkeypatch.setattr(splade, "BLOCK_SCORES", 6 * block)
    found = SpladeRetriever(corpus(), model=str(model), top_k=4, device="cpu").retrieve(queries())
    documents = torch.stack([naive_vector(model, text) for text in TEXTS])
    for row, text in enumerate(QUERIES):
        scores = (documents @ naive_vector(model, text)).tolist()
        order = sorted(range(6), key=lambda node: (-round(scores[node], 4), node))[:4]
        assert found.nodes[row].tolist() == order
        torch.testing.assert_close(found.scores[row], torch.tensor([scores[node] for node in order]))
    assert found.features is not None
    assert torch.equal(found.features[..., 0], found.scores)
    assert found.scores.unique().numel() > 8


def test_a_corpus_is_encoded_once(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"model": str(model), "top_k": 4, "device": "cpu"}
    plain = SpladeRetriever(corpus(), **settings).retrieve(queries())
    kept = SpladeRetriever(corpus(), **settings, cache=tmp_path).retrieve(queries())
    assert torch.equal(kept.nodes, plain.nodes)
    assert torch.equal(kept.scores, plain.scores)
    again = SpladeRetriever(corpus(), **settings, cache=str(tmp_path))
    monkeypatch.setattr(again._encoder, "encode_document", None)
    assert torch.equal(again.retrieve(queries()).scores, kept.scores)
    SpladeRetriever(corpus(), **settings, cache=tmp_path, max_length=3).retrieve(queries())
    SpladeRetriever(corpus(TEXTS[::-1]), **settings, cache=tmp_path).retrieve(queries())
    files = list(tmp_path.iterdir())
    assert len(files) == 3  # cut texts and others have other vectors
    nothing = SpladeRetriever(corpus([]), **settings, cache=tmp_path).retrieve(queries())
    assert nothing.nodes.unique().tolist() == [-1]
    for file in files:
        file.write_bytes(file.read_bytes()[:-5])
    with pytest.raises(ValueError, match=r"damaged cache .*; delete this file and run again"):
        SpladeRetriever(corpus(), **settings, cache=tmp_path).retrieve(queries())


def test_more_candidates_than_nodes_and_no_queries(model: Path) -> None:
    retriever = SpladeRetriever(corpus(["fox", "dog"]), model=str(model), top_k=3, device="cpu")
    assert retriever.retrieve(queries(["fox"])).nodes[:, 2].tolist() == [-1]
    assert retriever.retrieve(queries([])).nodes.shape == (0, 3)
    nothing = SpladeRetriever(corpus([]), model=str(model), top_k=3, device="cpu")
    assert nothing.retrieve(queries(["fox"])).nodes.tolist() == [[-1, -1, -1]]


def test_texts_are_cut_at_the_length_asked_for(model: Path) -> None:
    graph = corpus(["fox dog bird", "fox tree stone"])
    cut = SpladeRetriever(graph, model=str(model), max_length=3, device="cpu").retrieve(queries(["fox"]))
    assert cut.scores[0, 0] == cut.scores[0, 1]
    whole = SpladeRetriever(graph, model=str(model), device="cpu").retrieve(queries(["fox"]))
    assert whole.scores[0, 0] != whole.scores[0, 1]


def test_the_fingerprint_follows_the_weights(model: Path, tmp_path: Path) -> None:
    for file in model.rglob("*"):
        if file.is_file():
            copy = tmp_path / file.relative_to(model)
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(file.read_bytes())
    before = SpladeRetriever(corpus(), model=str(model)).fingerprint
    assert SpladeRetriever(corpus(), model=str(tmp_path)).fingerprint == before
    weights = next(tmp_path.rglob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert SpladeRetriever(corpus(), model=str(tmp_path)).fingerprint != before
    assert SpladeRetriever(corpus(), model="some/hub-id").fingerprint == "some/hub-id@None"


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert SpladeRetriever.needs_vectors(model="x") is False
    with pytest.raises(ValueError, match="`max_length` must be a positive integer, got 0"):
        SpladeRetriever(corpus(), model="x", max_length=0)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="`model` must be a local folder or a reachable hub id of a SparseEncoder"):
        SpladeRetriever(corpus(), model=str(tmp_path / "nothing")).retrieve(queries(["fox"]))
