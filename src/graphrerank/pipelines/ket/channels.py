"""The channels of KET-RAG's retrieval: each fills its share of a context's tokens, for many queries at once."""

import torch
from torch import Tensor, nn

from graphrerank.graphs.sparse_rows import row_entries
from graphrerank.indexes.ket import ChunkGraph, KeywordGraph, Skeleton, Texts

MARGIN = 16  # nodes that a matrix product proposes beyond those asked for, as it may round equal vectors differently
FIRST_SEEDS = 128  # rows of keywords looked at first; doubled until they are enough


class GraphChannel(nn.Module):
    r"""KG-Retrieval: seed entities, the relations at them, and the chunks that hold most of both.

    Half of the tokens go to entities and relations, half to chunks; of each kind the first ones that fit, in order:

    - entities: the ``num_seeds`` of least Euclidean distance to the query;
    - relations with a seed at an end, those between two seeds first;
    - chunks by how many of these entities and relations they hold.

    Source: KET-RAG, Algorithm 2 with the sub-chunks of section 5.1. The paper does not say how ties break: relations go
    by their nearest seed, chunks by the cosine to the query, and both then by number.

    Args:
        skeleton: Tied to chunks.
        entities: Texts of its entities.
        relation_tokens: ``[R]`` int64, lengths of its relations' texts.
        chunks: Texts of the chunks.
        num_seeds: Entities to begin with, at least 1.

    Raises:
        ValueError: If ``num_seeds`` is below 1.
    """

    entity_vectors: Tensor  # [E, d]
    entity_tokens: Tensor  # [E]
    relation_tokens: Tensor  # [R]
    chunk_tokens: Tensor  # [n]
    chunk_vectors: Tensor  # [n, d] unit
    relation_ptr: Tensor  # [E + 1]
    relation_at: Tensor  # [2 R] relations of each entity
    holder_ptr: Tensor  # [E + R + 1]
    holder: Tensor  # chunks of each entity, then of each relation

    def __init__(
        self, skeleton: Skeleton, entities: Texts, relation_tokens: Tensor, chunks: Texts, *, num_seeds: int = 10
    ) -> None:
        super().__init__()
        if num_seeds < 1:
            raise ValueError(f"`num_seeds` must be a positive integer, got {num_seeds}")
        self.num_seeds = num_seeds
        num_entities, num_relations = len(entities.texts), len(relation_tokens)
        relation = torch.arange(num_relations)
        at = torch.cat([torch.stack([end, relation], dim=1) for end in skeleton.ends.T])
        held = torch.cat([skeleton.entity_links, skeleton.relation_links + torch.tensor([num_entities, 0])])
        relation_ptr, relation_at = _rows(at, num_entities)
        holder_ptr, holder = _rows(held, num_entities + num_relations)
        for name, tensor in {
            "entity_vectors": entities.vectors,
            "entity_tokens": entities.num_tokens,
            "relation_tokens": relation_tokens,
            "chunk_tokens": chunks.num_tokens,
            "chunk_vectors": _unit(chunks.vectors),
            "relation_ptr": relation_ptr,
            "relation_at": relation_at,
            "holder_ptr": holder_ptr,
            "holder": holder,
        }.items():
            self.register_buffer(name, tensor, persistent=False)

    def forward(self, queries: Tensor, limit: int) -> tuple[Tensor, Tensor, Tensor]:
        """Choose for ``B`` queries ``[B, d]`` what fills ``limit`` tokens.

        Returns:
            Entities, relations and chunks, each ``[P, 2]`` int64 (query, number), by query and then best first.
        """
        none = torch.zeros(0, 2, dtype=torch.int64, device=queries.device)
        if not len(self.entity_tokens) or not len(queries):
            return none, none, none
        batch, half = len(queries), limit // 2
        room = torch.full((batch,), half, device=queries.device)
        seeds = _nearest_by_distance(self.entity_vectors, queries, self.num_seeds)
        query, rank = torch.nonzero(seeds >= 0, as_tuple=True)
        entity = seeds[query, rank]
        kept = fits(query, self.entity_tokens[entity], room)
        query, rank, entity = query[kept], rank[kept], entity[kept]
        entities = torch.stack([query, entity], dim=1)

        room = room.index_add(0, query, -self.entity_tokens[entity])
        origin, relation = row_entries(self.relation_ptr, self.relation_at, entity)
        num_relations = max(1, len(self.relation_tokens))
        key, place, ends = torch.unique(
            query[origin] * num_relations + relation, return_inverse=True, return_counts=True
        )
        nearest = torch.full_like(key, self.num_seeds).scatter_reduce_(0, place, rank[origin], "amin")
        order = _order(torch.div(key, num_relations, rounding_mode="floor"), -ends, nearest)
        at = torch.div(key[order], num_relations, rounding_mode="floor")
        relation = key[order] % num_relations
        kept = fits(at, self.relation_tokens[relation], room)
        relations = torch.stack([at[kept], relation[kept]], dim=1)

        query = torch.cat([entities[:, 0], relations[:, 0]])
        told = torch.cat([entities[:, 1], relations[:, 1] + len(self.entity_tokens)])
        origin, chunk = row_entries(self.holder_ptr, self.holder, told)
        num_chunks = max(1, len(self.chunk_tokens))
        key, count = torch.unique(query[origin] * num_chunks + chunk, return_counts=True)
        at, chunk = torch.div(key, num_chunks, rounding_mode="floor"), key % num_chunks
        order = _order(at, -count, -_cosines(self.chunk_vectors, queries, at, chunk))
        at, chunk = at[order], chunk[order]
        kept = fits(at, self.chunk_tokens[chunk], torch.full_like(room, half))
        return entities, relations, torch.stack([at[kept], chunk[kept]], dim=1)


