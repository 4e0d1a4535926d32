"""Writes a graph's weights in the layout that this processor's products read, for processes to share.

ONNX Runtime packs the weights of products when it opens a graph, into memory of that session alone: 43 MB for
MiniLM, for every session of every process. Written to a file once, they are mapped by all.
"""

import logging
import shutil
import tempfile
from pathlib import Path

import onnxruntime as ort

from model.files import reason
from model.onnx.session import CPU, ERRORS_ONLY, SLOWER, bound_constants

log = logging.getLogger(__name__)

_NAME, _WEIGHTS = "model.onnx", "weights"
_LEAST_BYTES = 1024
# The file has the weights of products twice, as they were and packed.
_ROOM = 2.5


def prepack(graph: Path, folder: Path | None) -> Path | None:
    """Optimise a graph for this machine's CPU and write it to a folder of its own in `folder`.

    Returns its path; it is opened with `Graph(…, prepacked=True)` and gives the same results bit by bit.
    Returns None where it cannot be written, and logs why: every session then packs its own.
    """
    if folder is None:
        log.warning(
            "no temporary folder can be written (TMPDIR, /tmp): each process packs its own weights, which "
            "takes more memory"
        )
        return None
    needed = int(_ROOM * sum(file.stat().st_size for file in graph.parent.glob(f"{graph.name}*")))
    if (free := shutil.disk_usage(folder).free) < needed:
        log.warning(
            "%s has %d MB free, but packed weights may need %d MB: each process packs its own, which takes "
            "more memory",
            folder,
            free >> 20,
            needed >> 20,
        )
        return None
    path = Path(tempfile.mkdtemp(dir=folder)) / _NAME
    options = ort.SessionOptions()
    options.log_severity_level = ERRORS_ONLY
    # With one thread the runtime starts none, so the process can still fork.
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    options.optimized_model_filepath = str(path)
    bound_constants(options, graph)
    for name, value in (
        ("session.optimized_model_external_initializers_file_name", _WEIGHTS),
        ("session.optimized_model_external_initializers_min_size_in_bytes", str(_LEAST_BYTES)),
        ("session.save_external_prepacked_constant_initializers", "1"),
    ):
        options.add_session_config_entry(name, value)
    try:
        ort.InferenceSession(graph, options, providers=[CPU], disabled_optimizers=SLOWER)
    except Exception as error:
        log.warning("the packed weights of %s cannot be shared: %s", graph, reason(error))
        shutil.rmtree(path.parent, ignore_errors=True)
        return None
    return path
