"""Search a corpus with an artifact as the last step of its pipeline."""

from collections.abc import Mapping
from pathlib import Path

from graphrerank.data.vector_cache import MemoryVectorCache
from graphrerank.serving.engine import Check, Engine, Refusal
from graphrerank.serving.engines.search import SearchEngine
from graphrerank.serving.engines.searchable_corpus import scorer_of
from graphrerank.serving.schemas.search import SearchRequest, SearchResponse


class ArtifactSearch(Engine[SearchRequest]):
    """Searches the corpus of another engine, with the model of an artifact in the last step of the pipeline.

    Args:
        search: Engine that searches the corpus.
        folder: Folder of the artifact.

    Attributes:
        search: Engine that searches the corpus.
        scorer: Scorer of the artifact. None if the last step of the pipeline is not a graph reranker.
    """

    def __init__(self, search: SearchEngine, folder: Path) -> None:
        self.search = search
        trained = scorer_of(search.current[1].pipeline.last_step)
        self.scorer = None if trained is None else trained.with_model(folder)

    @property
    def encoder(self) -> MemoryVectorCache | None:
        """Encoder of queries. None if no vectors are needed."""
        return self.search.encoder

    @property
    def corpus(self) -> str | None:
        """Fingerprint of the corpus."""
        return self.search.current[1].fingerprint

    def answer(
        self, jobs: Mapping[str, SearchRequest], check: Check = lambda: None
    ) -> Mapping[str, SearchResponse | Refusal]:
        """Search for the queries of a batch of requests.

        Args:
            jobs: Requests by id.
            check: Function that raises TimeoutError once nobody waits for the batch.

        Returns:
            Response or refusal of each request by id.
        """
        return self.search.answer(jobs, check, scorer=self.scorer)

    def warm_up(self) -> None:
        """Run one search."""
        self.answer({"first": SearchRequest(query="what warms up?")})

    def probes(self) -> list[SearchRequest]:
        """Return searches with short and long queries."""
        return self.search.probes()
