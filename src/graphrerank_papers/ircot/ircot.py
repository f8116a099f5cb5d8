"""IRCoT: retrieval interleaved with a language model's chain of thought."""

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial

import torch

from graphrerank.checks import check_counts
from graphrerank.graphs import Queries, Ranking, Retriever
from graphrerank.graphs.queries import TextEncoder, query_encoder
from graphrerank.language_models.answer_cache import ChatModel
from graphrerank.language_models.prompt import Prompt, shipped_prompt
from graphrerank.text import split_sentences

END = "answer is"  # occurs in the sentence that ends the reasoning
PASSAGE_CHARACTERS = 2000  # of each passage in a prompt


@dataclass(eq=False)
class IRCoT:
    """Search by the query, then by each thought of a language model that reads the passages found so far.

    Each search appends its new nodes to the result; the model then writes the next sentence of its reasoning, by which
    the next step searches. A query is finished once a sentence contains ``answer is``. Scores are the reciprocal
    positions: 1, 1/2, 1/3, ...

    Source: Trivedi et al., *Interleaving Retrieval with Chain-of-Thought Reasoning for Knowledge-Intensive Multi-Step
    Questions*, 2023, section 3.1; FastInsight, section 5.2.2: two steps of five nodes. *Where we differ:* our
    prompt has no worked examples; the last step writes no thought, as no search follows; a blank query is
    searched by, but gets no thoughts.
    """

    retriever: Retriever  # searches by text or vector, not by query id
    language_model: ChatModel  # writes the thoughts; best wrapped in an `AnswerCache`
    texts: Sequence[str]  # of the corpus
    _: KW_ONLY
    encoder: TextEncoder | None = None  # of the corpus, for the thoughts' vectors; None if the retriever reads none
    num_steps: int = 2  # searches per query
    top_k: int = 5  # nodes per search, the retriever's first
    # with the places `{passages}`, `{question}` and `{thoughts}`
    prompt: Prompt = field(default_factory=partial(shipped_prompt, "ircot_thought"))

    def __post_init__(self) -> None:
        check_counts(num_steps=self.num_steps, top_k=self.top_k)
        self.prompt.fill(passages="", question="", thoughts="")

    def retrieve(self, queries: Queries) -> Ranking:
        """Search and think alternately, for ``B`` queries at once; with vectors if the retriever reads them.

        Returns:
            ``[B, num_steps * top_k]`` unique nodes in the order of retrieval, padded with -1.
        """
        retrieved: list[dict[int, None]] = [{} for _ in queries.texts]  # ordered sets
        thoughts: list[list[str]] = [[] for _ in queries.texts]
        rows, searches = list(range(len(queries))), queries
        for step in range(self.num_steps):
            results = self.retriever.retrieve(searches).nodes[:, : self.top_k].tolist()
            for row, nodes in zip(rows, results, strict=True):
                retrieved[row].update(dict.fromkeys(node for node in nodes if node >= 0))
            if step == self.num_steps - 1:
                break
            rows = self._think([row for row in rows if queries.texts[row].strip()], queries, retrieved, thoughts)
            if not rows:
                break
            searches = self._searches(rows, queries, thoughts)
        nodes = torch.full((len(queries), self.num_steps * self.top_k), -1)
        for row, known in enumerate(retrieved):
            nodes[row, : len(known)] = torch.tensor(list(known), dtype=torch.int64)
        scores = 1 / torch.arange(1, nodes.shape[1] + 1)
        return Ranking(nodes, scores.expand(nodes.shape).masked_fill(nodes < 0, -torch.inf))

    def _think(
        self, rows: list[int], queries: Queries, retrieved: list[dict[int, None]], thoughts: list[list[str]]
    ) -> list[int]:
        """Write the next thought of each row; return the unfinished rows."""
        prompts = [
            self._message(queries.texts[row], [self.texts[node] for node in retrieved[row]], thoughts[row])
            for row in rows
        ]
        answers = self.language_model.ask(prompts, system=self.prompt.instructions(), read=_first_sentence)
        for row, thought in zip(rows, answers, strict=True):
            thoughts[row].append(thought)
        return [row for row in rows if END not in thoughts[row][-1].lower()]

    def _message(self, query: str, passages: Sequence[str], thoughts: Sequence[str]) -> str:
        shown = [f"Passage {number}: {text[:PASSAGE_CHARACTERS]}" for number, text in enumerate(passages, start=1)]
        return self.prompt.fill(passages="\n\n".join(shown), question=query, thoughts=" ".join(thoughts) or "none")

    def _searches(self, rows: list[int], queries: Queries, thoughts: list[list[str]]) -> Queries:
        texts = [thoughts[row][-1] for row in rows]
        ids = [f"{queries.ids[row]}, thought {len(thoughts[row])}" for row in rows]
        return Queries(ids, texts, None if self.encoder is None else query_encoder(self.encoder).encode(texts))


def _first_sentence(answer: str) -> str:
    sentences = split_sentences(answer) if isinstance(answer, str) else []
    if not sentences:
        raise ValueError(f"the answer must be a sentence, got {answer!r}")
    start, stop = sentences[0]
    return answer[start:stop]
