"""Passages to judge for a question: the top passages of several systems, in an order that does not reveal them."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch

from graphrerank.core import Encoder, Queries, RetrieverFactory
from graphrerank.core.adapters import as_retriever, query_encoder
from graphrerank.data.candidates import PreparedDataset
from graphrerank.data.dataset import Dataset
from graphrerank.evaluation.baselines import rank_fusion_system, reranking_systems
from graphrerank.evaluation.reranking import rerank
from graphrerank.evaluation.systems import System
from graphrerank.models.checkpoint import Checkpoint
from graphrerank.utils.caching import hash_texts

DEPTH = 10  # number of top passages that are pooled from each ranking


@dataclass(frozen=True)
class PooledPassage:
    """Passage to judge.

    Attributes:
        passage_id: Id of the passage.
        title: Title of the passage. Empty if it has none.
        text: Text of the passage without its title.
    """

    passage_id: str
    title: str
    text: str


class PooledSearch:
    """Search of a corpus for the passages to judge.

    Source: the pooling of Spärck Jones and van Rijsbergen, "Report on the Need for and Provision of an 'Ideal'
    Information Retrieval Test Collection", 1975.

    Args:
        dataset: Data set with vectors, if the retriever needs them.
        checkpoint: Checkpoint of the reranker.
        encoder: Text encoder of the queries. None if nothing is encoded.
        build_retriever: Factory of the retriever.
        device: Device of the model.
        depth: Number of top passages to take from each system.
    """

    def __init__(
        self,
        dataset: Dataset,
        checkpoint: Checkpoint,
        *,
        encoder: Encoder | None,
        build_retriever: RetrieverFactory,
        device: torch.device,
        depth: int = DEPTH,
    ) -> None:
        self.dataset = dataset
        self.depth = depth
        self._checkpoint = checkpoint
        self._encoder = None if encoder is None else query_encoder(encoder)
        self._retriever = as_retriever(build_retriever(dataset.graph))
        self._device = device
        self._nodes: Mapping[str, int] = {name: node for node, name in enumerate(dataset.graph.node_ids)}

    def __call__(self, text: str) -> list[PooledPassage]:
        """Search for the passages to judge.

        Args:
            text: Question.

        Returns:
            Top passages of all systems without duplicates, in an order by hash.
        """
        prepared = self._prepare(text)
        query = torch.tensor([0])
        nodes = {
            node
            for system in self._systems(prepared)
            for node in rerank(prepared, query, system).nodes[0, : self.depth].tolist()
            if node >= 0
        }
        ids = [self.dataset.graph.node_ids[node] for node in nodes]
        return self.passages(sorted(ids, key=lambda name: hash_texts([text, name])))

    def passages(self, ids: Sequence[str]) -> list[PooledPassage]:
        """Return passages by id. Unknown ids are left out.

        Args:
            ids: Ids of passages.
        """
        passages, lengths = [], self.dataset.graph.passages.title_lengths
        for name in ids:
            if (node := self._nodes.get(name)) is not None:
                text = self.dataset.graph.texts[node]
                length = 0 if lengths is None else int(lengths[node])
                passages.append(PooledPassage(name, text[:length], text[length:].lstrip(". \n")))
        return passages

    def _prepare(self, text: str) -> PreparedDataset:
        vectors = None if self._encoder is None else self._encoder.encode([text])
        ranking = self._retriever.retrieve(Queries(["question"], [text], vectors))
        dataset = replace(
            self.dataset,
            query_ids=["question"],
            query_texts=[text],
            splits={},
            answers={},
            known_fingerprint=self.dataset.fingerprint,
        )
        return PreparedDataset(dataset, vectors, ranking, self._retriever.feature_names).with_features(
            self._checkpoint.reranker.retriever.feature_names
        )

    def _systems(self, prepared: PreparedDataset) -> list[System]:
        operators = self._checkpoint.reranker.operators
        fusion = rank_fusion_system(operators, prepared.feature_names, self._retriever.feature_names)
        scorers = [] if fusion is None else [fusion]
        return reranking_systems({"reranker": self._checkpoint.model}, operators, device=self._device, scorers=scorers)
