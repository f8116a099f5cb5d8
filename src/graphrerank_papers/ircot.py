"""IRCoT: retrieval interleaved with a language model's chain of thought."""

from collections.abc import Sequence
from pathlib import Path

import torch

from graphrerank.checks import check_counts
from graphrerank.graphs import Queries, Ranking
from graphrerank.graphs.queries import query_encoder
from graphrerank.graphs.retriever import needs_vectors
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank.text import split_sentences

END = "answer is"  # occurs in the sentence that ends the reasoning
PASSAGE_CHARACTERS = 2000  # of each passage in a prompt


class ChainOfThought:
    """Search by the query, then by each thought of a language model that reads the passages found so far.

    Each search, by the pipeline's retriever, appends its new nodes to the result; the model then writes the next
    sentence of its reasoning, by which the next step searches. A query is finished once a sentence contains
    ``answer is``. Scores are the reciprocal positions: 1, 1/2, 1/3, ...

    Source: Trivedi et al., *Interleaving Retrieval with Chain-of-Thought Reasoning for Knowledge-Intensive Multi-Step
    Questions*, 2023, section 3.1; FastInsight, section 5.2.2: two steps of five nodes. *Where we differ:* our
    prompt has no worked examples; the last step writes no thought, as no search follows; a blank query is
    searched by, but gets no thoughts.

    The pipeline's ``retriever`` searches by text or vector, not by query id; its ``text_encoder`` encodes the thoughts
    where the retriever reads vectors. ``num_steps`` are the searches of a query, ``top_k`` the nodes of a search; nodes
    beyond the budget are dropped. ``prompt`` has the places ``{passages}``, ``{question}`` and ``{thoughts}``;
    ``cache`` is the folder of the model's answers.
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
        check_counts(num_steps=num_steps, top_k=top_k)
        reads_vectors = needs_vectors(resources.retriever)
        if reads_vectors and resources.text_encoder is None:
            raise ValueError("`text_encoder` must be given for the vectors of thoughts (encoder=...), got none")
        self.num_steps, self.top_k = num_steps, top_k
        self._resources = resources
        self._encoder = resources.text_encoder if reads_vectors else None
        self._retriever = resources.retriever(resources.graph, top_k=top_k)
        self._model = remembering(language_model, cache)
        self._prompt = prompt or shipped_prompt("ircot_thought")
        self._prompt.fill(passages="", question="", thoughts="")

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by those of all searches."""
        with self._resources.clock("retrieve"):
            ranking = self.retrieve(state.queries).to(state.nodes.device)
            retrieved = state.with_ranking(ranking.nodes, ranking.scores).with_pool(ranking.nodes)
            return retrieved.top(self._resources.budget)

    def retrieve(self, queries: Queries) -> Ranking:
        """Search and think alternately, for ``B`` queries at once; with vectors if the retriever reads them.

        Returns:
            ``[B, num_steps * top_k]`` unique nodes in the order of retrieval, padded with -1.
        """
        retrieved: list[dict[int, None]] = [{} for _ in queries.texts]  # ordered sets
        thoughts: list[list[str]] = [[] for _ in queries.texts]
        rows, searches = list(range(len(queries))), queries
        for step in range(self.num_steps):
            results = self._retriever.retrieve(searches).nodes[:, : self.top_k].tolist()
            for row, nodes in zip(rows, results, strict=True):
                retrieved[row].update(dict.fromkeys(node for node in nodes if node >= 0))
            rows = [row for row in rows if queries.texts[row].strip()]
            if not rows or step == self.num_steps - 1:
                break
            prompts = [self._message(queries.texts[row], list(retrieved[row]), thoughts[row]) for row in rows]
            answers = self._model.ask(prompts, system=self._prompt.instructions(), read=_first_sentence)
            for row, thought in zip(rows, answers, strict=True):
                thoughts[row].append(thought)
            rows = [row for row in rows if END not in thoughts[row][-1].lower()]
            if not rows:
                break
            searches = self._searches(rows, queries, thoughts)
        nodes = torch.full((len(queries), self.num_steps * self.top_k), -1)
        for row, known in enumerate(retrieved):
            nodes[row, : len(known)] = torch.tensor(list(known), dtype=torch.int64)
        scores = 1 / torch.arange(1, nodes.shape[1] + 1)
        return Ranking(nodes, scores.expand(nodes.shape).masked_fill(nodes < 0, -torch.inf))

    def _message(self, query: str, retrieved: Sequence[int], thoughts: Sequence[str]) -> str:
        texts = self._resources.graph.texts
        shown = [f"Passage {rank}: {texts[node][:PASSAGE_CHARACTERS]}" for rank, node in enumerate(retrieved, start=1)]
        return self._prompt.fill(passages="\n\n".join(shown), question=query, thoughts=" ".join(thoughts) or "none")

    def _searches(self, rows: list[int], queries: Queries, thoughts: list[list[str]]) -> Queries:
        texts = [thoughts[row][-1] for row in rows]
        ids = [f"{queries.ids[row]}, thought {len(thoughts[row])}" for row in rows]
        return Queries(ids, texts, None if self._encoder is None else query_encoder(self._encoder).encode(texts))


def _first_sentence(answer: str) -> str:
    sentences = split_sentences(answer) if isinstance(answer, str) else []
    if not sentences:
        raise ValueError(f"the answer must be a sentence, got {answer!r}")
    start, stop = sentences[0]
    return answer[start:stop]
