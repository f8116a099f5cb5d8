"""``python train.py experiment=grapher_tables``: GraphER's protocol over many data sets, and the page it writes."""

import json
import math
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import torch
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.compose import without_paths
from graphrerank.cli.train import be_quiet, tune_operators
from graphrerank.experiments.grapher.page import JudgedSet, ResultRow, ResultTables, Values, draw_plot, render_page
from graphrerank.experiments.grapher.steps import Step, Work, do_steps, fingerprints, num_workers
from graphrerank.files import hash_json, write_text

FROZEN = {"base": "base_ranking", "PPR": "ppr", "GCS": "gcs"}
TRAINED = {"MLP": ("mlp", ("model.message_passing=false",)), "GATv2": ("gatv2", ())}
GRID = {
    "learning_rate": "module.learning_rate",
    "weight_decay": "module.weight_decay",
    "max_epochs": "trainer.max_epochs",
}
CHOOSE_BY = "PR@10"

Found = Mapping[Step, Mapping[str, Any]]


def write_tables(cfg: DictConfig) -> Path:
    """Do all that is not done, write the page, and return the run folder, which is also the last line printed."""
    begin = time.perf_counter()
    be_quiet()
    torch.set_num_threads(1)
    plan, workers = cfg.tables, num_workers(cfg)
    work = Work(cfg, HydraConfig.get().overrides.task)
    data, tuning_seconds = work.data_name, _tune(work)

    searches = {
        (name, mode): [
            _trained_step(work, f"{name} {mode} with {_in_words(settings)}", name, mode, settings, searching=True)
            for settings in _grid(plan.grid)
        ]
        for mode in plan.features
        for name in TRAINED
    }
    found = do_steps(work, [step for steps in searches.values() for step in steps], workers=workers)
    chosen = {row: _best(steps, found, _grid(plan.grid)) for row, steps in searches.items()}

    frozen = {name: Step(name, system, (), (), tuple(plan.test), cfg.test_split) for name, system in FROZEN.items()}
    finals = {
        (name, mode): [
            _trained_step(work, f"{name} {mode} seed {seed}", name, mode, (*settings, f"seed={seed}"))
            for seed in plan.seeds
        ]
        for (name, mode), settings in chosen.items()
    }
    ablations = _ablation_steps(work, chosen, finals)
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
    steps_seconds = sum(result["seconds"] for result in (*found.values(), *done.values()))
    page = ResultTables(
        command=f"python train.py {shlex.join(map(without_paths, work.arguments))}",
        encoder=str(work.parts(cfg)[data].encoder_name),
        top_k=cfg.retriever.top_k,
        tuning=_describe(work, [data], cfg.batches.train_split),
        search=f"trained on {_describe(work, [data], cfg.batches.train_split)} with seed {cfg.seed}, the "
        f"best in {CHOOSE_BY} on {_describe(work, [plan.judge], cfg.batches.val_split)}",
        training=f"trained on {_describe(work, [data, *(cfg.mix or {})], cfg.batches.train_split)}",
        grid=_in_words([f"{key}={' or '.join(map(str, tried))}" for key, tried in plan.grid.items()]),
        sets=[_judged_set(work, name, [cfg, *map(work.job, ablations.values())]) for name in plan.test],
        rows=rows,
        ablations=[ResultRow(name, plan.ablated, [_values(done[step])]) for name, step in ablations.items()],
        minutes=(tuning_seconds + steps_seconds) / 60,
        workers=workers,
    )
    report = Path(plan.report)
    plot = report.with_suffix(".png")
    draw_plot(plot, page)
    write_text(report, render_page(page, plot=plot.name))
    print(f"wrote {report} after {(time.perf_counter() - begin) / 60:.1f} minutes")
    print(work.run_dir, flush=True)
    return work.run_dir


