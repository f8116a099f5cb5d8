"""Score queries with a trained complexity adapter."""

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
    """Score how much queries need graph retrieval, with the complexity adapter.

    ``graphrerank train experiment=complexity_adapter`` trains the checkpoint.

    Source: "EA-GraphRAG", 2026, Algorithm 1, lines 1 and 2.

    Args:
        checkpoint: Run folder, ``.ckpt`` file or artifact folder of an adapter, or a loaded checkpoint.
        low: Maximum score of queries that take the dense path. If None, the adapter's own threshold is used.
        high: Minimum score of queries that take the graph path. If None, the adapter's own threshold is used.
        stanza_folder: Folder of Stanza's models, for an adapter trained with ``syntax: stanza``. If None, Stanza's
            default folder is used.
        cache: Folder where syntax features are cached. If None, they are not cached.
        device: Device of Stanza's parser. If None, the CPU.

    Raises:
        ValueError: If the checkpoint is not a complexity adapter, its training did not finish, or it was trained with
            other features than those of this version.
    """

    def __init__(
        self,
        *,
        checkpoint: str | Path | Checkpoint,
        low: float | None = None,
        high: float | None = None,
        stanza_folder: str | Path | None = None,
        cache: str | Path | None = None,
        device: str | torch.device | None = None,
    ) -> None:
        loaded = checkpoint if isinstance(checkpoint, Checkpoint) else load_primary(checkpoint)
        manifest = loaded.manifest
        if not isinstance(manifest, AdapterManifest):
            raise UserError(
                f"{loaded.path} must be a complexity adapter (graphrerank train experiment=complexity_adapter), got a "
                f"{manifest.model.name}"
            )
        if (trained_on := manifest.syntax.feature_names) != FEATURES:
            raise UserError(
                f"{loaded.path}: the adapter was trained on {len(trained_on)} syntax features, which differ from the "
                f"{len(FEATURES)} features of this version; train it again"
            )
        if manifest.thresholds is None:
            raise UserError(
                f"{loaded.path}: the adapter has no thresholds because its training did not finish; resume it with "
                "train.py experiment=complexity_adapter ckpt_path=RUN"
            )
        self.low = manifest.thresholds.low if low is None else low
        self.high = manifest.thresholds.high if high is None else high
        self.syntax = SyntaxFeatures(manifest.syntax.name, stanza_folder=stanza_folder, cache=cache, device=device)
        self._path, self._trained_with = loaded.path, manifest.syntax.fingerprint
        self._model = loaded.model.eval()

    @torch.inference_mode()
    def score(self, texts: Sequence[str]) -> Tensor:
        """Score queries. Warns if libraries or models have other versions than in training.

        Args:
            texts: Texts of ``B`` queries.

        Returns:
            Complexity scores s(q) ``[B]`` in [0, 1], on the CPU.
        """
        if self.syntax.fingerprint != self._trained_with:
            warnings.warn(
                f"{self._path}: the adapter was trained with the parser {self._trained_with}, but the installed parser "
                f"is {self.syntax.fingerprint}",
                stacklevel=2,
            )
        scores: Tensor = self._model(self.syntax.extract(texts))
        return scores
