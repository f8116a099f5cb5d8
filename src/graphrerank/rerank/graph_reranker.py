"""Rerank a query's candidates with a trained model, in one call, which may be made from many threads at once.

A batch is one forward pass over the packed graphs of all its queries.
"""

import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphrerank.calibration.list_confidence import adaptive_k
from graphrerank.core import CandidateGraphs, PairEncoder
from graphrerank.core.adapters import as_pair_encoder
from graphrerank.core.retriever import BASE_SCORE
from graphrerank.features.candidate_graph_builder import CandidateGraphBuilder, CandidateList
from graphrerank.features.text_match import WORD_FEATURES
from graphrerank.models.checkpoint import Checkpoint, load_primary, save_weights
from graphrerank.models.manifest import RerankerManifest, write_manifest
from graphrerank.rerank.candidate_lists import KNOWN_FEATURES, candidate_list
from graphrerank.rerank.hub import locate_model, model_source
from graphrerank.rerank.rerank_input import Matrix, Numbers, Pairs, RerankInput
from graphrerank.rerank.reranked_list import RerankedList
from graphrerank.text.languages import AUTO
from graphrerank.utils.checks import UserError

HYBRID_WEIGHTS = {"bm25_weight": 0.3, "dense_weight": 0.7}  # GraphER's, for models of retrievers that have none
Check = Callable[[], None]


