"""What heads make besides the vectors of an encoder: sparse vectors, vectors of tokens, words of each layer.

Refuses models without the head that a task needs.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from model.choices import LensWant
from model.contract import Encoding, HeadInfo, HeadKind, ModelInfo, Role, SparseWant
from model.heads.late_interaction import want_vectors
from model.tokenization.decoding import Decoder
from service.echo import cut
from service.engine.engine import Engine
from service.tasks.embed import count_unpooled, resolve_states
from service.tasks.errors import OptionError
from service.tasks.indices import Chosen, choose
from service.tasks.results import Item, Parts
from service.tasks.view import View

_LISTED = 10
_NUMBER_BYTES = 10
"""The most bytes of a feature's number as a string in JSON: six digits, quotes and a comma, rounded up."""
_CHECKPOINTS: dict[HeadKind, str] = {
    "classification": "SequenceClassification",
    "token_classification": "TokenClassification",
    "masked_words": "MaskedLM",
}
"""How the architecture of a checkpoint with each kind of head ends."""


def check_head(
    engine: Engine, engines: Mapping[str, Engine], *kinds: HeadKind, needs: str = "this route"
) -> HeadInfo:
    """Return the head of a model if it is of one of these kinds; `needs` names what needs such a head.

    Raises OptionError for any other model, naming those of the served `engines` that have such a head, or
    what kind of checkpoint does.
    """
    head = engine.info.head
    if head is not None and head.kind in kinds:
        return head
    *others, last = ("bge-m3 layers" if kind == "hybrid" else f"{kind} head" for kind in kinds)
    needed = f"{', '.join(others)} or {last}" if others else last
    raise OptionError(
        lambda _: f'The model "{engine.name}" has no {needed}, needed by {needs}{_way_out(engines, kinds)}.',
        option="model",
        kind="unsupported",
    )


def choose_from(names: Sequence[str]) -> str:
    """Name the served models to choose from in an error, the first ten of them."""
    more = "" if len(names) <= _LISTED else f" and {len(names) - _LISTED} more"
    return f"choose from {', '.join(map(cut, names[:_LISTED]))}{more}"


def _way_out(engines: Mapping[str, Engine], kinds: tuple[HeadKind, ...]) -> str:
    having = [name for name, each in engines.items() if each.info.head and each.info.head.kind in kinds]
    if having:
        return f": {choose_from(having)}"
    none = ", nor has any other served model"
    if "late_interaction" in kinds:
        return f"{none}: serve a PyLate or Stanford ColBERT model, or bge-m3"
    if kinds == ("hybrid",):
        return f"{none}: serve bge-m3"
    endings = " or ".join(_CHECKPOINTS[kind] for kind in kinds if kind in _CHECKPOINTS)
    folders = {"autoencoder": "a folder with a SparseAutoEncoder", "hybrid": "bge-m3"}
    also = "".join(f", or {folder}" for kind, folder in folders.items() if kind in kinds)
    return f"{none}: serve a checkpoint whose architecture in config.json ends in {endings}{also}"


@dataclass(frozen=True, slots=True)
class SparsePlan:
    """The sparse vectors of a request: at most `top_k` of a model's `words` each, or as many as it keeps.

    `words` is None for a model that weighs only the tokens of a text. With `table`, the texts are queries
    whose words a table weighs. Without a `decoder`, the words are features, named by their numbers. Without
    `include_prompt`, no prompt is pooled. `kept` is None if all words with a weight above 0 are kept.
    """

    top_k: int | None
    words: int | None
    decoder: Decoder | None
    table: bool = False
    include_prompt: bool = True
    kept: int | None = None

    def most(self, encoding: Encoding) -> int:
        """Bound the number of words of one input."""
        words = len(encoding) if self.words is None else self.words
        return min(self.top_k or self.kept or words, words)

    def extend(self, view: View, encoding: Encoding) -> View:
        """Add the sparse vector to what one input returns."""
        most = self.most(encoding)
        words = {"sparse_ids": (most,), "sparse_weights": (most,)}
        names = _NUMBER_BYTES * most if self.decoder is None else self.decoder.most_json_bytes(most)
        expected = replace(view.expected, arrays={**view.expected.arrays, **words}, column_bytes=names)
        skip = 0 if self.include_prompt else count_unpooled(encoding)
        want = replace(view.want, heads=(*view.want.heads, SparseWant(self.top_k, self.table, skip)))
        return replace(view, want=want, expected=expected).then(self._name_words)

    def _name_words(self, item: Item) -> Item:
        name = str if self.decoder is None else self.decoder.name
        tokens = [name(number) for number in item.arrays["sparse_ids"].tolist()]
        return replace(item, columns={**item.columns, "sparse": {"tokens": tokens}})


