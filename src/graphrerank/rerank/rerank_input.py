"""Input of a reranker: one query and its candidates."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from numbers import Integral
from operator import ne
from typing import Any

import numpy as np
from torch import Tensor

from graphrerank.corpus.edge_lists import REPEATED_EDGES, SELF_LOOPS
from graphrerank.features.candidate_texts import matched_language
from graphrerank.rerank.arrays import is_missing, repair_scores
from graphrerank.rerank.edge_forms import EdgeList, parse_edges, read_edge_index
from graphrerank.text.characters import whole_characters
from graphrerank.text.languages import AUTO, language_of
from graphrerank.utils.checks import UserError, check_counts, check_share

Numbers = Tensor | np.ndarray | Sequence[float]  # [n]
Matrix = Tensor | np.ndarray | Sequence[Sequence[float]]  # [n, d]
Pairs = Tensor | np.ndarray | Sequence[Sequence[int]]  # [M, 2]
REPAIRED_SCORES = "scores that are not finite, which become the lowest or highest finite score"
IGNORED_SCORES = "scores that are not finite, which are ignored because none is finite"
NAMELESS = "entities without a name, which are left out"
PER_PASSAGE = ("passages", "scores", "entities", "doc_ids", "chunk_ids", "ids", "vectors", "cross_encoder_scores")


@dataclass(frozen=True, eq=False)
class RerankInput:
    """One query and its ``n`` candidates. Arrays are tensors, NumPy arrays or plain sequences.

    Edges may be given in several ways at once: ``edges`` or ``edge_index``, ``entities``, and ``doc_ids`` with
    ``chunk_ids``. The model sees their union, in which parallel edges are merged into the one with the largest weight
    (per edge type, if the model distinguishes types). Without edges, the model ranks by the scores alone.

    Single bad items are not errors. They are repaired where that is possible and left out otherwise, and the property
    ``bad_items`` counts them:

    - A passage that is blank or missing (None, NaN or the NA of pandas) is ranked last.
    - A score that is missing or ``-inf`` becomes the lowest finite score of the list, and ``inf`` the highest. If no
      score is finite, all scores are ignored, which is an error if there are no passages.
    - Missing entity names are ignored, and a missing entry of ``entities`` is an empty list.
    - Incomplete surrogate pairs in texts are replaced.
    - Self-loops and repeated edges are ignored.

    Attributes:
        query: Query text. Must not be blank.
        passages: Texts of the ``n`` candidates. If None, ``scores`` is required and BM25 is not computed.
        scores: ``[n]`` scores of your retriever on any scale, where higher is better. Negate distances. If None, the
            score is BM25 among the passages, mixed with the cosine similarity if there are vectors.
        edges: ``M`` undirected edges, each ``(i, j)``, ``(i, j, weight)``, ``(i, j, type)``, ``(i, j, weight, type)``
            or ``(i, j, {"weight": ..., "type": ...})`` as in networkx. The ends ``i`` and ``j`` are passage indices
            (from 0) or values of ``ids``. If all ``ids`` are integers, the ends are values of ``ids``; use
            ``edge_index`` for passage indices. A networkx graph is also accepted. Its nodes are values of ``ids``, or
            passage indices if ``ids`` is None, and its edges among the passages are used.
        edge_index: ``[2, M]`` passage indices of the edges, as in PyTorch Geometric. Replaces ``edges``. Self-loops
            are ignored, and an edge given in both directions counts once.
        edge_weights: ``[M]`` weights in [1e-9, 1e9]. If None, every weight is 1.
        edge_types: Types of the ``M`` edges: names of :data:`~graphrerank.corpus.edge_types.EDGE_TYPES` or synonyms
            such as ``citation`` (see :func:`~graphrerank.corpus.edge_types.edge_type_of`). If None, every edge has the
            type ``other``.
        entities: Entity names of each of the ``n`` passages: strings or integers. Passages that share entities are
            joined. The weight of an edge is the fraction of its source's entities that are shared. A name is ignored if
            it occurs in more than 10 passages and in more than 0.1% of them.
        doc_ids: Ids of the documents that the ``n`` passages are chunks of. With ``chunk_ids``, consecutive chunks of
            a document are joined.
        chunk_ids: Positions of the ``n`` chunks in their documents. A missing entry here or in ``doc_ids`` marks a
            passage that is not a chunk.
        ids: Ids of the ``n`` passages, which the result contains. If None, the ids are the indices 0 to ``n - 1``.
        query_vector: ``[d]`` vector of the query. Required with ``vectors`` by models that use vectors. For other
            models the two vectors add the cosine similarity to the scores.
        vectors: ``[n, d]`` vectors of the passages by the same encoder. Vectors are scaled to unit length.
        cross_encoder_scores: ``[n]`` scores of a cross-encoder on any scale, None or not finite for passages that
            were not scored. Only for models of ``features=scores_match_typed_cross_encoder``, which also work without
            these scores.
        features: ``[n]`` values of further features by name, for features of the model that cannot be computed from
            the other inputs (such as ``hops`` of an expansion, 0 by default) or to override computed ones.
        top_n: Maximum number of passages to return. If None, all are returned.
        min_probability: Minimum probability of relevance of a returned passage, in [0, 1]. Requires a calibrated
            model. If None, no passage is removed.
        min_perfect_recall: Probability, in [0, 1], with which the result must contain every relevant passage. The
            shortest such prefix of the ranking is returned, or the full ranking if no prefix reaches the probability;
            ``top_n`` and ``min_probability`` still apply. Requires a model with ``list_confidence``. If None, no
            passage is removed.
        language: Language in which words are matched, a name of :mod:`~graphrerank.text.languages`. ``auto`` detects
            the language of the passages from their stop words
            (:func:`~graphrerank.text.languages.detect_language`), and uses English if the detection is uncertain.
        num_halved: Number of texts in which an incomplete surrogate pair was replaced. Set by the constructor.
        num_repaired_scores: Number of scores that are not finite numbers and were replaced. Set by the constructor.
        num_ignored_scores: Number of scores that were ignored because none is finite. Set by the constructor.
        num_nameless: Number of ignored entity names. Set by the constructor.

    Raises:
        UserError: If an argument is invalid or does not match the number of passages.

    Example:
        >>> RerankInput("USB sticks", ["cake", " ", "infected USB sticks"], edges=[(0, 2), (1, 1)]).bad_items
        Counter({'blank passages, which rank last': 1, 'self-loops, which are left out': 1})
    """

    query: str
    passages: Sequence[str] | None = None
    _: KW_ONLY
    scores: Numbers | Sequence[float | None] | None = None
    edges: Pairs | Iterable[Any] | EdgeList | None = None
    edge_index: Matrix | None = None
    edge_weights: Numbers | None = None
    edge_types: Sequence[str] | None = None
    entities: Sequence[Iterable[str]] | None = None
    doc_ids: Sequence[str | None] | None = None
    chunk_ids: Sequence[int | None] | None = None
    ids: Sequence[Any] | None = None
    query_vector: Numbers | None = None
    vectors: Matrix | None = None
    cross_encoder_scores: Numbers | Sequence[float | None] | None = None
    features: Mapping[str, Numbers] | None = None
    top_n: int | None = None
    min_probability: float | None = None
    min_perfect_recall: float | None = None
    language: str = AUTO
    num_halved: int = field(default=0, init=False, repr=False)
    num_repaired_scores: int = field(default=0, init=False, repr=False)
    num_ignored_scores: int = field(default=0, init=False, repr=False)
    num_nameless: int = field(default=0, init=False, repr=False)

    def __post_init__(self) -> None:
        if not isinstance(self.query, str) or not self.query.strip():
            raise UserError(f"`query` must be a non-blank string, got {self.query!r}")
        if self.passages is None and self.scores is None:
            raise UserError("`passages` or `scores` is required, got neither")
        if isinstance(self.passages, str):
            raise UserError(f"`passages` must be a sequence of strings, got the string {self.passages!r}")
        if isinstance(self.passages, Mapping) or hasattr(self.passages, "columns"):
            raise UserError(
                f"`passages` must be a sequence of strings, got {type(self.passages).__name__}. Pass the texts alone, "
                "such as one column of a data frame or the values of a mapping"
            )
        for name in PER_PASSAGE:
            if (entries := getattr(self, name)) is not None:
                if isinstance(entries, Mapping | Set):
                    kind = type(entries).__name__
                    raise UserError(f"`{name}` must be a sequence or an array in the order of the passages, got {kind}")
                try:
                    count = len(entries)
                except TypeError as error:
                    raise UserError(f"`{name}` must be a sequence or an array, got {type(entries).__name__}") from error
                if count != self.num_passages:
                    raise UserError(f"`{name}` must have one entry per passage ({self.num_passages}), got {count}")
        for index, passage in enumerate(() if self.passages is None else self.passages):
            if not (isinstance(passage, str) or is_missing(passage)):
                raise UserError(f"`passages` must contain strings, got {type(passage).__name__} at index {index}")
        self._replace_halves()
        self._repair_scores()
        self._check_entities()
        for first, second in (("doc_ids", "chunk_ids"), ("query_vector", "vectors")):
            present = [name for name in (first, second) if getattr(self, name) is not None]
            if len(present) == 1:
                raise UserError(f"`{first}` and `{second}` must be passed together, got only `{present[0]}`")
        for name in ("edge_weights", "edge_types"):
            if getattr(self, name) is not None and self.edges is None and self.edge_index is None:
                raise UserError(f"`{name}` requires `edges`, got none")
        if self.edges is not None and self.edge_index is not None:
            raise UserError("`edges` and `edge_index` are alternatives, got both. Pass one of them")
        try:
            counts = Counter(getattr(self.ids, "tolist", lambda: self.ids)())
        except TypeError as error:
            raise UserError(f"`ids` must be strings, numbers or other hashable objects: {error}") from error
        for name, count in counts.most_common(1):
            if count > 1:
                raise UserError(f"`ids` must be unique, got {name!r} {count} times")
        check_counts(top_n=self.top_n)
        if not isinstance(self.language, str):
            raise UserError(f"`language` must be {AUTO} or the name of a language, got {self.language!r}")
        if self.language != AUTO:
            language_of(self.language)
        check_share(min_probability=self.min_probability, min_perfect_recall=self.min_perfect_recall)

    def _replace_halves(self) -> None:
        """Replace incomplete surrogate pairs, which no text encoder accepts, and count the affected texts."""
        passages = () if self.passages is None else self.passages  # an array or a series has no truth value
        texts = [self.query, *(text if isinstance(text, str) else "" for text in passages)]
        query, *whole_passages = whole = list(map(whole_characters, texts))
        self.__dict__.update(query=query, num_halved=sum(map(ne, texts, whole)))  # bypasses the frozen dataclass
        if self.passages is not None:
            self.__dict__["passages"] = whole_passages

    def _repair_scores(self) -> None:
        """Replace scores that are not finite numbers, or ignore all scores if none is finite."""
        if self.scores is None or not self.num_passages:
            return
        repaired, num_bad = repair_scores("scores", self.scores)
        if num_bad == self.num_passages:
            if self.passages is None:
                raise UserError(f"`scores` must contain a finite number, got none among {num_bad} scores")
            self.__dict__.update(scores=None, num_ignored_scores=num_bad)
        elif num_bad:
            self.__dict__.update(scores=repaired, num_repaired_scores=num_bad)

    def _check_entities(self) -> None:
        """Check the names of entities, convert integers to strings, and ignore missing names."""
        if self.entities is None:
            return
        entities, num_missing = [], 0
        for index, names in enumerate(self.entities):
            checked, missing = checked_entity_names(names, index)
            entities.append(checked)
            num_missing += missing
        self.__dict__.update(entities=entities, num_nameless=num_missing)

    @cached_property
    def blank(self) -> list[int]:
        """Indices of the blank passages, which are ranked last."""
        return [index for index, text in enumerate(self.passages or ()) if not (text and text.strip())]

    @cached_property
    def edge_list(self) -> EdgeList:
        """Edges parsed from ``edges`` or ``edge_index``. Raises a :class:`UserError` for an invalid edge."""
        edges, count = () if self.edges is None else self.edges, self.num_passages
        weights, types = self.edge_weights, self.edge_types
        if self.edge_index is None:
            return parse_edges(edges, count, ids=self.ids, weights=weights, types=types)
        return read_edge_index(self.edge_index, count, weights=weights, types=types)

    @property
    def bad_items(self) -> Counter[str]:
        """Number of defects, keyed by a description of the defect and of how it is handled."""
        edges, blank = self.edge_list, "blank passages, which rank last"
        counts = {blank: len(self.blank), "texts with half a character, which is replaced": self.num_halved}
        counts |= {REPAIRED_SCORES: self.num_repaired_scores, IGNORED_SCORES: self.num_ignored_scores}
        counts |= {NAMELESS: self.num_nameless}
        counts |= {SELF_LOOPS: edges.num_loops, REPEATED_EDGES: edges.num_repeated}
        return +Counter(counts)  # the unary plus removes zero counts

    @property
    def language_of_passages(self) -> str:
        """Name of the language in which words are matched."""
        return self.language if self.passages is None else matched_language(self.passages, self.language)

    @property
    def num_passages(self) -> int:
        """Number of candidates."""
        entries = self.scores if self.passages is None else self.passages
        assert entries is not None
        return len(entries)


def checked_entity_names(names: Iterable[Any] | None, index: int) -> tuple[list[str], int]:
    """Return the names of a passage's entities as strings, without missing ones.

    Args:
        names: Strings or integers. None, NaN and the NA of pandas are missing names. If the whole entry is missing,
            there are no names.
        index: Index of the passage, for error messages.

    Returns:
        The names, and the number of missing names.

    Raises:
        UserError: If the names are not a list, or if a name is another object.

    Example:
        >>> checked_entity_names(["Metz", 90, None], 0)
        (['Metz', '90'], 1)
    """
    if is_missing(names):
        return [], 0
    if isinstance(names, str | Mapping) or not isinstance(names, Iterable):
        raise UserError(f"`entities` must contain a list of names per passage, got {names!r} at index {index}")
    checked, count = [], 0
    for name in names:
        count += 1
        if isinstance(name, str):
            checked.append(name)
        elif isinstance(name, Integral) and not isinstance(name, bool) and abs(int(name)) < 2**63:
            checked.append(str(int(name)))
        elif not is_missing(name):
            raise UserError(
                f"`entities` must contain names, which are strings or integers, got {type(name).__name__} at index "
                f"{index}. Pass the name of each entity"
            )
    return checked, count - len(checked)
