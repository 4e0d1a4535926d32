"""Runs a batch with PyTorch, on the CPU or on CUDA."""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise
from typing import cast

import numpy as np
import torch
from torch import Tensor

from model.arrays import NUMPY, Array, IntArray
from model.checkpoints.checkpoint import Checkpoint
from model.contract import (
    Batch,
    ChunksWant,
    FloatArray,
    ModelInfo,
    Output,
    SentenceWant,
    Want,
)
from model.encoder.adapters import task_rows
from model.encoder.encoder import Encoder
from model.encoder.linear import read_matrices, suitable_rows
from model.encoder.packing import Packing
from model.encoder.sharing import Prefix, Start
from model.errors import OutOfMemory, Unsupported
from model.heads.chunks import finish_means
from model.heads.pooling import Bags, bag_alone
from model.heads.running import Heads, head_outputs, only, tokens_read
from model.heads.sparse import Splade
from model.heads.vectors import of_pooled, sentences
from model.inspection.lens import lenses_of
from model.inspection.vectors import joined
from model.lanes import choose_lanes, count_cores
from model.progress import Progress
from model.pytorch.differentiable import Scores
from model.pytorch.gradients import Gradients
from model.pytorch.kernels.library import end_threads
from model.pytorch.kernels.short_passes import ShortPasses
from model.pytorch.observing import BatchObserver, blocked_edges
from model.pytorch.precision import Precision
from model.pytorch.shared_layers import find_prefixes, find_starts
from model.pytorch.tensor_operations import TensorOperations

# 256 and 512 tokens run at 0.86 and 0.95 of 1024's rate, 2048 no faster (`benchmarks/passes/forward.md`).
_BUDGET, _BUDGET_CUDA = 1024, 8192


def choose_device(device: str) -> str:
    """Resolve "auto" to CUDA if available, else the CPU; raises Unsupported for a missing device."""
    if device == "auto":
        return "cuda" if torch.cuda.is_available() else "cpu"
    if device.startswith("cuda"):
        index = torch.device(device).index or 0
        if index >= torch.cuda.device_count():
            found = torch.cuda.device_count()
            raise Unsupported(
                f"device {device} does not exist: PyTorch sees {found} CUDA device(s).", field="device"
            )
    return device


@contextmanager
def one_thread() -> Iterator[int]:
    """Have PyTorch start no threads inside the `with` block; yields how many it would use."""
    available = min(torch.get_num_threads(), count_cores())
    torch.set_num_threads(1)
    try:
        yield available
    finally:
        torch.set_num_threads(available)


