"""What each sequence must return, from what the client asked; every index is checked here."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from model.errors import OutOfRange, Unsupported
from model.types import AttentionWant, Encoding, ModelInfo, PoolingMode, SentenceWant, Want
from service.problems import Problem
from service.schemas import AttentionRequest, EncodeRequest, InputsRequest

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
    """What one sequence of `/encode` returns; the same for all but the prompt's length."""

    sentence: SentenceWant | None
    token_layers: tuple[int, ...]
    sentence_size: int

    def want(self, encoding: Encoding, *, include_prompt: bool) -> Want:
        """Write the want of one sequence."""
        sentence = self.sentence
        if sentence is not None and encoding.prompt_length and not include_prompt:
            skip = min(encoding.prompt_length, len(encoding) - 1)
            sentence = SentenceWant(
                sentence.modes, sentence.layers, sentence.normalize, sentence.dimensions, skip
            )
        return Want(sentence=sentence, token_layers=self.token_layers)


def plan_encode(request: EncodeRequest, info: ModelInfo) -> EncodePlan:
    """Check what `/encode` was asked against the model; raises OutOfRange or Unsupported."""
    states = info.layers + 1
    token_layers: tuple[int, ...] = ()
    if "tokens" in request.outputs:
        token_layers = resolve(request.layers, states, field="layers", what="hidden states")
    if "sentence" not in request.outputs:
        return EncodePlan(None, token_layers, 0)
    layers = resolve(request.pooling_layers, states, field="pooling_layers", what="hidden states")
    modes = _MODES[request.pooling] if request.pooling else info.pooling
    size = info.hidden_size * len(modes) * len(layers)
    if info.dense:
        if size != info.hidden_size * len(info.pooling):
            raise Unsupported(
                "This model has a linear layer after its pooling, which takes vectors of "
                f"{info.hidden_size * len(info.pooling)} components and not of {size}: choose one pooling "
                "layer and a pooling of that size.",
                field="pooling_layers" if len(layers) > 1 else "pooling",
            )
        size = info.sentence_size
    if request.dimensions is not None and request.dimensions > size:
        raise OutOfRange(
            f"dimensions is {request.dimensions} and the vectors have {size} components: choose 1 to {size}.",
            field="dimensions",
            actual=request.dimensions,
            allowed=(1, size),
        )
    normalize = info.normalize if request.normalize is None else request.normalize
    sentence = SentenceWant(modes, layers, normalize, request.dimensions)
    return EncodePlan(sentence, token_layers, request.dimensions or size)


@dataclass(frozen=True)
class AttentionPlan:
    """What the sequences of `/attention` have in common."""

    layers: tuple[int, ...]
    heads: tuple[int, ...]
    request: AttentionRequest

    def want(self, encoding: Encoding, index: int) -> Want:
        """Write the want of one sequence; raises OutOfRange for rows and columns it does not have."""
        request, what, field = self.request, f"tokens of inputs.{index}", f"inputs.{index}"
        return Want(
            attention=AttentionWant(
                self.layers,
                self.heads,
                _rows(request.queries, len(encoding), field=field, what=f"queries: the {what}"),
                _rows(request.keys, len(encoding), field=field, what=f"keys: the {what}"),
                request.aggregate,
            )
        )


def plan_attention(request: AttentionRequest, info: ModelInfo) -> AttentionPlan:
    """Check what `/attention` was asked against the model; raises OutOfRange."""
    return AttentionPlan(
        _all_or(request.layers, info.layers, field="layers", what="layers"),
        _all_or(request.heads, info.heads, field="heads", what="heads"),
        request,
    )


def resolve(indices: Sequence[int], count: int, *, field: str, what: str) -> tuple[int, ...]:
    """Count indices from the start, keeping order and duplicates; raises OutOfRange."""
    for position, index in enumerate(indices):
        if not -count <= index < count:
            raise OutOfRange(
                f"{field}.{position} is {index} and there are {count} {what}: choose from {-count} to "
                f"{count - 1}.",
                field=f"{field}.{position}",
                actual=index,
                allowed=(-count, count - 1),
            )
    return tuple(index % count for index in indices)


def _all_or(indices: Literal["all"] | Sequence[int], count: int, *, field: str, what: str) -> tuple[int, ...]:
    return tuple(range(count)) if indices == "all" else resolve(indices, count, field=field, what=what)


def _rows(
    indices: Literal["all"] | Sequence[int], count: int, *, field: str, what: str
) -> tuple[int, ...] | None:
    """Resolve positions in one input; None for all of them."""
    if indices == "all":
        return None
    for index in indices:
        if not -count <= index < count:
            raise OutOfRange(
                f"{what} are {count}, and position {index} was asked for: choose from {-count} to "
                f"{count - 1}.",
                field=field,
                actual=index,
                allowed=(-count, count - 1),
            )
    return tuple(index % count for index in indices)


def choose_prompt(request: InputsRequest, info: ModelInfo) -> str:
    """Find the text to put before the inputs; raises a Problem for a name the model does not have."""
    if request.prompt is not None:
        return request.prompt
    name = request.prompt_name if request.prompt_name is not None else info.default_prompt_name
    if name is None:
        return ""
    if name not in info.prompts:
        known = ", ".join(info.prompts) or "none"
        raise Problem(
            "invalid-request",
            f'prompt_name "{name}" is not one of the model\'s prompts ({known}).',
            members={"field": "prompt_name", "actual": name, "allowed": list(info.prompts)},
        )
    return info.prompts[name]
