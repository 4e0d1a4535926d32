"""Plans which embeddings each sequence must return; checks every index."""

from collections.abc import Sequence
from dataclasses import dataclass

from model.contract import Encoding, ModelInfo, PoolingMode, SentenceWant, Want
from model.errors import OutOfRange, Unsupported
from service.problems import Problem, cut
from service.protocols.native.schemas import EmbeddingOptions, PromptRequest, TaskRequest
from service.protocols.view import View
from service.serialization.items import Expected, columns

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
    """The embeddings that each sequence returns; the same for all except for the prompt's length."""

    sentence: SentenceWant | None
    token_layers: tuple[int, ...]
    sentence_size: int
    pooled_size: int
    """Components as computed, before a dense layer or `dimensions`."""
    hidden_size: int
    include_prompt: bool
    task: str | None = None
    """The task of every sequence."""

    def view(self, index: int, encoding: Encoding) -> View:
        """Plan one sequence."""
        return View(self.want(encoding), columns(index, encoding), Expected(self.shapes(encoding)))

    def want(self, encoding: Encoding) -> Want:
        """Return what must be computed for one sequence."""
        sentence = self.sentence
        if sentence is not None and encoding.prompt_length and not self.include_prompt:
            skip = min(encoding.prompt_length, len(encoding) - 1)
            sentence = SentenceWant(
                sentence.modes, sentence.layers, sentence.normalize, sentence.dimensions, skip
            )
        return Want(sentence=sentence, token_layers=self.token_layers, task=self.task)

    def shapes(self, encoding: Encoding) -> dict[str, tuple[int, ...]]:
        """Return the maximum shapes of one sequence's arrays, by their names in the response."""
        shapes: dict[str, tuple[int, ...]] = {}
        if self.sentence is not None:
            shapes["embedding"] = (max(self.pooled_size, self.sentence_size),)
        if self.token_layers:
            shapes["token_embeddings"] = (len(self.token_layers), len(encoding), self.hidden_size)
        return shapes


def plan_encode(options: EmbeddingOptions, info: ModelInfo, task: str | None = None) -> EncodePlan:
    """Check the requested embeddings against the model; raises OutOfRange or Unsupported.

    `task` is as `choose_task` returns it.
    """
    states = info.layers + 1
    available = f"there are {states} hidden states"
    token_layers: tuple[int, ...] = ()
    if "tokens" in options.outputs:
        token_layers = resolve(options.layers, states, option="layers", available=available)
        _check_given(info, token_layers, "layers")
    if "sentence" not in options.outputs:
        return EncodePlan(None, token_layers, 0, 0, info.hidden_size, info.include_prompt, task)
    layers = resolve(options.pooling_layers, states, option="pooling_layers", available=available)
    _check_given(info, layers, "pooling_layers")
    modes = _MODES[options.pooling] if options.pooling else info.pooling
    size = pooled_size = info.hidden_size * len(modes) * len(layers)
    if info.dense:
        if size != info.hidden_size * len(info.pooling):
            raise Unsupported(
                "This model has a linear layer after its pooling, which requires vectors of "
                f"{info.hidden_size * len(info.pooling)} components, not {size}: choose one pooling layer "
                "and a pooling of that size.",
                field="pooling_layers" if len(layers) > 1 else "pooling",
            )
        size = info.sentence_size
    if options.dimensions is not None and options.dimensions > size:
        raise OutOfRange(
            f"dimensions is {options.dimensions} and the vectors have {size} components: choose 1 to {size}.",
            field="dimensions",
            actual=options.dimensions,
            allowed=(1, size),
        )
    normalize = info.normalize if options.normalize is None else options.normalize
    sentence = SentenceWant(modes, layers, normalize, options.dimensions)
    return EncodePlan(
        sentence,
        token_layers,
        options.dimensions or size,
        pooled_size,
        info.hidden_size,
        info.include_prompt,
        task,
    )


def check_exposes(info: ModelInfo, what: str, field: str) -> None:
    """Raise Unsupported if a model returns its last hidden state only."""
    if not info.exposes_attention:
        raise Unsupported(
            f"This model runs as a graph that returns its last hidden state but no {what}: export it with "
            "`headlight export MODEL FOLDER`, and serve that folder.",
            field=field,
        )


def _check_given(info: ModelInfo, layers: Sequence[int], field: str) -> None:
    if any(layer != info.layers for layer in layers):
        check_exposes(info, "other hidden states", field)


def resolve(
    indices: Sequence[int], count: int, *, option: str, available: str, field: str | None = None
) -> tuple[int, ...]:
    """Convert indices to non-negative ones, keeping order and duplicates; raises OutOfRange.

    `available` says how many there are, for the error, which names `field` or else the item of `option`.
    """
    for position, index in enumerate(indices):
        if not -count <= index < count:
            raise OutOfRange(
                f"{option}.{position} is {index} and {available}: choose from {-count} to {count - 1}.",
                field=field or f"{option}.{position}",
                actual=index,
                allowed=(-count, count - 1),
            )
    return tuple(index % count for index in indices)


def choose_prompt(request: PromptRequest, info: ModelInfo) -> str:
    """Return the text to prepend to the inputs; raises a Problem for an unknown prompt name."""
    if request.prompt is not None:
        return request.prompt
    name = request.prompt_name if request.prompt_name is not None else info.default_prompt_name
    if name is None:
        return ""
    if name not in info.prompts:
        known = ", ".join(info.prompts) or "none"
        raise Problem(
            "invalid-request",
            f'prompt_name is "{name}", which is not one of the model\'s prompts: choose from {known}.',
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
