"""Knowledge graph prompting: from passage to passage along edges, towards the evidence that is needed next."""

from collections.abc import Sequence
from pathlib import Path

import torch

from graphrerank.checks import check_counts
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources
from graphrerank_papers.indexing import with_listed

QueryPath = tuple[int, tuple[int, ...]]  # query and passages


class KnowledgeGraphPrompting:
    r"""Walk from the retrieved passages along edges to those most similar to the next evidence.

    From each of the first ``num_seeds`` passages, paths grow hop by hop: the evidence that a path needs next is a text,
    and the ``num_branches`` neighbours of its last passage most similar to that text, of those that the query has not
    visited yet, continue it. Each seed is followed by what was reached from it, path by path, and the rest of the
    vector search comes last.

    Source: Wang et al., "Knowledge Graph Prompting for Multi-Document Question Answering", 2024, Algorithm 1. With a
    language model, it writes the evidence, as the paper's agent. Without one, the text is the
    question with the passages of the path, as in its MDR-KGP and in "Answering Complex Open-Domain Questions with
    Multi-Hop Dense Retrieval", 2021, with the pipeline's encoder as it is. *Where we differ:* the seeds are those of
    the vector search, the graph is the corpus's, and the order is that of a ranking.

    The pipeline's ``text_encoder`` encodes the evidence. ``num_hops`` are the edges of a path. ``prompt`` has the
    places ``{question}`` and ``{passages}``; ``cache`` is the folder of the language model's answers.
    """

    def __init__(
        self,
        resources: Resources,
        *,
        num_seeds: int = 5,
        num_branches: int = 2,
        num_hops: int = 2,
        language_model: ChatModel | None = None,
        prompt: Prompt | None = None,
        cache: str | Path | None = None,
    ) -> None:
        check_counts(num_seeds=num_seeds, num_branches=num_branches, num_hops=num_hops)
        if resources.text_encoder is None:
            raise ValueError("`text_encoder` must be given to encode evidence (encoder=...), got none")
        self.num_seeds, self.num_branches, self.num_hops = num_seeds, num_branches, num_hops
        self._resources = resources
        self._encoder = resources.text_encoder
        self._model = None if language_model is None else remembering(language_model, cache)
        self._prompt = prompt or shipped_prompt("kgp_evidence")
        self._prompt.fill(question="", passages="")

    def run(self, state: RetrievalState) -> RetrievalState:
        """Walk from the seeds of each query."""
        ranked = [[node for node in row if node >= 0] for row in state.nodes.tolist()]
        order = [row[: self.num_seeds] for row in ranked]  # reached passages, each behind what it was reached from
        visited = [set(row) for row in order]
        frontier: list[QueryPath] = [(query, (seed,)) for query, row in enumerate(order) for seed in row]
        for _ in range(self.num_hops):
            frontier = self._hop(state, frontier, visited, order)
        listed = [list(dict.fromkeys([*reached, *row])) for reached, row in zip(order, ranked, strict=True)]
        return with_listed(state, listed, budget=self._resources.budget)

    def _hop(
        self,
        state: RetrievalState,
        frontier: Sequence[QueryPath],
        visited: Sequence[set[int]],
        order: Sequence[list[int]],
    ) -> list[QueryPath]:
        """Continue each path that has a new neighbour; return the new paths."""
        graph = self._resources.graph
        with self._resources.clock("graph"):
            lasts = torch.tensor([path[-1] for _, path in frontier], dtype=torch.int64, device=graph.device)
            positions, neighbours = graph.neighbours(lasts)
            around: list[set[int]] = [set() for _ in frontier]
            for position, neighbour in zip(positions.tolist(), neighbours.tolist(), strict=True):
                around[position].add(neighbour)
            grown = [(*step, near) for step, near in zip(frontier, around, strict=True) if near - visited[step[0]]]
        if not grown:
            return []
        with self._resources.clock("retrieve"):
            texts = self._evidence(state.queries.texts, [(query, path) for query, path, _ in grown])
            vectors = self._encoder.encode(texts).to(graph.encoded)
        following: list[QueryPath] = []
        with self._resources.clock("graph"):
            for (query, path, near), vector in zip(grown, vectors, strict=True):
                candidates = sorted(near - visited[query])
                best = torch.argsort(graph.encoded[candidates] @ vector, descending=True, stable=True)
                reached = [candidates[position] for position in best[: self.num_branches].tolist()]
                visited[query].update(reached)
                behind = order[query].index(path[-1]) + 1
                order[query][behind:behind] = reached
                following += [(query, (*path, node)) for node in reached]
        return following

    def _evidence(self, questions: Sequence[str], paths: Sequence[QueryPath]) -> list[str]:
        texts = self._resources.graph.texts
        read = [(questions[query], [texts[node] for node in path]) for query, path in paths]
        if self._model is None:
            return ["\n".join([question, *passages]) for question, passages in read]
        requests = [
            self._prompt.fill(question=question, passages="\n\n".join(f"Passage: {text}" for text in passages))
            for question, passages in read
        ]
        return self._model.ask(requests, system=self._prompt.instructions(), read=_sentence)


def _sentence(answer: str) -> str:
    if not isinstance(answer, str) or not answer.strip():
        raise ValueError(f"the answer must be a sentence, got {answer!r}")
    return answer.strip()