class KeywordChannel(nn.Module):
    r"""Algorithm 4, lines 2 to 4: the keywords nearest to the query name the chunks that may be retrieved.

    Keywords are taken by their cosine to the query until the chunks that hold one of them have twice the tokens that
    are asked for; of these chunks the first ones by cosine that fit are kept.

    Source: KET-RAG, Algorithm 4; ties go by number.

    Args:
        keyword_graph: Keywords and their chunks.
        chunks: Texts of the chunks.
    """

    keyword_vectors: Tensor  # [G, d] unit
    indptr: Tensor  # [G + 1]
    indices: Tensor  # chunks of each row of keywords
    chunk_tokens: Tensor  # [n]
    chunk_vectors: Tensor  # [n, d] unit

    def __init__(self, keyword_graph: KeywordGraph, chunks: Texts) -> None:
        super().__init__()
        self.register_buffer("keyword_vectors", keyword_graph.vectors, persistent=False)
        self.register_buffer("indptr", keyword_graph.indptr, persistent=False)
        self.register_buffer("indices", keyword_graph.indices, persistent=False)
        self.register_buffer("chunk_tokens", chunks.num_tokens, persistent=False)
        self.register_buffer("chunk_vectors", _unit(chunks.vectors), persistent=False)

    def forward(self, queries: Tensor, limit: int) -> Tensor:
        """Choose for ``B`` queries ``[B, d]`` the chunks that fill ``limit`` tokens.

        Returns:
            ``[P, 2]`` int64 (query, chunk), by query and then best first.
        """
        num_rows = len(self.keyword_vectors)
        if not num_rows or not len(queries) or limit < 1:
            return torch.zeros(0, 2, dtype=torch.int64, device=queries.device)
        queries, count, enough = _unit(queries), min(FIRST_SEEDS, num_rows), False
        while not enough:
            query, chunk, enough = self._candidates(queries, count, 2 * limit)
            enough = enough or count == num_rows
            count = min(2 * count, num_rows)
        order = _order(query, -_cosines(self.chunk_vectors, queries, query, chunk))
        query, chunk = query[order], chunk[order]
        kept = fits(query, self.chunk_tokens[chunk], torch.full((len(queries),), limit, device=queries.device))
        return torch.stack([query[kept], chunk[kept]], dim=1)

    def _candidates(self, queries: Tensor, count: int, wanted: int) -> tuple[Tensor, Tensor, bool]:
        """List the chunks of the nearest keywords, of ``count`` rows at most, and tell whether they were enough."""
        seeds = _nearest(self.keyword_vectors, queries, count)
        origin, chunk = row_entries(self.indptr, self.indices, seeds.flatten())
        query = torch.div(origin, count, rounding_mode="floor")
        num_chunks = len(self.chunk_tokens)
        key, place = torch.unique(query * num_chunks + chunk, return_inverse=True)
        rank = torch.full_like(key, count).scatter_reduce_(0, place, origin % count, "amin")  # of its first keyword
        query, chunk = torch.div(key, num_chunks, rounding_mode="floor"), key % num_chunks
        tokens = torch.zeros(len(queries) * count, dtype=torch.int64, device=queries.device)
        tokens.index_add_(0, query * count + rank, self.chunk_tokens[chunk])
        before = tokens.view(-1, count).cumsum(1) < wanted  # more keywords are wanted behind this one
        taken = rank <= before.sum(1)[query]
        return query[taken], chunk[taken], not bool(before[:, -1].any())


