"""Communities of entities, with their summaries."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor

from graphrerank.checks import check_not_negative


@dataclass(frozen=True)
class Rows:
    """Lists of integers of any length, concatenated."""

    indptr: Tensor  # `[n + 1]` int64; row `i` is `indices[indptr[i]:indptr[i + 1]]`
    indices: Tensor  # `[nnz]` int64

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> "Rows":
        """Concatenate lists.

        Example:
            >>> rows = Rows.of([[3, 1], [], [2]])
            >>> rows.indptr.tolist(), rows[0].tolist(), len(rows)
            ([0, 2, 2, 3], [3, 1], 3)
        """
        lists = list(rows)
        indptr = torch.tensor(list(accumulate(map(len, lists), initial=0)), dtype=torch.int64)
        return cls(indptr, torch.tensor([entry for row in lists for entry in row], dtype=torch.int64))

    def __len__(self) -> int:
        return len(self.indptr) - 1

    def __getitem__(self, row: int) -> Tensor:
        if not 0 <= row < len(self):
            raise IndexError(row)
        return self.indices[self.indptr[row] : self.indptr[row + 1]]

    def tolist(self) -> list[list[int]]:
        """Return the lists."""
        flat, bounds = self.indices.tolist(), self.indptr.tolist()
        return [flat[start:stop] for start, stop in pairwise(bounds)]


@dataclass(frozen=True)
class Communities:
    """Communities of all graphs of an index, with their summaries.

    They are ordered by graph, then by level, so a parent precedes its children.
    """

    graph: Tensor  # `[C]` int64, the graph of each; 0 is the general one, `1 + t` that of topic `t`
    level: Tensor  # `[C]` int64; 0 is the coarsest
    parent: Tensor  # `[C]` int64, the community of the level above that contains it; -1 at level 0
    members: Rows  # entities of each, ascending
    titles: Sequence[str]  # `C` titles, the names of the most prominent entities
    texts: Sequence[str]  # `C` summaries
    num_tokens: Tensor  # `[C]` int64, of the summaries
    vectors: Tensor  # `[C, d]` float32 unit vectors of the summaries
    sentences: Rows  # sentences that each summary consists of, in corpus order; empty if a language model wrote it
    sources: Rows  # passages that each summary was made from, ascending
    named: Rows  # entities that each summary names, ascending

    def __len__(self) -> int:
        return len(self.texts)

    def num_levels(self, graph: int) -> int:
        """Return the number of levels of a graph; 0 if it has no edge."""
        levels = self.level[self.graph == graph]
        return int(levels.max()) + 1 if len(levels) else 0

    def at_level(self, graph: int, level: int) -> Tensor:
        """Return the communities of a level, and those of coarser levels that were not split: ``[n]`` int64, ascending.

        Together they contain each entity of the graph once. Source: GraphRAG ("From Local to Global", 2024, section
        3.1.4).
        """
        check_not_negative(level=level)
        is_split = torch.zeros(len(self) + 1, dtype=torch.bool)
        is_split[self.parent] = True  # a parent of -1 sets the last element, which is dropped below
        unsplit = (self.level < level) & ~is_split[:-1]
        return ((self.graph == graph) & (unsplit | (self.level == level))).nonzero().flatten()