def plan_sparse(
    top_k: int | None,
    engine: Engine,
    engines: Mapping[str, Engine],
    needs: str = '"sparse" in outputs',
    role: Role | None = None,
) -> SparsePlan:
    """Check that a model has sparse vectors; raises OptionError, naming those of `engines` that do.

    `needs` names the part of the request that needs them; `role` is what `sparse_role` returns for its texts.
    """
    head = check_head(engine, engines, "masked_words", "autoencoder", "hybrid", needs=needs)
    table = head.query_table is not None and role == "query"
    words = None if head.kind == "hybrid" or table else head.size or 0
    decoder = None if head.kind == "autoencoder" else engine.decoder
    return SparsePlan(top_k, words, decoder, table, engine.info.include_prompt, head.kept)


def has_query_table(info: ModelInfo) -> bool:
    """Return whether a table weighs the words of a model's queries."""
    return info.head is not None and info.head.query_table is not None


def sparse_role(
    role: Role | None, info: ModelInfo, outputs: Sequence[str] = ("sparse",), *, changed: bool = False
) -> Role | None:
    """Return the role that texts have for sparse vectors: "query" if a table weighs their words, else None.

    Only models with such a table have roles for sparse vectors. Queries do not run through the model, so
    OptionError is raised if they have other `outputs`, or interventions, which `changed` says.
    """
    table = None if info.head is None else info.head.query_table
    if table is None or (role or table) == "document":
        return None
    if tuple(outputs) != ("sparse",):
        told = 'is "query"' if role else "is not given, so texts are queries"
        raise OptionError(
            lambda name: (
                f"{name('role')} {told}, and this model weighs queries only with a table: set "
                f'"{name("outputs")}" to ["sparse"], or "{name("role")}" to "document".'
            ),
            option="role",
        )
    if changed:
        raise OptionError(
            lambda name: (
                f"Queries do not run through this model, so {name('interventions')} cannot change them: "
                f'leave {name("interventions")} out, or set "{name("role")}" to "document".'
            ),
            option="interventions",
        )
    return "query"


@dataclass(frozen=True, slots=True)
class TokenVectorsPlan:
    """The vectors of the tokens of a request's texts, of `size` components each."""

    size: int

    def extend(self, view: View, encoding: Encoding) -> View:
        """Add the vectors to what one input returns, which was tokenized for its role."""
        rows, expected = encoding.vector_rows, view.expected
        columns = 1 if encoding.token_pooling is None else 2
        expected = replace(
            expected,
            arrays={**expected.arrays, "token_embeddings": (1, len(rows), self.size)},
            labels=expected.labels + columns * len(rows),
        )
        want = replace(view.want, heads=(*view.want.heads, *want_vectors(encoding).heads))
        item_columns = {**view.columns, "token_rows": rows}
        return replace(view, want=want, columns=item_columns, expected=expected).then(_name_vectors)


def _name_vectors(item: Item) -> Item:
    arrays = dict(item.arrays)
    arrays["token_embeddings"] = arrays.pop("token_vectors")[None]
    if (clusters := arrays.pop("token_clusters", None)) is None:
        return replace(item, arrays=arrays)
    return replace(item, columns={**item.columns, "token_clusters": clusters.tolist()}, arrays=arrays)


def plan_token_vectors(
    engine: Engine, engines: Mapping[str, Engine], outputs: Sequence[str]
) -> TokenVectorsPlan:
    """Check that a model has vectors of tokens for late interaction; raises OptionError.

    The error names those of `engines` that do. Only hybrid models have other `outputs` besides these.
    """
    head = check_head(engine, engines, "late_interaction", "hybrid", needs="role")
    if "tokens" not in outputs:
        raise OptionError(
            lambda name: (
                f'{name("role")} applies to token vectors in this model: set "{name("outputs")}" to '
                f'["tokens"], or leave {name("role")} out.'
            ),
            option="role",
        )
    if head.kind != "hybrid" and len(outputs) > 1:
        raise OptionError(
            lambda name: (
                f"{name('role')} applies only to token vectors in a late-interaction model: set "
                f'"{name("outputs")}" to ["tokens"], or serve a model with the other outputs, such as bge-m3.'
            ),
            option="role",
        )
    return TokenVectorsPlan(head.size or 0)


