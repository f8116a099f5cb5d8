"""``python train.py experiment=grapher_tables``: GraphER's protocol over many data sets, and the page it writes."""

import math
import os
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch

from graphrerank.cli.job_session import TrainingSession
from graphrerank.files import write_text
from graphrerank_papers.grapher.page import JudgedSet, ResultRow, ResultTables, Values, draw_plot, render_page
from graphrerank_papers.grapher.steps import Step, Work, do_steps, fingerprints
from graphrerank_papers.steps import do_step, step_file

FROZEN = {"retriever": "retriever", "PPR": "ppr", "GCS": "gcs"}
TRAINED = {"MLP": ("mlp", ("model.message_passing=false",)), "GATv2": ("gatv2", ())}
GRID = {
    "learning_rate": "module.learning_rate",
    "weight_decay": "module.weight_decay",
    "max_epochs": "trainer.max_epochs",
}
OF_THE_MODEL = {"restart_prob": "model.restart_prob"}  # may be tried too: of the GCS feature
CHOOSE_BY = "PR@10"

Results = Mapping[Step, Mapping[str, Any]]
Row = tuple[str, str]  # a model of TRAINED, and a feature mode


@dataclass(frozen=True, kw_only=True)
class GraphERTables:
    """The job; ``conf/experiment/grapher_tables.yaml`` describes its settings."""

    report: str
    judge: str
    grid: Mapping[str, Sequence[float]]
    test: Sequence[str]
    features: Sequence[str]
    seeds: Sequence[int]
    ablated: str
    ablations: Sequence[str]
    workers: int | None = None
    seed: int
    train_split: str
    val_split: str
    test_split: str

    def __post_init__(self) -> None:
        if not set(GRID) <= set(self.grid) <= {*GRID, *OF_THE_MODEL}:
            settings = f"the settings {list(GRID)}, perhaps {list(OF_THE_MODEL)}"
            raise ValueError(f"`job.grid` must have {settings}, got {list(self.grid)}")

    def __call__(self, session: TrainingSession) -> Path:
        """Do all steps that are not done, and write the page."""
        begin = time.perf_counter()
        torch.set_num_threads(1)
        workers, work = num_workers(self.workers, session.device), Work(session)
        tuning_seconds = self._tune(work)
        keys = {name: key for name, key in {**GRID, **OF_THE_MODEL}.items() if name in self.grid}
        grid = list(product(*([f"{key}={setting}" for setting in self.grid[name]] for name, key in keys.items())))

        searches = {
            (name, mode): [
                self._step(session, f"{name} {mode} with {_in_words(settings)}", name, mode, settings, searching=True)
                for settings in grid
            ]
            for mode in self.features
            for name in TRAINED
        }
        tried = do_steps(work, [step for steps in searches.values() for step in steps], workers=workers)
        chosen = {row: grid[_best(steps, tried)] for row, steps in searches.items()}

        frozen = {
            name: Step(name, system, (), (), tuple(self.test), self.test_split) for name, system in FROZEN.items()
        }
        finals = {
            (name, mode): [
                self._step(session, f"{name} {mode} seed {seed}", name, mode, (*settings, f"seed={seed}"))
                for seed in self.seeds
            ]
            for (name, mode), settings in chosen.items()
        }
        ablations = self._ablation_steps(session, chosen, finals)
        last = [*frozen.values(), *(step for steps in finals.values() for step in steps), *ablations.values()]
        done = do_steps(work, last, workers=workers)

        rows = [ResultRow(name, "", [_values(done[step])], _restart(work, step)) for name, step in frozen.items()]
        rows += [
            ResultRow(
                name,
                mode,
                [_values(done[step]) for step in steps],
                _in_words(chosen[name, mode]),
                done[steps[0]]["parameters"],
                [done[step]["train_seconds"] for step in steps],
            )
            for (name, mode), steps in finals.items()
        ]
        data, top_ks = session.training_names[0], [session, *map(work.variant, ablations.values())]
        steps_seconds = sum(result["seconds"] for result in (*tried.values(), *done.values()))
        page = ResultTables(
            command=session.command,
            encoder=str(work.dataset(session, data).encoder_name),
            top_k=session.top_k,
            tuning=_describe(work, [data], self.train_split),
            search=f"trained on {_describe(work, [data], self.train_split)} with seed {self.seed}, the "
            f"best in {CHOOSE_BY} on {_describe(work, [self.judge], self.val_split)}",
            training=f"trained on {_describe(work, session.training_names, self.train_split)}",
            grid=_in_words([f"{key}={' or '.join(map(str, self.grid[key]))}" for key in keys]),
            tried={
                _in_words(settings): {
                    f"{name} `{mode}`": _score(tried[searches[name, mode][i]]) for name, mode in searches
                }
                for i, settings in enumerate(grid)
            },
            sets=[self._judged_set(work, name, top_ks) for name in self.test],
            rows=rows,
            ablations=[ResultRow(name, self.ablated, [_values(done[step])]) for name, step in ablations.items()],
            minutes=(tuning_seconds + steps_seconds) / 60,
            workers=workers,
        )
        report = Path(self.report)
        plot = report.with_suffix(".png")
        draw_plot(plot, page)
        write_text(report, render_page(page, plot=plot.name))
        print(f"wrote {report} after {(time.perf_counter() - begin) / 60:.1f} minutes")
        return session.run_dir

    def _tune(self, work: Work) -> float:
        """Choose the restart probabilities on the whole training split; return the seconds that took."""
        session = work.session
        prepared = work.dataset(session, session.training_names[0])

        def tune() -> dict[str, Any]:
            begin = time.perf_counter()
            operators = session.tune_operators(prepared, self.train_split)
            return {"operators": operators, "seconds": time.perf_counter() - begin}

        decisive = [fingerprints(prepared), session.config["operator"], self.train_split, session.candidates_key]
        tuned = do_step(step_file(session.run_dir, "operators", decisive), tune)
        work.operators = tuned["operators"]
        print(f"restart probabilities {work.operators}: {tuned['seconds']:.0f} s", flush=True)
        return float(tuned["seconds"])

    def _step(
        self,
        session: TrainingSession,
        title: str,
        name: str,
        mode: str,
        settings: Sequence[str],
        *,
        searching: bool = False,
    ) -> Step:
        """Make the step of a trained model: one of the final ones, or one that tries settings."""
        system, overrides = TRAINED[name]
        return Step(
            title,
            system,
            (f"features={mode}", *overrides, *settings),
            tuple(session.training_names[:1] if searching else session.training_names),
            (self.judge,) if searching else tuple(self.test),
            self.val_split if searching else self.test_split,
        )

    def _ablation_steps(
        self, session: TrainingSession, chosen: Mapping[Row, tuple[str, ...]], finals: Mapping[Row, list[Step]]
    ) -> dict[str, Step]:
        """Vary the first seed's GATv2 in one thing at a time; the first entry is the model itself."""
        if not self.ablations:
            return {}
        row = ("GATv2", self.ablated)
        settings = (*chosen[row], f"seed={self.seeds[0]}")
        varied = {
            f"`{override}`": self._step(session, f"{' '.join(row)} with {override}", *row, (*settings, override))
            for override in self.ablations
        }
        return {f"GATv2, {_in_words(chosen[row])}": finals[row][0], **varied}

    def _judged_set(self, work: Work, name: str, sessions: Iterable[TrainingSession]) -> JudgedSet:
        """Describe a test set, with the ceiling of each number of candidates."""
        prepared = {session.top_k: work.dataset(session, name) for session in sessions}
        dataset = next(iter(prepared.values())).dataset
        qrels = dataset.split(self.test_split)
        return JudgedSet(
            name=dataset.name,
            num_nodes=dataset.graph.num_nodes,
            num_edges=len(dataset.graph.indices) // 2,
            num_queries=len(qrels.queries),
            num_several=int(((qrels.gains(qrels.queries) > 0).sum(dim=1) > 1).sum()),
            ceilings={top_k: candidates.ceiling(self.test_split) for top_k, candidates in prepared.items()},
        )


