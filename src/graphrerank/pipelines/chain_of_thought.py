"""Vector search in turns with a language model's chain of thought."""

from pathlib import Path

from graphrerank.graphs.retriever import needs_vectors
from graphrerank.language_models import ChatModel, remembering
from graphrerank.operators import IRCoT
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Workplace


class ChainOfThought:
    """Retrieve with the query, then with a language model's thoughts (:class:`IRCoT`), by the pipeline's retriever.

    Args:
        workplace: What the pipeline's steps share.
        language_model: Writes the thoughts.
        num_steps: Searches per query, at least 1.
        top_k: Nodes per search, at least 1; what is beyond the budget is cut.
        cache: Folder that keeps the language model's answers; each run asks anew when None.

    Raises:
        ValueError: If a number is below 1, the retriever cannot be built, or it reads vectors and there is no encoder
            of texts.
    """

    def __init__(
        self,
        workplace: Workplace,
        *,
        language_model: ChatModel,
        num_steps: int = 2,
        top_k: int = 5,
        cache: str | Path | None = None,
    ) -> None:
        reads_vectors = needs_vectors(workplace.retriever)
        if reads_vectors and workplace.text_encoder is None:
            raise ValueError("`text_encoder` must be given for the vectors of thoughts (encoder=...), got none")
        self._workplace = workplace
        self._operator = IRCoT(
            workplace.retriever(workplace.graph, top_k=top_k),
            remembering(language_model, cache),
            workplace.graph.texts,
            encoder=workplace.text_encoder if reads_vectors else None,
            num_steps=num_steps,
            top_k=top_k,
        )

    def run(self, state: RetrievalState) -> RetrievalState:
        """Begin anew with what was found."""
        with self._workplace.clock("retrieve"):
            found = self._operator.retrieve(state.queries)
            nodes, scores = (part.to(state.nodes.device) for part in (found.nodes, found.scores))
            return state.with_ranking(nodes, scores).with_pool(nodes).top(self._workplace.budget)
