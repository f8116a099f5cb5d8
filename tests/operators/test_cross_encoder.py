from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from tokenizers.pre_tokenizers import Whitespace

from graphrerank.operators.cross_encoder import CrossEncoder
from tests.support.device import made_up_device, traffic
from tests.support.models import LETTERS, write_tokenizer

SIZES: dict[str, Any] = {
    "vocab_size": len(LETTERS),
    "hidden_size": 16,
    "num_hidden_layers": 2,
    "num_attention_heads": 2,
    "intermediate_size": 24,
    "max_position_embeddings": 40,
    "pad_token_id": 0,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "cls_token_id": 2,
    "sep_token_id": 3,
    "num_labels": 1,
}
MODERN_MEAN: dict[str, Any] = {"classifier_pooling": "mean", "classifier_bias": True, "norm_bias": True}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "bert": ("Bert", {}),
    "roberta": ("Roberta", {"type_vocab_size": 1}),
    "xlm-roberta": ("XLMRoberta", {"type_vocab_size": 1}),
    "modernbert-cls": ("ModernBert", {}),
    "modernbert-mean": ("ModernBert", MODERN_MEAN),
}
QUERIES = ["a b", "", "c", "d e f g", "a b"]
PASSAGES = ["h i j", "k", "l m n o p q r s t", "", " ".join("abcdefghijklmnopqrstuvwxyz")]


def build(kind: str, folder: Path, **settings: Any) -> Path:
    """Save a random model of a kind with a word tokenizer."""
    torch.manual_seed(0)
    family, defaults = KINDS[kind]
    config = getattr(transformers, f"{family}Config")(**SIZES | defaults | settings)
    model = getattr(transformers, f"{family}ForSequenceClassification")(config)
    for name, parameter in model.named_parameters():
        torch.nn.init.normal_(parameter, mean=float("norm" in name.lower() and "weight" in name), std=0.6)
    model.save_pretrained(folder)
    names = ["input_ids", "attention_mask", *(["token_type_ids"] if kind == "bert" else [])]
    write_tokenizer(folder, LETTERS, Whitespace(), model_input_names=names, model_max_length=36)
    return folder


def logits(folder: Path | str, queries: list[str], passages: list[str], *, max_length: int) -> torch.Tensor:
    """The model's own logits, one pair at a time."""
    model = transformers.AutoModelForSequenceClassification.from_pretrained(folder).float().eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(folder)
    with torch.no_grad():
        return torch.cat(
            [
                model(**tokenizer([q], [p], truncation=True, max_length=max_length, return_tensors="pt")).logits[:, 0]
                for q, p in zip(queries, passages, strict=True)
            ]
        )


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("max_length", [12, 36])
def test_against_the_models_own_logits(kind: str, max_length: int, tmp_path: Path) -> None:
    folder = build(kind, tmp_path)
    expected = logits(folder, QUERIES, PASSAGES, max_length=max_length)
    assert expected.std() > 0.05  # the pairs differ
    encoder = CrossEncoder(folder, max_length=max_length, batch_size=2, device="cpu")
    vectors = encoder.encode(QUERIES, PASSAGES)
    assert vectors.shape == (5, encoder.hidden_size) == (5, 16)
    assert vectors.dtype == torch.float32
    torch.testing.assert_close(encoder.head(vectors), expected, atol=1e-5, rtol=0)
    torch.testing.assert_close(encoder.head(vectors.reshape(1, 5, 16)), expected[None], atol=1e-5, rtol=0)
    assert encoder.head(encoder.encode([], [])).shape == (0,)


def test_on_a_device_vectors_come_back_once(tmp_path: Path) -> None:
    folder, passes = build("bert", tmp_path), list[None]()
    expected = CrossEncoder(folder, max_length=36, device="cpu").encode(QUERIES, PASSAGES)
    with made_up_device() as device:
        encoder = CrossEncoder(folder, max_length=36, batch_size=2, device=device)
        encoder._loaded.body.register_forward_hook(lambda *_: passes.append(None))
        before = traffic.now()
        vectors = encoder.encode(QUERIES * 4, PASSAGES * 4)
        to_host = (traffic - before).to_host
    torch.testing.assert_close(vectors, expected.repeat(4, 1))
    assert len(passes) == 10
    assert to_host == 1 + len(passes)  # in each pass transformers looks whether a mask is needed


def test_half_precision_is_close_and_given_out_as_float32(tmp_path: Path) -> None:
    folder = build("bert", tmp_path)
    exact, rounded = (CrossEncoder(folder, max_length=36, dtype=dtype) for dtype in ("float32", "bfloat16"))
    vectors = rounded.encode(QUERIES, PASSAGES)
    assert vectors.dtype == torch.float32
    assert not torch.equal(vectors, exact.encode(QUERIES, PASSAGES))
    torch.testing.assert_close(vectors, exact.encode(QUERIES, PASSAGES), atol=0.05, rtol=0)
    assert rounded.fingerprint != exact.fingerprint


def test_fingerprint_follows_weights_and_length(tmp_path: Path) -> None:
    folder = build("bert", tmp_path / "a")
    first = CrossEncoder(folder, max_length=36).fingerprint
    assert CrossEncoder(folder, max_length=36, batch_size=3).fingerprint == first
    assert CrossEncoder(folder, max_length=35).fingerprint != first
    other = build("bert", tmp_path / "b", hidden_dropout_prob=0.2)
    assert CrossEncoder(other, max_length=36).fingerprint != first
    hub = [CrossEncoder("a/b", revision=revision).fingerprint for revision in ("1", "2")]
    assert hub[0] != hub[1]


def test_models_and_arguments_that_do_not_fit_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="`batch_size` must be a positive integer, got 0"):
        CrossEncoder("x", batch_size=0)
    with pytest.raises(ValueError, match=r"`dtype` must be one of .*, got 'int8'"):
        CrossEncoder("x", dtype="int8")

    def refused(folder: Path | str, message: str, max_length: int = 36) -> None:
        with pytest.raises(ValueError, match=message):
            CrossEncoder(folder, max_length=max_length).encode(["a"], ["b"])

    refused("/no/such/model", r"must be a local folder or a reachable hub id .* got '/no/such/model'")
    refused(build("bert", tmp_path / "two", num_labels=2), "the classifier must have one logit, got 2")
    bert = build("bert", tmp_path / "bert")
    with pytest.raises(ValueError, match=r"`passages` must have one entry per query, 1, got 2"):
        CrossEncoder(bert, max_length=36).encode(["a"], ["b", "c"])
    refused(bert, "`max_length` must be at most 36, the limit of .*, got 37", 37)
    transformers.BertModel(transformers.BertConfig(**SIZES)).save_pretrained(bert)  # a body alone
    refused(bert, r"must have a trained classification head, but lacks \['classifier\.bias")
    electra = transformers.ElectraConfig(**SIZES, embedding_size=16)
    transformers.ElectraForSequenceClassification(electra).save_pretrained(bert)
    refused(bert, r"the class of the model must be one of \['Bert.*got ElectraForSequenceClassification")
    roberta = build("roberta", tmp_path / "roberta", max_position_embeddings=30)  # beginning after the padding token
    text = " ".join("abcdefghijklmnopqrstuvwxyz")
    assert CrossEncoder(roberta, max_length=29).encode([text], [text]).isfinite().all()
    refused(roberta, "at most 29, the limit of", 30)
