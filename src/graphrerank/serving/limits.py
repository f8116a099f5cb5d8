"""Limits of requests, in size, number and time, and their estimated work, known before they are ranked."""

import math
from collections import Counter
from collections.abc import Collection, Iterable, Sized
from dataclasses import asdict, dataclass, replace
from itertools import chain
from typing import Annotated, ClassVar, Self

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PrivateAttr, ValidationInfo

from graphrerank.calibration.list_confidence import CALIBRATE
from graphrerank.corpus.entity_incidence import MIN_COMMON
from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.serving.callers import WRITE, Caller, User
from graphrerank.serving.engine import Refusal
from graphrerank.serving.prices import DEFAULT_PRICES, DEFAULTS, Prices, Work, work_of
from graphrerank.utils.checks import UserError, check_positive

SCORES, TEXTS, EXPLAIN = "scores", "texts", "explain"  # kinds of work
READ_CHARS = 2000  # of a text, of which encoders read a few hundred tokens

Probability = Annotated[float, Field(ge=0, le=1, allow_inf_nan=False, strict=True)]
Positive = Annotated[int, Field(ge=1, strict=True)]
Flag = Annotated[bool, Field(strict=True)]
NO_CONFIDENCE = f"`return_confidence` needs an artifact with a `list_confidence`, this one has none; {CALIBRATE}"


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


def limits_of(info: ValidationInfo) -> Limits:
    """Return the limits of a request's validation; the defaults if it has none."""
    return info.context if isinstance(info.context, Limits) else Limits()


def check_most(most: int, count: int, name: str) -> None:
    """Require at most a number of something; ``name`` is that of its field."""
    if count > most:
        raise UserError(f"`{name}` must be at most {most}, got {count}")


def num_encoded_chars(texts: Iterable[str]) -> int:
    """Count the characters of texts that an encoder reads, at most."""
    return sum(min(len(text), READ_CHARS) for text in texts)


def encoding_seconds(num_texts: int, num_chars: int, prices: Prices = DEFAULTS) -> float:
    """Estimate the time to encode texts.

    Args:
        num_texts: Number of texts.
        num_chars: Number of their characters as :func:`num_encoded_chars` counts them.
        prices: Prices of the encoder.

    Returns:
        Seconds of CPU.
    """
    return prices.of({"encoded_texts": num_texts, "encoded_characters": num_chars})


def rerank_work(candidates: RerankInput, *, explain: bool = False, cut: bool = False) -> Work:
    """Estimate the work to rank candidates.

    Args:
        candidates: What the reranker reads.
        explain: Whether each edge is left out once.
        cut: Whether passages are cut to a number of words before.

    Returns:
        The work; its kind is ``scores``, ``texts`` or ``explain``.
    """
    num_documents = candidates.num_passages
    num_edges = len(candidates.edges) if isinstance(candidates.edges, Sized) else 0  # a request's are arrays
    num_edges += 0 if candidates.doc_ids is None else num_documents - 1  # at most
    if candidates.entities is not None:
        sizes = Counter(chain.from_iterable(map(set, candidates.entities))).values()
        num_edges += sum(size * (size - 1) // 2 for size in sizes if size <= MIN_COMMON)  # others join none
    counts: dict[str, float] = {"requests": 1, "documents": num_documents, "edges": num_edges}
    encoded_chars, kind = 0, SCORES
    if candidates.vectors is not None:
        counts["vector_numbers"] = num_documents * (len(candidates.vectors[0]) if len(candidates.vectors) else 0)
    if candidates.passages is not None:
        query_chars, kind = len(candidates.query), TEXTS
        counts["characters"] = sum(map(len, candidates.passages)) * (2 if cut else 1)
        counts["query_characters_by_documents"] = query_chars * num_documents
        counts["query_characters_by_edges"] = query_chars * num_edges
        if candidates.vectors is None:
            encoded_chars = num_encoded_chars([candidates.query, *candidates.passages])
    if explain:
        counts |= explain_counts(num_documents, num_edges)
        kind = EXPLAIN
    return work_of(counts, num_documents=num_documents, encoded_chars=encoded_chars, kind=kind)


def explain_counts(num_documents: int, num_edges: int) -> dict[str, float]:
    """Count what has a price in leaving out each edge once.

    Args:
        num_documents: Number of documents.
        num_edges: Number of undirected edges.

    Returns:
        Number of units by the names of :data:`~graphrerank.serving.prices.DEFAULT_PRICES`.
    """
    return {
        "explanations": 1,
        "explained_edges": num_edges,
        "explained_nodes": num_edges * num_documents,
        "explained_graph_edges": 2 * num_edges**2,
    }


def growth_work(num_documents: int, passages: Collection[str] = (), num_edges: int = 0) -> Work:
    """Estimate the work to add passages to a corpus folder, or to remove some.

    Args:
        num_documents: Number of passages.
        passages: Texts that are added.
        num_edges: Number of edges that are added.

    Returns:
        The work.
    """
    num_chars = sum(map(len, passages))
    counts = {"growths": 1, "documents": num_documents, "characters": num_chars, "new_edges": num_edges}
    return work_of(counts, num_documents=num_documents, encoded_chars=num_encoded_chars(passages), kind="growth")


def _check_query(query: str, info: ValidationInfo) -> str:
    if not query.strip():
        raise UserError("`query` must be a text that is not blank")
    if len(query) > (most := limits_of(info).query_chars):
        raise UserError(f"`query` must have at most {most} characters, got {len(query)}")
    return query


Query = Annotated[str, Field(json_schema_extra={"minLength": 1, "pattern": r"\S"}), AfterValidator(_check_query)]


class EngineRequest(BaseModel):
    """A request that its engine answers as it is; a subclass has a method ``work``, some ``texts_to_encode``."""

    model_config = ConfigDict(extra="forbid")

    def to_job(self) -> Self:
        """Return the request: the engine needs all of it."""
        return self

    @property
    def bad_items(self) -> Counter[str]:
        """How many items are read otherwise than given, by what is done with them."""
        return Counter()


class CallerRequest(EngineRequest):
    """A request whose answer depends on who sends it.

    Attributes:
        principals: Those of the caller, where the service trusts what requests say of themselves.
    """

    writes: ClassVar[bool] = False  # whether it needs the principal to write
    principals: list[str] = Field(default=[], max_length=1000)
    _caller: Caller = PrivateAttr(default=Caller())

    def sent_by(self, caller: Caller) -> None:
        """Note who sends the request; a refusal if it names principals and is not trusted, or may not write."""
        if caller.trusts_body:
            principals = caller.principals.union(self.principals)
            caller = replace(
                caller,
                principals=principals,
                may_write=WRITE in principals,
                user=User.holding(principals),
                authenticated=caller.authenticated and not self.principals,
            )
        elif self.principals:
            raise Refusal(422, "principals: come from the token or the proxy's header; see `permissions.trust_body`")
        if self.writes and not caller.may_write:
            raise Refusal(403, f"adding and deleting needs the principal `{WRITE}`")
        self._caller = caller

    @property
    def caller(self) -> Caller:
        """Who sends the request."""
        return self._caller


class QueryRequest(EngineRequest):
    """A request with a query.

    Attributes:
        query: The query, not blank.
    """

    query: Query

    def work(self) -> Work:
        """Estimate the work to search for the query, or to parse it."""
        counts = {"searches": 1, "search_query_characters": len(self.query)}
        return work_of(counts, encoded_chars=num_encoded_chars([self.query]), kind="search")

    def texts_to_encode(self) -> tuple[list[str], list[str]]:
        """Return the query, and no passage."""
        return [self.query], []
