"""What `POST /attention` must answer, by definition: `transformers` in float64, then loop by loop.

Nothing in here may call the product.
"""

import copy
import math
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from tests.references.checkpoints import Reference
from tests.references.comparing import near_ties
from tests.references.encoder import softmax

Array = NDArray[np.float64]
Text = str | tuple[str, str]
Json = dict[str, Any]

DEFAULTS: Json = {
    "layers": "all",
    "heads": "all",
    "weights": "probability",
    "aggregate": "none",
    "special_tokens": "keep",
    "level": "token",
    "queries": "all",
    "keys": "all",
    "renormalize": False,
    "top_k": None,
    "thumbnail": None,
    "edges": None,
    "summary": False,
    "statistics": None,
    "maps": True,
}


@dataclass(frozen=True)
class Trace:
    """One input as `transformers` runs it, before any option: everything in float64.

    `columns` by the names of the contract; `scores` and `maps` (L, H, N, N); `norms` ‖f(x)‖ (L, H, N);
    `hidden` (L + 1, N, C).
    """

    texts: tuple[str, ...]
    columns: Json
    scores: Array
    maps: Array
    norms: Array
    hidden: Array

    def __len__(self) -> int:
        return len(self.columns["tokens"])


# ------------------------------------------------------------------------------------- running


def in_float64(reference: Reference) -> Reference:
    """The same model with twice the digits."""
    return Reference(reference.tokenizer, copy.deepcopy(reference.model).double())


def trace(
    reference: Reference, text: Text, *, prompt: str = "", side: str = "right", limit: int = 256
) -> Trace:
    """Run a text or a pair, the prompt before its first text, cut on one side to `limit` tokens."""
    texts = (text,) if isinstance(text, str) else text
    columns, types = token_columns(reference, texts, prompt, side, limit)
    blocks, heads = reference.model.encoder.layer, reference.model.config.num_attention_heads
    with one_thread(), listening(blocks) as heard:
        hidden, attentions = reference.run(columns["token_ids"], types)
    scores = np.empty(attentions.shape, dtype=np.float64)
    norms = np.empty(attentions.shape[:3], dtype=np.float64)
    for layer, block in enumerate(blocks):
        # (C, H·D): column h·D + d of the output's weight takes component d of head h.
        output = block.attention.output.dense.weight.detach().double().numpy()
        q, k, v = (heard[layer, name] for name in ("query", "key", "value"))
        size = q.shape[1] // heads
        for head in range(heads):
            part = slice(head * size, (head + 1) * size)
            scores[layer, head] = q[:, part] @ k[:, part].T / math.sqrt(size)
            for j in range(len(v)):
                norms[layer, head, j] = np.linalg.norm(output[:, part] @ v[j, part])
    maps = softmax(scores)
    assert np.abs(maps - attentions).max() < 1e-6, "these are not the scores of the reference's attention"
    return Trace(texts, columns, scores, maps, norms, hidden.astype(np.float64))


