"""Evaluate routing on equal numbers of single-hop and multi-hop questions.

``graphrerank evaluate experiment=ea_benchmark`` runs the evaluation.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import one_hot

from graphrerank.config.components import ComponentFactory
from graphrerank.evaluation.significance import paired_randomization
from graphrerank.models.checkpoint import load_primary
from graphrerank.pipelines.router import DENSE, GRAPH, ROUTES, choose_routes
from graphrerank.utils.checks import UserError, check_counts
from graphrerank_papers.ea_graphrag.complexity_adapter import AdapterManifest
from graphrerank_papers.ea_graphrag.scorers import AdapterScorer
from graphrerank_papers.ea_graphrag.two_paths import ROUTED_MEASURES, PathRunner, TwoPaths, path_settings, question_key
from graphrerank_papers.experiments import Experiment, hashed_order, write_tables

#: Measure that the oracle maximises and that the significance tests compare.
ORACLE_MEASURE = "PR@5"
FULL_FEATURES = "full"
#: Routing policies, in the order of the table.
ROUTINGS = (*ROUTES, "random", "no fusion", FULL_FEATURES, "oracle")
#: Routing policies that use the adapter's scores. Their time includes the scoring.
PAID = ("fusion", "no fusion", FULL_FEATURES)

#: Outcomes of all routes on ``n`` questions, float64. The ``ROUTED_MEASURES`` and ``seconds`` have the shape ``[n,
#: 3]``, one column per route. A measure is NaN where it is undefined. The adapter's ``scores`` s(q), and
#: ``route_seconds``, the time to score a question, have the shape ``[n]``.
Choices = Mapping[str, Tensor]


@dataclass(frozen=True, kw_only=True)
class RoutingBenchmark(Experiment):
    """Job that compares routing policies, with the settings of ``conf/experiment/ea_benchmark.yaml``.

    Measures:

    - Hit@k: at least one relevant passage is in the top k (R@k in the paper).
    - PR@5: all relevant passages are in the top 5.
    - Answer@5: the text of the top 5 contains a right answer. Only for questions with an answer.
    - ms: milliseconds per question, measured on batches and without query encoding. Policies that use the adapter also
      pay for parsing the question.

    Each path retrieves once per question, and all policies choose between these rankings. Duplicate questions, and
    questions that the adapter was trained or validated on, are ignored.

    Attributes:
        checkpoint: Run folder, ``.ckpt`` file or artifact of a trained complexity adapter.
        encoder: Configuration of the text encoder.
        single_hop: Settings of each data set of single-hop questions, by name, as in :meth:`PathRunner.read`.
        multi_hop: Settings of each data set of multi-hop questions, by name.
        dense: Pipeline of the dense path, a name in ``conf/pipeline``. Must equal that of the training.
        graph: Pipeline of the graph path, a name in ``conf/pipeline``. Must equal that of the training.
        stanza_folder: Folder of Stanza's models, for an adapter trained with ``syntax: stanza``. If None, Stanza's
            default folder is used.
        merged: Whether all questions search one corpus with the passages of all data sets, as in the paper's mixed
            setting. By default, each data set has its own corpus.
        draws: Number of random routings.
        seed: Random seed of the draws, and of the selection of questions that makes both halves equally large.
    """

    checkpoint: str
    encoder: Any
    single_hop: Mapping[str, Mapping[str, Any]]
    multi_hop: Mapping[str, Mapping[str, Any]]
    dense: str
    graph: str
    stanza_folder: str | None = None
    merged: bool = False
    draws: int
    seed: int

    def __call__(self, parts: ComponentFactory, run_dir: Path) -> Path:
        """Compare all routing policies, and write the report.

        Args:
            parts: Factory of the components of both paths. Also provides the cache folder.
            run_dir: Folder of the run.

        Returns:
            Folder of the run.

        Raises:
            ValueError: If ``checkpoint`` is not a trained complexity adapter, was trained on other paths, or was
                trained on all questions of a data set.
        """
        torch.set_num_threads(parts.num_threads)
        manifest = load_primary(self.checkpoint).manifest
        if not isinstance(manifest, AdapterManifest) or manifest.without_fusion is None:
            raise UserError(f"{self.checkpoint} must be a trained complexity adapter, got a {manifest.model.name}")
        entries = {**self.single_hop, **self.multi_hop}
        names = {"dense": self.dense, "graph": self.graph}
        runner = PathRunner(parts, names, encoder=self.encoder, merged=entries if self.merged else None)
        _check_paths(runner, manifest)
        scorer = AdapterScorer(checkpoint=self.checkpoint, stanza_folder=self.stanza_folder, device=parts.device)
        sets = {name: runner.read(name, entry, seed=self.seed) for name, entry in entries.items()}
        choices = {name: measure_choices(paths, scorer) for name, paths in sets.items()}
        new = _new_rows(sets, {key for keys in manifest.questions.values() for key in keys})
        rows = _halved(sets, new, [list(self.single_hop), list(self.multi_hop)], seed=self.seed)
        halved = {
            name: {key: column[rows[name]] for key, column in choices[name].items()} for name in sets if rows[name]
        }
        without_fusion = (manifest.without_fusion.low, manifest.without_fusion.high)
        compare = partial(
            compare_routing,
            thresholds=(scorer.low, scorer.high),
            without_fusion=without_fusion,
            draws=self.draws,
            seed=self.seed,
        )
        mix = {key: torch.cat([columns[key] for columns in halved.values()]) for key in next(iter(choices.values()))}
        tables: dict[str, list[dict[str, Any]]] = {"tests": []}
        for name, columns in {"all": mix, **halved}.items():
            tables[name], tests = compare(columns)
            tables["tests"].append({"questions of": name, **tests})
        tables["sets"] = [{"set": name, "left out": len(paths) - len(new[name])} for name, paths in sets.items()]
        print(write_tables(run_dir, "Routing", tables))
        return run_dir


def _check_paths(runner: PathRunner, manifest: AdapterManifest) -> None:
    """Raise an error if the adapter was trained to choose between other paths."""
    for path, pipeline in runner.pipelines.items():
        if (trained := manifest.paths.get(path)) is None:
            raise UserError(f"{manifest.source}: the manifest has no entry `paths.{path}`")
        if path_settings(trained["settings"]["steps"]) != path_settings(pipeline)["steps"]:
            raise UserError(
                f"`checkpoint` was trained on {path}={trained['choice']} with other settings than the {path} path of "
                f"this job; set job.{path}=NAME to another pipeline of conf/pipeline"
            )


def measure_choices(paths: TwoPaths, scorer: AdapterScorer) -> Choices:
    """Score the questions of a data set, and measure every route on each of them.

    Args:
        paths: Questions of the data set with the rankings of both paths.
        scorer: Scorer with the trained adapter.

    Returns:
        Outcomes of all routes; see :data:`Choices`.
    """
    texts = paths.queries.texts
    scorer.score(texts[:1])  # load the models before timing
    begin = time.perf_counter()
    scores = scorer.score(texts)
    route_seconds = (time.perf_counter() - begin) / len(paths)
    rankings, seconds = paths.routes(scores)
    measured = [paths.measure(ranking.nodes) for ranking in rankings]
    return {
        **{measure: torch.stack([route[measure] for route in measured], dim=1) for measure in ROUTED_MEASURES},
        "seconds": seconds,
        "scores": scores,
        "route_seconds": torch.full(scores.shape, route_seconds, dtype=torch.float64),
    }


def _new_rows(sets: Mapping[str, TwoPaths], seen: set[str]) -> dict[str, list[int]]:
    """Return the rows of questions whose text is neither a duplicate nor in ``seen``, by data set."""
    new: dict[str, list[int]] = {name: [] for name in sets}
    for name, paths in sets.items():
        for row, text in enumerate(paths.queries.texts):
            if (key := question_key(text)) not in seen:
                seen.add(key)
                new[name].append(row)
        if not new[name]:
            raise UserError(f"the adapter was trained on all questions of data set {name!r}; remove it from the job")
    return new


def _halved(
    sets: Mapping[str, TwoPaths], rows: Mapping[str, Sequence[int]], halves: Sequence[Sequence[str]], *, seed: int
) -> dict[str, list[int]]:
    """Subsample the larger half to the size of the smaller one, by a hash of the question ids."""
    listed = [[(name, row) for name in names for row in rows[name]] for names in halves]
    sampled: dict[str, list[int]] = {name: [] for name in sets}
    for half in listed:
        order = hashed_order([f"{name} {sets[name].queries.ids[row]}" for name, row in half], seed)
        for name, row in sorted(half[position] for position in order[: min(map(len, listed))]):
            sampled[name].append(row)
    return sampled


def compare_routing(
    choices: Choices,
    *,
    thresholds: tuple[float, float],
    without_fusion: tuple[float, float],
    draws: int = 1000,
    seed: int = 0,
) -> tuple[list[dict[str, Any]], dict[str, Any]]:
    r"""Compare policies that choose a route for each question.

    - ``dense``, ``graph`` and ``fusion`` send all questions along the same route.
    - ``random`` assigns the routes of ``full`` to the questions at random. Results are averaged over the draws.
    - ``full`` routes by the adapter's scores and ``thresholds``. ``no fusion`` routes by the scores and the middle of
      ``without_fusion``.
    - ``oracle`` knows which routes are right (by PR@5) and takes the fastest of them.

    A permutation test over the draws checks whether the routes of ``full`` depend on the questions:

    .. math:: p = \frac{1 + |\{d : \bar v_d \ge \bar v\}|}{1 + D}

    where :math:`\bar v` is the mean PR@5 of ``full``, :math:`\bar v_d` that of draw :math:`d`, and :math:`D` the number
    of draws.

    Args:
        choices: Outcomes of all routes on ``n`` questions.
        thresholds: Low and high threshold of ``full``.
        without_fusion: Low and high threshold between which there is no score. ``no fusion`` uses their mean.
        draws: Number of random routings.
        seed: Random seed of the draws.

    Returns:
        One table row per policy, with its mean measures, the milliseconds per question (``ms``) and the share of each
        route; and a dictionary of tests on PR@5. The dictionary has the p-values of paired randomisation tests of
        ``full`` against ``random``, ``dense`` and ``graph``, the p-value of the permutation test (``p draws``), and the
        ``regret``: the mean PR@5 of the oracle minus that of ``full``.

    Raises:
        ValueError: If ``draws`` is not positive.
    """
    check_counts(draws=draws)
    scores, seconds = choices["scores"], choices["seconds"]
    routes = choose_routes(scores, *thresholds)
    binary = torch.where(scores.double() >= sum(without_fusion) / 2, GRAPH, DENSE)
    penalty = 1e-6 * seconds / seconds.max().clamp(min=1e-30)  # ties go to the fastest
    best = (choices[ORACLE_MEASURE] - penalty).argmax(1)
    rates, drawn = _random_rates(choices[ORACLE_MEASURE], routes, draws, seed)
    routed = {way: torch.full_like(routes, route) for route, way in enumerate(ROUTES)}
    routed |= {"no fusion": binary, FULL_FEATURES: routes, "oracle": best}
    shares = {way: one_hot(chosen, len(ROUTES)).double() for way, chosen in routed.items()} | {"random": rates}
    values = {  # [n] for each policy and measure
        way: {key: torch.where(shares[way] > 0, choices[key] * shares[way], 0).sum(1) for key in ROUTED_MEASURES}
        for way in ROUTINGS
    }
    rows = [
        {
            "paths": way,
            **{key: float(value.nanmean()) for key, value in values[way].items() if not bool(value.isnan().all())},
            "ms": 1000 * float(((seconds * shares[way]).sum(1) + (way in PAID) * choices["route_seconds"]).mean()),
            **{f"to {route}": share for route, share in zip(ROUTES, shares[way].mean(0).tolist(), strict=True)},
        }
        for way in ROUTINGS
    ]
    full = values[FULL_FEATURES][ORACLE_MEASURE]
    as_good = int((drawn >= full.mean() - 1e-9).sum())
    tests = ("random", "dense", "graph")
    return rows, {
        "questions": len(scores),
        **{f"p {way}": float(paired_randomization(full, values[way][ORACLE_MEASURE])) for way in tests},
        "p draws": (1 + as_good) / (1 + draws),
        "regret": float(values["oracle"][ORACLE_MEASURE].mean() - full.mean()),
    }


def _random_rates(values: Tensor, routes: Tensor, draws: int, seed: int) -> tuple[Tensor, Tensor]:
    """Permute the routes among the questions, and return each question's route frequencies and each draw's mean."""
    generator = torch.Generator().manual_seed(seed)
    times = torch.zeros(values.shape, dtype=torch.float64)
    ones, means = torch.ones(len(routes), 1, dtype=torch.float64), []
    for _ in range(draws):
        dealt = routes[torch.randperm(len(routes), generator=generator)].unsqueeze(1)
        times.scatter_add_(1, dealt, ones)
        means.append(values.gather(1, dealt).mean())
    return times / draws, torch.stack(means)
