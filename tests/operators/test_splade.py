from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

from graphrerank.graphs import CorpusGraph, Queries
from graphrerank.operators import SpladeRetriever, splade

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fox", "dog", "bird", "tree", "river", "stone"]
TEXTS = ["fox dog", "bird", "tree river stone fox", "", "dog dog bird", "fox dog"]
QUERIES = ["fox", "river bird", "zebra", "", "dog tree"]


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random SPLADE over eleven words, written as sentence-transformers writes them."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling

    bert, folder = tmp_path_factory.mktemp("bert"), tmp_path_factory.mktemp("splade")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, initializer_range=0.5,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(bert)
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=16,
    ).save_pretrained(bert)  # fmt: skip
    SparseEncoder(modules=[MLMTransformer(str(bert)), SpladePooling("max")], device="cpu").save(str(folder))
    return folder


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
