"""Embeddings: sentence vectors, token vectors and vectors of chunks. Checks every index."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Literal

from model.contract import Encoding, ModelInfo, Pooling, PoolingMode, SentenceWant, Want
from model.tokenization.tokenizer import Text
from service.tasks.chunking.chunks import Chunking, ChunkPlan
from service.tasks.chunking.windows import LongWindows, WindowedChunks
from service.tasks.errors import Names, OptionError
from service.tasks.indices import Chosen, check_exposes, choose
from service.tasks.precision import BITS, STEPS, Precision
from service.tasks.results import COLUMNS, Column, Expected, columns, covered
from service.tasks.view import View

EncodeOutput = Literal["sentence", "tokens", "sparse", "logit_lens"]


@dataclass(frozen=True, slots=True)
class EmbedOptions:
    """Which embeddings to return; None stands for the model's own choice."""

    outputs: tuple[EncodeOutput, ...] = ("sentence",)
    pooling: Pooling | None = None
    normalize: bool | None = None
    dimensions: int | None = None
    """How many components to keep, from the first on."""
    pooling_layers: tuple[int, ...] = (-1,)
    layers: Chosen = (-1,)
    precision: Precision = "float32"
    chunks: Chunking | None = None
    chunks_needed: bool = False
    """Whether requests of this kind have no form without chunks."""
    columns: Sequence[Column] = COLUMNS
    """The columns to return of the tokens that ran."""

    def modes(self, info: ModelInfo) -> tuple[PoolingMode, ...]:
        """Return the modes whose vectors are concatenated."""
        if self.pooling is None:
            return info.pooling
        return ("mean", "max") if self.pooling == "mean_max" else (self.pooling,)


NO_VECTORS = EmbedOptions(())
OWN_VECTORS = EmbedOptions()
"""The sentence vector that a model makes by itself."""


# The bytes of a chunk's two pairs of numbers (measured).
_CHUNK_BYTES = 400
# Further bytes of a chunk of a text read in windows: which window it is in, and where (measured).
_LONG_CHUNK_BYTES = 300