class GraphReranker:
    """A trained reranker, ready to use; make one with :meth:`from_pretrained`.

    Example:
        >>> reranker = GraphReranker.from_pretrained("attack")
        >>> passages = ["a cake recipe", "worm on removable drives", "infected USB sticks"]
        >>> ranking = reranker.rerank("spreads through USB sticks", passages, edges=[(1, 2)], ids=["c", "w", "u"])
        >>> ranking.ids
        ('u', 'w', 'c')
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str | torch.device | None = None,
        pair_encoder: PairEncoder | None = None,
    ) -> None:
        manifest = checkpoint.reranker
        if pair_encoder is not None:
            pair_encoder = as_pair_encoder(pair_encoder)
            checkpoint.check_encoder(pair_encoder.name, pair_encoder.fingerprint, of_pairs=True)
        names = list(manifest.retriever.feature_names)
        unknown = [name for place, name in enumerate(names) if name not in (KNOWN_FEATURES if place else (BASE_SCORE,))]
        if unknown or not names:
            raise UserError(
                f"{checkpoint.path}: was trained on {names}, needed {BASE_SCORE!r} first and then any of "
                f"{list(KNOWN_FEATURES)}, found {unknown}"
            )
        self.name = manifest.name
        self.feature_names = tuple(names)
        self.inputs = manifest.inputs
        self.device = torch.device(device or "cpu")
        self._dim = manifest.embedding_dim or None
        self._weights = _hybrid_weights(manifest)
        self._calibration = manifest.calibration
        self._confidence = manifest.list_confidence
        self.checkpoint = checkpoint
        self.source = str(checkpoint.path)
        self._model = checkpoint.model.to(self.device).eval()
        self._pair_encoder = pair_encoder

    def __repr__(self) -> str:
        words = [name for name in self.feature_names if name in WORD_FEATURES]
        others = [name for name in self.feature_names if name not in WORD_FEATURES]
        reads = ", ".join([*others, *([f"{words[0]} to {words[-1]}"] if words else [])])
        return f"GraphReranker({self.name!r} of {self.source}, reads {reads}; {self.device})"

    @classmethod
    def from_pretrained(
        cls,
        checkpoint: str | Path,
        *,
        revision: str | None = None,
        device: str | torch.device | None = None,
        pair_encoder: PairEncoder | None = None,
    ) -> "GraphReranker":
        """Load a checkpoint: weights and manifest, which hold no program.

        ``checkpoint`` is a shipped name, a run folder (its primary model), a ``.ckpt`` file, an artifact's folder, or
        ``owner/name`` of a model on the Hugging Face hub, where ``revision`` is a branch, tag or commit; the result's
        ``source`` names commit and hub. ``HF_ENDPOINT`` names a mirror, ``HF_HUB_OFFLINE=1`` reads the cache only.
        ``device`` is the CPU when None, which is quickest for a query at a time. ``pair_encoder`` is the cross-encoder
        of a head of GRanker, which reads passages with the query, and whose degrees are those among the candidates.
        """
        name = locate_model(str(checkpoint), revision=revision)
        loaded = load_primary(Path(name) if isinstance(checkpoint, Path) else name)
        reranker = cls(loaded, device=device, pair_encoder=pair_encoder)
        reranker._check_pairs()  # refused before it has to rank
        reranker.source = model_source(str(checkpoint), name)
        return reranker

    def save(self, folder: str | Path) -> Path:
        """Write weights and manifest to a folder, which :meth:`from_pretrained` and every command load; return it."""
        folder = Path(folder)
        save_weights(folder, self.checkpoint.model)
        write_manifest(folder, self.checkpoint.manifest.without("artifact").content)
        return folder

    def rerank(
        self,
        query: str,
        passages: Sequence[str] | None = None,
        *,
        scores: Numbers | None = None,
        edges: Pairs | Iterable[Any] | None = None,
        edge_index: Matrix | None = None,
        edge_weights: Numbers | None = None,
        edge_types: Sequence[str] | None = None,
        entities: Sequence[Iterable[str]] | None = None,
        doc_ids: Sequence[str] | None = None,
        chunk_ids: Sequence[int] | None = None,
        ids: Sequence[Any] | None = None,
        query_vector: Numbers | None = None,
        vectors: Matrix | None = None,
        cross_encoder_scores: Numbers | Sequence[float | None] | None = None,
        features: Mapping[str, Numbers] | None = None,
        top_n: int | None = None,
        min_probability: float | None = None,
        min_perfect_recall: float | None = None,
        language: str = AUTO,
    ) -> RerankedList:
        """Rank one query's candidates by relevance; an empty list stays empty.

        :class:`RerankInput` describes the arguments. A ValueError names one that is not as it says, and vectors that
        the model reads and that are not there, or of another width.
        """
        arguments: dict[str, Any] = {name: given for name, given in locals().items() if name != "self"}
        given = RerankInput(**arguments)
        (ranking,) = self.rerank_batch([given], warns=False)
        _warn_of([given])
        return ranking

    def rerank_batch(
        self, inputs: Sequence[RerankInput], *, check: Check = lambda: None, warns: bool = True
    ) -> list[RerankedList]:
        """Rank the candidates of several queries in one forward pass; the same scores as one by one.

        ``check`` is called between the steps of the work, which may take long; it may raise, to stop it. ``warns``:
        whether one warning counts the bad items of all inputs. Errors are those of :meth:`rerank`, and name the query's
        place too where there are several.
        """
        rows = self._scores(inputs, check)
        if warns:
            _warn_of(inputs)
        return list(map(self._reranked, inputs, rows, self._probabilities(inputs, rows, check)))

    def _scores(self, inputs: Sequence[RerankInput], check: Check) -> list[Tensor]:
        """Score the candidates of each query, ``[n]``; blank ones below all others."""
        filled = [given for given in inputs if given.num_passages]
        scores = self._score(filled, check) if filled else torch.zeros(0)
        rows = torch.split(scores, [given.num_passages for given in inputs]) if inputs else ()
        for given, row in zip(inputs, rows, strict=True):
            if given.blank:
                row[given.blank] = torch.nextafter(row.min(), torch.tensor(-torch.inf))
        return list(rows)

    def _probabilities(
        self, inputs: Sequence[RerankInput], rows: Sequence[Tensor], check: Check
    ) -> list[Tensor | None]:
        """Return the probabilities of each query's candidates, ``[n]``; None where nothing tells them."""
        if self._calibration is None:
            return [None] * len(inputs)
        found: list[Tensor | None] = [self._calibration.probabilities(row) for row in rows]
        alike = [place for place, row in enumerate(rows) if len(row) and row.max() == row.min()]
        compared = {place: _among_references(inputs[place]) for place in alike if inputs[place].passages is not None}
        found = [None if place in alike else row for place, row in enumerate(found)]
        for place, scores in zip(compared, self._scores(list(compared.values()), check), strict=True):
            found[place] = self._calibration.probabilities(scores[:-2].mean().expand(inputs[place].num_passages))
        for given, row in zip(inputs, found, strict=True):
            if row is not None and given.blank:
                row[given.blank] = 0.0
        return found

    def _reranked(self, inputs: RerankInput, scores: Tensor, probabilities: Tensor | None) -> RerankedList:
        order = torch.argsort(scores, descending=True, stable=True)
        candidates = None if probabilities is None else probabilities[order]
        kept = None
        if candidates is not None or self._calibration is None:  # else nothing tells where to end
            ends = {"min_probability": inputs.min_probability, "min_perfect_recall": inputs.min_perfect_recall}
            kept = adaptive_k(candidates, self._confidence, **ends)
        chosen = order[: min(len(scores) if end is None else end for end in (inputs.top_n, kept))]
        ids = range(len(scores)) if inputs.ids is None else list(inputs.ids)
        return RerankedList(
            tuple(ids[place] for place in chosen.tolist()),
            chosen,
            scores[chosen],
            None if candidates is None else candidates[: len(chosen)],
            candidates,
            self._confidence,
        )

    def _score(self, inputs: Sequence[RerankInput], check: Check) -> Tensor:
        """Score the candidates of all queries, ``[N]``."""
        self._check_pairs()
        graphs = self.candidate_graphs(inputs, check=check)
        check()
        with torch.inference_mode():
            scored = self._model(*graphs.to(self.device).model_inputs(self.inputs))
        scores = scored.cpu().clone()  # outside of inference mode: an ordinary tensor, which callers may train on
        if torch.isnan(scores).any():
            raise UserError(f"{self.checkpoint.path}: the model gave a score that is not a number")
        return scores

    def _check_pairs(self) -> None:
        """Refuse a model that reads more than lists hold, and that no cross-encoder was given for."""
        if self._pair_encoder is None:
            _ = self.checkpoint.graph_reranker

    def candidate_graphs(self, inputs: Sequence[RerankInput], *, check: Check = lambda: None) -> CandidateGraphs:
        """Build the model's inputs on the CPU.

        Args:
            inputs: At least one query with its candidates.
            check: Called between the steps of the work, which may take long. It may raise, to stop it.

        Returns:
            One graph per query, its nodes in the order of the passages.

        Raises:
            UserError: If an argument does not fit, or misses something that the model reads. The message names the
                query's place where there are several.
        """
        builder = CandidateGraphBuilder(self.inputs, self.feature_names, self._pair_encoder)
        return builder.from_lists(self._candidate_lists(inputs, check), check=check)

    def _candidate_lists(self, inputs: Sequence[RerankInput], check: Check) -> list[CandidateList]:
        lists = []
        for place, given in enumerate(inputs):
            check()
            try:
                candidates = candidate_list(given, self.feature_names, self._dim, self._weights)
                if candidates.vectors is None and self.inputs.reads_vectors:
                    raise UserError(
                        f"`query_vector` and `vectors` must be given: the model {self.name!r} reads vectors of width "
                        f"{self._dim}; a model of features=scores needs none"
                    )
            except ValueError as error:
                if len(inputs) == 1:
                    raise
                raise UserError(f"query {place}: {error}") from error
            lists.append(candidates)
        return lists


