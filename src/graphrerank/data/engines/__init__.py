"""Where the blocks of a corpus are worked on: in this process, or by the workers of a Ray cluster."""

from graphrerank.data.engines.local import LOCAL, Block, Engine, LocalEngine
from graphrerank.data.engines.ray_data import RayEngine

__all__ = ["LOCAL", "Block", "Engine", "LocalEngine", "RayEngine"]
