"""Communities of entities, with their summaries."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise

import torch
from torch import Tensor


@dataclass(frozen=True)
class Rows:
    """Lists of numbers, one behind the other.

    Attributes:
        indptr: ``[n + 1]`` int64; row ``i`` is ``indices[indptr[i]:indptr[i + 1]]``.
        indices: ``[nnz]`` int64.
    """

    indptr: Tensor
    indices: Tensor

    @classmethod
    def of(cls, rows: Iterable[Sequence[int]]) -> "Rows":
        """Lay lists out.

        Example:
            >>> rows = Rows.of([[3, 1], [], [2]])
            >>> rows.indptr.tolist(), rows[0].tolist(), len(rows)
            ([0, 2, 2, 3], [3, 1], 3)
        """
        lists = list(rows)
        indptr = torch.tensor(list(accumulate(map(len, lists), initial=0)), dtype=torch.int64)
        return cls(indptr, torch.tensor([number for row in lists for number in row], dtype=torch.int64))

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

    They are numbered graph by graph, and within a graph level by level, so that a parent comes before its children.

    Attributes:
        graph: ``[C]`` int64, the graph each lies in; 0 is the general one, ``1 + t`` that of topic ``t``.
        level: ``[C]`` int64; 0 is the coarsest.
        parent: ``[C]`` int64, the community of the level above that holds it; -1 at level 0.
        members: Entity numbers of each, ascending.
        titles: ``C`` names, of their most prominent entities.
        texts: ``C`` summaries.
        num_tokens: ``[C]`` int64, of the summaries.
        vectors: ``[C, d]`` float32 unit vectors of the summaries.
        sentences: Numbers of the sentences that each summary consists of, in the order of the corpus; none where a
            language model wrote it.
        sources: Numbers of the passages that each summary was made from, ascending.
        named: Numbers of the entities that each summary names, ascending: what two summaries can share.
    """

    graph: Tensor
    level: Tensor
    parent: Tensor
    members: Rows
    titles: Sequence[str]
    texts: Sequence[str]
    num_tokens: Tensor
    vectors: Tensor
    sentences: Rows
    sources: Rows
    named: Rows

    def __len__(self) -> int:
        return len(self.texts)

    def num_levels(self, graph: int) -> int:
        """How many levels a graph has; 0 where it has no edge."""
        levels = self.level[self.graph == graph]
        return int(levels.max()) + 1 if len(levels) else 0

    def at_level(self, graph: int, level: int) -> Tensor:
        """List the communities that together hold each entity of a graph once, as finely as ``level`` has it.

        Source: GraphRAG ("From Local to Global", 2024, section 3.1.4): those of the level, and those of the levels
        above that were not split.

        Args:
            graph: 0 for the general graph, ``1 + t`` for that of topic ``t``.
            level: 0 for the coarsest; what is beyond the finest is the finest.

        Returns:
            ``[n]`` int64 community numbers, ascending.

        Raises:
            ValueError: If ``level`` is negative.
        """
        if level < 0:
            raise ValueError(f"`level` must not be negative, got {level}")
        split = torch.zeros(len(self) + 1, dtype=torch.bool)
        split[self.parent] = True  # the last place takes what has no parent
        whole = (self.level < level) & ~split[:-1]
        return ((self.graph == graph) & (whole | (self.level == level))).nonzero().flatten()
