"""Context of a running command: its configuration, components and loggers."""

import shlex
from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from graphrerank.cli.tracking import Tracking
from graphrerank.config.components import ComponentFactory, ConfiguredComponent
from graphrerank.utils.checks import UserError
from graphrerank.utils.redaction import redact, without_passwords

NONE = "none"  # file of `conf/encoder` that disables the encoder


class CommandContext:
    """Configuration, run folder, loggers and components of a running command.

    Args:
        cfg: Composed configuration of the command.

    Attributes:
        cfg: Composed configuration of the command.
        run_dir: Run folder.
        tracking: Tracked runs of the command.
        parts: Factory that builds the components.
    """

    def __init__(self, cfg: DictConfig) -> None:
        self.cfg, self.run_dir, self.tracking = cfg, Path(cfg.paths.run_dir), Tracking()
        self.parts = ComponentFactory(
            paths=dict(cfg.paths),
            device=cfg.device,
            num_threads=cfg.num_threads,
            seed=cfg.get("seed", 0),
            on_dataset=self.tracking.reads_data,
        )

    @property
    def line(self) -> str:
        """Command line, without paths of this machine."""
        hydra = HydraConfig.get()
        return shlex.join(["graphrerank", str(hydra.job.name), *map(without_paths, hydra.overrides.task)])

    @property
    def config(self) -> dict[str, Any]:
        """Unresolved configuration, without paths of this machine."""
        return portable_config(self.cfg)

    def choice(self, group: str) -> str:
        """Return the name of the selected file of ``conf/<group>``.

        Args:
            group: Name of the group.
        """
        return str(HydraConfig.get().runtime.choices[group])

    def chosen(self, group: str) -> ConfiguredComponent | None:
        """Return the configured component of a group.

        Args:
            group: Name of the group of ``conf``.

        Returns:
            The component with its resolved settings, or None if the group is null.
        """
        settings: DictConfig | None = deepcopy(self.cfg[group])
        if settings is None:
            return None
        OmegaConf.resolve(settings)
        return ConfiguredComponent(settings, self.choice(group))

    def chosen_encoder(self) -> ConfiguredComponent | str | None:
        """Return the configured text encoder.

        Returns:
            The encoder with its resolved settings, ``"none"`` if ``encoder=none`` disables encoders, or None if the
            group is null.
        """
        return NONE if self.choice("encoder") == NONE else self.chosen("encoder")

    def mixed_data(self) -> dict[str, ConfiguredComponent]:
        """Return the data sets of ``mix``, on which a model is trained in addition to ``data``.

        Returns:
            Configured data sets by name.

        Raises:
            ValueError: If ``mix`` contains the data set of ``data``, or a data set that does not exist.
        """
        first, mixed = self.choice("data"), dict[str, ConfiguredComponent]()
        for name, entry in (self.cfg.mix or {}).items():
            if name == first:
                raise UserError(f"`mix` must not contain the data set of `data`, got {first!r}")
            changes = dict(entry or {})
            mixed[str(name)] = self.parts.component("data", str(changes.pop("data", name)), **changes)
        return mixed


def portable_config(cfg: DictConfig) -> dict[str, Any]:
    """Return the unresolved configuration of a command, without paths of this machine.

    Args:
        cfg: Composed configuration.
    """
    content = OmegaConf.to_container(cfg, resolve=False)
    assert isinstance(content, dict)
    return {str(key): redact(entry) for key, entry in content.items() if key not in ("paths", "ckpt_path")}


def without_paths(override: str) -> str:
    """Return an override without paths of this machine and without passwords.

    Args:
        override: Override of a setting, as ``KEY=VALUE``.

    Example:
        >>> without_paths("paths.datasets=/home/me/data")
        'paths.datasets=DIR'
    """
    key = override.split("=", 1)[0]
    return f"{key}=DIR" if key.startswith("paths.") else without_passwords(override)
