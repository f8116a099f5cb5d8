"""Topics of a corpus: directions among its vectors, found by clustering, and the routing of questions to them."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import log

import numpy as np
import torch
from torch import Tensor

from graphrerank.text.languages import detect_language
from graphrerank_papers.knowledge.keywords import find_keywords

ENTITIES_PER_TOPIC = 10  # a smaller corpus has fewer topics


@dataclass(frozen=True)
class Topics:
    """Topics as directions among the vectors of a corpus's entities.

    Vectors of one encoder share a common component that distinguishes no topics; their mean is subtracted before they
    are compared.
    """

    names: Sequence[str]  # `T` names
    terms: Sequence[Sequence[str]]  # words of each topic, the most distinctive first
    vectors: Tensor  # `[T, d]` float32 unit vectors, of centred vectors
    centre: Tensor  # `[d]` float32, the mean that is subtracted from whatever is compared with a topic
    entity_threshold: float = 1.0  # minimum similarity of a sentence whose entities and relations belong to a topic
    threshold: float = 1.0  # minimum similarity of a question that is routed to a topic

    def __len__(self) -> int:
        return len(self.names)

    def similarity(self, vectors: Tensor) -> Tensor:
        """Compare vectors ``[n, d]`` of the corpus's encoder with each topic: ``[n, T]`` cosines.

        Example:
            >>> centre, east = torch.zeros(2), torch.tensor([[1.0, 0.0]])
            >>> Topics(["east"], [["east"]], east, centre, 0.5, 0.5).similarity(torch.tensor([[3.0, 4.0]]))
            tensor([[0.6000]])
        """
        if not len(self):
            return vectors.new_zeros(len(vectors), 0)
        return torch.nn.functional.normalize(vectors - self.centre, dim=1) @ self.vectors.T


def cluster_entities(vectors: Tensor, *, num_topics: int, seed: int = 0) -> tuple[Tensor, Tensor]:
    """Cluster ``[E, d]`` unit vectors by k-means, the largest cluster first; a zero vector is in no cluster.

    There are at most ``num_topics`` clusters, and at most one per ten distinct vectors, but at least one.

    Returns:
        ``[T, d]`` unit vectors, and the cluster ``[E]`` of each entity, -1 for none.
    """
    from sklearn.cluster import KMeans

    label = torch.full((len(vectors),), -1, dtype=torch.int64)
    is_nonzero = vectors.abs().sum(dim=1) > 0 if len(vectors) else label >= 0
    rows = vectors[is_nonzero].numpy()
    num_distinct = len(np.unique(rows, axis=0))
    num_clusters = min(num_topics, max(1, num_distinct // ENTITIES_PER_TOPIC)) if num_distinct else 0
    if not num_clusters:
        return vectors.new_zeros(0, vectors.shape[1]), label
    clusters = KMeans(num_clusters, n_init=3, random_state=seed).fit(rows)
    order = np.argsort(-np.bincount(clusters.labels_, minlength=num_clusters), kind="stable")
    label[is_nonzero] = torch.from_numpy(np.argsort(order)[clusters.labels_])
    centres = torch.from_numpy(clusters.cluster_centers_[order]).float()
    return torch.nn.functional.normalize(centres, dim=1), label


def distinctive_words(groups: Sequence[Sequence[str]], *, num_words: int) -> list[list[str]]:
    r"""Find the words that distinguish each group of texts from the others, by class-based TF-IDF.

    .. math:: \mathrm{tf}_{w, g} \cdot \log \left(1 + \frac{A}{\mathrm{tf}_w}\right)

    with :math:`\mathrm{tf}` the number of texts that contain a word, and :math:`A` its mean sum over a group's words.

    Source: "BERTopic: Neural topic modeling with a class-based TF-IDF procedure", 2022, Eq. (2).
    """
    language = detect_language([text for texts in groups for text in texts])
    counts = [Counter(word for text in texts for word in find_keywords(text, language)) for texts in groups]
    total = sum(counts, Counter[str]())
    average = sum(total.values()) / max(1, len(groups))
    words = []
    for group in counts:
        weight = {word: count * log(1 + average / total[word]) for word, count in group.items()}
        words.append(sorted(weight, key=lambda word: (-weight[word], word))[:num_words])
    return words


def covering_threshold(similarity: Tensor, *, coverage: float) -> float:
    """Return the similarity that a share ``coverage`` of the texts reach with their nearest topic.

    ``similarity`` is ``[n, T]``; 1 without texts or topics.
    """
    if not similarity.numel():
        return 1.0
    best = similarity.max(dim=1).values.sort(descending=True).values
    return best[max(0, int(np.ceil(coverage * len(best))) - 1)].item()


def route_to_topics(topics: Topics, vectors: Tensor, is_open: Tensor) -> Tensor:
    """Choose the topics whose similarity to a question reaches the threshold; other questions go to the general graph.

    ``vectors`` are ``[B, d]``, of the questions; ``is_open`` is ``[T]`` bool, topics that have a summary: no question
    goes to the others. Returns ``[B, 1 + T]`` bool: the general graph, or some topics.

    Source: ReTAG, section 3.2.2, where a language model routes a question to at most one topic. *Where we differ:* a
    question goes to every topic that is near enough, as the paper suggests under limitations.

    Example:
        >>> east, centre = torch.tensor([[1.0, 0.0]]), torch.zeros(2)
        >>> topics = Topics(["east"], [["east"]], east, centre, 0.5, 0.5)
        >>> route_to_topics(topics, torch.tensor([[3.0, 4.0], [-1.0, 0.0]]), torch.tensor([True]))
        tensor([[False,  True],
                [ True, False]])
    """
    is_near = (topics.similarity(vectors) >= topics.threshold) & is_open
    return torch.cat([~is_near.any(1, keepdim=True), is_near], dim=1)


def topics_to_graphs(chosen: Sequence[int | None], is_open: Tensor) -> Tensor:
    """Send each of ``B`` questions to its topic, or to the general graph without one, or with one that is not open.

    Source: ReTAG, section 3.2.2. Returns ``[B, 1 + T]`` bool, one graph each.

    Example:
        >>> topics_to_graphs([0, None, 1], torch.tensor([True, False]))
        tensor([[False,  True, False],
                [ True, False, False],
                [ True, False, False]])
    """
    numbers = torch.tensor([-1 if topic is None else topic for topic in chosen], device=is_open.device)
    inside = (numbers.unsqueeze(1) == torch.arange(len(is_open), device=is_open.device)) & is_open
    return torch.cat([~inside.any(1, keepdim=True), inside], dim=1)