class TextChannel(nn.Module):
    r"""Text-RAG and KNNG-RAG: the chunks nearest to the query, and each one's neighbours behind it if they are wanted.

    Source: KET-RAG, section 6.1: Text-RAG retrieves "only the seed nodes" of the chunks' graph, KNNG-RAG also "their
    neighbors". The paper does not say in which order; neighbours follow their seed by their cosine to the query.

    Args:
        chunks: Texts of the chunks.
        chunk_graph: Their neighbours; None for Text-RAG.
    """

    chunk_tokens: Tensor  # [n]
    chunk_vectors: Tensor  # [n, d] unit
    indptr: Tensor  # [n + 1]
    indices: Tensor  # neighbours of each chunk, itself not among them
    shortest: Tensor  # [n] tokens of the shortest chunks together

    def __init__(self, chunks: Texts, chunk_graph: ChunkGraph | None = None) -> None:
        super().__init__()
        edges = torch.zeros(0, 2, dtype=torch.int64) if chunk_graph is None else chunk_graph.edges
        indptr, indices = _rows(torch.cat([edges, edges.flip(1)]), len(chunks.texts))
        self.register_buffer("chunk_tokens", chunks.num_tokens, persistent=False)
        self.register_buffer("chunk_vectors", _unit(chunks.vectors), persistent=False)
        self.register_buffer("indptr", indptr, persistent=False)
        self.register_buffer("indices", indices, persistent=False)
        self.register_buffer("shortest", chunks.num_tokens.sort().values.cumsum(0), persistent=False)

    def forward(self, queries: Tensor, limit: int) -> Tensor:
        """Choose for ``B`` queries ``[B, d]`` the chunks that fill ``limit`` tokens.

        Returns:
            ``[P, 2]`` int64 (query, chunk), by query and then best first.
        """
        most = int((self.shortest <= limit).sum())  # as many as of the shortest chunks
        if not most or not len(queries):
            return torch.zeros(0, 2, dtype=torch.int64, device=queries.device)
        queries, num_chunks = _unit(queries), len(self.chunk_tokens)
        seeds = _nearest(self.chunk_vectors, queries, most)
        query, rank = torch.nonzero(seeds >= 0, as_tuple=True)
        seed = seeds[query, rank]
        origin, neighbour = row_entries(self.indptr, self.indices, seed)
        follows = torch.cat([torch.zeros_like(seed), torch.ones_like(neighbour)])
        query, rank = torch.cat([query, query[origin]]), torch.cat([rank, rank[origin]])
        chunk = torch.cat([seed, neighbour])
        order = _order(query, rank, follows, -_cosines(self.chunk_vectors, queries, query, chunk), chunk)
        query, chunk = query[order], chunk[order]
        first = _first(query * num_chunks + chunk)
        query, chunk = query[first], chunk[first]
        kept = fits(query, self.chunk_tokens[chunk], torch.full((len(queries),), limit, device=queries.device))
        return torch.stack([query[kept], chunk[kept]], dim=1)


def _unit(vectors: Tensor) -> Tensor:
    return torch.nn.functional.normalize(vectors.float(), dim=1)


def _rows(pairs: Tensor, num_rows: int) -> tuple[Tensor, Tensor]:
    """Put pairs (row, entry) ``[P, 2]`` into compressed sparse rows, entries ascending."""
    pairs = torch.unique(pairs, dim=0)
    indptr = torch.zeros(num_rows + 1, dtype=torch.int64)
    indptr[1:] = torch.bincount(pairs[:, 0], minlength=num_rows).cumsum(0)
    return indptr, pairs[:, 1].contiguous()


def _cosines(vectors: Tensor, queries: Tensor, query: Tensor, node: Tensor) -> Tensor:
    """Multiply pair by pair: equal vectors give equal scores in any batch, which a matrix product may not."""
    return (vectors[node] * _unit(queries)[query]).sum(1)


def _nearest(vectors: Tensor, queries: Tensor, count: int) -> Tensor:
    """Find the nodes of largest dot product, ``[B, count]`` or all there are, ties by number."""
    count = min(count, len(vectors))
    proposed = torch.topk(queries @ vectors.T, min(count + MARGIN, len(vectors)), dim=1).indices.sort(dim=1).values
    scores = (vectors[proposed] * queries.unsqueeze(1)).sum(2)
    return proposed.gather(1, torch.argsort(scores, dim=1, descending=True, stable=True)[:, :count])


def _nearest_by_distance(vectors: Tensor, queries: Tensor, count: int) -> Tensor:
    """As :func:`_nearest`, by Euclidean distance."""
    count = min(count, len(vectors))
    near = 2 * queries @ vectors.T - vectors.square().sum(1)
    proposed = torch.topk(near, min(count + MARGIN, len(vectors)), dim=1).indices.sort(dim=1).values
    distance = (vectors[proposed] - queries.unsqueeze(1)).square().sum(2)
    return proposed.gather(1, torch.argsort(distance, dim=1, stable=True)[:, :count])


def _order(*keys: Tensor) -> Tensor:
    """Order entries by the first key, then the second and so on, ascending; what is left of ties stays as it is."""
    order = torch.arange(len(keys[0]), device=keys[0].device)
    for key in reversed(keys):
        order = order[torch.argsort(key[order], stable=True)]
    return order


def _first(keys: Tensor) -> Tensor:
    """List the places where a key comes first, ascending."""
    order = torch.argsort(keys, stable=True)
    is_first = torch.ones_like(order, dtype=torch.bool)
    is_first[1:] = keys[order][1:] != keys[order][:-1]
    return order[is_first].sort().values


def fits(query: Tensor, tokens: Tensor, limit: Tensor) -> Tensor:
    """Tell which entries, ordered by query, are among the first ones of their query that fit its limit together."""
    total = tokens.cumsum(0)
    begin = torch.searchsorted(query, query)
    return total - total[begin] + tokens[begin] <= limit[query]
