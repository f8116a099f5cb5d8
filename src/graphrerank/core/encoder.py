"""Abstract base classes of text encoders and of encoders of (query, passage) pairs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from torch import Tensor

from graphrerank.utils.checks import UserError


class Encoder(ABC):
    """Base of text encoders.

    A subclass implements :meth:`encode` and :attr:`fingerprint` and sets ``name``. Override :attr:`for_queries` if
    queries are encoded differently from passages.

    Attributes:
        name: Short name for manifests and messages. A class attribute, or set by the constructor.
        counts: Counters of the encoder by name, such as its number of requests. Empty by default.

    Example:
        >>> import torch
        >>> class Lengths(Encoder):
        ...     name = fingerprint = "lengths"
        ...
        ...     def encode(self, texts):
        ...         return torch.nn.functional.normalize(torch.tensor([[1.0, len(text)] for text in texts]))
        >>> encoder = Lengths()
        >>> encoder.for_queries is encoder
        True
    """

    name: str
    counts: Mapping[str, int] = MappingProxyType({})

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """String that changes whenever the vectors change. It names the files of cached vectors.

        Override it with a class attribute or a property.
        """

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts.

        Args:
            texts: ``n`` texts.

        Returns:
            Unit vectors ``[n, d]``, float32.
        """

    @property
    def for_queries(self) -> "Encoder":
        """Encoder of queries. Defaults to the encoder itself."""
        return self

    def count_cache_hits(self, number: int) -> None:  # noqa: B027  # not abstract, because most encoders count nothing
        """Count texts whose vectors were already cached. By default, nothing is counted.

        Args:
            number: Number of texts that did not have to be encoded.
        """


class PairEncoder(ABC):
    """Base of cross-encoders, which consist of a body that encodes (query, passage) pairs and a head that scores them.

    A subclass implements :attr:`hidden_size`, :attr:`fingerprint`, :meth:`encode` and :meth:`head`.

    Example:
        >>> import torch
        >>> class SharedLetters(PairEncoder):
        ...     hidden_size, fingerprint = 1, "shared-letters"
        ...
        ...     def encode(self, query_texts, passages):
        ...         pairs = zip(query_texts, passages, strict=True)
        ...         return torch.tensor([[float(len(set(query) & set(passage)))] for query, passage in pairs])
        ...
        ...     def head(self, vectors):
        ...         return vectors.squeeze(-1)
        >>> encoder = SharedLetters()
        >>> encoder.head(encoder.encode(["worm", "worm"], ["swarm", "cake"])).tolist(), encoder.name
        ([3.0, 0.0], 'SharedLetters')
    """

    @property
    @abstractmethod
    def hidden_size(self) -> int:
        """Width ``h`` of a pair vector."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """String that changes whenever vectors or scores change."""

    @abstractmethod
    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Encode pairs of a query and a passage.

        Args:
            query_texts: Query of each of ``M`` pairs.
            passages: Passage of each pair.

        Returns:
            Pair vectors ``[M, h]``, float32: the [CLS] vectors before the classification head.
        """

    @abstractmethod
    def head(self, vectors: Tensor) -> Tensor:
        """Score pair vectors.

        Args:
            vectors: Pair vectors ``[..., h]``.

        Returns:
            Logits ``[...]``.
        """

    def encode_states(
        self, query_texts: Sequence[str], passages: Sequence[str], *, without_last: int
    ) -> tuple[Tensor, Tensor]:
        """Encode pairs by all layers except the last ones, for a model that replaces these. Most encoders cannot.

        Args:
            query_texts: Query of each of the ``M`` pairs.
            passages: Passage of each of the ``M`` pairs.
            without_last: Number of last layers that are omitted.

        Returns:
            States of all tokens without padding ``[T, h]`` float32, and the boundaries of the pairs ``[M + 1]`` int64.

        Raises:
            UserError: If the encoder has no layers that can be divided.
        """
        raise UserError(f"`pair_encoder` must be a CrossEncoder for a model of its last layers, got {self.name}")

    @property
    def name(self) -> str:
        """Short name for messages. Defaults to the name of the class."""
        return type(self).__name__
