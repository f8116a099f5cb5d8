"""Vector search interleaved with a language model's chain of thought."""

from pathlib import Path

from graphrerank.graphs.retriever import needs_vectors
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.ircot.ircot import IRCoT


class ChainOfThought:
    """Retrieve by the query, then by a language model's thoughts (:class:`IRCoT`), with the pipeline's retriever.

    Args:
        language_model: Language model that writes the thoughts.
        num_steps: Number of searches per query, at least 1.
        top_k: Number of nodes per search, at least 1; nodes beyond the budget are dropped.
        prompt: Of the language model (:class:`IRCoT`); None for the one that ships.
        cache: Folder of cached answers of the language model; None for no cache.

    Raises:
        ValueError: If a number is below 1, the retriever cannot be built, or it needs vectors and there is no encoder
            of texts.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        language_model: ChatModel,
        num_steps: int = 2,
        top_k: int = 5,
        prompt: Prompt | None = None,
        cache: str | Path | None = None,
    ) -> None:
        reads_vectors = needs_vectors(resources.retriever)
        if reads_vectors and resources.text_encoder is None:
            raise ValueError("`text_encoder` must be given for the vectors of thoughts (encoder=...), got none")
        self._resources = resources
        self._operator = IRCoT(
            resources.retriever(resources.graph, top_k=top_k),
            remembering(language_model, cache),
            resources.graph.texts,
            encoder=resources.text_encoder if reads_vectors else None,
            num_steps=num_steps,
            top_k=top_k,
            prompt=prompt or shipped_prompt("ircot_thought"),
        )

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by those of all searches."""
        with self._resources.clock("retrieve"):
            ranking = self._operator.retrieve(state.queries).to(state.nodes.device)
            retrieved = state.with_ranking(ranking.nodes, ranking.scores).with_pool(ranking.nodes)
            return retrieved.top(self._resources.budget)
