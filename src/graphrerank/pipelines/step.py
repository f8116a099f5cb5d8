"""What a step of a pipeline is, and what every step is built from."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Protocol

import torch
from torch import Tensor

from graphrerank.graphs import CorpusGraph, GraphHead, PairEncoder, RetrieverFactory
from graphrerank.operators import TextEncoder
from graphrerank.pipelines.state import RetrievalState


class Clock:
    """Adds up seconds by stage.

    They are ``retrieve``, ``encode`` (the cross-encoder's body), ``graph``, ``rerank``; a router's ``route``, ``fuse``.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Count what the block takes."""
        begin = time.perf_counter()
        yield
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()  # what a GPU was asked for is part of it
        self._seconds[stage] += time.perf_counter() - begin

    def take(self) -> dict[str, float]:
        """Return what was counted since the last call, and begin anew."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds


@dataclass(frozen=True)
class Workplace:
    """What the steps of one pipeline share.

    Attributes:
        graph: The corpus.
        budget: Nodes to retrieve per query, and so pairs that are read at most.
        retriever: Builds the retriever of vector searches.
        pair_encoder: The cross-encoder, or None where no step reads pairs.
        text_encoder: The encoder of the corpus, or None where no step encodes texts.
        head: A trained head in the place of the cross-encoder's own, or None.
        clock: Seconds by stage.
    """

    graph: CorpusGraph
    budget: int
    retriever: RetrieverFactory
    pair_encoder: PairEncoder | None = None
    text_encoder: TextEncoder | None = None
    head: GraphHead | None = None
    clock: Clock = field(default_factory=Clock)

    @property
    def reader(self) -> PairEncoder:
        """The cross-encoder of a step that must have one.

        Raises:
            ValueError: If there is none.
        """
        if self.pair_encoder is None:
            raise ValueError(
                "`pair_encoder` must be given for a pipeline that reads pairs (pair_encoder=...), got none"
            )
        return self.pair_encoder

    def room(self, state: RetrievalState) -> Tensor:
        """``[B]`` int64, nodes that each query may still take: up to the budget, or to the whole corpus."""
        return (min(self.budget, self.graph.num_nodes) - state.num_retrieved).clamp(min=0)

    def read(self, state: RetrievalState) -> RetrievalState:
        """Let the cross-encoder read what it did not read yet."""
        with self.clock("encode"):
            return state.read(self.reader, self.graph.texts)


class Step(Protocol):
    """One operator: takes a state to the next."""

    def run(self, state: RetrievalState) -> RetrievalState:
        """Apply the operator to a batch of queries."""


StepFactory = Callable[[Workplace], Step]  # a functools.partial of a step's class with its settings
