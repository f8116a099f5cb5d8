"""EA-GraphRAG's adapter, and the routing between two paths."""

from graphrerank.experiments.ea_graphrag.adapter_training import AdapterTraining
from graphrerank.experiments.ea_graphrag.routing_benchmark import RoutingBenchmark

__all__ = ["AdapterTraining", "RoutingBenchmark"]