class TorchBackend:
    """A checkpoint, ready to run. Safe to call from several threads at a time.

    `device` and `dtype` may be "auto". `threads` is the number of cores to use (None: as many as PyTorch
    uses by default). `native=False` turns the native kernels off.
    """

    def __init__(
        self,
        checkpoint: Checkpoint,
        *,
        device: str = "auto",
        dtype: str = "auto",
        threads: int | None = None,
        native: bool = True,
    ) -> None:
        device = choose_device(device)
        precision = Precision.choose(dtype, device, checkpoint.encoder.config, native=native)
        self.budget = _BUDGET if device == "cpu" else _BUDGET_CUDA
        self.device = torch.device(device)
        self.use_threads(threads or min(torch.get_num_threads(), count_cores()))
        if device != "cpu":
            read_matrices(checkpoint.encoder, checkpoint.stored)
            checkpoint.encoder.to(self.device)
        self.encoder: Encoder = checkpoint.encoder.eval()
        parameters = sum(one.numel() for one in self.encoder.parameters())  # before they are packed
        self._kernels, no_kernels = precision.apply(self.encoder, checkpoint.stored)
        self._observes_apart = precision.rounds_weights
        self.short_passes = ShortPasses.of(self.encoder)
        if self._kernels is None:
            self.encoder.prepack()
        self.dense = checkpoint.folder.dense
        ops = TensorOperations(self.device)
        predictor = checkpoint.predictor
        self._heads = Heads(
            ops,
            self.dense,
            None if predictor is None else predictor.on(ops),
            checkpoint.folder.layout.splade or Splade(),
            checkpoint.folder.token_dense,
            checkpoint.folder.token_weights,
            checkpoint.folder.autoencoder,
        )
        adapters = self.encoder.config.adapters
        self._tasks = {name: i for i, name in enumerate(adapters.tasks if adapters else ())}
        scores = Scores(self._heads, ops, self.encoder.config.num_layers)
        self._gradients = Gradients(self.encoder, checkpoint.parts, scores, self._tasks)
        self.info: ModelInfo = replace(
            checkpoint.folder.describe(
                backend="torch",
                device=device,
                dtype=precision.name,
                head=None if predictor is None else predictor.info,
            ),
            kernels=None if self._kernels is None else self._kernels.instructions,
            no_kernels=no_kernels,
            tasks=tuple(self._tasks),
            default_task=adapters.default if adapters else None,
            weight_bytes=checkpoint.weight_bytes,
            parameters=parameters,
        )

    def use_threads(self, threads: int) -> None:
        """Run on this many cores from now on."""
        self._threads = threads
        self.lanes = choose_lanes(threads) if self.device.type == "cpu" else 1

    def cost(self, lengths: Sequence[int]) -> int:
        """Return the rows of the matrix products, padding rows included."""
        return self._rows(sum(lengths))

    def finish(self, means: FloatArray, want: ChunksWant) -> FloatArray:
        """Make the vectors of chunks from the means of their tokens; see `Backend.finish`."""
        return finish_means(means, want, self._heads.dense)

    def trim_memory(self) -> None:
        """Do nothing: on CPUs PyTorch keeps no freed memory, and a GPU is not shared with other programs."""

    @property
    def prepares_short(self) -> bool:
        """Whether native kernels run all layers in one call, with all that a short text needs kept ready."""
        return self.short_passes is not None

    def end_helpers(self) -> None:
        """End the threads that passes of the calling thread have started; the next pass starts others."""
        if self._kernels is not None:
            end_threads()

    def _rows(self, tokens: int) -> int:
        return tokens if self._kernels or self.device.type != "cpu" else suitable_rows(tokens)

    def run(self, batch: Batch, *, lanes: int = 1, progress: Progress | None = None) -> list[Output]:
        """Run one packed batch; see `Backend.run`."""
        torch.set_num_threads(max(1, self._threads // lanes))  # for products started by this thread
        try:
            return self._run_all(batch, progress or Progress())
        except (MemoryError, torch.OutOfMemoryError) as error:
            raise OutOfMemory(str(error)) from error
        except RuntimeError as error:
            # The CPU's allocator has no error class of its own.
            if "DefaultCPUAllocator" in str(error):
                raise OutOfMemory(str(error)) from error
            raise

    def _run_all(self, batch: Batch, progress: Progress) -> list[Output]:
        """Run sequences that want gradients, and the others apart from them."""
        wanting = [i for i, want in enumerate(batch.wants) if want.gradient is not None]
        if not wanting:
            return self._run(batch, progress)
        progress.check()
        outputs = self._gradients.run(batch, wanting, progress)
        others = [i for i in range(len(batch)) if i not in outputs]
        if others:
            outputs |= zip(others, self._run(only(batch, others), progress), strict=True)
        return [outputs[number] for number in range(len(batch))]

    @torch.inference_mode()
    def _run(self, batch: Batch, progress: Progress) -> list[Output]:
        progress.check()
        if len(batch) == 1 and (vector := self._run_short(batch, progress)) is not None:
            return [Output(vector)]
        if self._observes_apart and any(_observes(want) for want in batch.wants):
            return self._run_in_two_passes(batch, progress)
        # Sequences with adapters run apart from the others, which keep the native kernels.
        adapted = [want.task is not None for want in batch.wants]
        outputs: dict[int, Output] = {}
        for kind in {*adapted}:
            outputs |= self._run_some(batch, [i for i, one in enumerate(adapted) if one == kind], progress)
        return [outputs[number] for number in range(len(batch))]

    def _run_short(self, batch: Batch, progress: Progress) -> FloatArray | None:
        """Run a short sequence that wants only a vector from the last layer; return None for any other."""
        last, (want,), ids = self.info.layers, batch.wants, batch.input_ids
        sentence = want.sentence
        if self.short_passes is None or sentence is None or want != Want(sentence):
            return None
        if {*sentence.layers} != {last} or batch.unattended or not self.short_passes.takes(ids):
            return None
        state = self.short_passes.run(ids, batch.segment_ids, progress).numpy()
        pooled = bag_alone(len(ids), sentence.skip).pool(lambda _: state, sentence)
        return of_pooled(pooled, sentence, self.dense)[0]

    def _run_in_two_passes(self, batch: Batch, progress: Progress) -> list[Output]:
        """Run a batch, and observe its attention in a precise pass apart: see `Precision.rounds_weights`."""
        observed = [_observed(want) for want in batch.wants]
        others = [replace(want, attention=None, summary=None) for want in batch.wants]
        outputs: dict[int, Output] = {}
        for wants, needed in ((others, lambda want: want.states(self.info.layers)), (observed, _observes)):
            members = [i for i, want in enumerate(wants) if needed(want)]
            if members:
                found = self._run_some(replace(batch, wants=tuple(wants)), members, progress)
                outputs |= {i: joined(outputs[i], one) if i in outputs else one for i, one in found.items()}
        return [outputs.get(number, Output()) for number in range(len(batch))]

    def _run_some(self, batch: Batch, members: Sequence[int], progress: Progress) -> dict[int, Output]:
        """Run some sequences in one pass, all with a task or all without; returns their outputs by number."""
        bounds = batch.cu_seqlens.tolist()
        lengths = [stop - start for start, stop in pairwise(bounds)]
        # Sort by task, so that the rows of each lie together; by the state with which they begin; by length,
        # for few and long runs; then by selection, to observe equal wants together.
        task = [None if want.task is None else self._tasks[want.task] for want in batch.wants]
        numbers: dict[tuple[Hashable, ...], int] = {}
        changed = any(want.interventions is not None for want in batch.wants)
        kinds = [
            (want.attention, want.summary, blocked_edges(want) if changed else ()) for want in batch.wants
        ]
        selected = [numbers.setdefault(kind, len(numbers)) for kind in kinds]
        starts = find_starts(batch, members, self.info.layers) if changed and self._kernels else {}
        prefixes = {} if changed else self._find_prefixes(batch, members)
        for i, prefix in prefixes.items():  # only its own tokens are left
            lengths[i] -= prefix.length
            progress.shared_tokens += prefix.length
        order = sorted(
            members,
            key=lambda i: (task[i] or 0, starts[i].state if i in starts else 0, lengths[i], selected[i]),
        )
        packing = Packing.of(
            (lengths[i] for i in order),
            (batch.unattended[i] for i in order) if batch.unattended else (),
            _prefixes_in_order(prefixes, order),
        )
        wants = [_without_prefix(batch.wants[i], prefixes.get(i)) for i in order]
        ids, segments = self._rows_of(
            batch, [slice(bounds[i + 1] - lengths[i], bounds[i + 1]) for i in order]
        )
        tasks = task_rows([task[i] for i in order], packing)
        kernels = self._kernels is not None and not tasks
        observer = BatchObserver(packing, wants, self.device, kernels=kernels, tasks=[task[i] for i in order])
        last = self.info.layers
        wanted = {state for want in wants for state in want.states(last)}
        every = zip(wants, packing.lengths, strict=True)
        read = [tokens_read(want, length, last, self._heads.predictor) for want, length in every]
        plan = replace(observer.plan(wanted, self.info.heads, progress, _in_order(starts, order)), read=read)
        states: dict[int, Tensor] = self.encoder(
            torch.from_numpy(ids).to(self.device),
            torch.from_numpy(segments).to(self.device),
            packing,
            plan,
            tasks,
        )
        vectors = self._pool(states, packing, [want.sentence for want in wants])
        heads = head_outputs(
            wants,
            lambda i: _token_state(states[last], packing, i),
            lambda i: ids[packing.starts[i] : packing.starts[i + 1]],
            self._heads,
        )
        lenses = lenses_of(
            [want.lens for want in wants],
            lambda i, layer: _token_state(states[layer], packing, i),
            last,
            self._heads,
            progress,
        )
        outputs = {}
        for i, number in enumerate(order):
            tokens = _token_states(states, packing, i, wants[i].token_layers)
            outputs[number] = Output(vectors.get(i), tokens, heads=heads.get(i, {}) | lenses.get(i, {}))
            if _observes(wants[i]):
                outputs[number] = joined(outputs[number], observer.output(i))
        return outputs

    def _find_prefixes(self, batch: Batch, members: Sequence[int]) -> dict[int, Prefix]:
        """Find which sequences begin with the tokens of another, which native kernels compute only once."""
        longest = self.encoder.config.shared_length
        if longest == 0 or not self._kernels or any(batch.wants[i].task is not None for i in members):
            return {}
        return find_prefixes(batch, members, self._heads.predictor, longest)

    def _rows_of(self, batch: Batch, sequences: Sequence[slice]) -> tuple[IntArray, IntArray]:
        """Return the token and segment ids of sequences end to end, with the padding rows."""
        tokens = sum(one.stop - one.start for one in sequences)
        padding = [slice(0, 1)] * (self._rows(tokens) - tokens)  # repeats the first token
        slices = [*sequences, *padding]
        if len(slices) == 1:
            return batch.input_ids[slices[0]], batch.segment_ids[slices[0]]
        ids, segments = (
            np.concatenate([x[one] for one in slices]) for x in (batch.input_ids, batch.segment_ids)
        )
        return ids, segments

    def _pool(
        self, states: dict[int, Tensor], packing: Packing, wants: Sequence[SentenceWant | None]
    ) -> dict[int, FloatArray]:
        in_numpy = self.device.type == "cpu"  # each of its steps costs less than one of PyTorch's
        ops = NUMPY if in_numpy else TensorOperations(self.device)

        def read(layer: int) -> Array:
            return states[layer].numpy() if in_numpy else states[layer]

        def pool(want: SentenceWant, which: list[int]) -> FloatArray:
            starts, lengths = ([numbers[i] for i in which] for numbers in (packing.starts, packing.lengths))
            return Bags(starts, lengths, want.skip, ops).pool(read, want)

        return sentences(wants, pool, self.dense)


def _prefixes_in_order(prefixes: Mapping[int, Prefix], order: Sequence[int]) -> list[Prefix | None]:
    """Return prefixes in the order of packing, with carriers by their place in it; empty without any."""
    places = {number: place for place, number in enumerate(order)}
    found = (prefixes.get(number) for number in order)
    return [one and Prefix(places[one.carrier], one.length) for one in found] if prefixes else []


def _without_prefix(want: Want, prefix: Prefix | None) -> Want:
    """Return a sequence's want as it applies to the tokens after its prefix, which alone are packed."""
    if prefix is None or want.sentence is None or not want.sentence.skip:
        return want
    skip = max(0, want.sentence.skip - prefix.length)
    return replace(want, sentence=replace(want.sentence, skip=skip))


def _in_order(starts: Mapping[int, Start], order: Sequence[int]) -> list[Start | None]:
    """Return starts in the order of packing, with carriers by their place in it; empty without any."""
    places = {number: place for place, number in enumerate(order)}
    found = (starts.get(number) for number in order)
    return [start and Start(start.state, places[start.carrier]) for start in found] if starts else []


def _observes(want: Want) -> bool:
    return want.attention is not None or want.summary is not None


def _observed(want: Want) -> Want:
    """Return the part of a want that observes attention."""
    return replace(want, sentence=None, token_layers=(), heads=(), lens=None)


def _token_states(
    states: dict[int, Tensor], packing: Packing, index: int, layers: Sequence[int]
) -> FloatArray | None:
    """Cut one sequence's hidden states out of the batch: (layers, N, C)."""
    if not layers:
        return None
    return np.stack([_token_state(states[layer], packing, index) for layer in layers])


def _token_state(state: Tensor, packing: Packing, index: int) -> FloatArray:
    """Cut one sequence's rows out of a hidden state of the batch: (N, C)."""
    rows = slice(packing.starts[index], packing.starts[index + 1])
    return cast(FloatArray, state[rows].float().cpu().numpy())