@contextmanager
def one_thread() -> Iterator[None]:
    """Threads that wait for each other take 30 times as long for small inputs where others want the cores."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


@contextmanager
def listening(blocks: Any) -> Iterator[dict[tuple[int, str], Array]]:
    """Collect what the query, key and value layers of each block put out, (N, H·D)."""
    heard: dict[tuple[int, str], Array] = {}
    handles = []
    for layer, block in enumerate(blocks):
        for name in ("query", "key", "value"):

            def listen(_: Any, __: Any, out: torch.Tensor, at: tuple[int, str] = (layer, name)) -> None:
                heard[at] = out[0].double().numpy()

            handles.append(getattr(block.attention.self, name).register_forward_hook(listen))
    try:
        yield heard
    finally:
        for handle in handles:
            handle.remove()


def token_columns(
    reference: Reference, texts: Sequence[str], prompt: str, side: str, limit: int
) -> tuple[Json, list[int]]:
    """The token columns by the names of the contract, and the token types the model is given."""
    limit = min(limit, reference.model.config.max_position_embeddings)
    reference.tokenizer.truncation_side = side
    prompted = [[prompt + texts[0]], *([text] for text in texts[1:])]
    cut = reference.tokenizer(
        *prompted,
        truncation="longest_first",
        max_length=limit,
        return_offsets_mapping=True,
        return_token_type_ids=True,
    )
    whole = reference.tokenizer(*prompted, return_offsets_mapping=True, verbose=False)
    first_word = 0
    for place, (_, end), word in reversed(
        list(zip(whole.sequence_ids(0), whole["offset_mapping"][0], whole.word_ids(0), strict=True))
    ):
        first_word = word if place == 0 and end > len(prompt) else first_word
    offsets: list[list[int]] = []
    word_ids: list[int | None] = []
    for place, (start, end), word in zip(
        cut.sequence_ids(0), cut["offset_mapping"][0], cut.word_ids(0), strict=True
    ):
        if place is None or (place == 0 and end <= len(prompt) and prompt):
            offsets.append([0, 0])
            word_ids.append(None)
        elif place == 0:
            offsets.append([max(0, start - len(prompt)), end - len(prompt)])
            word_ids.append(word - first_word)
        else:
            offsets.append([start, end])
            word_ids.append(word)
    ids, types = cut["input_ids"][0], cut["token_type_ids"][0]
    columns = {
        "tokens": reference.tokenizer.convert_ids_to_tokens(ids),
        "token_ids": ids,
        "offsets": offsets,
        "word_ids": word_ids,
        "segment_ids": types,
        "special": [place is None for place in cut.sequence_ids(0)],
        "truncated": len(whole["input_ids"][0]) > len(ids),
        "original_length": len(whole["input_ids"][0]),
    }
    if columns["truncated"]:
        read: dict[int, list[list[int]]] = {}
        for place, span in zip(cut.sequence_ids(0), offsets, strict=True):
            if place is not None and span[0] < span[1]:
                read.setdefault(place, []).append(span)
        columns["covered"] = [[spans[0][0], spans[-1][1]] for spans in read.values()]
    return columns, types


# --------------------------------------------------------------------------------- the options, in order


def expect(of: Trace, options: Json) -> Json:
    """The item of the answer, arrays in float64.

    With top_k its rows before that are under `values`; `largest` is the largest number that went into them.
    `ties` is the share of rows of each map of a summary whose largest weight rounding may choose.
    """
    asked = DEFAULTS | options
    layers = positions(asked["layers"], of.maps.shape[0])
    heads = positions(asked["heads"], of.maps.shape[1])
    item: Json = dict(of.columns)
    groups, kept = groups_and_kept(of, asked)
    if asked["summary"]:
        statistics, ties = summary(of, layers, heads, asked)
        item |= {"layers": layers, "heads": heads, "summary": statistics, "ties": ties}
    if asked["level"] == "word":
        item["words"] = [word_text(of, group) for group in groups]
        item["word_offsets"] = [word_offsets(of, group) for group in groups]
    if not asked["maps"]:
        return item
    aggregate = asked["aggregate"]
    item |= {} if aggregate == "rollout" else {"layers": layers}
    item |= {"heads": heads} if aggregate == "none" else {}
    maps = weigh(of, asked["weights"])
    item["largest"] = np.abs(maps).max()
    maps = put_together(maps, layers, heads, aggregate)
    item["queries"] = chosen(asked["queries"], len(groups), kept)
    item["keys"] = chosen(asked["keys"], len(groups), kept)

    keys = item["keys"]
    values = np.empty((*maps.shape[:-2], len(item["queries"]), len(keys)))
    for at in np.ndindex(maps.shape[:-2]):
        for i, query in enumerate(item["queries"]):
            for j, key in enumerate(keys):
                values[*at, i, j] = cell(maps[at], groups[query], groups[key])
            if asked["renormalize"] and values[*at, i].sum():
                values[*at, i] = values[*at, i] / values[*at, i].sum()
    if asked["edges"] is not None:
        item["edges"] = [positions(edge, len(groups)) for edge in asked["edges"]]
        rows = [item["queries"].index(query) for query, _ in item["edges"]]
        item["attention"] = values[..., rows, [keys.index(key) for _, key in item["edges"]]]
        del item["queries"], item["keys"]
    elif asked["thumbnail"] is not None:
        item["thumbnails"] = thumbnails(values, int(asked["thumbnail"]))
    else:
        item["attention" if asked["top_k"] is None else "values"] = values
    return item


def thumbnails(values: Array, most: int) -> Array:
    """The largest value of each cell, (…, N, M) of values -> (…, cells, cells)."""
    rows, columns = (cells(count, most) for count in values.shape[-2:])
    reduced = np.empty((*values.shape[:-2], len(rows), len(columns)))
    for at in np.ndindex(values.shape[:-2]):
        for i, some in enumerate(rows):
            for j, others in enumerate(columns):
                reduced[*at, i, j] = max(values[*at, row, column] for row in some for column in others)
    return reduced


def cells(count: int, most: int) -> list[range]:
    """The entries of each cell of an axis: ⌊i·count/m⌋ to ⌊(i + 1)·count/m⌋ - 1 of m = min(most, count)."""
    m = min(most, count)
    return [range(math.floor(i * count / m), math.floor((i + 1) * count / m)) for i in range(m)]


def axes(options: Json) -> list[str]:
    """What the axes of `attention` are."""
    asked = DEFAULTS | options
    if not asked["maps"]:
        return ["layer", "head"]
    gone = {"none": [], "mean": ["head"], "max": ["head"], "rollout": ["layer", "head"]}[asked["aggregate"]]
    last = ["edge"] if asked["edges"] is not None else ["query", "key"]
    return [axis for axis in ("layer", "head", *last) if axis not in gone]


def positions(asked: Any, count: int) -> list[int]:
    """Indices from the start; all of them for "all"."""
    if asked == "all":
        return list(range(count))
    assert all(-count <= i < count for i in asked)
    return [int(i) + count if i < 0 else int(i) for i in asked]


def groups_and_kept(of: Trace, options: Json) -> tuple[list[list[int]], list[int]]:
    """The tokens of each position, and the positions that are not dropped."""
    asked = DEFAULTS | options
    groups = words(of.columns) if asked["level"] == "word" else [[i] for i in range(len(of))]
    special, drop = of.columns["special"], asked["special_tokens"] == "drop"
    return groups, [i for i, group in enumerate(groups) if not (drop and special[group[0]])]


def chosen(asked: Any, count: int, kept: list[int]) -> list[int]:
    """Positions that were kept."""
    found = kept if asked == "all" else positions(asked, count)
    assert set(found) <= set(kept)
    return found


def weigh(of: Trace, weights: str) -> Array:
    """The numbers that the maps are made of, (L, H, N, N)."""
    if weights == "score":
        return of.scores
    if weights == "probability":
        return of.maps
    normed = np.empty_like(of.maps)
    for layer, head, i, j in np.ndindex(normed.shape):
        normed[layer, head, i, j] = of.maps[layer, head, i, j] * of.norms[layer, head, j]
    return normed


def put_together(maps: Array, layers: list[int], heads: list[int], aggregate: str) -> Array:
    """Choose and aggregate: (layers, heads, N, N), (layers, N, N) or (N, N)."""
    if aggregate == "none":
        return np.array([[maps[layer, head] for head in heads] for layer in layers])
    if aggregate == "max":
        return np.array([np.max([maps[layer, head] for head in heads], axis=0) for layer in layers])
    below = range(max(layers) + 1) if aggregate == "rollout" else layers
    means = [sum(maps[layer, head] for head in heads) / len(heads) for layer in below]
    if aggregate == "mean":
        return np.array(means)
    rolled = np.eye(maps.shape[-1])
    for mean in means:
        rolled = (0.5 * mean + 0.5 * np.eye(len(mean))) @ rolled
    return rolled


def words(columns: Json) -> list[list[int]]:
    """The tokens of each word: runs of the same word of the same text, each other token by itself."""
    groups: list[list[int]] = []
    before: tuple[int, int] | None = None
    for i, (segment, word) in enumerate(zip(columns["segment_ids"], columns["word_ids"], strict=True)):
        here = None if word is None else (segment, word)
        if here is not None and here == before:
            groups[-1].append(i)
        else:
            groups.append([i])
        before = here
    return groups


def word_offsets(of: Trace, group: list[int]) -> list[int]:
    """From the start of the first piece to the end of the last."""
    return [of.columns["offsets"][group[0]][0], of.columns["offsets"][group[-1]][1]]


def word_text(of: Trace, group: list[int]) -> str:
    """What is written between the offsets; the token itself where it comes from no text."""
    if of.columns["word_ids"][group[0]] is None:
        return str(of.columns["tokens"][group[0]])
    start, end = word_offsets(of, group)
    return of.texts[of.columns["segment_ids"][group[0]]][start:end]


def cell(map_: Array, queries: list[int], keys: list[int]) -> float:
    """From a word to a word: sum over the key's pieces, mean over the query's."""
    return sum(sum(float(map_[i, j]) for j in keys) for i in queries) / len(queries)


# --------------------------------------------------------------------------------------- statistics


STATISTICS = [
    *("entropy", "confidence", "mean_distance", "self", "previous", "next", "special"),
    *("argmax_self", "argmax_previous", "argmax_next"),
]


def summary(of: Trace, layers: list[int], heads: list[int], asked: Json) -> tuple[dict[str, Array], Array]:
    """Each wanted statistic of what remains of each chosen map, and the share of near ties."""
    groups, kept = groups_and_kept(of, asked)
    special = [of.columns["special"][groups[i][0]] for i in kept]
    remaining = {
        (layer, head): remains(
            of.maps[layer, head], [groups[i] for i in kept], renormalize=asked["renormalize"]
        )
        for layer in layers
        for head in heads
    }
    found = {at: map_summary(p, special) for at, p in remaining.items()}
    names = STATISTICS if asked["statistics"] is None else asked["statistics"]
    chosen_ones = {
        name: np.array([[found[layer, head][name] for head in heads] for layer in layers])
        for name in STATISTICS
        if name in names
    }
    return chosen_ones, np.array([[near_ties(remaining[layer, head]) for head in heads] for layer in layers])


def remains(map_: Array, groups: list[list[int]], *, renormalize: bool) -> Array:
    """The rows and columns that remain, of words or tokens, one after the other."""
    if groups == [[i] for i in range(len(map_))]:
        return map_
    p = np.array([[cell(map_, query, key) for key in groups] for query in groups]).reshape(2 * [len(groups)])
    if renormalize:
        for row in p:
            row[:] = row / (row.sum() or 1.0)
    return p


def map_summary(p: Array, special: Sequence[bool]) -> dict[str, float]:
    """The statistics of one map (N, N), number by number; 0 where it has no rows."""
    n = len(p)
    sums = dict.fromkeys(STATISTICS, 0.0)
    for i in range(n):
        row = [float(value) for value in p[i]]
        sums["confidence"] += max(row)
        sums["self"] += row[i]
        sums["previous"] += row[i - 1] if i > 0 else 0.0
        sums["next"] += row[i + 1] if i + 1 < n else 0.0
        for j, value in enumerate(row):
            sums["entropy"] -= value * math.log(value) if value > 0 else 0.0
            sums["mean_distance"] += value * abs(i - j)
            sums["special"] += value if special[j] else 0.0
        away = row.index(max(row)) - i
        for name, offset in (("argmax_self", 0), ("argmax_previous", -1), ("argmax_next", 1)):
            sums[name] += 1.0 if away == offset else 0.0
    return {name: total / max(1, n) for name, total in sums.items()}
