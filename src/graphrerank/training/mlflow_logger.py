"""Lightning's logger of MLflow for our measures' names, and for runs that go on with other settings."""

import re
from argparse import Namespace
from collections.abc import Mapping
from typing import Any

from lightning.pytorch.loggers import MLFlowLogger
from lightning.pytorch.utilities import rank_zero_only


class MLflowLogger(MLFlowLogger):
    """Log ``ndcg@10`` as ``ndcg_at_10``, as MLflow's names hold no ``@``, and a changed setting as a tag."""

    @rank_zero_only  # type: ignore[untyped-decorator]
    def log_metrics(self, metrics: Mapping[str, float], step: int | None = None) -> None:
        """Send numbers under names that MLflow takes."""
        super().log_metrics({mlflow_name(name): number for name, number in metrics.items()}, step)

    @rank_zero_only  # type: ignore[untyped-decorator]
    def log_hyperparams(self, params: dict[str, Any] | Namespace) -> None:
        """Send settings, nested ones under their joined names; what has changed since the run began as tags."""
        given = params if isinstance(params, Mapping) else vars(params)
        flat = {mlflow_name(name): str(setting)[:250] for name, setting in _flat(given)}
        first = self.experiment.get_run(self.run_id).data.params
        super().log_hyperparams({name: setting for name, setting in flat.items() if name not in first})
        for name, setting in flat.items():
            if first.get(name, setting) != setting:
                self.experiment.set_tag(self.run_id, f"resumed.{name}", setting)


def mlflow_name(name: str) -> str:
    """Return a name of letters, digits and ``_ - . /`` and spaces alone.

    Example:
        >>> [mlflow_name(name) for name in ("val/ndcg@10", "toy/a+b/mrr")]
        ['val/ndcg_at_10', 'toy/a-b/mrr']
    """
    return re.sub(r"[^\w/. -]", "-", name.replace("@", "_at_"), flags=re.ASCII)


def _flat(settings: Mapping[str, Any], path: str = "") -> list[tuple[str, Any]]:
    pairs: list[tuple[str, Any]] = []
    for key, setting in settings.items():
        inner = f"{path}/{key}".strip("/")
        pairs += _flat(setting, inner) if isinstance(setting, Mapping) else [(inner, setting)]
    return pairs
