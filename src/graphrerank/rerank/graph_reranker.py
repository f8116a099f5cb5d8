"""Rerank candidates with a trained model.

A batch of queries is one forward pass over their packed candidate graphs. All methods are thread-safe.
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
from graphrerank.models.checkpoint import Checkpoint, load_primary
from graphrerank.models.manifest import RerankerManifest
from graphrerank.rerank.candidate_lists import KNOWN_FEATURES, candidate_list
from graphrerank.rerank.hub import locate_model, model_source, push_model, write_model
from graphrerank.rerank.model_card import model_card
from graphrerank.rerank.rerank_input import Matrix, Numbers, Pairs, RerankInput
from graphrerank.rerank.reranked_list import RerankedList
from graphrerank.text.languages import AUTO
from graphrerank.utils.checks import UserError

#: Weights of GraphER's base score, for models whose training retriever had no such weights.
HYBRID_WEIGHTS = {"bm25_weight": 0.3, "dense_weight": 0.7}
Check = Callable[[], None]


class GraphReranker:
    """Trained graph reranker. Load one with :meth:`from_pretrained`.

    Args:
        checkpoint: Loaded checkpoint.
        device: Device of the model. If None, the CPU, which is the fastest choice for single queries.
        pair_encoder: Cross-encoder of a GRanker model, which encodes each passage together with the query. Other models
            do not use it.

    Raises:
        UserError: If the checkpoint uses features that cannot be computed from a list of candidates, or was trained
            with another cross-encoder.

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
        unknown = [name for index, name in enumerate(names) if name not in (KNOWN_FEATURES if index else (BASE_SCORE,))]
        if unknown or not names:
            raise UserError(
                f"{checkpoint.path}: the features of the model must be {BASE_SCORE!r} followed by any of "
                f"{list(KNOWN_FEATURES)}, got {unknown or names}"
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
        features = ", ".join([*others, *([f"{words[0]} to {words[-1]}"] if words else [])])
        return f"GraphReranker({self.name!r} of {self.source}, reads {features}; {self.device})"

    @classmethod
    def from_pretrained(
        cls,
        checkpoint: str | Path,
        *,
        revision: str | None = None,
        device: str | torch.device | None = None,
        pair_encoder: PairEncoder | None = None,
    ) -> "GraphReranker":
        """Load a reranker from a checkpoint. Neither the weights nor the manifest can execute code.

        The environment variable ``HF_ENDPOINT`` selects a mirror of the hub. ``HF_HUB_OFFLINE=1`` restricts the search
        to the local cache.

        Args:
            checkpoint: Name of a shipped checkpoint, run folder (its primary model is loaded), ``.ckpt`` file, folder
                of an artifact, or id ``owner/name`` of a model on the Hugging Face hub.
            revision: Branch, tag or commit of a model on the hub. If None, the default branch is used.
            device: Device of the model. If None, the CPU, which is the fastest choice for single queries.
            pair_encoder: Cross-encoder of a GRanker model, which encodes each passage together with the query. Required
                by those models and unused by all others. Node degrees are counted among the candidates.

        Returns:
            Reranker whose ``source`` is the path of the checkpoint. For a model on the hub, ``source`` also contains
            the commit and the address of the hub.

        Raises:
            UserError: If there is no such checkpoint, if it cannot be used, or if ``pair_encoder`` is missing.

        Example:
            >>> GraphReranker.from_pretrained("attack").feature_names
            ('base_score', 'bm25_score', 'dense_score')
        """
        name = locate_model(str(checkpoint), revision=revision)
        loaded = load_primary(Path(name) if isinstance(checkpoint, Path) else name)
        reranker = cls(loaded, device=device, pair_encoder=pair_encoder)
        reranker._check_pairs()  # fail when loading, not at the first query
        reranker.source = model_source(str(checkpoint), name)
        return reranker

    def save(self, folder: str | Path, *, license_name: str | None = None) -> Path:
        """Write the weights, the manifest and a model card to a folder.

        :meth:`from_pretrained` and every command can load the folder. The model card, ``README.md``, describes the
        data, the measures, the command and the versions of the training, and how to load the model.

        Args:
            folder: Folder to write to.
            license_name: Licence of the weights for the model card, such as ``apache-2.0``. If None, the card says
                that no licence was stated.

        Returns:
            Path of the folder.
        """
        folder = Path(folder)
        write_model(
            folder, self.checkpoint, model_card(self.checkpoint.reranker, str(folder), license_name=license_name)
        )
        return folder

    def push_to_hub(
        self,
        repo_id: str,
        *,
        license_name: str,
        private: bool = True,
        token: str | None = None,
        runs: Sequence[str | Path] = (),
    ) -> str:
        """Upload the reranker with a model card to the Hugging Face hub, or to the mirror ``HF_ENDPOINT``.

        Args:
            repo_id: Repository ``owner/name``. It is created if it does not exist.
            license_name: Licence of the weights, as the hub abbreviates it, such as ``apache-2.0``.
            private: Whether a new repository is visible only to its owner.
            token: Access token of the hub. If None, the token of ``hf auth login`` or ``HF_TOKEN`` is used.
            runs: Run folders of ``graphrerank evaluate`` whose measures are added to the card.

        Returns:
            Address of the repository. ``from_pretrained(repo_id)`` loads the model from it.

        Raises:
            UserError: If ``repo_id`` has another form, if a file of an artifact was changed, if a run has no measures,
                or if the hub refuses the upload.
        """
        return push_model(self.checkpoint, repo_id, license_name=license_name, private=private, token=token, runs=runs)

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
        """Rank one query's ``n`` candidates by relevance.

        Arrays may be tensors, NumPy arrays or plain sequences. Edges may be given in several ways at once: ``edges`` or
        ``edge_index``, ``entities``, and ``doc_ids`` with ``chunk_ids``. The model sees their union, in which parallel
        edges are merged into the one with the largest weight (per edge type, if the model distinguishes types).
        Without edges, the model ranks by the scores alone.

        Single bad items only cause a warning that counts them. :class:`~graphrerank.rerank.rerank_input.RerankInput`
        lists how they are repaired or left out, such as blank passages and scores that are not finite.

        Args:
            query: Query text. Must not be blank.
            passages: Texts of the ``n`` candidates. If None, ``scores`` is required and BM25 is not computed.
            scores: ``[n]`` scores of your retriever on any scale, where higher is better. Negate distances. If None,
                the score is BM25 among the passages, mixed with the cosine similarity if there are vectors.
            edges: ``M`` undirected edges, each ``(i, j)``, ``(i, j, weight)``, ``(i, j, type)``,
                ``(i, j, weight, type)`` or ``(i, j, {"weight": ..., "type": ...})`` as in networkx. The ends ``i`` and
                ``j`` are passage indices (from 0) or values of ``ids``. If all ``ids`` are integers, the ends are
                values of ``ids``; use ``edge_index`` for passage indices. A networkx graph is also accepted. Its nodes
                are values of ``ids``, or passage indices if ``ids`` is None, and its edges among the passages are used.
            edge_index: ``[2, M]`` passage indices of the edges, as in PyTorch Geometric. Replaces ``edges``. Self-loops
                are ignored, and an edge given in both directions counts once.
            edge_weights: ``[M]`` weights in [1e-9, 1e9]. If None, every weight is 1.
            edge_types: Types of the ``M`` edges: names of :data:`~graphrerank.corpus.edge_types.EDGE_TYPES` or synonyms
                such as ``citation`` (see :func:`~graphrerank.corpus.edge_types.edge_type_of`). If None, every edge has
                the type ``other``.
            entities: Entity names of each of the ``n`` passages: strings or integers. Passages that share entities are
                joined. The weight of an edge is the fraction of its source's entities that are shared. A name is
                ignored if it occurs in more than 10 passages and in more than 0.1% of them.
            doc_ids: Ids of the documents that the ``n`` passages are chunks of. With ``chunk_ids``, consecutive chunks
                of a document are joined.
            chunk_ids: Positions of the ``n`` chunks in their documents. A missing entry here or in ``doc_ids`` marks a
                passage that is not a chunk.
            ids: Ids of the ``n`` passages, which the result contains. If None, the ids are the indices 0 to ``n - 1``.
            query_vector: ``[d]`` vector of the query. Required with ``vectors`` by models that use vectors. For other
                models the two vectors add the cosine similarity to the scores.
            vectors: ``[n, d]`` vectors of the passages by the same encoder. Vectors are scaled to unit length.
            cross_encoder_scores: ``[n]`` scores of a cross-encoder on any scale, None or not finite for passages that
                were not scored. Only for models of ``features=scores_match_typed_cross_encoder``, which also work
                without these scores.
            features: ``[n]`` values of further features by name, for features of the model that cannot be computed from
                the other arguments (such as ``hops`` of an expansion, 0 by default) or to override computed ones.
            top_n: Maximum number of passages to return. If None, all are returned.
            min_probability: Minimum probability of relevance of a returned passage, in [0, 1]. Requires a calibrated
                model. If None, no passage is removed.
            min_perfect_recall: Probability, in [0, 1], with which the result must contain every relevant passage. The
                shortest such prefix of the ranking is returned, or the full ranking if no prefix reaches the
                probability; ``top_n`` and ``min_probability`` still apply. Requires a model with ``list_confidence``.
                If None, no passage is removed.
            language: Language in which words are matched, a name of :mod:`~graphrerank.text.languages`. ``auto``
                detects the language of the passages from their stop words
                (:func:`~graphrerank.text.languages.detect_language`), and uses English if the detection is uncertain.

        Returns:
            Ranking, best first. It is empty if there are no candidates.

        Raises:
            UserError: If an argument is invalid, or if the model requires vectors that are missing or that have another
                dimension.

        Example:
            >>> reranker = GraphReranker.from_pretrained("attack")
            >>> passages = ["a cake recipe", "worm on removable drives", "infected USB sticks"]
            >>> ranking = reranker.rerank("spreads through USB sticks", passages, edges=[(1, 2)], top_n=2)
            >>> ranking.ids
            (2, 1)
        """
        arguments: dict[str, Any] = {name: value for name, value in locals().items() if name != "self"}
        rerank_input = RerankInput(**arguments)
        (ranking,) = self.rerank_batch([rerank_input], warns=False)
        _warn_about_bad_items([rerank_input])
        return ranking

    def rerank_batch(
        self, inputs: Sequence[RerankInput], *, check: Check = lambda: None, warns: bool = True
    ) -> list[RerankedList]:
        """Rank the candidates of several queries in one forward pass.

        The scores are the same as for the queries one by one.

        Args:
            inputs: Queries and their candidates.
            check: Function that is called repeatedly during the computation. It may raise an exception to cancel it.
            warns: Whether to issue one warning that counts the defects of all inputs, such as blank passages.

        Returns:
            One ranking per query, in the order of ``inputs``.

        Raises:
            UserError: As for :meth:`rerank`. For two or more inputs, the message contains the index of the query.

        Example:
            >>> reranker = GraphReranker.from_pretrained("attack")
            >>> queries = [RerankInput("USB sticks", ["cake", "infected USB sticks"]), RerankInput("cake", ["a cake"])]
            >>> [ranking.ids for ranking in reranker.rerank_batch(queries)]
            [(1, 0), (0,)]
        """
        if isinstance(inputs, RerankInput) or not isinstance(inputs, Iterable):
            raise UserError(f"`inputs` must be a list of RerankInput objects, got {type(inputs).__name__}")
        inputs = list(inputs)  # a generator can be read only once
        for index, rerank_input in enumerate(inputs):
            if not isinstance(rerank_input, RerankInput):
                name = type(rerank_input).__name__
                raise UserError(f"`inputs` must contain RerankInput objects, got {name} at index {index}")
        rows = self._scores(inputs, check)
        if warns:
            _warn_about_bad_items(inputs)
        return list(map(self._reranked, inputs, rows, self._probabilities(inputs, rows, check)))

    def _scores(self, inputs: Sequence[RerankInput], check: Check) -> list[Tensor]:
        """Return the scores ``[n]`` of each query's candidates. Blank passages score below all others."""
        non_empty = [rerank_input for rerank_input in inputs if rerank_input.num_passages]
        scores = self._score(non_empty, check) if non_empty else torch.zeros(0)
        rows = torch.split(scores, [rerank_input.num_passages for rerank_input in inputs]) if inputs else ()
        for rerank_input, row in zip(inputs, rows, strict=True):
            if rerank_input.blank:
                row[rerank_input.blank] = torch.nextafter(row.min(), torch.tensor(-torch.inf))
        return list(rows)

    def _probabilities(
        self, inputs: Sequence[RerankInput], rows: Sequence[Tensor], check: Check
    ) -> list[Tensor | None]:
        """Return the probabilities ``[n]`` of each query's candidates, or None where they are unknown."""
        if self._calibration is None:
            return [None] * len(inputs)
        all_equal = [index for index, row in enumerate(rows) if len(row) and row.max() == row.min()]
        with_references = {
            index: _among_references(inputs[index]) for index in all_equal if inputs[index].passages is not None
        }
        probabilities: list[Tensor | None] = [
            None if index in all_equal else self._calibration.probabilities(row) for index, row in enumerate(rows)
        ]
        for index, scores in zip(with_references, self._scores(list(with_references.values()), check), strict=True):
            mean = scores[:-2].mean().expand(inputs[index].num_passages)
            probabilities[index] = self._calibration.probabilities(mean)
        for rerank_input, row in zip(inputs, probabilities, strict=True):
            if row is not None and rerank_input.blank:
                row[rerank_input.blank] = 0.0
        return probabilities

    def _reranked(self, inputs: RerankInput, scores: Tensor, probabilities: Tensor | None) -> RerankedList:
        order = torch.argsort(scores, descending=True, stable=True)
        candidates = None if probabilities is None else probabilities[order]
        length = None
        if candidates is not None or self._calibration is None:  # without known probabilities no passage is removed
            thresholds = {"min_probability": inputs.min_probability, "min_perfect_recall": inputs.min_perfect_recall}
            length = adaptive_k(candidates, self._confidence, **thresholds)
        chosen = order[: min(len(scores) if limit is None else limit for limit in (inputs.top_n, length))]
        ids = range(len(scores)) if inputs.ids is None else list(inputs.ids)
        return RerankedList(
            tuple(ids[index] for index in chosen.tolist()),
            chosen,
            scores[chosen],
            None if candidates is None else candidates[: len(chosen)],
            candidates,
            self._confidence,
        )

    def _score(self, inputs: Sequence[RerankInput], check: Check) -> Tensor:
        """Return the scores ``[N]`` of the candidates of all queries."""
        self._check_pairs()
        graphs = self.candidate_graphs(inputs, check=check)
        check()
        with torch.inference_mode():
            scored = self._model(*graphs.to(self.device).model_inputs(self.inputs))
        scores = scored.cpu().clone()  # cloned outside inference mode, so that callers can use the scores in autograd
        if torch.isnan(scores).any():
            raise UserError(f"{self.checkpoint.path}: the model returned NaN scores")
        return scores

    def _check_pairs(self) -> None:
        """Raise an error if the model requires a cross-encoder and there is none."""
        if self._pair_encoder is None:
            _ = self.checkpoint.graph_reranker

    def candidate_graphs(self, inputs: Sequence[RerankInput], *, check: Check = lambda: None) -> CandidateGraphs:
        """Build the model's inputs on the CPU.

        Args:
            inputs: One or more queries with their candidates.
            check: Function that is called repeatedly during the computation. It may raise an exception to cancel it.

        Returns:
            One graph per query. Its nodes are in the order of the passages.

        Raises:
            UserError: If an argument is invalid, or if an input of the model is missing. For two or more inputs, the
                message contains the index of the query.
        """
        builder = CandidateGraphBuilder(self.inputs, self.feature_names, self._pair_encoder)
        return builder.from_lists(self._candidate_lists(inputs, check), check=check)

    def _candidate_lists(self, inputs: Sequence[RerankInput], check: Check) -> list[CandidateList]:
        lists = []
        for index, rerank_input in enumerate(inputs):
            check()
            try:
                candidates = candidate_list(rerank_input, self.feature_names, self._dim, self._weights)
                if candidates.vectors is None and self.inputs.reads_vectors:
                    raise UserError(
                        f"`query_vector` and `vectors` are required because the model {self.name!r} uses vectors of "
                        f"dimension {self._dim}. Models of features=scores do not need vectors"
                    )
            except ValueError as error:
                if len(inputs) == 1:
                    raise
                raise UserError(f"query {index}: {error}") from error
            lists.append(candidates)
        return lists


def _warn_about_bad_items(inputs: Sequence[RerankInput]) -> None:
    """Issue one warning that counts the defects of all inputs, attributed to the user's call."""
    if bad := sum((rerank_input.bad_items for rerank_input in inputs), Counter[str]()):
        warnings.warn("; ".join(f"{defect}: {count}" for defect, count in bad.items()), stacklevel=3)


def _among_references(inputs: RerankInput) -> RerankInput:
    """Return the distinct passages of an input, followed by the query and an empty text as reference passages.

    The model compares the passages of a list with each other. If they all have the same score, the score is the same
    whether all of them are relevant or none is. The added query is a perfect match and the empty text is no match, so
    the scores in the extended list are informative.
    """
    index_of = {text: index for index, text in enumerate(inputs.passages or ())}
    vectors, query_vector = None, inputs.query_vector
    if inputs.vectors is not None:
        distinct, query = torch.as_tensor(inputs.vectors)[list(index_of.values())], torch.as_tensor(query_vector)
        vectors = torch.cat([distinct, torch.stack([query, torch.zeros_like(query)]).to(distinct)])
    texts, language = [*index_of, inputs.query, ""], inputs.language_of_passages
    return RerankInput(inputs.query, texts, query_vector=query_vector, vectors=vectors, language=language)


def _hybrid_weights(manifest: RerankerManifest) -> dict[str, float]:
    """Return the weights of BM25 and cosine in the base score of the retriever that the model was trained with."""
    choice, arguments = manifest.retriever.choice, manifest.retriever.arguments
    if not str(choice).startswith("hybrid") and not arguments.keys() & HYBRID_WEIGHTS:
        return HYBRID_WEIGHTS
    for name in HYBRID_WEIGHTS:
        if not isinstance(weight := arguments.get(name), int | float):
            raise UserError(f"{manifest.source}: `retriever.arguments.{name}` must be a number, got {weight!r}")
    return {name: float(arguments[name]) for name in HYBRID_WEIGHTS}
