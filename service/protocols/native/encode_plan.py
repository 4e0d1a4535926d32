"""Plans which embeddings each sequence must return; checks every index."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from model.contract import Encoding, ModelInfo, PoolingMode, SentenceWant, Want
from model.errors import OutOfRange, Unsupported
from model.tokenization.tokenizer import Text
from service.problems import Problem, cut
from service.protocols.native.chunks import Chunking, ChunkPlan
from service.protocols.native.schemas import EmbeddingOptions, PromptRequest, TaskRequest
from service.protocols.view import View
from service.serialization.items import Expected, columns
from service.serialization.precision import BITS, STEPS, Precision

_MODES: dict[str, tuple[PoolingMode, ...]] = {
    "mean": ("mean",),
    "cls": ("cls",),
    "max": ("max",),
    "mean_max": ("mean", "max"),
    "mean_sqrt_len": ("mean_sqrt_len",),
    "weighted_mean": ("weighted_mean",),
    "last": ("last",),
}


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

    def view(self, index: int, encoding: Encoding, text: Text) -> View:
        """Plan one sequence; raises the 422 for a chunk that it does not have."""
        item_columns, want, count = columns(index, encoding), self.want(encoding), 0
        if self.chunks is not None and isinstance(text, str):
            parts = self.chunks.split(encoding, text)
            want = replace(want, heads=(self.chunks.want(parts),))
            item_columns["chunks"] = {"offsets": parts.offsets, "token_spans": parts.tokens}
            count = len(parts.tokens)
        return View(want, item_columns, self.expected(encoding, count), precision=self.precision)

    def expected(self, encoding: Encoding, chunks: int) -> Expected:
        """Return the maximum size of the item of one sequence with this number of chunks."""
        shapes = self.shapes(encoding)
        if self.chunks is not None:
            shapes["chunks"] = (chunks, self.chunks.size)
        return Expected(shapes, labels=4 * chunks)

    def want(self, encoding: Encoding) -> Want:
        """Return what must be computed for one sequence, without chunks."""
        if self.sentence is None or self.include_prompt or not encoding.prompt_length:
            return self._want
        skip = min(encoding.prompt_length, len(encoding) - 1)
        return replace(self._want, sentence=replace(self.sentence, skip=skip))

    @cached_property
    def _want(self) -> Want:
        """What is computed for most sequences: the same for thousands of short ones, so made once."""
        return Want(sentence=self.sentence, token_layers=self.token_layers, task=self.task)

    def shapes(self, encoding: Encoding) -> dict[str, tuple[int, ...]]:
        """Return the maximum shapes of one sequence's arrays, by their names in the response."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.sentence is not None:
            shapes["embedding"] = (max(self.pooled_size, self.sentence_size),)
        if self.token_layers:
            shapes["token_embeddings"] = (len(self.token_layers), len(encoding), self.hidden_size)
        return shapes


def plan_encode(options: EmbeddingOptions, info: ModelInfo, task: str | None = None) -> EncodePlan:
    """Check the requested embeddings against the model; raises OutOfRange, Unsupported or a Problem.

    `task` is as `choose_task` returns it.
    """
    token_layers: tuple[int, ...] = ()
    if "tokens" in options.outputs:
        if not info.exposes_tokens:
            raise _vector_alone("vectors of tokens are asked for", "outputs")
        token_layers = _resolve_states(options.layers, info, "layers")
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
    )


def _plan_sentence(options: EmbeddingOptions, info: ModelInfo) -> tuple[SentenceWant, int, int]:
    """Return the want, the components of a vector, and those before a dense layer or `dimensions`."""
    layers = _resolve_states(options.pooling_layers, info, "pooling_layers")
    if not info.exposes_tokens:
        size = info.sentence_size
        return _plan_own_vector(options, info, layers), _cut(size, options), size
    modes = _MODES[options.pooling] if options.pooling else info.pooling
    pooled_size = info.hidden_size * len(modes) * len(layers)
    if info.dense and pooled_size != info.hidden_size * len(info.pooling):
        raise Unsupported(
            "This model has further steps after its pooling, which take vectors of "
            f"{info.hidden_size * len(info.pooling)} components, not {pooled_size}: choose one pooling layer "
            "and a pooling of that size.",
            field="pooling_layers" if len(layers) > 1 else "pooling",
        )
    size = _cut(info.sentence_size if info.dense else pooled_size, options)
    sentence = SentenceWant(modes, layers, _normalizes(options, info), options.dimensions)
    return sentence, size, pooled_size


def _plan_own_vector(options: EmbeddingOptions, info: ModelInfo, layers: tuple[int, ...]) -> SentenceWant:
    """Return the want of the vector that a graph pools by itself; raises Unsupported for any other."""
    if options.pooling and _MODES[options.pooling] != info.pooling:
        raise _vector_alone(f'pooling is "{options.pooling}"', "pooling")
    if layers != (info.layers,):
        raise _vector_alone(f"pooling_layers has {len(layers)} hidden states", "pooling_layers")
    field = options.names.normalize
    if info.normalize and options.normalize is False:
        raise _vector_alone(f"{field} is false", field)
    return SentenceWant(info.pooling, layers, _normalizes(options, info), options.dimensions)


def _vector_alone(asked: str, field: str) -> Unsupported:
    """Say that a graph makes one vector of each text, in its own way, and what to do for another one."""
    return Unsupported(
        f"This model runs as a graph that returns one vector for each text, pooled and scaled as it was "
        f"exported, and {asked}: leave that out, or serve the model's weights, or the folder that `headlight "
        "export MODEL FOLDER` makes of them.",
        field=field,
    )


