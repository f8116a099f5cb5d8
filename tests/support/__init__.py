"""What tests of several packages share: data, models without weights, and commands."""

from pathlib import Path

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
PAPERS_CONF = ROOT / "src" / "graphrerank_papers" / "conf"
