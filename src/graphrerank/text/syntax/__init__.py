"""The syntax of texts as numbers: the units of syntactic complexity, and all features of a query's form."""

from graphrerank.text.syntax.dependency_units import DependencyUnits, approximate_units
from graphrerank.text.syntax.features import FEATURES, Feature
from graphrerank.text.syntax.stanza_parser import StanzaParser
from graphrerank.text.syntax.syntax_features import SyntaxFeatures, UnitCounter
from graphrerank.text.syntax.tree import Tree, read_tree
from graphrerank.text.syntax.units import Units, count_units

__all__ = [
    "FEATURES",
    "DependencyUnits",
    "Feature",
    "StanzaParser",
    "SyntaxFeatures",
    "Tree",
    "UnitCounter",
    "Units",
    "approximate_units",
    "count_units",
    "read_tree",
]
