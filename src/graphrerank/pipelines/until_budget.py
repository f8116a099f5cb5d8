"""A loop: repeat steps until every query has its budget."""

from collections.abc import Sequence

from graphrerank.pipelines.state import RetrievalState
from graphrerank.pipelines.step import Resources, StepFactory


class UntilBudget:
    """Repeat steps until every query has retrieved the budget or the corpus, or no step adds a node.

    Source: FastInsight, Algorithm 1, line 3.

    Args:
        steps: Build the steps, in order.

    Raises:
        ValueError: If there is no step, or one cannot be built.
    """

    def __init__(self, resources: Resources, *, steps: Sequence[StepFactory]) -> None:
        if not steps:
            raise ValueError("`steps` must contain a step, got []")
        self._resources = resources
        self._steps = [build(resources) for build in steps]

    def run(self, state: RetrievalState) -> RetrievalState:
        """Repeat the steps."""
        while bool(self._resources.remaining(state).any()):
            before = state.num_retrieved
            for step in self._steps:
                state = step.run(state)
            if bool((state.num_retrieved <= before).all()):
                break
        return state
