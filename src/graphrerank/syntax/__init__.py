"""The syntax of texts as numbers: the units of syntactic complexity, and all features of a query's form."""

from graphrerank.syntax.dependency_units import DependencyUnits, approximate_units
from graphrerank.syntax.features import FEATURES
from graphrerank.syntax.stanza_parser import StanzaParser
from graphrerank.syntax.syntax_features import SyntaxFeatures
from graphrerank.syntax.tree import Tree, read_tree
from graphrerank.syntax.units import Units, count_units

__all__ = [
    "FEATURES",
    "DependencyUnits",
    "StanzaParser",
    "SyntaxFeatures",
    "Tree",
    "Units",
    "approximate_units",
    "count_units",
    "read_tree",
]
