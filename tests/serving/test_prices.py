"""Prices: their fit to measurements, and their correction."""

import itertools
from typing import Any

import pytest

from graphrerank.rerank.rerank_input import RerankInput
from graphrerank.serving.engine import Engine
from graphrerank.serving.engines.rerank import RerankEngine, probe_request
from graphrerank.serving.limits import Limits
from graphrerank.serving.price_measurement import load_prices, measure_prices
from graphrerank.serving.prices import DEFAULT_PRICES, MeasuredSpeeds, Prices, Work, fit_prices, work_of
from graphrerank.serving.work_estimates import explain_counts, rerank_work

TRUE = {"requests": 2e-3, "documents": 30e-6, "edges": 9e-6, "explained_nodes": 5e-6, "explained_graph_edges": 1.5e-6}
PLAIN = [(2, 1, False), (100, 300, False), (500, 300, False), (200, 5000, False)]
SIZES = [*PLAIN, (20, 20, True), (50, 100, True), (400, 30, True)]


def counts(documents: int, edges: int, explain: bool) -> dict[str, float]:
    plain = {"requests": 1, "documents": documents, "edges": edges}
    return plain | (explain_counts(documents, edges) if explain else {})


def test_the_fit_finds_prices_and_predicts_larger_requests() -> None:
    truth = Prices({**TRUE, "explanations": 0.0, "explained_edges": 0.0})
    fitted = fit_prices([(counts(*size), truth.of(counts(*size))) for size in SIZES])
    for size in [*SIZES, (1000, 300, True), (100, 300, True), (1000, 30_000, False)]:
        assert fitted.of(counts(*size)) == pytest.approx(truth.of(counts(*size)), rel=0.25)


def test_prices_that_were_not_measured_follow_the_speed_of_the_machine() -> None:
    slow = [({"requests": 1}, 5 * DEFAULT_PRICES["requests"]), ({"requests": 2}, 10 * DEFAULT_PRICES["requests"])]
    fitted = fit_prices([*slow, ({"requests": 1, "edges": 0}, 5 * DEFAULT_PRICES["requests"])])
    assert fitted.of({"edges": 1}) == pytest.approx(5 * DEFAULT_PRICES["edges"], rel=0.01)
    assert fitted.of({"searches": 1}) == DEFAULT_PRICES["searches"]  # another engine's
    assert fit_prices([]).seconds == {}


def test_one_wrong_measurement_makes_no_price_negative() -> None:
    measured = [(counts(*size), 1e-3 * (1 + number % 3)) for number, size in enumerate(SIZES)]
    assert min(fit_prices(measured).seconds.values()) >= 0


def test_work_without_counts_has_no_other_price() -> None:
    assert Prices({"requests": 9.0}).reprice(Work(1.0)).seconds == 1.0
    assert Prices({"requests": 9.0}).reprice(work_of({"requests": 2})).seconds == 18.0


def test_speeds_are_of_kinds_and_ignore_single_outliers() -> None:
    speeds = MeasuredSpeeds()
    for _ in range(10):
        speeds.learn({"plain": 0.1}, 0.1)
    speeds.learn({"plain": 0.1}, 5.0)
    assert speeds.of("plain") == pytest.approx(1.0)
    for _ in range(5):
        speeds.learn({"explain": 1.0}, 4.0)
    assert (speeds.of("plain"), speeds.of("explain")) == pytest.approx((1.0, 4.0))
    for _ in range(20):
        speeds.learn({"explain": 1.0, "plain": 0.1}, 8.2)  # most of it is explained
    assert speeds.of("plain") == pytest.approx(1.0)
    assert speeds.of("explain") == pytest.approx(8.0, rel=0.05)


def test_the_price_of_a_request_of_the_attack_is_near_its_measured_cost() -> None:
    """1,000 short documents and 300 edges took 3.7 seconds and had a price of 0.96."""
    given = RerankInput("a query", ["word"] * 1000, edges=[(i, i + 1) for i in range(300)])
    assert 2.0 < rerank_work(given, explain=True).seconds < 6.0


class Ticking(Engine[Any]):
    """A clock, and an engine whose jobs advance it by a known time."""

    encoder = None

    def __init__(self, prices: Prices) -> None:
        self.time, self.prices, self.num_jobs = 0.0, prices, 0

    def clock(self) -> float:
        return self.time

    def answer(self, jobs, check=None):
        for job in jobs.values():
            self.num_jobs += 1
            self.time += self.prices.of(job.work().counts)
        return dict(jobs)

    def probes(self):
        return [probe_request(documents=size, edges=edges, explain=explain) for size, edges, explain in SIZES]

    def warm_up(self) -> None:
        return


def test_prices_are_measured_once_for_all_processes(tmp_path) -> None:
    truth = Prices({**TRUE, "explanations": 0.0, "explained_edges": 0.0})
    engine = Ticking(truth)
    first = load_prices(tmp_path / "prices.json", {"rerank": engine}, engine.clock)
    large = probe_request(documents=900, edges=200, explain=1).work()
    assert first["rerank"].reprice(large).seconds == pytest.approx(truth.of(large.counts), rel=0.25)
    assert load_prices(tmp_path / "prices.json", {"rerank": engine}, engine.clock) == first
    assert engine.num_jobs == len(SIZES)


def test_slow_engines_are_not_measured_for_long() -> None:
    engine = Ticking(Prices(dict.fromkeys(DEFAULT_PRICES, 1.0)))
    measure_prices({"rerank": engine}, engine.clock)
    assert engine.num_jobs == 1


def test_an_engine_answers_its_probes(artifact, encoder) -> None:
    engine = RerankEngine(artifact, encoder, limits=Limits(work_seconds=100))
    ticks = itertools.count()
    prices = measure_prices({"rerank": engine}, lambda: 1e-6 * next(ticks))
    assert set(prices) == {"rerank", "encoding"}
    assert {"requests", "edges", "characters", "explained_nodes"} <= set(prices["rerank"].seconds)
    assert len({(probe.work().kind, probe.work().num_documents) for probe in engine.probes()}) > 8