def _tune(work: Work) -> float:
    """Choose the restart probabilities on the whole training split; return the seconds that took."""
    job = deepcopy(work.cfg)
    job.batches.val_split = job.batches.train_split
    prepared = work.parts(job)[work.data_name]
    asked = {name: entry.restart_prob for name, entry in job.operator.items()}
    parts = [fingerprints(prepared), asked, job.batches.val_split, OmegaConf.to_container(job.retriever, resolve=True)]
    file = work.run_dir / "steps" / f"operators-{hash_json(parts)}.json"
    if not file.is_file():
        begin = time.perf_counter()
        found = {"operators": tune_operators(job, prepared), "seconds": time.perf_counter() - begin}
        write_text(file, json.dumps(found) + "\n")
    found = json.loads(file.read_text(encoding="utf-8"))
    work.operators = found["operators"]
    print(f"restart probabilities {work.operators}: {found['seconds']:.0f} s", flush=True)
    return float(found["seconds"])


def _trained_step(
    work: Work, title: str, name: str, mode: str, settings: Sequence[str], *, searching: bool = False
) -> Step:
    system, overrides = TRAINED[name]
    cfg = work.cfg
    return Step(
        title,
        system,
        (f"features={mode}", *overrides, *settings),
        (work.data_name,) if searching else (work.data_name, *(cfg.mix or {})),
        (cfg.tables.judge,) if searching else tuple(cfg.tables.test),
        cfg.batches.val_split if searching else cfg.test_split,
    )


def _ablation_steps(
    work: Work, chosen: Mapping[tuple[str, str], tuple[str, ...]], finals: Mapping[tuple[str, str], list[Step]]
) -> dict[str, Step]:
    """Vary the first seed's GATv2 in one thing at a time; the first entry is the model itself."""
    plan = work.cfg.tables
    if not plan.ablations:
        return {}
    row = ("GATv2", plan.ablated)
    settings = (*chosen[row], f"seed={plan.seeds[0]}")
    varied = {
        f"`{override}`": _trained_step(work, f"{' '.join(row)} with {override}", *row, (*settings, override))
        for override in plan.ablations
    }
    return {f"GATv2, {_in_words(chosen[row])}": finals[row][0], **varied}


def _grid(tried: DictConfig) -> list[tuple[str, ...]]:
    """List all combinations of settings as overrides."""
    return list(product(*([f"{override}={setting}" for setting in tried[key]] for key, override in GRID.items())))


def _best(steps: Sequence[Step], found: Found, grid: Sequence[tuple[str, ...]]) -> tuple[str, ...]:
    """Return the settings whose model did best; the first of equals."""
    means = [mean(_only(found[step]["values"])[CHOOSE_BY]) for step in steps]
    return grid[means.index(max(means))]


def _only(values: Mapping[str, Any]) -> Any:
    (entry,) = values.values()
    return entry


def _values(result: Mapping[str, Any]) -> Values:
    return {
        name: {
            measure: torch.tensor([math.nan if number is None else number for number in numbers], dtype=torch.float64)
            for measure, numbers in measures.items()
        }
        for name, measures in result["values"].items()
    }


def _judged_set(work: Work, name: str, jobs: Iterable[DictConfig]) -> JudgedSet:
    prepared = {job.retriever.top_k: work.dataset(job, name) for job in jobs}
    dataset, split = next(iter(prepared.values())).dataset, work.cfg.test_split
    qrels = dataset.split(split)
    return JudgedSet(
        name=dataset.name,
        num_nodes=dataset.graph.num_nodes,
        num_edges=len(dataset.graph.indices) // 2,
        num_queries=len(qrels.queries),
        num_several=int(((qrels.gains(qrels.queries) > 0).sum(dim=1) > 1).sum()),
        ceilings={top_k: one.ceiling(split) for top_k, one in prepared.items()},
    )


def _describe(work: Work, names: Iterable[str], split: str) -> str:
    """Name data sets with the number of a split's queries."""
    datasets = [work.dataset(work.cfg, name).dataset for name in names]
    return " and ".join(f"{one.name} ({split}: {len(one.split(split).queries):,} queries)" for one in datasets)


def _restart(work: Work, step: Step) -> str:
    restart_prob = work.operators.get(step.system)
    return "" if restart_prob is None else f"restart probability {restart_prob}"


def _in_words(settings: Iterable[str]) -> str:
    """Write overrides for people.

    Example:
        >>> _in_words(["module.learning_rate=0.003", "trainer.max_epochs=2"])
        'learning rate 0.003, max epochs 2'
    """
    pairs = [setting.split("=", 1) for setting in settings]
    return ", ".join(f"{key.split('.')[-1].replace('_', ' ')} {setting}" for key, setting in pairs)
