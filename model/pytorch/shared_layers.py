"""Finds the sequences of a batch that may begin with a hidden state of another."""

from collections.abc import Sequence

from model.contract import Batch, Want
from model.encoder.sharing import Start, Text, share_layers


def find_starts(batch: Batch, members: Sequence[int], layers: int) -> dict[int, Start]:
    """Say where `members` of a batch begin that need not run all layers; carriers are among them, too."""
    texts = [_text(batch, i, layers) for i in members]
    return {
        members[place]: Start(start.state, members[start.carrier])
        for place, start in enumerate(share_layers(texts))
        if start is not None
    }


def _text(batch: Batch, number: int, layers: int) -> Text:
    rows = slice(*batch.cu_seqlens[number : number + 2].tolist())
    tokens = (batch.input_ids[rows].tobytes(), batch.segment_ids[rows].tobytes())
    unattended = batch.unattended[number] if batch.unattended else 0
    want = batch.wants[number]
    changed = want.interventions.first if want.interventions else None
    return Text((*tokens, unattended), changed, _needed(want, layers))


def _needed(want: Want, layers: int) -> int:
    """Return the first hidden state that is read, or the one before the first layer that is observed.

    It is never the last one: it may be normalised once more when all layers have run.
    """
    needed = [*want.states(layers), layers - 1]
    if want.attention is not None:
        needed += [0] if want.attention.aggregate == "rollout" else want.attention.layers
    if want.summary is not None:
        needed += want.summary.layers
    return min(needed)
