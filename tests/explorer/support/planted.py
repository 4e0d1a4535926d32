"""A small BERT whose first layer is known by heart: each of its heads does one thing. The rest is random."""

from pathlib import Path

import torch

from tests.references.checkpoints import write_bert

LAYERS, HEADS = 3, 4
WORDS = ("cat", "sat", "on", "mat", "dog", "ran")
UNIFORM, PREVIOUS, NEXT, SELF = range(HEADS)
"""The heads of layer 0: all tokens alike, the token before, the token after, and the token itself."""
LARGEST = 16
"""Tokens of an input, up to which this holds."""
_HIDDEN, _SHARP = 64, 3.0


def write_planted(folder: Path) -> None:
    """Save it. Positions are orthogonal, words hardly count, and queries look for the position they want."""
    model = write_bert(
        folder,
        words=WORDS,
        hidden_size=_HIDDEN,
        num_hidden_layers=LAYERS,
        num_attention_heads=HEADS,
        max_position_embeddings=_HIDDEN,
    )
    embeddings, first = model.embeddings, model.encoder.layer[0].attention.self
    codes = torch.eye(LARGEST).repeat(_HIDDEN // LARGEST, 1).T * _SHARP  # (head size, position)
    with torch.no_grad():
        embeddings.position_embeddings.weight.copy_(10 * torch.eye(_HIDDEN))
        embeddings.word_embeddings.weight.mul_(0.05)
        embeddings.token_type_embeddings.weight.zero_()
        embeddings.LayerNorm.weight.fill_(1)
        embeddings.LayerNorm.bias.zero_()
        for linear in (first.query, first.key):
            linear.bias.zero_()
        shifts = {UNIFORM: 0, PREVIOUS: -1, NEXT: 1, SELF: 0}
        size = _HIDDEN // HEADS
        for head, shift in shifts.items():
            rows = slice(head * size, (head + 1) * size)
            first.query.weight[rows] = 0 if head == UNIFORM else torch.roll(codes, shift, dims=0)
            first.key.weight[rows] = codes
    model.save_pretrained(folder)
