"""Untrained baselines, which rank the same candidates as the checkpoints."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import replace

import torch
from torch import Tensor, nn

from graphrerank.core import CandidateGraphs
from graphrerank.core.retriever import BASE_SCORE, TEXT_FEATURES
from graphrerank.evaluation.records import RETRIEVER
from graphrerank.evaluation.reranking import trained_system
from graphrerank.evaluation.systems import System, base_ranking
from graphrerank.models.manifest import RerankerManifest
from graphrerank.operators.fusion import RankFusion
from graphrerank.operators.gcs import GCS
from graphrerank.operators.ppr import PPR

PAIR_BASELINES = ("cross_encoder", "granker")  # only run if a checkpoint uses the vectors of a cross-encoder
RANK_FUSION = "rank_fusion"  # reciprocal rank fusion of BM25, dense search and PPR
GRAPH_BASELINES = ("ppr", "gcs")
OPTIONAL_BASELINES = (*GRAPH_BASELINES, RANK_FUSION)  # baselines that a caller may choose
BASELINES = (RETRIEVER, *OPTIONAL_BASELINES, *PAIR_BASELINES)


def baseline_systems(restart_probs: Mapping[str, float]) -> list[System]:
    """Build the baselines that every table of rerankers contains.

    Args:
        restart_probs: Restart probabilities of ``ppr`` and ``gcs``, in (0, 1].

    Returns:
        The retriever's ranking, PPR and GCS.
    """
    return [
        System(RETRIEVER, base_ranking, reads_graph=False),
        System("ppr", PPR(restart_prob=restart_probs["ppr"]).score),
        System("gcs", GCS(restart_prob=restart_probs["gcs"]).score),
    ]


def rank_fusion_system(
    restart_probs: Mapping[str, float], feature_names: Sequence[str], available: Sequence[str]
) -> System | None:
    """Build the baseline that fuses the ranks by BM25, dense search and PPR.

    Args:
        restart_probs: Restart probabilities of the baselines. That of ``ppr`` is used.
        feature_names: Names of the columns of ``x``.
        available: Names of the features that the retriever returns.

    Returns:
        The system, or None if the retriever does not return scores of BM25 and dense search.
    """
    if not set(TEXT_FEATURES) <= set(available) & set(feature_names):
        return None
    columns = [list(feature_names).index(name) for name in (BASE_SCORE, *TEXT_FEATURES)]
    fusion = RankFusion(restart_prob=restart_probs["ppr"])

    def score(graphs: CandidateGraphs) -> Tensor:
        return fusion.score(replace(graphs, x=graphs.x[:, columns]))

    return System(RANK_FUSION, score)


def restart_note(restart_probs: Mapping[str, float]) -> str:
    """Return a description of the restart probabilities of PPR and GCS, on which their rows depend.

    Args:
        restart_probs: Restart probabilities of ``ppr`` and ``gcs``.

    Example:
        >>> restart_note({"gcs": 0.1, "ppr": 0.7})
        'restart probabilities PPR 0.7, GCS 0.1'
    """
    return f"restart probabilities {', '.join(f'{name.upper()} {restart_probs[name]:g}' for name in GRAPH_BASELINES)}"


def reranking_systems(
    models: Mapping[str, nn.Module],
    restart_probs: Mapping[str, float],
    *,
    device: torch.device,
    scorers: Iterable[System] = (),
) -> list[System]:
    """Build the systems of a table of rerankers: baselines, additional scorers and trained models.

    Args:
        models: Trained models by row name.
        restart_probs: Restart probabilities of ``ppr`` and ``gcs``, in (0, 1].
        device: Device on which the models score candidates.
        scorers: Additional systems.

    Returns:
        Systems in the order of the table's rows.
    """
    trained = [trained_system(name, model, device) for name, model in models.items()]
    return [*baseline_systems(restart_probs), *scorers, *trained]


def baseline_settings(manifest: RerankerManifest) -> dict[str, Hashable]:
    """Return the settings that a checkpoint prescribes for each baseline.

    Args:
        manifest: Manifest of the checkpoint.

    Returns:
        Setting by name of the baseline. Checkpoints with equal settings share the baseline's row.
    """
    settings: dict[str, Hashable] = {RETRIEVER: None, **manifest.operators, RANK_FUSION: manifest.operators["ppr"]}
    if manifest.pair_encoder is not None:
        settings |= dict.fromkeys(PAIR_BASELINES, manifest.pair_encoder.fingerprint)
    return settings


def baseline_row_name(baseline: str, checkpoint: str, settings: Mapping[str, Mapping[str, Hashable]]) -> str | None:
    """Return the name of the row of a baseline that is run with the settings of a checkpoint.

    A baseline has one row per distinct setting. It is computed for the first checkpoint with this setting.

    Args:
        baseline: Name of the baseline.
        checkpoint: Label of the checkpoint.
        settings: Settings of the baselines (:func:`baseline_settings`) by label of the checkpoint.

    Returns:
        Name of the baseline, followed by the label of the checkpoint if the checkpoints have different settings. None
        if an earlier checkpoint has the same setting.

    Example:
        >>> settings = {"a": {"gcs": 0.3, "ppr": 0.1}, "b": {"gcs": 0.5, "ppr": 0.1}}
        >>> [baseline_row_name("gcs", label, settings) for label in settings]
        ['gcs-a', 'gcs-b']
        >>> [baseline_row_name("ppr", label, settings) for label in settings]
        ['ppr', None]
    """
    first_label: dict[Hashable, str] = {}
    for label, of_checkpoint in settings.items():
        if baseline in of_checkpoint:
            first_label.setdefault(of_checkpoint[baseline], label)
    if first_label[settings[checkpoint][baseline]] != checkpoint:
        return None
    return baseline if len(first_label) == 1 else f"{baseline}-{checkpoint}"
