"""Finds the sequences of a batch that may begin with a hidden state of another, or with its first tokens."""

from collections.abc import Sequence

from model.contract import Batch, LogitsWant, Want
from model.encoder.sharing import Prefix, Start, Text, share_layers, share_prefixes
from model.heads.predictor import Predictor


def find_starts(batch: Batch, members: Sequence[int], layers: int) -> dict[int, Start]:
    """Return where the `members` of a batch begin that need not run all layers; carriers are members, too."""
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
    """Return the first hidden state that is read or is the input of an observed layer.

    It is never the last one: it may be normalised once more when all layers have run.
    """
    needed = [*want.states(layers), layers - 1]
    if want.attention is not None:
        needed += [0] if want.attention.aggregate == "rollout" else want.attention.layers
    if want.summary is not None:
        needed += want.summary.layers
    return min(needed)


def find_prefixes(
    batch: Batch, members: Sequence[int], predictor: Predictor | None, longest: int | None
) -> dict[int, Prefix]:
    """Return which `members` of a batch of causal sequences begin with tokens of another, and of which one.

    These are sequences of up to `longest` tokens, of which only the last token's hidden states are read.
    """
    bounds = batch.cu_seqlens.tolist()
    members = [i for i in members if longest is None or bounds[i + 1] - bounds[i] <= longest]
    if len(members) < 2 or any(batch.unattended):
        return {}
    texts = [batch.input_ids[bounds[i] : bounds[i + 1]] for i in members]
    reads_last = predictor is not None and predictor.pooling == "last"
    most = [
        (predictor.last(text) if predictor is not None and want.heads else len(text) - 1)
        if _reads_last_token(want, predicts_of_last=reads_last)
        else 0
        for text, want in zip(texts, (batch.wants[i] for i in members), strict=True)
    ]
    return {
        members[place]: Prefix(members[prefix.carrier], prefix.length)
        for place, prefix in enumerate(share_prefixes(texts, most))
        if prefix is not None
    }


def _reads_last_token(want: Want, *, predicts_of_last: bool) -> bool:
    """Whether only the last token's hidden states are read of a sequence."""
    if want.token_layers or want.attention or want.summary or want.lens:
        return False
    if want.sentence is not None and {*want.sentence.modes} != {"last"}:
        return False
    return all(isinstance(head, LogitsWant) for head in want.heads) and (predicts_of_last or not want.heads)
