from pathlib import Path

import pytest
from omegaconf import OmegaConf

from graphrerank.cli.serve import serve


def test_what_is_missing_or_mistyped(tmp_path: Path) -> None:
    for cfg, message in (
        ({"mode": "serve"}, "`mode` must be export, bench, http or demo, got 'serve'"),
        ({"mode": "export", "checkpoint": None}, "mode=export needs `checkpoint`"),
    ):
        with pytest.raises(ValueError, match=message):
            serve(OmegaConf.create(cfg))
