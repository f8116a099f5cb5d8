"""Whether a system prefers hubs: nodes of many neighbours."""

import math

import numpy as np
import torch
from scipy.stats import rankdata
from torch import Tensor

from graphrerank.evaluation.records import HubBias
from graphrerank.graphs import CorpusGraph, Ranking

HUB_SHARE = 0.1  # of the corpus
TOP = 10
DEPTH = 100  # nodes whose scores and degrees are correlated


def hub_bias(graph: CorpusGraph, ranking: Ranking, relevant: Tensor, *, system: str) -> HubBias | None:
    """Correlate scores with degrees (``graph.num_neighbours``), and count hubs at the top.

    ``ranking`` is ``[Q, K]``, ``relevant`` ``[Q, R]`` int64, padded with -1. None where all nodes have the same degree.
    """
    degree = graph.num_neighbours.double()
    if not degree.numel() or bool((degree == degree[0]).all()):
        return None
    nodes, scores = ranking.nodes[:, :DEPTH].cpu(), ranking.scores[:, :DEPTH].cpu().double()
    hub_degree = max(1, math.ceil(np.quantile(degree.numpy(), 1 - HUB_SHARE)))
    hub = degree >= hub_degree
    share = float(hub.double().mean())
    ranked = nodes >= 0
    degrees = degree[nodes.clamp(min=0)].masked_fill(~ranked, torch.nan)
    row = torch.arange(len(nodes)).unsqueeze(1) * graph.num_nodes
    is_relevant = torch.isin(row + nodes, (row + relevant)[relevant >= 0])
    judged = is_relevant.double().masked_fill(~ranked, torch.nan)
    scores = scores.masked_fill(~ranked, torch.nan)
    top, sought = nodes[:, :TOP], relevant[relevant >= 0]
    return HubBias(
        system=system,
        correlation=mean_spearman(scores, degrees),
        relevant_correlation=mean_spearman(judged, degrees),
        lift=float(hub[top[top >= 0]].double().mean()) / share,
        relevant_lift=float(hub[sought].double().mean()) / share,
        hub_degree=hub_degree,
    )


def mean_spearman(a: Tensor, b: Tensor) -> float:
    """Average Spearman's rank correlation over rows ``[Q, K]``, ties at their mean rank; NaN entries are left out.

    In [-1, 1]; NaN where no row has two different numbers in both.
    """
    ranks = [torch.from_numpy(rankdata(np.asarray(t), axis=1, nan_policy="omit")) for t in (a, b)]
    centred = [(rank - rank.nanmean(dim=1, keepdim=True)).nan_to_num(0.0) for rank in ranks]
    product = (centred[0] * centred[1]).sum(1)
    norms = (centred[0].square().sum(1) * centred[1].square().sum(1)).sqrt()
    return float((product / norms)[norms > 0].mean())
