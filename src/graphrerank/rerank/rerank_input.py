"""One query and its candidates."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import cached_property
from operator import ne
from typing import Any

import numpy.typing as npt
from torch import Tensor

from graphrerank.corpus.edge_lists import REPEATED_EDGES, SELF_LOOPS
from graphrerank.features.candidate_texts import matched_language
from graphrerank.rerank.edge_forms import EdgeList, parse_edges, read_edge_index
from graphrerank.text.characters import whole_characters
from graphrerank.text.languages import AUTO, language_of
from graphrerank.utils.checks import UserError, check_counts, check_share

Numbers = Tensor | npt.NDArray[Any] | Sequence[float]  # [n]
Matrix = Tensor | npt.NDArray[Any] | Sequence[Sequence[float]]  # [n, d]
Pairs = Tensor | npt.NDArray[Any] | Sequence[Sequence[int]]  # [M, 2]
PER_PASSAGE = ("passages", "scores", "entities", "doc_ids", "chunk_ids", "ids", "vectors", "cross_encoder_scores")


@dataclass(frozen=True, eq=False)
class RerankInput:
    """One query and its ``n`` candidates. Arrays are torch, NumPy or plain sequences.

    Edges may be given in several ways at once; their union is taken, and parallel edges become one with the larger
    weight: all, or for a model that reads types those of one type. No edge at all is fine too: the model then goes by
    the scores. Bad items end nothing, and are counted (``bad_items``): a blank passage ranks last, halves of characters
    are replaced, self-loops and edges that come again are left out.

    Attributes:
        query: The query, not blank.
        passages: ``n`` texts; None to go without BM25, where ``scores`` are given.
        scores: ``[n]`` scores of your retriever, of any scale, higher is better. None for BM25 among the passages,
            mixed with the cosine where there are vectors.
        edges: ``M`` undirected edges ``(i, j)``, ``(i, j, weight)``, ``(i, j, type)``, ``(i, j, weight, type)`` or
            networkx's ``(i, j, {"weight": ..., "type": ...})``. Ends are passages, numbered from 0 in the order they
            are given, or ``ids``; integers are ids where all ids are integers and an edge has one of them. Or a
            networkx graph over ``ids``: its edges among the passages.
        edge_index: ``[2, M]`` numbered pairs, PyG's form, instead of ``edges``; a self-loop is no edge, a pair in both
            directions is one.
        edge_weights: ``[M]`` weights in [1e-9, 1e9]; 1 for each edge when None.
        edge_types: ``M`` names of :data:`~graphrerank.corpus.edge_types.EDGE_TYPES`, or that mean one of them, as
            ``citation`` does (:func:`~graphrerank.corpus.edge_types.edge_type_of`); all ``other`` when None.
        entities: ``n`` collections of entity names. Passages that share entities are joined, each edge weighted by the
            shared part of its source's entities; a name in more than 10 passages (and 0.1% of them) is too common.
        doc_ids: ``n`` names of the documents that the passages are chunks of. With ``chunk_ids``, neighbouring chunks
            are joined.
        chunk_ids: ``n`` integers, the chunks' numbers within their documents; None, here or in ``doc_ids``, for a
            passage that is no chunk.
        ids: ``n`` ids to return; indices 0 to ``n - 1`` when None.
        query_vector: ``[d]``; with ``vectors`` for models that read vectors, and else for the cosine.
        vectors: ``[n, d]`` passage vectors of the same encoder. Vectors are scaled to unit length here.
        cross_encoder_scores: ``[n]`` scores of a cross-encoder, of any scale, NaN or None for each passage that it has
            not read; for models of ``features=scores_match_typed_cross_encoder``, which rank without them too.
        features: ``[n]`` numbers by name, for scores of the training that cannot be computed here (``hops`` of an
            expansion), or instead of those that can; else 0.
        top_n: How many to return; all when None.
        min_probability: Leave out passages with a lower probability of relevance, by the model's calibration.
        min_perfect_recall: Return the fewest passages that hold everything relevant with at least this probability, by
            the model's ``list_confidence``; if no number does, all that ``top_n`` and ``min_probability`` leave.
        language: In which words are matched, a name of :mod:`~graphrerank.text.languages`; ``auto``: that of the
            passages, if their stop words are sure (:func:`~graphrerank.text.languages.detect_language`), else English.
    """

    query: str
    passages: Sequence[str] | None = None
    _: KW_ONLY
    scores: Numbers | None = None
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
    num_halved: int = field(default=0, init=False, repr=False)  # texts whose halves of characters were replaced

    def __post_init__(self) -> None:
        if not isinstance(self.query, str) or not self.query.strip():
            raise UserError(f"`query` must be a text that is not blank, got {self.query!r}")
        if self.passages is None and self.scores is None:
            raise UserError("`passages` or `scores` must be given, got neither")
        if isinstance(self.passages, str):
            raise UserError(f"`passages` must be a sequence of texts, got the text {self.passages!r}")
        for name in PER_PASSAGE:
            if (given := getattr(self, name)) is not None:
                try:
                    count = len(given)
                except TypeError as error:
                    raise UserError(f"`{name}` must be a sequence or an array, got {type(given).__name__}") from error
                if count != self.num_passages:
                    raise UserError(f"`{name}` must have one entry per passage ({self.num_passages}), got {count}")
        for place, passage in enumerate(() if self.passages is None else self.passages):
            if not isinstance(passage, str):
                raise UserError(f"`passages` must hold texts, got {type(passage).__name__} at place {place}")
        for place, names in enumerate(() if self.entities is None else self.entities):
            if isinstance(names, str) or not isinstance(names, Iterable):
                raise UserError(f"`entities` must hold a list of names per passage, got {names!r} at place {place}")
        self._replace_halves()
        for first, second in (("doc_ids", "chunk_ids"), ("query_vector", "vectors")):
            given = [name for name in (first, second) if getattr(self, name) is not None]
            if len(given) == 1:
                raise UserError(f"`{first}` and `{second}` belong together, got `{given[0]}` alone")
        for name in ("edge_weights", "edge_types"):
            if getattr(self, name) is not None and self.edges is None and self.edge_index is None:
                raise UserError(f"`{name}` needs `edges`, got none")
        if self.edges is not None and self.edge_index is not None:
            raise UserError("`edges` and `edge_index` are two forms of the same, got both")
        try:
            counts = Counter(getattr(self.ids, "tolist", lambda: self.ids)())
        except TypeError as error:
            raise UserError(f"`ids` must be texts, numbers or other hashable objects: {error}") from error
        for name, count in counts.most_common(1):
            if count > 1:
                raise UserError(f"`ids` must each be there once, got {name!r} {count} times")
        check_counts(top_n=self.top_n)
        if self.language != AUTO:
            language_of(self.language)
        check_share(min_probability=self.min_probability, min_perfect_recall=self.min_perfect_recall)

    def _replace_halves(self) -> None:
        """Replace halves of characters in the texts, which no encoder reads, and count the texts."""
        texts = [self.query, *(() if self.passages is None else self.passages)]
        query, *passages = whole = list(map(whole_characters, texts))
        self.__dict__.update(query=query, num_halved=sum(map(ne, texts, whole)))  # frozen for others
        if self.passages is not None:
            self.__dict__["passages"] = passages

    @cached_property
    def blank(self) -> list[int]:
        """Places of passages without a text, which rank last."""
        return [place for place, text in enumerate(self.passages or ()) if not text.strip()]

    @cached_property
    def edge_list(self) -> EdgeList:
        """The edges of ``edges`` or ``edge_index``; a ValueError names one that is none."""
        given, count = () if self.edges is None else self.edges, self.num_passages
        weights, types = self.edge_weights, self.edge_types
        if self.edge_index is None:
            return parse_edges(given, count, ids=self.ids, weights=weights, types=types)
        return read_edge_index(self.edge_index, count, weights=weights, types=types)

    @property
    def bad_items(self) -> Counter[str]:
        """How many items were read otherwise than given, by what is done with them."""
        edges, blank = self.edge_list, "blank passages, which rank last"
        counts = {blank: len(self.blank), "texts with half a character, which is replaced": self.num_halved}
        return +Counter({**counts, SELF_LOOPS: edges.num_loops, REPEATED_EDGES: edges.num_repeated})  # without zeros

    @property
    def language_of_passages(self) -> str:
        """The name of the language in which words are matched."""
        return self.language if self.passages is None else matched_language(self.passages, self.language)

    @property
    def num_passages(self) -> int:
        """Number of candidates."""
        counted = self.scores if self.passages is None else self.passages
        assert counted is not None
        return len(counted)
