"""Interventions: what a request changes in the run of each of its texts."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from model.contract import Encoding, ModelInfo, Want
from model.encoder.interventions import (
    BlockedEdges,
    HeadScale,
    InterventionKind,
    Interventions,
    StateChange,
)
from service.tasks.errors import ENCODER, TABLE, OptionError
from service.tasks.indices import Chosen, check_attends, check_index, choose, choose_layers


@dataclass(frozen=True, slots=True)
class ScaledHeads:
    """Heads whose outputs are scaled, or replaced by their mean."""

    layer: int
    heads: Chosen
    scale: float = 0.0
    mean: bool = False
    kind: InterventionKind = field(default="heads", init=False)


@dataclass(frozen=True, slots=True)
class HiddenKeys:
    """Keys that are hidden from queries."""

    layers: Chosen
    heads: Chosen
    queries: Chosen
    keys: Chosen
    kind: InterventionKind = field(default="edges", init=False)


@dataclass(frozen=True, slots=True, eq=False)
class ChangedStates:
    """Hidden states that are replaced, or moved."""

    layer: int
    tokens: Chosen
    vector: NDArray[np.float32]
    add: bool = False
    kind: InterventionKind = field(default="states", init=False)


Change = ScaledHeads | HiddenKeys | ChangedStates

# The bytes of a position in a tuple, whose number is small or shared.
_POSITION_BYTES = 8


class Changes:
    """The interventions of a request, for a model.

    Raises OptionError for a layer, head or kind that the model does not have, and for a vector of another
    size. The errors name options by their fields: `interventions.0.heads.1`.
    """

    def __init__(self, changes: Sequence[Change], info: ModelInfo) -> None:
        self._changes = changes
        self._info = info
        self._by_length: dict[int, Interventions] = {}
        self._taken: list[Interventions] = []
        for number, change in enumerate(changes):
            self._check(f"interventions.{number}", change)

    def take(self, encodings: Sequence[Encoding], place: Callable[[int], str]) -> None:
        """Take the next sequences that will run; raises OptionError for a position that one of them lacks.

        `place` names the option of a sequence's text. Sequences of one length have the same interventions.
        """
        for index, encoding in enumerate(encodings):
            length = len(encoding)
            if length not in self._by_length:
                self._by_length[length] = self._resolve(length, place(index))
            self._taken.append(self._by_length[length])

    def add_to(self, wants: Sequence[Want]) -> list[Want]:
        """Add the interventions to the wants of the sequences, in the order in which these were taken.

        Raises OptionError for a change that nothing wanted depends on.
        """
        self._check_effect(wants)
        both = zip(wants, self._taken, strict=True)
        return [replace(want, interventions=given) for want, given in both]

    def add_heads(self, wants: Sequence[Want]) -> list[Want]:
        """Add the interventions, all of heads, to wants for sequences of any length, besides their own.

        Raises OptionError as `add_to` does.
        """
        self._check_effect(wants)
        given = self._resolve(0, "")
        return [
            replace(want, interventions=given + want.interventions if want.interventions else given)
            for want in wants
        ]

    def check_whole(self, windows: Sequence[object | None], place: Callable[[int], str]) -> None:
        """Raise OptionError if a text is read in windows, in which positions would mean other tokens."""
        first = next((index for index, one in enumerate(windows) if one is not None), None)
        if first is not None:
            raise OptionError(
                lambda name: (
                    f"{name(place(first))} is longer than the model's limit and is read in windows, where "
                    f"{name('interventions')} would change other tokens: shorten it, or leave them out."
                ),
                option="interventions",
            )

    def held_bytes(self, encodings: Sequence[Encoding]) -> int:
        """Bound the bytes that the interventions take for these sequences."""
        lengths = {len(encoding) for encoding in encodings}
        sizes = [_positions(change) for change in self._changes]
        return _POSITION_BYTES * sum(
            sum(length if size is None else size for size in one) for length in lengths for one in sizes
        )

    def _check_effect(self, wants: Sequence[Want]) -> None:
        last = self._info.layers
        state = max((max(want.states(last), default=0) for want in wants), default=0)
        layer = max((max(_observed(want), default=-1) for want in wants), default=-1)
        for number, change in enumerate(self._changes):
            self._check_run(f"interventions.{number}", change, state, layer)

    def _check(self, place: str, change: Change) -> None:
        info = self._info
        if not info.layers:
            raise OptionError(
                lambda name: (
                    f'{TABLE}, so {name(place)}, of the kind "{change.kind}", has nothing to change: '
                    f"leave it out, or {ENCODER}."
                ),
                option=place,
                kind="unsupported",
            )
        if change.kind not in info.interventions:
            again = "" if change.kind == "states" else "export its weights again with this release, or "
            raise OptionError(
                lambda name: (
                    f'{name(place)} is of the kind "{change.kind}", which this model does not support as '
                    f'an ONNX graph: {again}serve its weights with PyTorch (HEADLIGHT_BACKEND="torch").'
                ),
                option=place,
                kind="unsupported",
            )
        match change:
            case ScaledHeads():
                check_index(change.layer, info.layers, "layers", f"{place}.layer")
                check_attends(change.layer % info.layers, info, f"{place}.layer", change.layer)
                choose(change.heads, info.heads, what="heads", option=f"{place}.heads")
            case HiddenKeys():
                choose_layers(change.layers, info, f"{place}.layers")
                choose(change.heads, info.heads, what="heads", option=f"{place}.heads")
            case ChangedStates():
                check_index(change.layer, info.layers + 1, "hidden states", f"{place}.layer")
                if change.vector.size != info.hidden_size:
                    raise OptionError(
                        lambda name: (
                            f"{name(f'{place}.vector')} has {change.vector.size} components, but the hidden "
                            f"states of this model have {info.hidden_size}: send that many."
                        ),
                        option=f"{place}.vector",
                        limit=info.hidden_size,
                        actual=change.vector.size,
                    )

    def _resolve(self, length: int, place: str) -> Interventions:
        heads, edges, states = list[HeadScale](), list[BlockedEdges](), list[StateChange]()
        layers = self._info.layers
        for number, change in enumerate(self._changes):
            one = f"interventions.{number}"

            def positions(option: str, chosen: Chosen, one: str = one) -> tuple[int, ...]:
                found = choose(chosen, length, what="tokens", option=f"{one}.{option}", input_=place)
                return _once(found)

            match change:
                case ScaledHeads():
                    chosen = _heads(change, self._info)
                    heads.append(HeadScale(change.layer % layers, chosen, change.scale, change.mean))
                case HiddenKeys():
                    edges.append(
                        BlockedEdges(
                            _layers(change, self._info),
                            _heads(change, self._info),
                            positions("queries", change.queries),
                            positions("keys", change.keys),
                        )
                    )
                case ChangedStates():
                    layer = change.layer % (layers + 1)
                    tokens = positions("tokens", change.tokens)
                    states.append(StateChange(layer, tokens, change.vector, change.add))
        return Interventions(tuple(heads), tuple(edges), tuple(states))

    def _check_run(self, place: str, change: Change, state: int, layer: int) -> None:
        """Check one change, given the last hidden state and the last layer whose attention is returned."""
        layers = self._info.layers
        match change:
            case ScaledHeads():
                changed = [("layer", "layer", change.layer, change.layer % layers < max(state, layer))]
            case HiddenKeys():
                chosen = _layers(change, self._info)
                every = change.layers == "all"
                named = chosen[:1] if every else chosen
                changed = [("layers", "layer", one, one < state or one <= layer) for one in named]
            case ChangedStates():
                one = change.layer % (layers + 1)
                changed = [("layer", "hidden state", change.layer, one <= max(state, layer))]
        for option, what, number, has_effect in changed:
            if not has_effect:
                raise OptionError(
                    lambda name, option=option, what=what, number=number: (  # type: ignore[misc]
                        f"Nothing that this request returns depends on {what} {number} in "
                        f"{name(f'{place}.{option}')}: leave it out, or request a later layer."
                    ),
                    option=f"{place}.{option}",
                )


def _observed(want: Want) -> tuple[int, ...]:
    """Return the layers whose attention is wanted."""
    maps = () if want.attention is None else want.attention.layers
    return (*maps, *(() if want.summary is None else want.summary.layers))


def _positions(change: Change) -> list[int | None]:
    """Return how many indices a change lists; None for as many as there are tokens."""
    lists: list[Chosen]
    match change:
        case ScaledHeads():
            lists = []
        case HiddenKeys():
            lists = [change.queries, change.keys]
        case ChangedStates():
            lists = [change.tokens]
    return [None if chosen == "all" else len(chosen) for chosen in lists]


def _layers(change: HiddenKeys, info: ModelInfo) -> tuple[int, ...]:
    """Resolve the layers of a change that was checked, each once."""
    return _once(choose_layers(change.layers, info, "layers"))


def _heads(change: ScaledHeads | HiddenKeys, info: ModelInfo) -> tuple[int, ...]:
    """Resolve the heads of a change that was checked, each once."""
    return _once(choose(change.heads, info.heads, what="heads", option="heads"))


def _once(indices: Sequence[int]) -> tuple[int, ...]:
    """Return indices in their order, each once."""
    return tuple(dict.fromkeys(indices))