@dataclass(frozen=True)
class EncodePlan:
    """The embeddings that each sequence returns; the same for all except for prompts and chunks."""

    sentence: SentenceWant | None
    token_layers: tuple[int, ...]
    sentence_size: int
    pooled_size: int
    """Components as computed, before a dense layer or `dimensions`."""
    hidden_size: int
    include_prompt: bool
    task: str | None = None
    """The task of every sequence."""
    precision: Precision = "float32"
    chunks: ChunkPlan | None = None
    columns: Sequence[Column] = COLUMNS
    of_whole: bool = False
    """Whether each whole text gets a vector, too, for which the model reads no more than its limit."""

    def view(self, index: int, encoding: Encoding, text: Text, windows: LongWindows | None = None) -> View:
        """Plan one sequence, or the `windows` of a long one; raises the 422 for a chunk that it lacks."""
        item_columns, want, count = columns(index, encoding, self.columns), self.want(encoding), 0
        shapes = self.shapes(encoding)
        windowed, held = None, 0
        if self.chunks is not None and isinstance(text, str):
            parts = self.chunks.split(encoding, text)
            item_columns["chunks"] = {"offsets": parts.offsets, "token_spans": parts.tokens}
            count = len(parts.tokens)
            shapes["chunks"] = (count, self.chunks.size)
            if windows is None:
                want = replace(want, heads=(self.chunks.want(parts),))
            else:
                windowed = WindowedChunks(windows, parts.tokens, self.chunks.want(parts))
                held = self._held(windowed)
                item_columns["chunks"]["windows"] = windows.spans
                count += len(windows.starts)
                if self.of_whole:
                    item_columns |= {"truncated": True, "covered": covered(windows.truncated)}
        expected = Expected(shapes, encoding, 4 * count, held_bytes=held, columns=self.columns)
        return View(want, item_columns, expected, precision=self.precision, windowed=windowed)

    def _held(self, windowed: WindowedChunks) -> int:
        """Count the bytes that the windows of a text return, from which its item is made."""
        tokens = windowed.windows.tokens * len(self.token_layers)
        return 4 * self.hidden_size * (windowed.rows + tokens)

    def most_chunks(
        self, texts: Sequence[Text], windows: Sequence[LongWindows | None], encodings: Sequence[Encoding]
    ) -> tuple[int, Sequence[Expected]]:
        """Bound the bytes that the chunks of all texts take, and the items if the number of chunks is known.

        `windows` are those over each text, if they were asked for. Raises OptionError for too many chunks.
        """
        chunks = self.chunks
        if chunks is None:
            return 0, ()
        counts = chunks.counts(encodings, texts)
        long = (count for count, one in zip(counts, windows, strict=False) if one is not None)
        held = _CHUNK_BYTES * sum(counts) + _LONG_CHUNK_BYTES * sum(long)
        if chunks.chunking == "sentences":
            return held, ()
        items = [
            Expected(
                {**self.shapes(encoding), "chunks": (count, chunks.size)},
                encoding,
                4 * count,
                columns=self.columns,
            )
            for encoding, count in zip(encodings, counts, strict=True)
        ]
        return held, items

    def want(self, encoding: Encoding) -> Want:
        """Return what must be computed for one sequence, without chunks."""
        if self.sentence is None or self.include_prompt or not encoding.prompt_length:
            return self._want
        return replace(self._want, sentence=replace(self.sentence, skip=count_unpooled(encoding)))

    @cached_property
    def _want(self) -> Want:
        """What is computed for most sequences; made once, as it is the same for thousands of short ones."""
        return Want(sentence=self.sentence, token_layers=self.token_layers, task=self.task)

    def shapes(self, encoding: Encoding) -> dict[str, tuple[int, ...]]:
        """Return the maximum shapes of one sequence's arrays, by their names in the response."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.sentence is not None:
            shapes["embedding"] = (max(self.pooled_size, self.sentence_size),)
        if self.token_layers:
            shapes["token_embeddings"] = (len(self.token_layers), len(encoding), self.hidden_size)
        return shapes


def count_unpooled(encoding: Encoding) -> int:
    """Count the leading tokens of a prompt that are not pooled; at least one token always is."""
    return min(encoding.prompt_length, len(encoding) - 1)


def held_by_chunks(views: Sequence[View]) -> int:
    """Count the bytes that the chunks in these plans take."""
    counts = (len(view.columns["chunks"]["offsets"]) for view in views)
    long = (_LONG_CHUNK_BYTES if view.windowed is not None else 0 for view in views)
    return sum((_CHUNK_BYTES + more) * count for count, more in zip(counts, long, strict=True))


def plan_encode(options: EmbedOptions, info: ModelInfo, task: str | None = None) -> EncodePlan:
    """Check the requested embeddings against the model; raises OptionError.

    `task` is as `choose_task` returns it. Plans are cached, since most requests ask for the same.
    """
    return _plan(options, info, task)


@lru_cache(maxsize=16)  # a client's options may list thousands of layers
def _plan(options: EmbedOptions, info: ModelInfo, task: str | None) -> EncodePlan:
    token_layers: tuple[int, ...] = ()
    if "tokens" in options.outputs:
        if not info.exposes_tokens:
            raise _vector_alone(lambda _: "token vectors are requested", "outputs")
        token_layers = resolve_states(options.layers, info, "layers")
    chunks = None if options.chunks is None else _plan_chunks(options.chunks, options, info)
    sentence, size, pooled_size = None, 0, 0
    if "sentence" in options.outputs:
        sentence, size, pooled_size = _plan_sentence(options, info)
    sizes = [size] * (sentence is not None) + ([] if chunks is None else [chunks.size])
    _check_precision(options, sizes, normalize=_normalizes(options, info))
    return EncodePlan(
        sentence,
        token_layers,
        size,
        pooled_size,
        info.hidden_size,
        info.include_prompt,
        task,
        options.precision,
        chunks,
        options.columns,
        not {"sentence", "sparse"}.isdisjoint(options.outputs),
    )


def _plan_sentence(options: EmbedOptions, info: ModelInfo) -> tuple[SentenceWant, int, int]:
    """Return the want, the components of a vector, and those before a dense layer or `dimensions`."""
    layers = resolve_states(options.pooling_layers, info, "pooling_layers")
    if not info.exposes_tokens:
        size = info.sentence_size
        return _plan_own_vector(options, info, layers), _cut(size, options), size
    modes = options.modes(info)
    pooled_size = info.hidden_size * len(modes) * len(layers)
    if info.dense and pooled_size != info.hidden_size * len(info.pooling):
        raise OptionError(
            lambda _: (
                f"{_further_steps(info)}, not {pooled_size}: choose one pooling layer and a pooling mode of "
                "that size."
            ),
            option="pooling_layers" if len(layers) > 1 else "pooling",
            kind="unsupported",
        )
    size = _cut(info.sentence_size if info.dense else pooled_size, options)
    sentence = SentenceWant(modes, layers, _normalizes(options, info), options.dimensions)
    return sentence, size, pooled_size


def _plan_own_vector(options: EmbedOptions, info: ModelInfo, layers: tuple[int, ...]) -> SentenceWant:
    """Return the want of the vector that a graph pools by itself; raises OptionError for any other."""
    if options.modes(info) != info.pooling:
        raise _vector_alone(lambda name: f'{name("pooling")} is "{options.pooling}"', "pooling")
    if layers != (info.layers,):
        raise _vector_alone(
            lambda name: f"{name('pooling_layers')} has {len(layers)} hidden states", "pooling_layers"
        )
    if info.normalize and options.normalize is False:
        raise _vector_alone(lambda name: f"{name('normalize')} is false", "normalize")
    return SentenceWant(info.pooling, layers, _normalizes(options, info), options.dimensions)


def _vector_alone(asked: Callable[[Names], str], option: str) -> OptionError:
    """Say that a graph makes one vector of each text, in its own way, and what to do for another one."""
    return OptionError(
        lambda name: (
            "This model runs as an ONNX graph that returns one vector for each text, pooled and scaled as "
            f"exported, but {asked(name)}: leave that out, serve the model's weights, or serve the folder "
            "that `headlight export MODEL FOLDER` makes from them."
        ),
        option=option,
        kind="unsupported",
    )


def _plan_chunks(chunking: Chunking, options: EmbedOptions, info: ModelInfo) -> ChunkPlan:
    if not info.exposes_tokens:
        raise _vector_alone(
            lambda name: f"{name('chunks')} are pooled from the vectors of their tokens",
            "model" if options.chunks_needed else "chunks",
        )
    if options.modes(info) not in (("mean",), info.pooling):
        raise OptionError(
            lambda name: (
                f'{name("pooling")} is "{options.pooling}", but {name("chunks")} are pooled with '
                '"mean": leave one of them out.'
            ),
            option="pooling",
            actual=options.pooling,
            allowed=["mean"],
        )
    if info.dense and len(info.pooling) > 1:
        why = f"{_further_steps(info)}, but the mean over a chunk has {info.hidden_size}"
        if options.chunks_needed:
            raise OptionError(lambda _: f"{why}: choose another model.", option="model", kind="unsupported")
        raise OptionError(
            lambda name: f"{why}: leave {name('chunks')} out.", option="chunks", kind="unsupported"
        )
    size = _cut(info.sentence_size if info.dense else info.hidden_size, options)
    return ChunkPlan(chunking, size, _normalizes(options, info), options.dimensions)


def _further_steps(info: ModelInfo) -> str:
    size = info.hidden_size * len(info.pooling)
    return f"The steps after this model's pooling take vectors of {size} components"


def _normalizes(options: EmbedOptions, info: ModelInfo) -> bool:
    return info.normalize if options.normalize is None else options.normalize


def _cut(size: int, options: EmbedOptions) -> int:
    """Return how many of `size` components are kept; raises OptionError if there are too few."""
    dimensions = options.dimensions
    if dimensions is not None and dimensions > size:
        raise OptionError(
            lambda name: (
                f"{name('dimensions')} is {dimensions}, but the vectors have only {size} components: "
                f"choose 1 to {size}."
            ),
            option="dimensions",
            actual=dimensions,
            allowed=[1, size],
        )
    return dimensions or size


def _check_precision(options: EmbedOptions, sizes: Sequence[int], *, normalize: bool) -> None:
    """Raise OptionError for a precision that vectors of these sizes cannot have."""
    precision = options.precision

    def unnormalized(name: Names) -> str:
        one, other = name("normalize"), name("precision")
        return (
            f'{one} is false, but the {other} "{precision}" needs vectors of unit length: set "{one}": true, '
            f"or choose another {other}."
        )

    if precision in STEPS and not normalize:
        raise OptionError(unnormalized, option="normalize", actual=False, allowed=[True])
    odd = next((size for size in sizes if size % 8), None)
    if precision in BITS and odd is not None:
        raise OptionError(
            lambda name: (
                f'{name("precision")} is "{precision}", which packs 8 components into a byte, but '
                f"the vectors have {odd}: set `{name('dimensions')}` to a multiple of 8."
            ),
            option="dimensions",
            actual=odd,
        )


def resolve_states(chosen: Chosen, info: ModelInfo, option: str) -> tuple[int, ...]:
    """Resolve the hidden states that are asked for; raises OptionError, also for one that is not returned."""
    layers = choose(chosen, info.layers + 1, what="hidden states", option=option)
    if any(layer != info.layers for layer in layers):
        check_exposes(info, "other hidden states", option)
    return layers
