"""HyDE, IRCoT and knowledge graph prompting: retrieval with texts that a language model generates."""

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

#: Words in the sentence that ends the reasoning.
ANSWER_MARK = "answer is"
#: Maximum number of characters of a passage in a prompt of IRCoT.
PASSAGE_CHARACTERS = 2000

#: Index of a query, and the passages of a path.
QueryPath = tuple[int, tuple[int, ...]]


@dataclass(eq=False, repr=False)
class HypotheticalPassages(Step):
    r"""Average the vector of each query with those of hypothetical passages that answer it (HyDE).

    .. math:: v_q \leftarrow \frac{1}{M + 1} \Bigl[ f(q) + \sum_{k=1}^{M} f(d_k) \Bigr]

    All later steps use the new vectors.

    Source: Gao et al., "Precise Zero-Shot Dense Retrieval without Relevance Labels", 2023, Eq. (8). As in the paper,
    there are 8 passages, the prompt is that for web search, and the pipeline ``hyde`` sets a temperature of 0.7.
    *Differences from the paper:* the result is normalised, which does not change rankings by dot product. A blank query
    keeps its vector.

    Args:
        resources: Resources of the pipeline, with a text encoder.
        language_model: Chat model that writes the passages.
        num_passages: Number of passages per query, :math:`M`.
        prompt: Prompt with the placeholder ``{question}``.
        cache: Folder where the answers of the language model are cached. If None, they are not cached.

    Raises:
        ValueError: If ``num_passages`` is not positive, or the pipeline has no text encoder.
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
        """Replace the vectors of the queries.

        Args:
            state: State of ``B`` queries.

        Returns:
            State with the same ranking and new query vectors.
        """
        with self.resources.clock("retrieve"):
            return replace(state, queries=self.rewrite(state.queries))

    def rewrite(self, queries: Queries) -> Queries:
        """Return queries with new vectors.

        Args:
            queries: Queries with vectors.

        Returns:
            Same queries with averaged vectors.
        """
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
    """Alternate between retrieval and chain-of-thought reasoning of a language model (IRCoT).

    The first search uses the query. After each search, the model reads all passages retrieved so far and writes the
    next sentence of its reasoning. The next search uses this sentence and appends its new nodes to the result.
    Reasoning ends when a sentence contains ``answer is``. The score of a node is the reciprocal of its rank.

    Source: Trivedi et al., "Interleaving Retrieval with Chain-of-Thought Reasoning for Knowledge-Intensive Multi-Step
    Questions", 2023, section 3.1. The defaults are those of FastInsight, section 5.2.2: two searches of five nodes
    each. *Differences from the paper:* the prompt has no worked examples. No sentence is written after the last search.
    The model is not asked about blank queries.

    Args:
        resources: Resources of the pipeline. Its retriever runs the searches. If the retriever needs vectors, the text
            encoder encodes the sentences.
        language_model: Chat model.
        num_steps: Maximum number of searches per query.
        top_k: Number of nodes per search.
        prompt: Prompt with the placeholders ``{passages}``, ``{question}`` and ``{thoughts}``.
        cache: Folder where the answers of the language model are cached. If None, they are not cached.

    Raises:
        ValueError: If a setting is out of range, or the retriever needs vectors and the pipeline has no text encoder.
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
        """Replace the retrieved nodes by the results of all searches.

        Args:
            state: State of ``B`` queries.

        Returns:
            State with at most ``budget`` nodes per query.
        """
        with self.resources.clock("retrieve"):
            ranking = self.retrieve(state.queries).to(state.nodes.device)
            retrieved = state.with_ranking(ranking.nodes, ranking.scores).with_pool(ranking.nodes)
            return retrieved.top(self.resources.budget)

    def retrieve(self, queries: Queries) -> Ranking:
        """Alternate between retrieval and reasoning, for all queries at once.

        Args:
            queries: ``B`` queries. They need vectors if the retriever does.

        Returns:
            Unique nodes ``[B, num_steps * top_k]`` in the order of retrieval, padded with -1.
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
        lines = [f"Passage {rank}: {texts[node][:PASSAGE_CHARACTERS]}" for rank, node in enumerate(retrieved, start=1)]
        return self.prompt.fill(passages="\n\n".join(lines), question=query, thoughts=" ".join(thoughts) or "none")


@dataclass(eq=False, repr=False)
class KnowledgeGraphPrompting(Step):
    """Extend the retrieved passages along edges, towards the evidence that is still missing (KGP).

    Paths start at the first ``num_seeds`` retrieved passages and grow hop by hop. In each hop, a text describes the
    next evidence that a path needs. The path continues with the ``num_branches`` neighbours of its last passage that
    are most similar to this text. Passages that the query has already visited are skipped. In the result, each seed is
    followed by the passages reached from it, and the remaining retrieved passages come last.

    Source: Wang et al., "Knowledge Graph Prompting for Multi-Document Question Answering", 2024, Algorithm 1. A
    language model writes the evidence text, like the agent of the paper. Without a language model, the text consists of
    the question and the passages of the path, as in the paper's MDR-KGP and in "Answering Complex Open-Domain Questions
    with Multi-Hop Dense Retrieval", 2021. *Differences from the paper:* the seeds come from the previous step of the
    pipeline, the graph is that of the corpus, and the passages are ranked. The text encoder is not fine-tuned.

    Args:
        resources: Resources of the pipeline, with a text encoder.
        num_seeds: Number of passages from which paths start.
        num_branches: Maximum number of neighbours that continue a path.
        num_hops: Maximum number of edges in a path.
        language_model: Chat model that writes the evidence text. If None, the question and the passages are used.
        prompt: Prompt of the language model, with the placeholders ``{question}`` and ``{passages}``.
        cache: Folder where the answers of the language model are cached. If None, they are not cached.

    Raises:
        ValueError: If a setting is out of range, or the pipeline has no text encoder.
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
        """Extend the retrieved passages of each query along edges.

        Args:
            state: State of ``B`` queries with their retrieved passages.

        Returns:
            State with at most ``budget`` passages per query.
        """
        ranked = [[node for node in row if node >= 0] for row in state.nodes.tolist()]
        order = [row[: self.num_seeds] for row in ranked]  # each passage comes after the one it was reached from
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
                    position = order[query].index(path[-1]) + 1
                    order[query][position:position] = reached
                    paths += [(query, (*path, node)) for node in reached]
        listed = [list(dict.fromkeys([*reached, *row])) for reached, row in zip(order, ranked, strict=True)]
        return with_listed(state, listed, budget=self.resources.budget)

    def _evidence(self, questions: Sequence[str], paths: Sequence[QueryPath]) -> list[str]:
        texts = self.resources.graph.texts
        pairs = [(questions[query], [texts[node] for node in path]) for query, path in paths]
        if self._model is None:
            return ["\n".join([question, *passages]) for question, passages in pairs]
        requests = [
            self.prompt.fill(question=question, passages="\n\n".join(f"Passage: {text}" for text in passages))
            for question, passages in pairs
        ]
        return self._model.ask(requests, system=self.prompt.instructions(), read=parse_text_answer)


def text_encoder(resources: Resources, purpose: str) -> TextEncoder:
    """Return the text encoder of a pipeline.

    Args:
        resources: Resources of the pipeline.
        purpose: What a step needs the encoder for, such as "for hypothetical passages". Used in the error message.

    Raises:
        ValueError: If the pipeline has no text encoder.
    """
    if resources.text_encoder is None:
        raise UserError(f"`text_encoder` is required {purpose}, got None. Set encoder=NAME")
    return resources.text_encoder


def parse_text_answer(answer: str) -> str:
    """Parse an answer that may be any text that is not blank.

    Args:
        answer: Answer of a language model.

    Returns:
        Text without leading and trailing whitespace.

    Raises:
        ValueError: If the answer is blank.
    """
    if not isinstance(answer, str) or not answer.strip():
        raise UserError(f"the answer must be a text that is not blank, got {answer!r}")
    return answer.strip()


def _first_sentence(answer: str) -> str:
    start, stop = split_sentences(parse_text_answer(answer))[0]
    return parse_text_answer(answer)[start:stop]
