"""How far the results of checkpoints that differ in their seed alone lie apart."""

from collections.abc import Sequence

import torch

from graphrerank.evaluation.findings import SeedSpread
from graphrerank.evaluation.study import SystemStudy


def seed_spreads(systems: Sequence[SystemStudy], measures: Sequence[str]) -> list[SeedSpread]:
    """Describe checkpoints that were trained alike but for the seed: how far their means lie apart."""
    alike: dict[str, list[SystemStudy]] = {}
    for system in systems:
        if system.config is not None and system.seed is not None:
            alike.setdefault(system.config, []).append(system)
    spreads = []
    for group in alike.values():
        seeds = tuple(system.seed for system in group if system.seed is not None)
        if len(set(seeds)) < 2:
            continue
        for measure in measures:
            means = torch.tensor([system.means[measure] for system in group], dtype=torch.float64)
            names = tuple(system.name for system in group)
            numbers = (means.mean(), means.std(), means.min(), means.max())
            spreads.append(SeedSpread(names, seeds, measure, *map(float, numbers)))
    return spreads
