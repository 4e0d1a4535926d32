"""What the inputs and outputs of an exported graph are called: what `export/` and the ONNX backend agree on.

A graph runs B sequences as a rectangle of N tokens each, padded where they are shorter. L, H, D and C are
as in `model.contract`. The first three inputs, int64 (B, N), are those of every exported BERT. The others,
int64, are lists of what is given, which may be empty, and then it costs nothing; and `cells`.
"""

FORMAT = "1"
"""Raised when graphs change so that an older reader would misread them."""
FORMAT_KEY = "headlight.format"
"""Where in a graph's metadata its FORMAT stands."""
DTYPE_KEY = "headlight.dtype"
"""Where in a graph's metadata the precision of its products stands: float32, float16 or int8."""

INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS = "input_ids", "attention_mask", "token_type_ids"
LAST_HIDDEN_STATE = ("last_hidden_state", "token_embeddings")
"""What other exporters call the output of the last layer, (B, N, C)."""


def tokens(state: int) -> str:
    """Name the list of tokens whose hidden state 0 … L is given: each b·N + n."""
    return f"tokens_{state}"


def heads(layer: int) -> str:
    """Name the list of heads of which softmax weights are given."""
    return f"heads_{layer}"


def rows(layer: int) -> str:
    """Name the list of query positions of which softmax weights are given."""
    return f"rows_{layer}"


def pair_heads(layer: int) -> str:
    """Name the list of heads of which queries and keys are given."""
    return f"pair_heads_{layer}"


def norm_heads(layer: int) -> str:
    """Name the list of heads of which the norms of the values are given."""
    return f"norm_heads_{layer}"


def cells(layer: int) -> str:
    """Name the table of tokens that go on after the attention of a layer: int64 (B, N) of b·N + n.

    [[0]], a single token, stands for none: what comes after it then costs nearly nothing.
    """
    return f"cells_{layer}"


def state(number: int) -> str:
    """Name hidden state 0 … L of the listed tokens: float32 (tokens, C)."""
    return f"state_{number}"


def attention(layer: int) -> str:
    """Name the softmax weights of the listed heads and rows: float32 (B, heads, rows, N)."""
    return f"attention_{layer}"


def queries(layer: int) -> str:
    """Name the queries of the listed heads: float32 (B, heads, N, D)."""
    return f"queries_{layer}"


def keys(layer: int) -> str:
    """Name the keys of the listed heads: float32 (B, heads, N, D)."""
    return f"keys_{layer}"


def value_norms(layer: int) -> str:
    """Name ‖f_h(x_j)‖ of the listed heads: float32 (B, heads, N) (Kobayashi et al. 2020, §2.2)."""
    return f"value_norms_{layer}"


def layer_inputs(layer: int) -> list[str]:
    """List the inputs of a layer, in the order in which a graph takes them."""
    return [name(layer) for name in (heads, rows, pair_heads, norm_heads, cells)]


def layer_outputs(layer: int) -> list[str]:
    """List the outputs of a layer, in the order in which a graph gives them."""
    return [name(layer) for name in (attention, queries, keys, value_norms)]


def input_names(layers: int) -> list[str]:
    """List every input of a graph of so many layers, in order."""
    lists = [tokens(number) for number in range(layers + 1)]
    return [
        INPUT_IDS,
        ATTENTION_MASK,
        TOKEN_TYPE_IDS,
        *lists,
        *(n for i in range(layers) for n in layer_inputs(i)),
    ]


def output_names(layers: int) -> list[str]:
    """List every output of a graph of so many layers, in order."""
    states = [state(number) for number in range(layers + 1)]
    return [*states, *(n for i in range(layers) for n in layer_outputs(i))]
