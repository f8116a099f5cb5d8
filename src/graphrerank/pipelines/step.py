"""Base class of the steps of a pipeline, and the resources that steps share."""

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
    """Accumulate seconds by stage, separately for each thread.

    The stages are ``retrieve``, ``encode``, ``graph`` and ``rerank``, and ``route`` and ``fuse`` for a router.
    """

    def __init__(self) -> None:
        self._seconds: defaultdict[str, float] = defaultdict(float)

    @contextmanager
    def __call__(self, stage: str) -> Iterator[None]:
        """Return a context manager that adds the time of its block, including work on the GPU, to a stage.

        Args:
            stage: Name of the stage.
        """
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
    """Resources that the steps of a pipeline share.

    Attributes:
        graph: Corpus graph.
        budget: Number of nodes to retrieve per query, and maximum number of pairs to encode per query.
        retriever: Factory of the retriever for vector searches that do not name one.
        pair_encoder: Cross-encoder. None if no step scores pairs.
        text_encoder: Text encoder of the corpus. None if no step encodes texts.
        head: Trained head that replaces the head of the cross-encoder. None to use the latter.
        clock: Seconds by stage.
        checkpoint: Checkpoint that replaces those of all graph rerankers. If None, each step has its own.
    """

    graph: CorpusGraph
    budget: int
    retriever: RetrieverFactory
    pair_encoder: PairEncoder | None = None
    text_encoder: TextEncoder | None = None
    head: GraphHead | None = None
    clock: Clock = field(default_factory=Clock)
    checkpoint: str | None = None

    @property
    def cross_encoder(self) -> PairEncoder:
        """Cross-encoder, for steps that require one. Raises a :class:`UserError` if there is none."""
        if self.pair_encoder is None:
            raise UserError("`pair_encoder` must be set for a step that scores pairs (pair_encoder=...), got none")
        return self.pair_encoder

    @property
    def index_encoder(self) -> IndexEncoder:
        """Text encoder with a fingerprint, for steps that build an index. Raises a :class:`UserError` without one."""
        if not isinstance(self.text_encoder, IndexEncoder):
            raise UserError(
                f"`text_encoder` must have a fingerprint to build an index (encoder=...), got {self.text_encoder}"
            )
        return self.text_encoder

    def build(self, steps: Sequence["StepFactory"], name: str = "steps") -> list["Step"]:
        """Build steps that share these resources.

        Args:
            steps: Factories of the steps.
            name: Name of the argument, for error messages.

        Returns:
            Steps in the same order.

        Raises:
            UserError: If there are no factories, or if a step cannot be built.
        """
        if not steps:
            raise UserError(f"`{name}` must contain at least one step, got none")
        return [as_step(build(self)) for build in steps]

    def remaining(self, state: RetrievalState) -> Tensor:
        """Return the number of nodes that each query may still retrieve, ``[B]`` int64.

        The number is limited by the budget and by the size of the corpus.

        Args:
            state: Current state.
        """
        return (min(self.budget, self.graph.num_nodes) - state.num_retrieved).clamp(min=0)

    def encode_pairs(self, state: RetrievalState) -> RetrievalState:
        """Encode the retrieved nodes that are not yet encoded, in one call of the cross-encoder for all queries.

        Args:
            state: Current state.

        Returns:
            State with the vectors of all retrieved nodes.

        Raises:
            UserError: If there is no cross-encoder.
        """
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
    """Abstract base class of the steps of a pipeline.

    A subclass implements :meth:`run`. Its constructor takes the :class:`Resources` of the pipeline, and settings as
    keyword arguments. Override :meth:`factory_over` if a loaded model can be shared by several corpora. Other classes
    with a method ``run``, and optionally ``over``, are adapted by :func:`as_step`.
    """

    @abstractmethod
    def run(self, state: RetrievalState) -> RetrievalState:
        """Apply the operator to a batch of queries.

        Args:
            state: State after the previous step.

        Returns:
            State after this step. A step that retrieves returns at most ``budget`` nodes per query.
        """

    def factory_over(self, factory: "StepFactory") -> "StepFactory":
        """Return a factory of this step for another corpus, such as a subgraph of the current one.

        Args:
            factory: Factory that built this step.

        Returns:
            By default the same factory, which loads everything again. Subclasses may return a factory that shares
            loaded models.
        """
        return factory


class AdaptedStep(Step):
    """Adapter for steps of classes that are not derived from :class:`Step`.

    Args:
        wrapped: Step with a method ``run``, and optionally ``over``.
    """

    def __init__(self, wrapped: Any) -> None:
        self.wrapped = wrapped

    def run(self, state: RetrievalState) -> RetrievalState:
        """Run the wrapped step.

        Args:
            state: State after the previous step.

        Returns:
            State after this step. A step that retrieves returns at most ``budget`` nodes per query.
        """
        after: RetrievalState = self.wrapped.run(state)
        return after

    def factory_over(self, factory: "StepFactory") -> "StepFactory":
        """Return the method ``over`` of the wrapped step, or ``factory`` if it has none.

        Args:
            factory: Factory that built this step.
        """
        over: StepFactory = getattr(self.wrapped, "over", factory)
        return over


def as_step(step: Any) -> Step:
    """Return the step itself if it is a :class:`Step`, otherwise an :class:`AdaptedStep`.

    Args:
        step: Step of any class with a method ``run``.
    """
    return step if isinstance(step, Step) else AdaptedStep(step)


#: Function that builds a step from the resources, often a ``functools.partial`` of a step's class with its settings.
StepFactory = Callable[[Resources], Step]
