import shutil
from pathlib import Path

import pytest
import torch
from transformers import BertForMaskedLM

from graphrerank.operators import splade
from graphrerank.operators.splade import SpladeRetriever
from tests.operators.corpora import corpus_of, queries_of
from tests.support.damage import flip_bit

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fox", "dog", "bird", "tree", "river", "stone"]
TEXTS = ["fox dog", "bird", "tree river stone fox", "", "dog dog bird", "fox dog"]
QUERIES = ["fox", "river bird", "zebra", "", "dog tree"]


def naive_vector(model: Path, text: str) -> torch.Tensor:
    """SPLADE's Eq. (2) with max pooling: ``max over tokens of ln(1 + relu(logit))``."""
    from sentence_transformers import SparseEncoder

    transformer = SparseEncoder(str(model), device="cpu")[0]
    masked = next(module for module in transformer.modules() if isinstance(module, BertForMaskedLM)).eval()
    tokens = torch.tensor([[2, *(WORDS.index(word) if word in WORDS else 1 for word in text.split()), 3]])
    with torch.no_grad():
        return torch.log1p(masked(input_ids=tokens).logits[0].relu()).amax(0)


@pytest.mark.parametrize("block", [1, 2, 1000])
def test_against_splades_equation(sparse_encoder: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(splade, "BLOCK_TEXTS", block)
    monkeypatch.setattr(splade, "BLOCK_SCORES", 6 * block)
    found = SpladeRetriever(corpus_of(TEXTS), model=str(sparse_encoder), top_k=4, device="cpu").retrieve(
        queries_of(QUERIES)
    )
    documents = torch.stack([naive_vector(sparse_encoder, text) for text in TEXTS])
    for row, text in enumerate(QUERIES):
        scores = (documents @ naive_vector(sparse_encoder, text)).tolist()
        order = sorted(range(6), key=lambda node: (-round(scores[node], 4), node))[:4]
        assert found.nodes[row].tolist() == order
        torch.testing.assert_close(found.scores[row], torch.tensor([scores[node] for node in order]))
    assert torch.equal(found.features[..., 0], found.scores)
    assert found.scores.unique().numel() > 8


def test_a_corpus_is_encoded_once(sparse_encoder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings = {"model": str(sparse_encoder), "top_k": 4, "device": "cpu"}
    plain = SpladeRetriever(corpus_of(TEXTS), **settings).retrieve(queries_of(QUERIES))
    kept = SpladeRetriever(corpus_of(TEXTS), **settings, cache=tmp_path).retrieve(queries_of(QUERIES))
    assert torch.equal(kept.nodes, plain.nodes)
    assert torch.equal(kept.scores, plain.scores)
    again = SpladeRetriever(corpus_of(TEXTS), **settings, cache=str(tmp_path))
    monkeypatch.setattr(again._encoder, "encode_document", None)
    assert torch.equal(again.retrieve(queries_of(QUERIES)).scores, kept.scores)
    SpladeRetriever(corpus_of(TEXTS), **settings, cache=tmp_path, max_length=3).retrieve(queries_of(QUERIES))
    SpladeRetriever(corpus_of(TEXTS[::-1]), **settings, cache=tmp_path).retrieve(queries_of(QUERIES))
    files = list(tmp_path.iterdir())
    assert len(files) == 3  # cut texts and others have other vectors
    nothing = SpladeRetriever(corpus_of([]), **settings, cache=tmp_path).retrieve(queries_of(QUERIES))
    assert nothing.nodes.unique().tolist() == [-1]
    for file in files:
        flip_bit(file, 0.99)
    with pytest.warns(UserWarning, match="damaged cache .*; the entry is computed again"):
        found = SpladeRetriever(corpus_of(TEXTS), **settings, cache=tmp_path).retrieve(queries_of(QUERIES))
    assert torch.equal(found.scores, kept.scores)


def test_texts_are_truncated(sparse_encoder: Path) -> None:
    settings = {"model": str(sparse_encoder), "top_k": 3, "device": "cpu"}
    graph = corpus_of(["fox dog bird", "fox tree stone"])
    whole = SpladeRetriever(graph, **settings).retrieve(queries_of(["fox"])).scores[0]
    truncated = SpladeRetriever(graph, **settings, max_length=3).retrieve(queries_of(["fox"])).scores[0]
    assert truncated[0] == truncated[1]
    assert whole[0] != whole[1]


def test_the_fingerprint_follows_the_weights(sparse_encoder: Path, tmp_path: Path) -> None:
    shutil.copytree(sparse_encoder, tmp_path, dirs_exist_ok=True)
    before = SpladeRetriever(corpus_of(TEXTS), model=str(sparse_encoder)).fingerprint
    assert SpladeRetriever(corpus_of(TEXTS), model=str(tmp_path)).fingerprint == before
    weights = next(tmp_path.rglob("*.safetensors"))
    weights.write_bytes(weights.read_bytes()[:-1] + b"x")
    assert SpladeRetriever(corpus_of(TEXTS), model=str(tmp_path)).fingerprint != before
    assert SpladeRetriever(corpus_of(TEXTS), model="some/hub-id").fingerprint == "some/hub-id@None"