def num_workers(workers: int | None, device: torch.device) -> int:
    """Choose the number of processes: as asked, else one per core, or one alone with a GPU."""
    on_gpu = device.type == "cuda"
    if on_gpu and (workers or 1) > 1:
        raise ValueError(f"`job.workers` must be 1 with a GPU, got {workers}; device=cpu trainer.accelerator=cpu")
    return workers or (1 if on_gpu else os.cpu_count() or 1)


def _best(steps: Sequence[Step], results: Results) -> int:
    """Return the index of the step whose model scored best on its one data set; the first of equals."""
    means = [_score(results[step]) for step in steps]
    return means.index(max(means))


def _score(result: Mapping[str, Any]) -> float:
    """Return the mean of the measure that chooses, of a step with one data set."""
    (measured,) = result["values"].values()
    return mean(measured[CHOOSE_BY])


def _values(result: Mapping[str, Any]) -> Values:
    return {
        name: {
            measure: torch.tensor([math.nan if number is None else number for number in numbers], dtype=torch.float64)
            for measure, numbers in measures.items()
        }
        for name, measures in result["values"].items()
    }


def _describe(work: Work, names: Iterable[str], split: str) -> str:
    """Name data sets with the number of a split's queries."""
    datasets = [work.dataset(work.session, name).dataset for name in names]
    return " and ".join(
        f"{dataset.name} ({split}: {len(dataset.split(split).queries):,} queries)" for dataset in datasets
    )


def _restart(work: Work, step: Step) -> str:
    restart_prob = work.operators.get(step.system)
    return "" if restart_prob is None else f"restart probability {restart_prob}"


def _in_words(settings: Iterable[str]) -> str:
    """Describe overrides in words.

    Example:
        >>> _in_words(["module.learning_rate=0.003", "trainer.max_epochs=2"])
        'learning rate 0.003, max epochs 2'
    """
    pairs = [setting.split("=", 1) for setting in settings]
    return ", ".join(f"{key.split('.')[-1].replace('_', ' ')} {setting}" for key, setting in pairs)