def _warn_of(inputs: Sequence[RerankInput]) -> None:
    """Warn the caller's caller of bad items, once for all inputs."""
    if bad := sum((given.bad_items for given in inputs), Counter[str]()):
        warnings.warn("; ".join(f"{what}: {count}" for what, count in bad.items()), stacklevel=3)


def _among_references(inputs: RerankInput) -> RerankInput:
    """Return candidates that all have one score, each text once, with the query and an empty text to compare with.

    A model sees differences within a list only, and there are none: its score is that of any such list, be the texts
    right or wrong. A text that says what the query says is a match, and an empty one is none.
    """
    place_of = {text: place for place, text in enumerate(inputs.passages or ())}
    vectors, query_vector = None, inputs.query_vector
    if inputs.vectors is not None:
        kept, query = torch.as_tensor(inputs.vectors)[list(place_of.values())], torch.as_tensor(query_vector)
        vectors = torch.cat([kept, torch.stack([query, torch.zeros_like(query)]).to(kept)])
    texts, language = [*place_of, inputs.query, ""], inputs.language_of_passages
    return RerankInput(inputs.query, texts, query_vector=query_vector, vectors=vectors, language=language)


def _hybrid_weights(manifest: RerankerManifest) -> dict[str, float]:
    """Weights of BM25 and cosine where no scores are given: those of the hybrid retriever that the model saw."""
    choice, arguments = manifest.retriever.choice, manifest.retriever.arguments
    if not str(choice).startswith("hybrid") and not arguments.keys() & HYBRID_WEIGHTS:
        return HYBRID_WEIGHTS
    for name in HYBRID_WEIGHTS:
        if not isinstance(given := arguments.get(name), int | float):
            raise UserError(f"{manifest.source}: `retriever.arguments.{name}` must be a number, got {given!r}")
    return {name: float(arguments[name]) for name in HYBRID_WEIGHTS}
