"""A loop: steps again and again until every query has its budget."""

from collections.abc import Sequence

from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import StepFactory, Workplace


class UntilBudget:
    """Repeat steps until every query has retrieved the budget, or the corpus, or finds nothing more.

    Source: FastInsight, Algorithm 1, line 3.

    Args:
        workplace: What the pipeline's steps share.
        steps: Build the steps, in order.

    Raises:
        ValueError: If there is no step, or one cannot be built.
    """

    def __init__(self, workplace: Workplace, *, steps: Sequence[StepFactory]) -> None:
        if not steps:
            raise ValueError("`steps` must hold a step, got []")
        self._workplace = workplace
        self._steps = [build(workplace) for build in steps]

    def run(self, state: RetrievalState) -> RetrievalState:
        """Repeat."""
        while bool(self._workplace.room(state).any()):
            before = state.num_retrieved
            for step in self._steps:
                state = step.run(state)
            if bool((state.num_retrieved <= before).all()):
                break
        return state
