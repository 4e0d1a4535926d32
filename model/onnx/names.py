"""The names of the inputs and outputs of an exported graph, shared by `export/` and the ONNX backend.

A graph runs B sequences padded to N tokens each. L, H, D and C are as in `model.contract`. The first three
inputs, int64 (B, N), are those of every exported BERT. The other inputs, int64, are `cells` and the lists
that select what the graph returns; an empty list costs nothing. A layer that does not attend has only
`cells`, and returns only its hidden state; a graph with such layers also reads SEQUENCE_MASK.

A second graph beside it also has the inputs `layer_changes`, and runs interventions. It is a separate graph
so that a run without interventions costs no more.
"""

from collections.abc import Callable, Sequence

from model.encoder.config import EncoderConfig

FORMAT = "1"
"""The format of exported graphs; incremented when an older reader would misread a new graph."""
FORMAT_KEY = "headlight.format"
"""The metadata key of a graph's FORMAT."""
DTYPE_KEY = "headlight.dtype"
"""The metadata key of the precision of a graph's products: float32, float16 or int8."""
PROCESSORS_KEY = "headlight.for"
"""The metadata key of the `Processors` that an int8 graph is for; absent in older ones, of eight bits."""
TASK_KEY = "headlight.task"
"""The metadata key of the task whose adapter is part of a graph's weights; absent if there is none."""
NO_RANKING_KEY = "headlight.no_ranking"
"""The metadata key of why, by its weights, a model's vectors do not rank texts; absent if they do."""

INPUT_IDS, ATTENTION_MASK, TOKEN_TYPE_IDS = "input_ids", "attention_mask", "token_type_ids"
SEQUENCE_MASK = "sequence_mask"
"""The input int64 (B, N) of a graph with short convolutions: 1 for tokens and 0 for padding.

Convolutions also read tokens that ATTENTION_MASK hides: those that fill up a query of late interaction.
"""
LAST_HIDDEN_STATE = ("last_hidden_state", "token_embeddings")
"""The names that other exporters give to the output of the last layer, (B, N, C)."""
SENTENCE = "sentence_embedding"
"""The name that other exporters give to the vectors of texts, (B, E), of a graph that pools."""


def tokens(state: int) -> str:
    """Name the list of tokens whose hidden state 0 … L is returned, each as b·N + n."""
    return f"tokens_{state}"


def heads(layer: int) -> str:
    """Name the list of heads whose softmax weights are returned."""
    return f"heads_{layer}"


def rows(layer: int) -> str:
    """Name the list of query positions whose softmax weights are returned."""
    return f"rows_{layer}"


def pair_heads(layer: int) -> str:
    """Name the list of heads whose queries and keys are returned."""
    return f"pair_heads_{layer}"


def norm_heads(layer: int) -> str:
    """Name the list of heads whose value norms are returned."""
    return f"norm_heads_{layer}"


def cells(layer: int) -> str:
    """Name the table of tokens that continue after the attention of a layer: int64 (B, N) of b·N + n.

    [[0]], a single token, ends the pass there: the steps after it then cost almost nothing.
    """
    return f"cells_{layer}"


def state(number: int) -> str:
    """Name hidden state 0 … L of the listed tokens: float32 (tokens, C)."""
    return f"state_{number}"


def attention(layer: int) -> str:
    """Name the softmax weights of the listed heads and rows: float32 (B, heads, rows, N)."""
    return f"attention_{layer}"


def queries(layer: int) -> str:
    """Name the queries of the listed heads, as keys are compared with them: float32 (B, heads, N, D).

    Those of a cosine are unit vectors, and those of a Mahalanobis similarity are multiplied by its metric.
    """
    return f"queries_{layer}"


def keys(layer: int) -> str:
    """Name the keys of the listed heads, as they are compared with `queries`: float32 (B, heads, N, D)."""
    return f"keys_{layer}"


def value_norms(layer: int) -> str:
    """Name ‖f_h(x_j)‖ of the listed heads: float32 (B, heads, N) (Kobayashi et al. 2020, §2.2)."""
    return f"value_norms_{layer}"


def position_bias(layer: int) -> str:
    """Name the bias of the scores by distance, of the heads in `pair_heads`: float32 (heads, 2·N − 1).

    Column N − 1 + d is for keys d positions after their query. Only graphs with such a bias, learned or of
    ALiBi, have it.
    """
    return f"position_bias_{layer}"


def position_keys(layer: int) -> str:
    """Name the keys of positions, of the heads in `pair_heads`: float32 (heads, D, 2·N − 1).

    Column N − 1 + d is what a query is also compared with, for keys d positions after it (He et al. 2021).
    """
    return f"position_keys_{layer}"


def position_queries(layer: int) -> str:
    """Name the queries of positions, of the heads in `pair_heads`: float32 (heads, D, 2·N − 1).

    Column N − 1 + d is what a key is also compared with, for queries d positions before it.
    """
    return f"position_queries_{layer}"


def layer_changes(layer: int) -> list[str]:
    """List the inputs that change the attention of a layer, all float32.

    Blocked edges are R rectangles in each sequence: 1 for the queries of each head (B, H, N, R) and for the
    keys (B, 1, R, N) of each rectangle. Then come the factors of the outputs of heads (B, H, 1, 1), and the
    shares of tokens in a mean that is added to each output (B, H, 1, N). An axis may have length 1 if all
    along it is the same, except N of the shares.
    """
    return [f"{kind}_{layer}" for kind in ("blocked_queries", "blocked_keys", "head_scales", "mean_shares")]


def by_distance(config: EncoderConfig) -> list[Callable[[int], str]]:
    """List the outputs by distance of each layer that scores need besides queries and keys."""
    kinds = config.disentangled
    if kinds is None:
        return [position_bias] if config.biased else []
    used = {position_keys: kinds.content_to_position, position_queries: kinds.position_to_content}
    return [name for name, has in used.items() if has]


def layer_lists(layer: int) -> list[str]:
    """List the inputs that select what is observed in a layer that attends, in the graph's order."""
    return [name(layer) for name in (heads, rows, pair_heads, norm_heads)]


def layer_outputs(layer: int, further: Sequence[Callable[[int], str]] = ()) -> list[str]:
    """List the outputs that observe a layer, in the graph's order; `further` are those of `by_distance`."""
    return [name(layer) for name in (attention, queries, keys, value_norms, *further)]


def reads_sequence_mask(config: EncoderConfig) -> bool:
    """Whether a graph has the input SEQUENCE_MASK: if some layers do not attend."""
    return len(config.attending) < config.num_layers


def input_names(config: EncoderConfig) -> list[str]:
    """List every input of the graph of an encoder, in order."""
    layers = range(config.num_layers)
    lists = [[*(layer_lists(i) if i in config.attending else ()), cells(i)] for i in layers]
    return [
        INPUT_IDS,
        ATTENTION_MASK,
        TOKEN_TYPE_IDS,
        *(tokens(number) for number in range(config.num_layers + 1)),
        *(name for some in lists for name in some),
        *([SEQUENCE_MASK] if reads_sequence_mask(config) else ()),
    ]


def output_names(config: EncoderConfig) -> list[str]:
    """List every output of the graph of an encoder, in order."""
    states, further = [state(number) for number in range(config.num_layers + 1)], by_distance(config)
    return [*states, *(name for i in config.attending for name in layer_outputs(i, further))]
