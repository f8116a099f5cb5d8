from collections.abc import Sequence
from pathlib import Path

import pytest
import torch
from torch import Tensor
from transformers import BertForMaskedLM

from graphrerank.files import load_tensors, save_tensors
from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.operators import splade
from graphrerank.operators.splade import TENSORS, SparseVectorCache, SpladeRetriever

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


def test_documents_are_encoded_once(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"model": str(model), "top_k": 4, "device": "cpu"}
    plain = SpladeRetriever(corpus(), **settings).retrieve(queries())
    kept = SpladeRetriever(corpus(), **settings, cache=tmp_path).retrieve(queries())
    assert torch.equal(kept.nodes, plain.nodes)
    torch.testing.assert_close(kept.scores, plain.scores)
    shelves = list(tmp_path.iterdir())
    SpladeRetriever(corpus(), **settings, cache=tmp_path, max_length=3).retrieve(queries())
    assert len(list(tmp_path.iterdir())) == len(shelves) + 1  # cut texts have other vectors
    again = SpladeRetriever(corpus(TEXTS[::-1]), **settings, cache=str(tmp_path))
    monkeypatch.setattr(again._encoder, "encode_document", None)
    assert torch.equal(again.retrieve(queries()).scores, kept.scores)
    nothing = SpladeRetriever(corpus([]), **settings, cache=tmp_path).retrieve(queries())
    assert nothing.nodes.unique().tolist() == [-1]


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
    assert SpladeRetriever(corpus(), model="some/hub-id").fingerprint == ""


def test_what_does_not_fit_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert SpladeRetriever.needs_vectors(model="x") is False
    with pytest.raises(ValueError, match="`max_length` must be a positive integer, got 0"):
        SpladeRetriever(corpus(), model="x", max_length=0)
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(ValueError, match="`model` must be a local folder or a reachable hub id of a sparse encoder"):
        SpladeRetriever(corpus(), model=str(tmp_path / "nothing")).retrieve(queries(["fox"]))


CACHE_TEXTS = ["alpha", "beta beta", "", "gamma gamma gamma", "delta", "alpha"]  # the empty text's vector is empty


class Letters:
    """Counts letters, keeps every text it was asked for, and stops for good after some."""

    def __init__(self, *, stop_after: int | None = None, width: int = 26) -> None:
        self.stop_after = stop_after
        self.width = width
        self.encoded: list[str] = []

    def __call__(self, texts: Sequence[str]) -> Tensor:
        if self.stop_after is not None and len(self.encoded) + len(texts) > self.stop_after:
            raise KeyboardInterrupt
        self.encoded += texts
        counts = torch.zeros(len(texts), self.width)
        for row, text in enumerate(texts):
            for letter in text.replace(" ", ""):
                counts[row, (ord(letter) - ord("a")) % self.width] += 1
        return counts.to_sparse()


def shards(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.safetensors"))


def test_against_the_encoder_itself(tmp_path: Path) -> None:
    for texts in (CACHE_TEXTS, CACHE_TEXTS[::-1], CACHE_TEXTS[2:3]):
        found = SparseVectorCache(tmp_path, Letters()).encode(texts)
        assert found.layout == torch.sparse_csr
        assert torch.equal(found.to_dense(), Letters()(texts).to_dense())


def test_nothing_is_encoded_twice_and_new_texts_alone(tmp_path: Path) -> None:
    encoder = Letters()
    SparseVectorCache(tmp_path, encoder).encode(CACHE_TEXTS[:3])
    SparseVectorCache(tmp_path, encoder).encode(CACHE_TEXTS)
    found = SparseVectorCache(tmp_path, encoder).encode(CACHE_TEXTS)
    assert sorted(encoder.encoded) == sorted(set(CACHE_TEXTS))
    assert len(shards(tmp_path)) == 2
    assert torch.equal(found.to_dense(), Letters()(CACHE_TEXTS).to_dense())


def test_interrupted_run_goes_on_from_its_shards(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splade, "SHARD_TEXTS", 2)
    texts = [f"text {'x' * i}" for i in range(9)]
    stopped, resumed = Letters(stop_after=5), Letters()
    with pytest.raises(KeyboardInterrupt):
        SparseVectorCache(tmp_path, stopped).encode(texts)
    assert len(shards(tmp_path)) == 2
    found = SparseVectorCache(tmp_path, resumed).encode(texts)
    assert (stopped.encoded, resumed.encoded) == (texts[:4], texts[4:])
    assert torch.equal(found.to_dense(), Letters()(texts).to_dense())


@pytest.mark.parametrize("damage", ["empty", "cut", "noise"])
def test_damaged_file_is_refused_by_name(tmp_path: Path, damage: str) -> None:
    SparseVectorCache(tmp_path, Letters()).encode(CACHE_TEXTS)
    (file,) = shards(tmp_path)
    content = file.read_bytes()
    file.write_bytes({"empty": b"", "cut": content[:-5], "noise": b"\xff" * 99}[damage])
    with pytest.raises(ValueError, match=rf"{file.name}: damaged cache .*; delete this file and run again"):
        SparseVectorCache(tmp_path, Letters()).encode(CACHE_TEXTS)


@pytest.mark.parametrize(
    "change",
    [
        {"weights": torch.full((14,), torch.nan)},
        {"indices": torch.full((14,), 26)},
        {"indptr": torch.tensor([0, 9, 3, 14, 14, 14])},
        {"indptr": torch.tensor([0, 14])},
    ],
)
def test_file_with_unusable_rows_is_refused_by_name(tmp_path: Path, change: dict[str, Tensor]) -> None:
    SparseVectorCache(tmp_path, Letters()).encode(CACHE_TEXTS)
    (file,) = shards(tmp_path)
    tensors = load_tensors(file, ("keys", *TENSORS))
    (name,) = change
    if name in ("weights", "indices"):
        change = {name: change[name][:1].expand(len(tensors[name])).to(tensors[name].dtype)}
    save_tensors(file, {**tensors, **change})
    with pytest.raises(
        ValueError, match=rf"{file.name} \(delete this file and run again\): needed 5 finite sparse rows"
    ):
        SparseVectorCache(tmp_path, Letters()).encode(CACHE_TEXTS)


def test_vectors_that_are_not_finite_are_not_kept(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="the sparse encoder's vectors: needed 1 finite sparse rows"):
        SparseVectorCache(tmp_path, lambda texts: Letters()(texts) * torch.inf).encode(CACHE_TEXTS[:1])
    assert shards(tmp_path) == []


def test_vectors_of_two_widths_are_refused(tmp_path: Path) -> None:
    SparseVectorCache(tmp_path, Letters()).encode(["a"])
    with pytest.raises(ValueError, match=r"needed sparse vectors of one width, the cache holds some of \[20, 26\]"):
        SparseVectorCache(tmp_path, Letters(width=20)).encode(["b"])
