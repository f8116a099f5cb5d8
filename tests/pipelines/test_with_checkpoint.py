"""The checkpoint of a pipeline, in the place of those of its scorers."""

from functools import partial

import pytest

from graphrerank.core.loads_checkpoint import LoadsCheckpoint
from graphrerank.pipelines.steps import with_checkpoint


class Trained(LoadsCheckpoint):
    """A scorer with a checkpoint."""

    def __init__(self, graph: object, *, checkpoint: str = "own", device: str = "cpu") -> None:
        self.settings = (graph, checkpoint, device)


class CheckpointScorer:
    """A class that has nothing but the name."""

    def __init__(self, graph: object, *, checkpoint: str = "own") -> None:
        self.settings = (graph, checkpoint)


@pytest.mark.parametrize("factory", [Trained, partial(Trained, checkpoint="first"), partial(partial(Trained), "graph")])
def test_the_class_and_not_its_name_decides(factory: object) -> None:
    arguments = () if isinstance(factory, partial) and factory.args else ("graph",)
    assert with_checkpoint(factory, "other")(*arguments, device="cuda").settings == ("graph", "other", "cuda")
    same_name = partial(CheckpointScorer, checkpoint="first")
    assert with_checkpoint(same_name, "other") is same_name
    assert with_checkpoint(factory, None) is factory