def _plan_chunks(chunking: Chunking, options: EmbeddingOptions, info: ModelInfo) -> ChunkPlan:
    if not info.exposes_tokens:
        raise _vector_alone(
            "chunks are pooled from the vectors of their tokens", options.names.chunks or "model"
        )
    if options.pooling and _MODES[options.pooling] not in (("mean",), info.pooling):
        raise Problem(
            "invalid-request",
            f'pooling is "{options.pooling}", and chunks are pooled with "mean": leave one of them out.',
            members={"field": "pooling", "actual": options.pooling, "allowed": ["mean"]},
        )
    if info.dense and len(info.pooling) > 1:
        field = options.names.chunks
        raise Unsupported(
            "This model has further steps after its pooling, which take vectors of "
            f"{info.hidden_size * len(info.pooling)} components; the mean over a part of a text has "
            f"{info.hidden_size}: {f'leave {field} out' if field else 'choose another model'}.",
            field=field or "model",
        )
    size = _cut(info.sentence_size if info.dense else info.hidden_size, options)
    return ChunkPlan(chunking, size, _normalizes(options, info), options.dimensions)


def _normalizes(options: EmbeddingOptions, info: ModelInfo) -> bool:
    return info.normalize if options.normalize is None else options.normalize


def _cut(size: int, options: EmbeddingOptions) -> int:
    """Return the components that are left of `size`; raises OutOfRange if there are too few."""
    dimensions, field = options.dimensions, options.names.dimensions
    if dimensions is not None and dimensions > size:
        raise OutOfRange(
            f"{field} is {dimensions} and the vectors have {size} components: choose 1 to {size}.",
            field=field,
            actual=dimensions,
            allowed=(1, size),
        )
    return dimensions or size


def _check_precision(options: EmbeddingOptions, sizes: Sequence[int], *, normalize: bool) -> None:
    """Raise the 422 for a precision that vectors of these sizes cannot have."""
    precision, names = options.precision, options.names
    if precision in STEPS and not normalize:
        raise Problem(
            "invalid-request",
            f'{names.normalize} is false, and the {names.precision} "{precision}" has steps for vectors of '
            f'unit length: set "{names.normalize}": true, or choose another {names.precision}.',
            members={"field": names.normalize, "actual": False, "allowed": [True]},
        )
    odd = next((size for size in sizes if size % 8), None)
    if precision in BITS and odd is not None:
        raise Problem(
            "invalid-request",
            f'{names.precision} is "{precision}", which packs 8 components into a byte, and the vectors have '
            f"{odd}: set `{names.dimensions}` to a multiple of 8.",
            members={"field": names.dimensions, "actual": odd},
        )


def check_exposes(info: ModelInfo, what: str, field: str) -> None:
    """Raise Unsupported if a model returns its last hidden state or sentence vectors only."""
    if not info.exposes_attention:
        returns = "its last hidden state" if info.exposes_tokens else "the vectors of texts"
        raise Unsupported(
            f"This model runs as a graph that returns {returns} but no {what}: export it with "
            "`headlight export MODEL FOLDER`, and serve that folder.",
            field=field,
        )


def _resolve_states(indices: Sequence[int], info: ModelInfo, option: str) -> tuple[int, ...]:
    """Convert indices of hidden states; raises OutOfRange, and Unsupported for one that is not returned."""
    states = info.layers + 1
    layers = resolve(indices, states, option=option, available=f"there are {states} hidden states")
    if any(layer != info.layers for layer in layers):
        check_exposes(info, "other hidden states", option)
    return layers


def resolve(
    indices: Sequence[int], count: int, *, option: str, available: str, field: str | None = None
) -> tuple[int, ...]:
    """Convert indices to non-negative ones, keeping order and duplicates; raises OutOfRange.

    `available` says how many there are, for the error, which names `field` or else the item of `option`.
    """
    # There may be thousands: each step looks at all of them at once.
    least = min(indices)
    if least < -count or max(indices) >= count:
        position, index = next(one for one in enumerate(indices) if not -count <= one[1] < count)
        raise OutOfRange(
            f"{option}.{position} is {index} and {available}: choose from {-count} to {count - 1}.",
            field=field or f"{option}.{position}",
            actual=index,
            allowed=(-count, count - 1),
        )
    return tuple(indices) if least >= 0 else tuple(index % count for index in indices)


def choose_prompt(request: PromptRequest, info: ModelInfo) -> str:
    """Return the text to prepend to the inputs; raises a Problem for an unknown prompt name."""
    if request.prompt is not None:
        return request.prompt
    name = request.prompt_name if request.prompt_name is not None else info.default_prompt_name
    if name is None:
        return ""
    if name not in info.prompts:
        known = ", ".join(info.prompts)
        raise Problem(
            "invalid-request",
            f'prompt_name is "{name}", which is not one of the model\'s prompts: choose from {known}.'
            if known
            else f'prompt_name is "{name}", and this model has no prompts: leave it out.',
            members={"field": "prompt_name", "actual": name, "allowed": list(info.prompts)},
        )
    return info.prompts[name]


def choose_task(request: TaskRequest, info: ModelInfo) -> str | None:
    """Return the task whose adapter the inputs run with.

    Raises Unsupported for a model without adapters, and a Problem for a task that it does not have.
    """
    if request.task is None:
        return info.default_task
    if not info.tasks:
        raise Unsupported(
            f'task is "{cut(request.task)}", and this model has no adapters for tasks: leave it out.',
            field="task",
        )
    if request.task not in info.tasks:
        raise Problem(
            "invalid-request",
            f'task is "{cut(request.task)}", which is not one of the model\'s tasks: choose from '
            f"{', '.join(info.tasks)}.",
            members={"field": "task", "actual": request.task, "allowed": list(info.tasks)},
        )
    return request.task
