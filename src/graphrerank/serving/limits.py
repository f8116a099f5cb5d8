"""Limits of a service: size, number, work and waiting time of requests."""

import math
from dataclasses import asdict, dataclass

from graphrerank._moved import moved_names
from graphrerank.serving.prices import DEFAULT_PRICES
from graphrerank.utils.checks import check_positive

__getattr__ = moved_names(__name__)


@dataclass(frozen=True)
class Limits:
    """Limits of a service. All must be positive. docs/serving.md describes what happens beyond each limit.

    Attributes:
        body_bytes: Size of a request body in bytes.
        json_nodes: Number of opening brackets and colons in a body, including those in strings. Bounds the parsing
            time.
        documents: Number of documents of a request, or of scores without documents.
        edges: Number of edges of a request.
        entities: Number of entity names over all documents.
        fields: Number of names in `rank_fields`.
        query_chars: Number of characters of the query.
        text_chars: Number of characters of each document.
        request_chars: Number of characters of the query and all documents together.
        encoded_chars: Number of characters to encode, where at most 2,000 characters of each text count.
        explained_edges: Number of edges of a request with `explain`, which scores again without each edge.
        work_seconds: Estimated time to rank a request, without encoding, in seconds.
        request_seconds: Time from the arrival of a request to its response, in seconds.
        queue_seconds: Estimated waiting time for an engine, in seconds. Requests that would wait longer are rejected.
        waiting: Number of unanswered requests in each process.
        held_bytes: Total size of the bodies of unanswered requests in each process, in bytes.
    """

    body_bytes: int = 8_388_608
    json_nodes: int = 500_000
    documents: int = 1000
    edges: int = 100_000
    entities: int = 50_000
    fields: int = 16
    query_chars: int = 20_000
    text_chars: int = 100_000
    request_chars: int = 8_000_000
    encoded_chars: int = 250_000
    explained_edges: int = 1000
    work_seconds: float = 2.0
    request_seconds: float = 30.0
    queue_seconds: float = 10.0
    waiting: int = 1000
    held_bytes: int = 134_217_728

    def __post_init__(self) -> None:
        check_positive(**{f"limits.{name}": limit for name, limit in asdict(self).items()})

    def most_explained_edges(self, num_documents: int) -> int:
        """Return the largest number of edges of a request with ``explain``.

        Args:
            num_documents: Number of documents.

        Returns:
            The smaller of ``explained_edges`` and the number of edges that fit into ``work_seconds`` at the default
            prices.
        """
        # positive root of quadratic * most**2 + linear * most = work_seconds
        linear = DEFAULT_PRICES["explained_edges"] + num_documents * DEFAULT_PRICES["explained_nodes"]
        quadratic = 2 * DEFAULT_PRICES["explained_graph_edges"]
        most = (math.sqrt(linear**2 + 4 * quadratic * self.work_seconds) - linear) / (2 * quadratic)
        return min(self.explained_edges, int(most))
