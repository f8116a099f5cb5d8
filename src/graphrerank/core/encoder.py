"""Abstract bases of encoders, of texts and of (query, passage) pairs."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from torch import Tensor


class Encoder(ABC):
    """Base of everything that turns texts into vectors.

    Override :meth:`encode` and :attr:`fingerprint`, and set ``name``. Override :attr:`for_queries` if queries are
    encoded differently from passages.

    Attributes:
        name: Short name for manifests and messages. A class attribute, or set by the constructor.
        counts: What the encoder counts by name, such as its requests. Empty by default.

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
        """A string that changes whenever the vectors would. It names files of cached vectors.

        Override it as a class attribute or a property.
        """

    @abstractmethod
    def encode(self, texts: Sequence[str]) -> Tensor:
        """Encode texts.

        Args:
            texts: ``n`` texts.

        Returns:
            ``[n, d]`` float32 unit vectors.
        """

    @property
    def for_queries(self) -> "Encoder":
        """The encoder of queries. By default it is the encoder itself."""
        return self

    def count_cache_hits(self, number: int) -> None:  # noqa: B027  # most encoders count nothing
        """Note how many texts a cache around the encoder had. By default nothing is counted.

        Args:
            number: Number of texts that were not encoded again.
        """


class PairEncoder(ABC):
    """Base of cross-encoders, in two parts: a body that reads (query, passage) pairs, and a head that scores them.

    Override :attr:`hidden_size`, :attr:`fingerprint`, :meth:`encode` and :meth:`head`.

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
        """Width ``h`` of a vector."""

    @property
    @abstractmethod
    def fingerprint(self) -> str:
        """A string that changes whenever vectors or scores would."""

    @abstractmethod
    def encode(self, query_texts: Sequence[str], passages: Sequence[str]) -> Tensor:
        """Read pairs.

        Args:
            query_texts: Text of the query of each of ``M`` pairs.
            passages: Text of the passage of each pair.

        Returns:
            ``[M, h]`` float32, one [CLS] vector before the classification head per pair.
        """

    @abstractmethod
    def head(self, vectors: Tensor) -> Tensor:
        """Score vectors.

        Args:
            vectors: ``[..., h]`` vectors of :meth:`encode`.

        Returns:
            Logits ``[...]``.
        """

    @property
    def name(self) -> str:
        """Short name for messages. By default it is the name of the class."""
        return type(self).__name__
