"""Limits of a service: the size, number, work and waiting time of requests."""

import math
from dataclasses import asdict, dataclass

from graphrerank._moved import moved_names
from graphrerank.serving.prices import DEFAULT_PRICES
from graphrerank.utils.checks import check_positive

__getattr__ = moved_names(__name__)


@dataclass(frozen=True)
class Limits:
    """Limits of a service, all positive; those of bodies and waiting requests hold for each process."""

    body_bytes: int = 8_388_608  # of a request's body
    json_nodes: int = 500_000  # opening brackets and colons of a body, in texts too: they bound the time to parse it
    documents: int = 1000  # or scores without documents
    edges: int = 100_000
    entities: int = 50_000  # names, over all documents
    fields: int = 16  # names in `rank_fields`
    query_chars: int = 20_000
    text_chars: int = 100_000  # of each document
    request_chars: int = 8_000_000  # of the query and all documents together
    encoded_chars: int = 250_000  # of the texts of a request that are encoded, of each the first 2,000
    explained_edges: int = 1000  # with `explain`, which removes each once
    work_seconds: float = 2.0  # estimated, without encoding
    request_seconds: float = 30.0  # from a request's arrival to its answer
    queue_seconds: float = 10.0  # estimated wait for an engine, beyond which requests are refused
    waiting: int = 1000  # unanswered requests
    held_bytes: int = 134_217_728  # of all bodies that are not answered yet

    def __post_init__(self) -> None:
        check_positive(**{f"limits.{name}": limit for name, limit in asdict(self).items()})

    def most_explained_edges(self, num_documents: int) -> int:
        """Return the number of edges that a request may leave out once each.

        Args:
            num_documents: Number of documents.

        Returns:
            The smaller of ``explained_edges`` and what ``work_seconds`` suffice for at the default prices.
        """
        # the positive root of quadratic * most**2 + linear * most = work_seconds
        linear = DEFAULT_PRICES["explained_edges"] + num_documents * DEFAULT_PRICES["explained_nodes"]
        quadratic = 2 * DEFAULT_PRICES["explained_graph_edges"]
        most = (math.sqrt(linear**2 + 4 * quadratic * self.work_seconds) - linear) / (2 * quadratic)
        return min(self.explained_edges, int(most))
