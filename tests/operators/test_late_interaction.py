from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.operators import late_interaction
from graphrerank.operators.late_interaction import LateInteractionRetriever
from tests.operators.corpora import corpus_of, queries_of

TEXTS = ["the fox and the dog", "a river", "stones in the river and a fox", "", "dogs", "a river"]
QUERIES = ["fox of the river", "dog", "", "zebra"]


def states(model: Path, text: str) -> list[list[float]]:
    """Unit vectors of a text's tokens, by transformers alone."""
    from transformers import AutoModel, AutoTokenizer

    tokens = AutoTokenizer.from_pretrained(model)(text, return_tensors="pt")
    with torch.no_grad():
        hidden = AutoModel.from_pretrained(model)(**tokens).last_hidden_state[0]
    return torch.nn.functional.normalize(hidden, dim=1).tolist()


@pytest.mark.parametrize("block", [1, 1 << 18])
def test_against_colberts_equation(tiny_encoder: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(late_interaction, "BLOCK_TOKENS", block)
    settings: dict[str, Any] = {"model": str(tiny_encoder), "token_states": True, "device": "cpu"}
    found = LateInteractionRetriever(corpus_of(TEXTS), top_k=4, **settings).retrieve(queries_of(QUERIES))
    documents = [states(tiny_encoder, text) for text in TEXTS]
    for row, text in enumerate(QUERIES):
        asked = states(tiny_encoder, text)
        scores = [
            sum(max(sum(x * y for x, y in zip(q, d, strict=True)) for d in document) for q in asked)
            for document in documents
        ]
        kept = found.nodes[row].tolist()
        torch.testing.assert_close(found.scores[row], torch.tensor(sorted(scores, reverse=True)[:4]), atol=0.01, rtol=0)
        torch.testing.assert_close(found.scores[row], torch.tensor([scores[node] for node in kept]), atol=0.01, rtol=0)
        if 1 in kept and 5 in kept:
            assert kept.index(1) < kept.index(5)  # equal passages, by their numbers
    assert torch.equal(found.features[..., 0], found.scores)


def test_a_model_of_its_own_kind_is_loaded(tiny_encoder: Path, tmp_path: Path) -> None:
    from sentence_transformers import MultiVectorEncoder

    torch.manual_seed(0)
    written = MultiVectorEncoder(str(tiny_encoder), device="cpu")  # with a random projection
    written.save(str(tmp_path))
    found = LateInteractionRetriever(corpus_of(TEXTS), model=str(tmp_path), device="cpu").retrieve(queries_of(["fox"]))
    (asked,), documents = written.encode_query(["fox"]), written.encode_document(TEXTS)
    expected = [float((torch.as_tensor(d) @ torch.as_tensor(asked).T).amax(0).sum()) for d in documents]
    torch.testing.assert_close(found.scores[0, :6], torch.tensor(sorted(expected, reverse=True)), atol=0.01, rtol=0)
    assert found.nodes[0, 6:].eq(-1).all()


def test_only_what_dense_vectors_propose_is_compared(tiny_encoder: Path) -> None:
    settings: dict[str, Any] = {"model": str(tiny_encoder), "token_states": True, "device": "cpu", "top_k": 6}
    full = LateInteractionRetriever(corpus_of(TEXTS), **settings).retrieve(queries_of(["fox"]))
    asked = queries_of(["fox"], torch.eye(6)[:1])
    embedding = torch.tensor([0.9, 0.0, 0.5, 0.1, 0.8, 0.0]).unsqueeze(1) * torch.eye(6)[:1]
    some = LateInteractionRetriever(corpus_of(TEXTS, embedding), proposals=3, **settings).retrieve(asked)
    assert some.nodes[0].tolist() == [node for node in full.nodes[0].tolist() if node in (0, 2, 4)] + [-1] * 3
    assert LateInteractionRetriever.needs_vectors(proposals=3)
    assert not LateInteractionRetriever.needs_vectors(model="x")


def test_what_does_not_fit_is_refused() -> None:
    nowhere = LateInteractionRetriever(corpus_of(TEXTS), model="/no/such/folder", device="cpu")
    with pytest.raises(ValueError, match="`model` must be a local folder or a reachable hub id"):
        nowhere.retrieve(queries_of(QUERIES))
    for name in ("proposals", "max_length", "batch_size"):
        with pytest.raises(ValueError, match=f"`{name}` must be a positive integer, got 0"):
            LateInteractionRetriever(corpus_of(TEXTS), model="x", **{name: 0})
