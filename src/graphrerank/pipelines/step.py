"""Steps of a pipeline, and the resources that they share."""

import threading
import time
from abc import ABC, abstractmethod
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from graphrerank.core import GraphHead, PairEncoder, RetrieverFactory
from graphrerank.core.queries import IndexEncoder, TextEncoder
from graphrerank.corpus import CorpusGraph
from graphrerank.pipelines.state import RetrievalState
from graphrerank.utils.checks import UserError


class Clock(threading.local):
    """Accumulates seconds by stage: ``retrieve``, ``encode``, ``graph``, ``rerank``; a router's ``route``, ``fuse``.

    Each thread has its own.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Time the block, including its work on a GPU."""
        begin = time.perf_counter()
        yield
        if torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
            torch.cuda.synchronize()
        self._seconds[stage] += time.perf_counter() - begin

    def take(self) -> dict[str, float]:
        """Return the seconds since the last call, and reset them."""
        seconds, self._seconds = dict(self._seconds), defaultdict(float)
        return seconds


@dataclass(frozen=True)
class Resources:
    """Resources shared by the steps of a pipeline."""

    graph: CorpusGraph
    budget: int  # nodes to retrieve per query, and the maximum number of pairs to encode
    retriever: RetrieverFactory  # builds the retriever of vector searches
    pair_encoder: PairEncoder | None = None  # the cross-encoder, or None if no step scores pairs
    text_encoder: TextEncoder | None = None  # the encoder of the corpus, or None if no step encodes texts
    head: GraphHead | None = None  # a trained head that replaces the cross-encoder's own, or None
    clock: Clock = field(default_factory=Clock)  # seconds by stage
    checkpoint: str | None = None  # of all trained graph rerankers; None: each step has its own

    @property
    def cross_encoder(self) -> PairEncoder:
        """The cross-encoder of a step that needs one; a ValueError if there is none."""
        if self.pair_encoder is None:
            raise UserError("`pair_encoder` must be given for a step that scores pairs (pair_encoder=...), got none")
        return self.pair_encoder

    @property
    def index_encoder(self) -> IndexEncoder:
        """The encoder of a step that builds an index; a ValueError if there is none with a fingerprint."""
        if not isinstance(self.text_encoder, IndexEncoder):
            raise UserError(
                f"`text_encoder` must be given for an index, with a fingerprint (encoder=...), got {self.text_encoder}"
            )
        return self.text_encoder

    def build(self, steps: Sequence["StepFactory"], name: str = "steps") -> list["Step"]:
        """Build steps that share these resources; a ValueError with their ``name`` if there is none."""
        if not steps:
            raise UserError(f"`{name}` must contain a step, got none")
        return [as_step(build(self)) for build in steps]

    def remaining(self, state: RetrievalState) -> Tensor:
        """Return ``[B]`` int64: how many nodes each query may still retrieve from the budget and the corpus."""
        return (min(self.budget, self.graph.num_nodes) - state.num_retrieved).clamp(min=0)

    def encode_pairs(self, state: RetrievalState) -> RetrievalState:
        """Encode the retrieved nodes that the cross-encoder has not encoded yet, in one call for all queries."""
        with self.clock("encode"):
            is_new = (state.nodes >= 0) & ~state.is_encoded
            vectors, texts = state.vectors, self.graph.texts
            if not vectors.shape[2]:
                vectors = vectors.new_zeros(*is_new.shape, self.cross_encoder.hidden_size)
            row, column = torch.nonzero(is_new, as_tuple=True)
            if len(row):
                queries, nodes = torch.stack([row, state.nodes[row, column]]).tolist()
                pairs = [state.queries.texts[query] for query in queries], [texts[node] for node in nodes]
                encoded = self.cross_encoder.encode(*pairs)
                vectors = vectors.index_put((row, column), encoded.to(vectors))
            num_encodings = state.num_encodings + is_new.sum(1)
            return replace(state, vectors=vectors, is_encoded=state.is_encoded | is_new, num_encodings=num_encodings)


class Step(ABC):
    """One operator of a pipeline.

    A subclass implements :meth:`run`. Its constructor takes the :class:`Resources` of the pipeline, and its settings as
    keyword arguments. Override :meth:`factory_over` if something that is costly to load can be shared by several
    corpora. A class without this base, with a method ``run`` and optionally ``over``, is adapted by :func:`as_step`.
    """

    @abstractmethod
    def run(self, state: RetrievalState) -> RetrievalState:
        """Apply the operator to a batch of queries.

        Args:
            state: State after the step before.

        Returns:
            State after this step.
        """

    def factory_over(self, factory: "StepFactory") -> "StepFactory":
        """Return the factory of this step over another corpus, such as a part of this one's.

        Args:
            factory: Factory that built this step.

        Returns:
            The same factory, which builds everything once more. Subclasses may share what they loaded.
        """
        return factory


class AdaptedStep(Step):
    """A step of a class without our base.

    Attributes:
        wrapped: The user's step, with ``run``.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def run(self, state: RetrievalState) -> RetrievalState:
        """Run the wrapped step."""
        after: RetrievalState = self.wrapped.run(state)
        return after

    def factory_over(self, factory: "StepFactory") -> "StepFactory":
        """The wrapped step's method ``over``, or the default."""
        over: StepFactory = getattr(self.wrapped, "over", factory)
        return over


def as_step(step: Any) -> Step:
    """Return a step with the members of its base.

    Args:
        step: Step of any class with a method ``run``.

    Returns:
        The step itself if its class has the base, otherwise an :class:`AdaptedStep`.
    """
    return step if isinstance(step, Step) else AdaptedStep(step)


#: Called with the resources; often a ``functools.partial`` of a step's class with its settings.
StepFactory = Callable[[Resources], Step]
