"""HyDE, IRCoT and knowledge graph prompting: retrieval by texts that a language model writes."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field, replace
from functools import partial
from pathlib import Path

import torch

from graphrerank.core import Queries, Ranking
from graphrerank.core.adapters import needs_vectors, query_encoder
from graphrerank.core.queries import TextEncoder
from graphrerank.language_models.answer_cache import ChatModel, remembering
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, Step
from graphrerank.text import split_sentences
from graphrerank.utils.checks import UserError, check_counts
from graphrerank_papers.indexing import padded_ranking, scores_of, with_listed
from graphrerank_papers.knowledge.corpus_knowledge import grouped

ANSWER_MARK = "answer is"  # occurs in the sentence that ends the reasoning
PASSAGE_CHARACTERS = 2000  # of each passage in a prompt of IRCoT

QueryPath = tuple[int, tuple[int, ...]]  # query and passages


@dataclass(eq=False, repr=False)
class HypotheticalPassages(Step):
    r"""Replace a query's vector, for all later steps, by the mean of it and those of passages that would answer it.

    .. math:: v_q \leftarrow \frac{1}{M + 1} \Bigl[ f(q) + \sum_{k=1}^{M} f(d_k) \Bigr]

    Source: Gao et al., *Precise Zero-Shot Dense Retrieval without Relevance Labels*, 2023, Eq. (8), with its 8
    passages, its temperature of 0.7 (set in the language model) and its prompt for web search. *Where we differ:* the
    result is normalised, which changes no ranking by dot product; a blank query keeps its vector.

    ``num_passages`` is :math:`M`; ``prompt`` has the placeholder ``{question}``.
    """

    resources: Resources
    _: KW_ONLY
    language_model: ChatModel
    num_passages: int = 8
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "hyde_passage"))
    cache: str | Path | None = None

    def __post_init__(self) -> None:
        check_counts(num_passages=self.num_passages)
        self._encoder = text_encoder(self.resources, "for hypothetical passages")
        self._model = remembering(self.language_model, self.cache)
        self.prompt.fill(question="")

    def run(self, state: RetrievalState) -> RetrievalState:
        """Rewrite the queries."""
        with self.resources.clock("retrieve"):
            return replace(state, queries=self.rewrite(state.queries))

    def rewrite(self, queries: Queries) -> Queries:
        """Replace the vectors of the queries, which must have some."""
        rows = [row for row, text in enumerate(queries.texts) if text.strip()]
        if not rows:
            return queries
        questions = [self.prompt.fill(question=queries.texts[row]) for row in rows for _ in range(self.num_passages)]
        passages = self._model.ask(questions, system=self.prompt.instructions(), read=parse_text_answer)
        vectors = queries.encoded.clone()
        passage_vectors = self._encoder.encode(passages).to(vectors).view(len(rows), self.num_passages, -1)
        mean = (vectors[rows] + passage_vectors.sum(1)) / (self.num_passages + 1)
        vectors[rows] = torch.nn.functional.normalize(mean, dim=1)
        return replace(queries, vectors=vectors)


@dataclass(eq=False, repr=False)
class ChainOfThought(Step):
    """Search by the query, then by each thought of a language model that reads the passages found so far.

    Each search, by the pipeline's retriever, appends its new nodes to the result; the model then writes the next
    sentence of its reasoning, by which the next step searches. A query is finished once a sentence contains
    ``answer is``. Scores are the reciprocal positions: 1, 1/2, 1/3, ...

    Source: Trivedi et al., *Interleaving Retrieval with Chain-of-Thought Reasoning for Knowledge-Intensive Multi-Step
    Questions*, 2023, section 3.1; FastInsight, section 5.2.2: two steps of five nodes. *Where we differ:* our
    prompt has no worked examples; the last step writes no thought, as no search follows; a blank query is
    searched by, but gets no thoughts.

    The pipeline's ``text_encoder`` encodes the thoughts where its ``retriever`` reads vectors. ``num_steps`` are the
    searches of a query, ``top_k`` the nodes of a search. ``prompt`` has the placeholders ``{passages}``, ``{question}``
    and ``{thoughts}``.
    """

    resources: Resources
    _: KW_ONLY
    language_model: ChatModel
    num_steps: int = 2
    top_k: int = 5
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "ircot_thought"))
    cache: str | Path | None = None

    def __post_init__(self) -> None:
        check_counts(num_steps=self.num_steps, top_k=self.top_k)
        reads_vectors = needs_vectors(self.resources.retriever)
        self._encoder = text_encoder(self.resources, "for the vectors of thoughts") if reads_vectors else None
        self._retriever = self.resources.retriever(self.resources.graph, top_k=self.top_k)
        self._model = remembering(self.language_model, self.cache)
        self.prompt.fill(passages="", question="", thoughts="")

    def run(self, state: RetrievalState) -> RetrievalState:
        """Replace the retrieved nodes by those of all searches."""
        with self.resources.clock("retrieve"):
            ranking = self.retrieve(state.queries).to(state.nodes.device)
            retrieved = state.with_ranking(ranking.nodes, ranking.scores).with_pool(ranking.nodes)
            return retrieved.top(self.resources.budget)

    def retrieve(self, queries: Queries) -> Ranking:
        """Search and think alternately, for ``B`` queries at once; with vectors if the retriever reads them.

        Returns ``[B, num_steps * top_k]`` unique nodes in the order of retrieval, padded with -1.
        """
        retrieved: list[dict[int, None]] = [{} for _ in queries.texts]  # ordered sets
        thoughts: list[list[str]] = [[] for _ in queries.texts]
        rows, searches = list(range(len(queries))), queries
        for step in range(self.num_steps):
            results = self._retriever.retrieve(searches).nodes[:, : self.top_k].tolist()
            for row, nodes in zip(rows, results, strict=True):
                retrieved[row].update(dict.fromkeys(node for node in nodes if node >= 0))
            rows = [row for row in rows if queries.texts[row].strip()] if step < self.num_steps - 1 else []
            prompts = [self._message(queries.texts[row], list(retrieved[row]), thoughts[row]) for row in rows]
            answers = self._model.ask(prompts, system=self.prompt.instructions(), read=_first_sentence)
            for row, thought in zip(rows, answers, strict=True):
                thoughts[row].append(thought)
            rows = [row for row in rows if ANSWER_MARK not in thoughts[row][-1].lower()]
            if not rows:
                break
            texts = [thoughts[row][-1] for row in rows]
            ids = [f"{queries.ids[row]}, thought {len(thoughts[row])}" for row in rows]
            vectors = None if self._encoder is None else query_encoder(self._encoder).encode(texts)
            searches = Queries(ids, texts, vectors)
        ranked = [{node: 1 / rank for rank, node in enumerate(row, start=1)} for row in retrieved]
        return padded_ranking(ranked).padded(self.num_steps * self.top_k)

    def _message(self, query: str, retrieved: Sequence[int], thoughts: Sequence[str]) -> str:
        texts = self.resources.graph.texts
        shown = [f"Passage {rank}: {texts[node][:PASSAGE_CHARACTERS]}" for rank, node in enumerate(retrieved, start=1)]
        return self.prompt.fill(passages="\n\n".join(shown), question=query, thoughts=" ".join(thoughts) or "none")


@dataclass(eq=False, repr=False)
class KnowledgeGraphPrompting(Step):
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

    ``prompt`` has the placeholders ``{question}`` and ``{passages}``.
    """

    resources: Resources
    _: KW_ONLY
    num_seeds: int = 5
    num_branches: int = 2
    num_hops: int = 2
    language_model: ChatModel | None = None
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "kgp_evidence"))
    cache: str | Path | None = None

    def __post_init__(self) -> None:
        check_counts(num_seeds=self.num_seeds, num_branches=self.num_branches, num_hops=self.num_hops)
        self._encoder = text_encoder(self.resources, "to encode evidence")
        self._model = None if self.language_model is None else remembering(self.language_model, self.cache)
        self.prompt.fill(question="", passages="")

    def run(self, state: RetrievalState) -> RetrievalState:
        """Walk from the seeds of each query."""
        ranked = [[node for node in row if node >= 0] for row in state.nodes.tolist()]
        order = [row[: self.num_seeds] for row in ranked]  # reached passages, each behind what it was reached from
        visited = [set(row) for row in order]
        paths: list[QueryPath] = [(query, (seed,)) for query, row in enumerate(order) for seed in row]
        graph, clock = self.resources.graph, self.resources.clock
        for _ in range(self.num_hops):
            with clock("graph"):
                lasts = torch.tensor([path[-1] for _, path in paths], dtype=torch.int64, device=graph.device)
                near = grouped(zip(*(ends.tolist() for ends in graph.neighbours(lasts)), strict=True), len(paths))
                grown = [(*path, ends) for path, ends in zip(paths, near, strict=True) if {*ends} - visited[path[0]]]
            if not grown:
                break
            with clock("retrieve"):
                texts = self._evidence(state.queries.texts, [(query, path) for query, path, _ in grown])
                vectors = self._encoder.encode(texts)
            paths = []
            with clock("graph"):
                scores = scores_of(graph.encoded, vectors, [{*ends} - visited[query] for query, _, ends in grown])
                for (query, path, _), score in zip(grown, scores, strict=True):
                    candidates = score.keys() - visited[query]
                    reached = sorted(candidates, key=lambda node: (-score[node], node))[: self.num_branches]
                    visited[query].update(reached)
                    behind = order[query].index(path[-1]) + 1
                    order[query][behind:behind] = reached
                    paths += [(query, (*path, node)) for node in reached]
        listed = [list(dict.fromkeys([*reached, *row])) for reached, row in zip(order, ranked, strict=True)]
        return with_listed(state, listed, budget=self.resources.budget)

    def _evidence(self, questions: Sequence[str], paths: Sequence[QueryPath]) -> list[str]:
        texts = self.resources.graph.texts
        read = [(questions[query], [texts[node] for node in path]) for query, path in paths]
        if self._model is None:
            return ["\n".join([question, *passages]) for question, passages in read]
        requests = [
            self.prompt.fill(question=question, passages="\n\n".join(f"Passage: {text}" for text in passages))
            for question, passages in read
        ]
        return self._model.ask(requests, system=self.prompt.instructions(), read=parse_text_answer)


def text_encoder(resources: Resources, purpose: str) -> TextEncoder:
    """Return the pipeline's encoder of texts, which a step needs for a purpose."""
    if resources.text_encoder is None:
        raise UserError(f"`text_encoder` must be given {purpose} (encoder=...), got none")
    return resources.text_encoder


def parse_text_answer(answer: str) -> str:
    """Parse an answer: any text that is not blank."""
    if not isinstance(answer, str) or not answer.strip():
        raise UserError(f"the answer must be a text that is not blank, got {answer!r}")
    return answer.strip()


def _first_sentence(answer: str) -> str:
    start, stop = split_sentences(parse_text_answer(answer))[0]
    return parse_text_answer(answer)[start:stop]