# A block multiplies each token by about so many matrices (C, C): four in attention, eight in feed-forward.
_MATRICES = 12
# How many times as long a product with the vocabulary takes as one in a pass, including finding the largest,
# in a model of float32 and in one that computes its passes in fewer bits; and the number of rows that take as
# long as reading the matrix (measured).
_SLOWER, _SLOWER_THAN_FEW_BITS, _READING = 1.7, 3.5, 16
_WORDS, _MOST_WORDS = 10, 100
"""How many words each hidden state gets unless a request says otherwise, and at most: sorting more of them
would take longer than all else."""
LENS = ("lens_ids", "lens_logits", "lens_probabilities")
"""The arrays of a logit lens, each (layers, positions, words)."""


@dataclass(frozen=True, slots=True)
class LensOptions:
    """The hidden states and tokens from which words are predicted, and how many words each."""

    layers: Chosen = (-1,)
    positions: Chosen = "all"
    top_k: int | None = None


@dataclass(frozen=True, slots=True)
class LensPlan:
    """The words that the hidden states `layers` of chosen tokens predict: `top_k` each."""

    layers: tuple[int, ...]
    positions: Chosen
    top_k: int
    passes_of_row: float
    """How many plain passes of a token take as long as the words of one hidden state."""
    decoder: Decoder

    def extend(self, view: View, encoding: Encoding) -> View:
        """Add the words to what one input returns; raises OptionError for tokens that it lacks."""
        input_, count = f"inputs.{view.columns['index']}", len(encoding)
        rows = choose(self.positions, count, what="tokens", option="positions", input_=input_)
        shape, expected = (len(self.layers), len(rows), self.top_k), view.expected
        arrays = dict.fromkeys(LENS, shape)
        expected = replace(
            expected,
            arrays={**expected.arrays, **arrays},
            labels=expected.labels + len(self.layers) + len(rows),
            names={**expected.names, "lens_ids": -(-self.decoder.most_json_bytes(self.top_k) // self.top_k)},
        )
        products = len({*self.layers}) * len({*rows})
        passes = round(self.passes_of_row * (products + _READING) / max(1, count))
        want = replace(view.want, lens=LensWant(self.layers, rows, self.top_k, passes))
        labels = {"layers": self.layers, "positions": rows}
        item_columns = {**view.columns, "logit_lens": labels}
        return replace(view, want=want, columns=item_columns, expected=expected).then(self._name_words)

    def _name_words(self, item: Item) -> Item:
        ids, places = np.unique(item.arrays["lens_ids"], return_inverse=True)
        names = np.array([self.decoder.name(number) for number in ids.tolist()], object)
        tokens = Parts([Parts([names[row].tolist() for row in layer]) for layer in places])
        lens = {**item.columns["logit_lens"], "tokens": tokens}
        return replace(item, columns={**item.columns, "logit_lens": lens})


def plan_lens(options: LensOptions, engine: Engine, engines: Mapping[str, Engine]) -> LensPlan:
    """Check that a model predicts words from the chosen hidden states; raises OptionError."""
    head = check_head(engine, engines, "masked_words", needs='"logit_lens" in outputs')
    info, words = engine.info, head.size or 0
    layers, top_k = resolve_states(options.layers, info, "layers"), options.top_k or _WORDS
    if top_k > _MOST_WORDS:
        raise OptionError(
            lambda name: (
                f"{name('top_k')} is {top_k}, but a logit lens has at most {_MOST_WORDS} words for each "
                f"hidden state: choose at most {_MOST_WORDS}, or request longer sparse vectors separately."
            ),
            option="top_k",
            limit=_MOST_WORDS,
            actual=top_k,
        )
    if not info.has_lens and {*layers} != {info.layers}:
        raise OptionError(
            lambda name: (
                "This model runs as an ONNX graph exported without the norm that precedes the prediction "
                f'of words: set "{name("layers")}" to [-1], or export the model again with this '
                "release."
            ),
            option="layers",
            kind="unsupported",
        )
    slower = _SLOWER if info.dtype == "float32" else _SLOWER_THAN_FEW_BITS
    slower *= 1 + top_k / _MOST_WORDS  # finding 100 words takes as long as the product
    row = slower * words / (_MATRICES * info.hidden_size * max(1, info.layers))
    return LensPlan(layers, options.positions, min(top_k, words), row, engine.decoder)
