"""Runs a batch on an ONNX graph, without PyTorch, in padded batches of sequences of similar length."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path

import numpy as np

from model.arrays import NUMPY
from model.checkpoints.exported_prediction import read_exported
from model.checkpoints.folder import ModelFolder
from model.contract import Batch, ChunksWant, FloatArray, ModelInfo, Output, Want
from model.errors import CheckpointError, Unsupported
from model.heads.chunks import finish_means
from model.heads.running import Heads
from model.heads.sparse import Splade
from model.lanes import choose_lanes, count_cores
from model.onnx import names as graph
from model.onnx.fetches import Fetches, choose_fetches, is_changed
from model.onnx.file import OnnxFile, check_whole, list_beside
from model.onnx.foreign import check_foreign, feed
from model.onnx.grouping import group_lengths, padded_tokens
from model.onnx.lazy_graph import LazyGraph
from model.onnx.own_vector import with_own_vector
from model.onnx.padded_batch import Arrays, PaddedBatch
from model.onnx.precision import INT8, Precision, read_precision, told_precision
from model.onnx.session import CPU, Graph, Processor, choose_processor
from model.onnx.vnni import NO_VNNI, has_exact_eight_bits
from model.progress import Progress

# Larger padded batches overflow the cores' own caches: a third slower (`benchmarks/passes/graphs.py`).
_MOST_TOKENS = 512
_MOST_TOKENS_CUDA = 16384
# Smaller, because the maps of all heads of a padded batch are in memory together.
_MOST_OBSERVED_CUDA = 2048
# Padded batches run one at a time: a larger budget would only fill the last one better.
_BUDGET, _BUDGET_CUDA = 1024, 4096
_STEP_CUDA = 32
"""On CUDA, lengths are padded to multiples of this, because the runtime plans each new shape again."""


class OnnxBackend:
    """A graph, ready to run. Safe to call from several threads at a time.

    `device` may be "auto". `dtype` is "auto" or the graph's own dtype. `threads` is the number of cores to
    use (None: all). `prepacked` is what `prepack` made of the graph on this machine, for a CPU. Raises
    CheckpointError and Unsupported.
    """

    def __init__(
        self,
        folder: ModelFolder,
        file: OnnxFile,
        *,
        device: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        prepacked: Path | None = None,
    ) -> None:
        if prepacked is None:
            check_whole(file)
        predictor = read_exported(folder.path)
        folder.check_head(predictor.info if predictor else None)
        self._processor: Processor = choose_processor(device)
        self._on_cpu = self._processor.provider == CPU
        cores = threads or count_cores()
        self.lanes = choose_lanes(cores) if self._on_cpu else 1
        self.budget = _BUDGET if self._on_cpu else _BUDGET_CUDA
        opened = partial(Graph, prepacked or file.path, self._processor, prepacked=prepacked is not None)
        self._shared = opened(max(1, cores // self.lanes))
        self._exposes_attention = graph.FORMAT_KEY in self._shared.metadata
        check_fits(self._shared, folder)
        # Checked before a foreign graph's pooling is found by its vectors, which saturated sums would change.
        precision = find_precision(self._shared, file, on_cpu=self._on_cpu)
        if not self._exposes_attention:
            folder = with_own_vector(self._shared, folder)
        no_ranking = folder.no_ranking or self._shared.metadata.get(graph.NO_RANKING_KEY)
        self._folder = folder = replace(folder, no_ranking=no_ranking)
        self._heads = Heads(
            NUMPY,
            folder.dense,
            predictor,
            folder.layout.splade or Splade(),
            folder.token_dense,
            folder.token_weights,
            folder.autoencoder,
        )
        found = precision.name
        if found == INT8 and not self._on_cpu:
            raise Unsupported(
                f"{file.path} has int8 products, which run only on CPUs: for CUDA, export it in float16.",
                field="device",
            )
        if dtype not in ("auto", found):
            raise Unsupported(
                f"dtype is {dtype}, but {file.path} computes in {found}: choose auto, or export it again.",
                field="dtype",
            )
        # A single batch may use all cores. Each graph has its own threads, so this takes a second graph.
        several = self.lanes > 1
        self._alone = opened(cores, spin=True) if several else self._shared
        changes = self._exposes_attention and file.interventions.is_file()
        self._changed = LazyGraph(partial(Graph, file.interventions, self._processor, cores, packed=False))
        described = folder.describe(
            backend="onnx",
            device=self._processor.device,
            dtype=found,
            provider=self._processor.provider,
            exposes_attention=self._exposes_attention,
            task=self._shared.metadata.get(graph.TASK_KEY),
            head=None if predictor is None else predictor.info,
        )
        self.info: ModelInfo = replace(
            described,
            weight_bytes=file.size,
            processors=precision.processors,
            interventions=("heads", "edges") if changes else (),
            head_vectors=("query", "key"),
            has_lens=folder.config.norm == "post" or (predictor and predictor.final_norm) is not None,
        )

    def cost(self, lengths: Sequence[int]) -> int:
        """Return the tokens of the padded batches, padding included."""
        return padded_tokens([self._padded(n) for n in lengths], self._most(observed=False))

    def _most(self, *, observed: bool) -> int:
        if self._on_cpu:
            return _MOST_TOKENS
        return _MOST_OBSERVED_CUDA if observed else _MOST_TOKENS_CUDA

    def _padded(self, length: int) -> int:
        if self._on_cpu:
            return length
        padded = -(-length // _STEP_CUDA) * _STEP_CUDA
        return min(padded, self._folder.config.position_limit or padded)  # padding needs positions too

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        """Run one packed batch; see `Backend.run`.

        The runtime does not tell how far a run is: `progress` grows between the padded batches, and while the
        graph for interventions is opened. Raises Unsupported for interventions that this graph cannot make.
        """
        for want in batch.wants:
            if want.interventions is not None:
                want.interventions.check_runs(self.info.interventions)
        progress = progress or Progress()
        usual = self._alone if lanes == 1 else self._shared
        outputs: list[Output] = [Output()] * len(batch)
        for padded in self._pad(batch):
            runner = self._changed.open(progress) if padded.is_changed else usual
            results = self._compute(partial(runner.run, progress=progress), padded)
            progress.step(self.info.layers)
            taken = padded.take(results, self._heads, progress)
            for i, output in zip(padded.members, taken, strict=True):
                outputs[i] = output
        return outputs

    def finish(self, means: FloatArray, want: ChunksWant) -> FloatArray:
        """Make the vectors of chunks from the means of their tokens; see `Backend.finish`."""
        return finish_means(means, want, self._heads.dense)

    def trim_memory(self) -> None:
        """Return the memory of large maps, which would otherwise stay at its highest use so far."""
        if not self._on_cpu:
            return
        token = np.zeros(1, np.int64)
        least = Batch(token, token, np.array([0, 1]), (Want(token_layers=(0,)),))
        for padded in self._pad(least):
            self._compute(self._shared.trim_memory, padded)

    @property
    def prepares_short(self) -> bool:
        """False: the native kernels do not run graphs."""
        return False

    def end_helpers(self) -> None:
        """Do nothing: the threads of ONNX Runtime belong to its sessions, not to the calling thread."""

    def _pad(self, batch: Batch) -> Iterator[PaddedBatch]:
        """Group sequences by what they fetch and whether they are changed, then by similar length."""
        grouped: dict[tuple[Fetches, bool], list[int]] = defaultdict(list)
        lengths = [self._padded(int(n)) for n in np.diff(batch.cu_seqlens)]
        for i, (want, length) in enumerate(zip(batch.wants, lengths, strict=True)):
            grouped[choose_fetches(want, length, self.info.layers), is_changed(want)].append(i)
        for (fetches, _), members in grouped.items():
            observed = bool(fetches.maps or fetches.pairs)
            for group in group_lengths([lengths[i] for i in members], self._most(observed=observed)):
                some = [members[i] for i in group]
                yield PaddedBatch(batch, some, fetches, max(lengths[i] for i in some), self._folder.config)

    def _compute(self, run: Callable[[Arrays, list[str]], Arrays], padded: PaddedBatch) -> Arrays:
        outputs = padded.outputs
        if not outputs:
            return {}
        if self._exposes_attention:
            return run(padded.feed(), outputs)
        shared = self._shared
        tokens = feed(shared, padded.tokens())
        if graph.TOKEN_TYPE_IDS in tokens and self._folder.config.segments < 2:
            # A model with one segment uses it for both texts of a pair.
            tokens[graph.TOKEN_TYPE_IDS] = np.zeros_like(tokens[graph.TOKEN_TYPE_IDS])
        alone = self._folder.vector_size is not None
        names = (graph.SENTENCE,) if alone else graph.LAST_HIDDEN_STATE
        output = next(name for name in names if name in shared.outputs)
        found = run(tokens, [output])[output].astype(np.float32, copy=False)
        return {output: found} if alone else padded.choose_states(self.info.layers, found)


def find_precision(opened: Graph, file: OnnxFile, *, on_cpu: bool) -> Precision:
    """Return the precision of a graph, as its metadata says or its file shows.

    Raises CheckpointError for eight bits whose sums would saturate on this processor.
    """
    told = told_precision(opened.metadata)
    precision = told or read_precision(file.path)
    if precision.saturates and on_cpu and not has_exact_eight_bits():
        way_out = _exact_beside(file) if told is None else "export it again with --quantize int8 --for any"
        raise CheckpointError(
            f"{file.path} is for {precision.processors}, but {NO_VNNI}: {way_out}, or run it on a processor "
            "with VNNI."
        )
    return precision


def _exact_beside(file: OnnxFile) -> str:
    """Say what to run instead of a foreign graph: one beside it whose sums do not saturate, or float32."""
    for path in list_beside(file):
        with suppress(CheckpointError):
            if not read_precision(path).saturates:
                return f"run {path.name} beside it"
    return "run the graph in float32"


def check_fits(opened: Graph, folder: ModelFolder) -> None:
    """Check that a graph has a known format and belongs to this model; raises CheckpointError."""
    config, path = folder.config, opened.path
    written = opened.metadata.get(graph.FORMAT_KEY)
    if written is None:
        check_foreign(opened, folder)
        return
    if written != graph.FORMAT:
        raise CheckpointError(
            f"{path} has format {written}, but this release reads format {graph.FORMAT}: export the model "
            "again, or run the release that wrote it."
        )
    names = (graph.input_names(config), graph.output_names(config))
    if (sorted(opened.inputs), sorted(opened.outputs)) != tuple(map(sorted, names)):
        raise CheckpointError(
            f"{path} does not have the {config.num_layers} layers of {_config(folder)}: the two files do not "
            "belong together; export the model again."
        )
    heads = {graph.queries(i): config.within(config.layer(i)).head_size for i in config.attending}
    sizes = {graph.state(0): config.hidden_size, **heads}
    for name, size in sizes.items():
        (found,) = opened.outputs[name].shape[-1:] or [None]
        if found != size:
            raise CheckpointError(
                f"{path} returns {name} with {found} components, but {_config(folder)} says {size}: the two "
                "files do not belong together; export the model again."
            )


def _config(folder: ModelFolder) -> str:
    return str(folder.layout.transformer / "config.json")
