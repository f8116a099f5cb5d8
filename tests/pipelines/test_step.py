"""What a step and a scorer of a pipeline inherit, and how classes without the bases are adapted."""

from functools import partial

import pytest

from graphrerank.core import GraphScorer
from graphrerank.core.adapters import as_graph_scorer
from graphrerank.pipelines.pipeline import Pipeline
from graphrerank.pipelines.step import Resources, Step, as_step
from graphrerank.pipelines.steps import GraphRerank, VectorSearch
from tests.pipelines.test_views import drawn_graph


class Passes(Step):
    """A step with the base that changes nothing."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def run(self, state):
        return state


class Foreign:
    """A step without the base."""

    def __init__(self, resources: Resources) -> None:
        self.resources = resources

    def run(self, state):
        return ("ran", state)


class ForeignThatShares(Foreign):
    """A step without the base that says how it is built over another corpus."""

    def over(self, resources: Resources) -> "ForeignThatShares":
        shared = ForeignThatShares(resources)
        shared.origin = self
        return shared


class Model(GraphScorer):
    """A scorer with the base, which is built once more for each corpus."""

    def __init__(self, graph, *, text_encoder=None) -> None:
        self.graph = graph

    def candidate_graphs(self, queries, ranking, feature_names):
        return ("graphs", queries, ranking, feature_names)

    def score(self, graphs):
        return ("scores", graphs)


def test_a_step_with_the_base_stays_itself_and_is_built_by_its_factory() -> None:
    step = Passes(None)
    assert as_step(step) is step
    assert step.factory_over(Passes) is Passes


def test_a_step_without_the_base_is_adapted() -> None:
    step = as_step(Foreign(None))
    assert isinstance(step, Step)
    assert step.run("state") == ("ran", "state")
    assert step.factory_over(Foreign) is Foreign


def test_the_method_over_of_a_step_without_the_base_replaces_its_factory() -> None:
    foreign = ForeignThatShares(None)
    assert as_step(foreign).factory_over(ForeignThatShares)("resources").origin is foreign


def test_a_scorer_without_the_base_is_adapted() -> None:
    class Duck:
        candidate_graphs, score = Model.candidate_graphs, Model.score

    scorer = as_graph_scorer(Duck())
    assert isinstance(scorer, GraphScorer)
    assert scorer.candidate_graphs("queries", "ranking", ["a"]) == ("graphs", "queries", "ranking", ["a"])
    assert scorer.score("graphs") == ("scores", "graphs")
    assert scorer.factory_over(Duck) is Duck
    model = Model(None)
    assert as_graph_scorer(model) is model


@pytest.mark.parametrize("is_shared", [False, True])
def test_a_pipeline_over_another_graph_shares_a_model_that_can_be_shared(is_shared: bool) -> None:
    built: list[object] = []

    class Counted(Model):
        def __init__(self, graph, *, text_encoder=None) -> None:
            super().__init__(graph)
            built.append(graph)

        def over(self, graph, **_):
            return Model(graph)

        def factory_over(self, factory):
            return self.over if is_shared else factory

    graph = drawn_graph(20)
    part = drawn_graph(10)
    steps = [VectorSearch, partial(GraphRerank, scorer=Counted)]
    retriever = lambda graph, *, top_k: None  # noqa: E731
    pipeline = Pipeline(graph, steps=steps, retriever=retriever)
    for _ in range(2):
        pipeline = pipeline.over(part)
        assert pipeline.last_step.scorer.graph is part
    assert len(built) == (1 if is_shared else 3)
