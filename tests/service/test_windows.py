"""The windows over a long text: which one a chunk is from, by looking at all of them."""

from dataclasses import replace
from itertools import product

import numpy as np
import pytest

from model.contract import ChunksWant, FloatArray, Output, SentenceWant, Want
from service.tasks.chunking.windows import LongWindows, WindowedChunks, windows_over
from service.tasks.errors import OptionError
from tests.references.comparing import distance
from tests.references.windows import choice, windows_of
from tests.service.test_chunks import encoding


def windows(tokens: int, room: int, overlap: int, prompt: int = 0) -> LongWindows:
    """Windows over a text of so many tokens, for a model that reads `room` of them at once."""
    encoded = encoding(*((2 * i, 2 * i + 1) for i in range(tokens)), prompt=prompt)
    (found,) = windows_over([encoded], room + 2 + prompt, overlap, 1000)
    assert found is not None
    return found


@pytest.mark.parametrize("prompt", [0, 3])
def test_each_span_is_from_the_window_with_most_of_its_context(prompt: int) -> None:
    """Of all spans of texts of all lengths near those of windows."""
    for tokens, room, overlap in product((8, 9, 13, 20), (4, 5, 7), (0, 1, 3)):
        made, lead = windows(tokens, room, overlap, prompt), 1 + prompt
        spans = windows_of(tokens, room, overlap)
        assert made.spans == [(lead + first, lead + after) for first, after in spans]
        assert [len(one) for one in made.encodings] == [lead + room + 1] * len(spans)
        for first in range(tokens):
            assert made.owner(lead + first) == choice(spans, (first, first + 1), tokens)
            for after in range(first + 1, tokens + 1):
                found = made.choose((lead + first, lead + after))
                assert found == choice(spans, (first, after), tokens), (tokens, room, overlap, first, after)


def test_means_over_several_windows_are_computed_once() -> None:
    """Thousands of chunks of the whole text need the parts of its windows, and no more."""
    made = windows(300, 10, 2)
    whole = (1, 301)
    chunks = WindowedChunks(made, [whole] * 4096, ChunksWant(()))
    assert chunks.rows == len(made.starts)
    rng = np.random.default_rng(0)
    states = [rng.normal(size=(12, 4)).astype(np.float32) for _ in made.starts]
    outputs = []
    for (_, want), state in zip(chunks.sequences(Want()), states, strict=True):
        (head,) = want.heads
        assert isinstance(head, ChunksWant)
        means = np.array([state[first:after].mean(0) for first, after in head.spans])
        outputs.append(Output(heads={"chunks": means}))

    def finish(means: FloatArray, want: ChunksWant) -> FloatArray:
        assert want == ChunksWant(())
        return means

    found = chunks.join(outputs, Want(), finish).heads["chunks"]
    tokens = [states[made.owner(1 + i)][1 + i - made.starts[made.owner(1 + i)] + 1] for i in range(300)]
    assert distance(found, [np.mean(tokens, axis=0, dtype=np.float64)] * 4096) <= 1e-6


def test_windows_without_a_chunk_do_not_run() -> None:
    """But for the one whose vector is that of the whole text."""
    chunks = WindowedChunks(windows(300, 10, 2), [(290, 295)], ChunksWant(()))
    assert len(chunks.sequences(Want())) == 1
    assert len(chunks.sequences(Want(SentenceWant()))) == 2
    assert len(chunks.sequences(Want(token_layers=(1,)))) == len(windows(300, 10, 2).starts)


@pytest.mark.parametrize("left", [False, True])
def test_of_a_text_without_chunks_one_window_runs(left: bool) -> None:
    """White space can be many tokens and no sentence: its item has no vectors, but there is one."""
    chunks = WindowedChunks(replace(windows(300, 10, 2), left=left), [], ChunksWant(()))
    ((_, want),) = chunks.sequences(Want())
    assert want.heads == (ChunksWant((), means=True),)
    outputs = [Output(heads={"chunks": np.empty((0, 4), np.float32)})]
    assert chunks.join(outputs, Want(), lambda means, _: means).heads["chunks"].shape == (0, 4)


def test_all_texts_of_a_request_share_the_limit_of_windows() -> None:
    """A short text is one; a text of which not all tokens were kept has too many."""
    long, short = encoding(*((i, i + 1) for i in range(20))), encoding((0, 1))
    assert [one is None for one in windows_over([short, long], 12, 0, 3)] == [True, False]
    cut = replace(long, truncated=True, original_length=1000)
    for texts, index in (([short, long, short], 2), ([long, short, long], 2), ([short, cut], 1)):
        with pytest.raises(OptionError) as refused:
            windows_over(texts, 12, 0, 3)
        assert refused.value.option == f"inputs.{index}"
        assert refused.value.kind == "too-many-inputs"
        assert refused.value.members["limit"] == 3
