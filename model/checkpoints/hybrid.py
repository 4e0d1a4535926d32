"""Reads the two layers that bge-m3 has above its encoder: for weights of tokens, and for late interaction.

FlagEmbedding saves their tensors as pickles, which are never opened here; `headlight convert` turns them into
the safetensors that are read.
"""

import logging
import shlex
from pathlib import Path

from tokenizers import Tokenizer

from model.checkpoints.dense import read_layer
from model.contract import FloatArray
from model.errors import CheckpointError
from model.files import present, shown
from model.heads.dense import Dense
from model.heads.sparse import TokenWeights
from model.keys.files import HYBRID
from model.keys.token_roles import find_unweighted
from model.tokenization.roles import RoleRules

log = logging.getLogger(__name__)

_LONGEST = 2**24
_MOST_COMPONENTS = 2**17

HYBRID_ROLE = RoleRules(_LONGEST, skips_first=True)
"""Queries and documents are tokenized like all texts; the first token makes only the vector of the text."""


def is_hybrid(transformer: Path) -> bool:
    """Return whether a transformer's folder has one of the two layers, both of which are then needed."""
    return any(present(transformer / file) for file in HYBRID)


def read_hybrid(transformer: Path, size: int, tokenizer: Tokenizer) -> tuple[TokenWeights, Dense]:
    """Load both layers, which take hidden states of `size`; raises CheckpointError."""
    missing = next((file for file in HYBRID if not present(transformer / file)), None)
    if missing is not None:
        other = next(file for file in HYBRID if file != missing)
        raise CheckpointError(
            f"{transformer / missing} is missing beside {other}: bge-m3 has both layers; fetch or convert "
            f"the model again, or remove {other} to serve sentence vectors alone."
        )
    sparse, vectors = (transformer / file for file in HYBRID)
    weight, bias = _linear(sparse, size, 1)
    ignored = find_unweighted(transformer, tokenizer)
    return TokenWeights(weight[0], float(bias[0]), ignored), Dense(*_linear(vectors, size), "Identity")


def _linear(file: Path, inputs: int, outputs: int | None = None) -> tuple[FloatArray, FloatArray]:
    """Read weight (outputs, inputs) and bias (outputs,), of any number of outputs unless given."""
    tensors = read_layer(file, (outputs or _MOST_COMPONENTS) * (inputs + 1))
    shapes = {name: array.shape for name, array in tensors.items()}
    found = outputs or max((1, *shapes.get("bias", ())))
    if shapes != {"weight": (found, inputs), "bias": (found,)}:
        number = "E" if outputs is None else outputs
        raise CheckpointError(
            f"{file} has tensors of the shapes {shown(shapes)}; it must have weight ({number}, {inputs}) "
            f"and bias ({number},), because the encoder's vectors have {inputs} components: use files from "
            "the same model."
        )
    return tensors["weight"], tensors["bias"]


def warn_of_pickles(transformer: Path) -> None:
    """Warn in the log if a folder has the layers only as pickles, and say how to have them served."""
    pickles = [file for name in HYBRID if present(transformer / (file := pickle_of(name)))]
    if pickles and not is_hybrid(transformer):
        command = f"headlight convert {shlex.quote(str(transformer))} OUT_DIR"
        log.warning(
            "%s: only its sentence vectors are served, because %s %s; `%s` makes a folder with all three "
            "kinds of vectors",
            transformer,
            " and ".join(pickles),
            "is a pickle, which is not read" if len(pickles) == 1 else "are pickles, which are not read",
            command,
        )


def pickle_of(file: str) -> str:
    """Return the name of the pickle that FlagEmbedding saves instead of a file of HYBRID."""
    return f"{file.removesuffix('.safetensors')}.pt"
