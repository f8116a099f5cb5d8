"""How much queries need the graph, by a trained complexity adapter."""

import warnings
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from graphrerank.models.checkpoint import Checkpoint, load_primary
from graphrerank.utils.checks import UserError
from graphrerank_papers.ea_graphrag.complexity_adapter import AdapterManifest
from graphrerank_papers.ea_graphrag.syntax.features import FEATURES, SyntaxFeatures


class AdapterScorer:
    """Scores how much queries need the graph, with a checkpoint of ``python train.py experiment=complexity_adapter``.

    Source: "EA-GraphRAG", 2026, Algorithm 1, lines 1 and 2.

    ``checkpoint`` is a run folder, a ``.ckpt`` file, artifact folder, or a loaded one; ``low`` and ``high`` are its
    thresholds by default. ``stanza_folder`` is that of Stanza's model, if it was trained with ``syntax: stanza``.
    ``cache`` is a folder that keeps the syntax of queries; nothing is kept when None.
    """

    def __init__(
        self,
        *,
        checkpoint: str | Path | Checkpoint,
        low: float | None = None,
        high: float | None = None,
        stanza_folder: str | Path | None = None,
        cache: str | Path | None = None,
    ) -> None:
        loaded = checkpoint if isinstance(checkpoint, Checkpoint) else load_primary(checkpoint)
        manifest = loaded.manifest
        if not isinstance(manifest, AdapterManifest):
            raise UserError(
                f"{loaded.path}: needed a complexity adapter (train.py experiment=complexity_adapter), found a "
                f"{manifest.model.name}"
            )
        if (trained_on := manifest.syntax.feature_names) != FEATURES:
            raise UserError(
                f"{loaded.path}: was trained on {len(trained_on)} features of syntax, which are not the "
                f"{len(FEATURES)} of this version; train it again"
            )
        if manifest.thresholds is None:
            raise UserError(
                f"{loaded.path}: the training of this adapter did not finish, so it has no thresholds; resume it with "
                "train.py experiment=complexity_adapter ckpt_path=RUN"
            )
        self.low = manifest.thresholds.low if low is None else low
        self.high = manifest.thresholds.high if high is None else high
        self.syntax = SyntaxFeatures(manifest.syntax.name, stanza_folder=stanza_folder, cache=cache)
        self._path, self._trained_with = loaded.path, manifest.syntax.fingerprint
        self._model = loaded.model.eval()

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries: s(q), ``[B]`` in [0, 1], on the CPU.

        Warns if the features come from other versions of libraries or models than in training.
        """
        if self.syntax.fingerprint != self._trained_with:
            warnings.warn(
                f"{self._path}: was trained on syntax by {self._trained_with}, this is {self.syntax.fingerprint}",
                stacklevel=2,
            )
        scores: Tensor = self._model(self.syntax.extract(texts))
        return scores
