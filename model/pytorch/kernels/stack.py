"""Runs all layers of an encoder in one call, with the native kernels between the products."""

from collections.abc import Mapping, Sequence
from ctypes import addressof, byref, c_void_p, cast
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from model.encoder.attending.edits import Edits
from model.encoder.encoder import Encoder
from model.encoder.feed_forward import Experts
from model.encoder.linear import Linear, StoredParts, read_matrices
from model.encoder.packing import Packing
from model.encoder.parts import Activation
from model.encoder.plan import Plan
from model.memory import WeightPages, trim_memory
from model.pytorch.kernels import structures
from model.pytorch.kernels.buffers import Buffers, split_layers
from model.pytorch.kernels.eight_bits import (
    Inputs,
    are_rows_of,
    free_buffers,
    observe_inputs,
    round_weights,
    rounds_all,
)
from model.pytorch.kernels.embeddings import NativeEmbeddings
from model.pytorch.kernels.library import (
    ACTIVATIONS,
    LINE,
    STORED,
    Kernels,
    NoKernels,
    check,
    kernels_for,
    kernels_of_stored_weights,
)
from model.pytorch.kernels.panels import lay_out
from model.pytorch.kernels.passes import Attended, Pass, Passes, PassKernels, norm_read
from model.pytorch.kernels.positions import AngleTables, PassPositions, Vectors

# How many tokens go through all layers together. With more, what one step writes leaves the caches before the
# next reads it; with fewer, threads wait for each other more often (`benchmarks/passes/eight_bits.md`).
_PART = 1024
_WORTH_RELEASING = 2**23
"""How many weights must have been read for their release to be worth the time."""
_NONE_STORED: StoredParts = {}
_STEPS = ("attend", "add_norm", "rotate", "gate", "route", "collect")


def run_on_kernels(
    encoder: Encoder,
    kernels: Kernels | None = None,
    dtype: torch.dtype | None = None,
    stored: StoredParts = _NONE_STORED,
) -> Kernels:
    """Run an encoder's blocks on native kernels; raises NoKernels if they cannot run it.

    By default `dtype` is that of the weights, and `kernels` are those of this precision. `stored` are the
    parts of weights as a mapped file holds them, which kernels of eight bits use.

    The encoder's weights are laid out for the kernels: afterwards the blocks themselves cannot run.
    """
    linear = next(module for module in encoder.blocks.modules() if isinstance(module, Linear))
    if linear.device.type not in ("cpu", "meta"):  # or still in their file
        raise NoKernels("they run on CPUs")
    stack = NativeStack.of(encoder, dtype or linear.dtype, kernels, stored)
    encoder.executor = stack
    if NativeEmbeddings.supports(encoder.embeddings):
        encoder.embedder = NativeEmbeddings(encoder.embeddings, stack.kernels)
    return stack.kernels


class NativeStack:
    """The layers of one encoder on a CPU, in one precision, as native kernels run them.

    The call does not hold the interpreter lock, so a service under load answers more requests.
    """

    def __init__(
        self,
        encoder: Encoder,
        kernels: Kernels,
        dtype: torch.dtype | None = None,
        stored: StoredParts = _NONE_STORED,
    ) -> None:
        """Lay out the weights; `dtype` is the precision of the kernels, by default that of the weights.

        If products widen weights, everything between the products is in float32.
        `stored` are the parts of weights as a mapped file holds them. Blocks are read, converted and laid out
        one by one, and what was read of the file is released, so that hardly more is held than afterwards.
        """
        config = encoder.config
        self.kernels = kernels
        self._encoder = encoder
        self._config = config
        self._blocks: list[Any] = list(encoder.blocks)
        self._products = kernels.products
        self._dtype: torch.dtype = dtype or self._blocks[0].attention.qkv.dtype
        if self._products.widens:
            self._dtype = torch.float32
        # Adapters need the columns of weights in order.
        self._adapted = config.adapters is not None
        self._fuses_gates = config.gated and not self._adapted
        self._gated = config.intermediate_size if config.gated and not self._fuses_gates else 0
        inner = config.intermediate_size + self._gated
        experts = max(layer.mixture.experts if layer.mixture else 0 for layer in config.layers)
        self._widest = max(sum(config.qkv_rows), inner, experts)
        self._parameters: list[Tensor] = []  # the kernels hold the addresses of these, and of `_kept`
        self._kept: list[object] = []
        disentangled = dict.fromkeys(self._blocks) if config.disentangled else ()
        int8 = kernels.products.int8
        if int8:
            read_matrices(encoder, stored)
        self._inputs = observe_inputs(encoder) if int8 else {}
        exact = int8 and rounds_all(config)  # in passes that observe
        self._of_file, self._stored = stored, stored if exact else None
        self._vectors = {block: self._position_vectors(block) for block in disentangled}
        self._tables = AngleTables(config)
        self._read_numbers, self._read_weights = 0, WeightPages(stored.values())
        described = {block: self._layer(block) for block in dict.fromkeys(self._blocks)}  # once if shared
        layers = [described[block] for block in self._blocks]
        self.layers = (structures.Layer * len(layers))(*layers)
        """The layers as the kernels read them."""
        self._passes = Passes(config, self._blocks, self.layers)
        if self._inputs:
            self._inputs.clear()
            free_buffers()
        self._of_file, self._stored = _NONE_STORED, None
        self._unobserved = self._prepare(kernels, self._dtype)
        self._observing = self._prepare(kernels_of_stored_weights(), torch.float32) if exact else None

    def _prepare(self, kernels: Kernels, dtype: torch.dtype) -> PassKernels:
        config = self._config
        steps = {name: getattr(kernels, name) for name in _STEPS} | {"multiply": kernels.products.multiply}
        constants = structures.Layers(
            element=dtype.itemsize,
            epsilon=config.norm_eps,
            widest=self._widest,
            gated_width=self._gated,
            norms_input=config.norm != "post",
            rms=config.norm_kind == "rms",
            **{name: cast(step, c_void_p) for name, step in steps.items()},
        )
        return PassKernels(kernels, dtype, constants)

    @staticmethod
    def of(
        encoder: Encoder,
        dtype: torch.dtype,
        kernels: Kernels | None = None,
        stored: StoredParts = _NONE_STORED,
    ) -> "NativeStack":
        """Build a stack; raises NoKernels if none fits this encoder or this processor.

        `kernels` are those of the precision by default, `stored` the parts of weights as a file holds them.
        """
        return NativeStack(encoder, kernels_for(encoder.config, dtype, kernels), dtype, stored)

    def __call__(self, x: Tensor, packing: Packing, plan: Plan) -> dict[int, Tensor]:
        """Run hidden state 0, float32 (T, C); see `Executor`. The plan's `in_kernels` are `Observations`."""
        wanted = [number for number in plan.states if number]
        if not x.numel():
            return dict.fromkeys(wanted, x)
        states = {number: torch.empty_like(x) for number in wanted}
        # Observers in Python need the whole batch, as do sequences that begin with others' states or tokens.
        whole = plan.observers or plan.starts or packing.prefixes
        for first, part in ((0, packing),) if whole else packing.parts(_PART):
            if part is packing:
                self._run_part(x, part, plan, states, first)
                continue
            start, ends = packing.starts[first], first + len(part.lengths) == len(packing.lengths)
            rows = slice(start, len(x) if ends else start + part.tokens)
            self._run_part(x[rows], part, plan, {n: state[rows] for n, state in states.items()}, first)
        last_state = self._config.num_layers
        if last_state in states and self._config.norm != "post":
            states[last_state] = norm_read(self._encoder.final_norm, states[last_state], plan, packing)
            if plan.interventions:
                Edits(plan.interventions, packing).change_state(last_state, states[last_state])
        return states

    def buffers(self, x: Tensor, packing: Packing) -> Buffers:
        """Allocate the buffers of a pass from hidden state 0, float32 (T, C), that observes nothing."""
        return Buffers(x, packing, self._unobserved.dtype, self._config, self._widest, self._gated)

    def describe(self, buffers: Buffers, packing: Packing, state: Tensor) -> Pass:
        """Describe a pass from the first rows of `buffers` to the last hidden state, without the final norm.

        It writes that state of the T tokens in `packing` to `state`, float32 (T, C), and observes nothing.
        """
        last = self._config.num_layers
        positions = PassPositions(self._encoder, packing, packing.tokens, self._tables, self._vectors)
        described = self._passes.describe(
            self._unobserved, buffers, packing, positions, range(last), {last: state}, Plan({last})
        )
        described.layers.tokens = described.attention.tokens = packing.tokens
        return described

    def run(self, described: Pass) -> None:
        """Run a pass that `describe` described."""
        check(self._unobserved.kernels.run_layers(byref(described.layers)))

    def _run_part(
        self, x: Tensor, packing: Packing, plan: Plan, states: Mapping[int, Tensor], first: int
    ) -> None:
        """Run consecutive sequences, from number `first` of the batch, and write their rows of `states`."""
        last = plan.blocks + plan.ends_observing
        observes = bool(plan.observers or plan.in_kernels)
        pass_kernels = (self._observing if observes else None) or self._unobserved
        edits = Edits(plan.interventions[first : first + len(packing.lengths)], packing, plan.starts)
        edits.change_state(0, x)
        buffers = Buffers(x, packing, pass_kernels.dtype, self._config, self._widest, self._gated)
        positions = PassPositions(self._encoder, packing, len(x), self._tables, self._vectors)
        # The last state is changed after the final norm, if there is one.
        changed = edits.states - ({self._config.num_layers} if self._config.norm != "post" else set())
        numbers = len(x) * sum(self._config.qkv_rows)
        for some in split_layers(last, plan.observers, numbers, changed):
            projections = {number: buffers.projected() for number in some if number in plan.observers}
            ends = some.stop == last and plan.ends_observing
            described = self._passes.describe(
                pass_kernels,
                buffers,
                packing,
                positions,
                some,
                states,
                plan,
                projections=projections,
                first=first,
                ends_observing=ends,
                edits=edits if plan.interventions else None,
            )
            check(pass_kernels.kernels.run_layers(byref(described.layers)))
            buffers.x = states.get(some.stop, buffers.stream)
            if some.stop in changed and not ends:
                buffers.change(edits, some.stop)
            for number, qkv in projections.items():
                block = self._blocks[number]
                attention = block.attention
                q, k, v = attention.split(qkv)
                k, v = attention.repeat(k), attention.repeat(v)
                native = Attended(pass_kernels.kernels, described, self._config, block, qkv, positions)
                plan.observers[number](attention, q, k, v, positions.bias(attention), native)

    def _layer(self, block: Any) -> structures.Layer:
        attention, feed_forward = block.attention, block.feed_forward
        gains = [self._parameter(norm, "weight") for norm in (attention.query_norm, attention.key_norm)]
        self._read(attention)
        attention.factor_outputs()  # before the weights are laid out
        layer = structures.Layer(qkv=self._linear(attention.qkv), output=self._linear(attention.output))
        layer.window, layer.query_gain, layer.key_gain = attention.layer.window, *gains
        for name in ("attention", "feed_forward", "attention_output", "feed_forward_output"):
            norm = getattr(block, f"{name}_norm")
            setattr(layer, f"{name}_gain", self._parameter(norm, "weight"))
            setattr(layer, f"{name}_bias", self._parameter(norm, "bias"))
        if isinstance(feed_forward, Experts):
            self._read(feed_forward)
            layer.experts = addressof(self._experts(feed_forward))
        else:
            gate = feed_forward.gate_activation
            layer.inner = self._linear(feed_forward.inner, gate if self._fuses_gates else None)
            layer.outer = self._linear(feed_forward.outer)
            layer.gated, layer.activation = gate is not None, ACTIVATIONS.index(gate)
        if not self._products.int8:
            self._encoder.reduce_precision(self._dtype, block)
        return layer

    def _read(self, module: nn.Module) -> None:
        """Read and convert a module's matrices that are still in the file, unless they are to be rounded."""
        if not self._products.int8:
            read_matrices(module, self._of_file, self._dtype)
            module.to(self._dtype)

    def _release_read(self, numbers: int) -> None:
        """Count `numbers` that were read, and release the memory once it is worth the time."""
        self._read_numbers += numbers
        if self._read_numbers > _WORTH_RELEASING:
            self._read_numbers = 0
            self._read_weights.release()
            trim_memory()

    def _parameter(self, norm: Any, name: str) -> int | None:
        """Keep a parameter of a norm, if it has one, in float32, and return its address."""
        parameter: Tensor | None = getattr(norm, name, None)
        if parameter is None:
            return None
        self._parameters.append(parameter.detach().float())  # the module may be converted later
        return self._parameters[-1].data_ptr()

    def _position_vectors(self, block: Any) -> Vectors:
        """Lay out the vectors of distances, and release the weights that project them."""
        self._read(block.attention)
        vectors = self._encoder.project_positions(block.attention)
        block.attention.release_positions()
        return Vectors(*vectors, partial(lay_out, columns=self._products.columns, dtype=self._dtype))

    def _experts(self, experts: Experts) -> structures.Experts:
        count = experts.mixture.experts
        first, second = (
            [self._panels(matrix, None, activation) for matrix in matrices]
            for matrices, activation in (
                (experts.first.chunk(count), experts.activation),
                ((matrix.T for matrix in experts.second.chunk(count)), None),
            )
        )
        arrays = [(structures.Linear * count)(*linears) for linears in (first, second)]
        bias = experts.bias.float()
        described = structures.Experts(
            router=self._linear(experts.router),
            first=addressof(arrays[0]),
            second=addressof(arrays[1]),
            bias=bias.data_ptr(),
            count=count,
            chosen=experts.mixture.chosen,
        )
        experts.release()
        self._parameters.append(bias)
        self._kept += (described, *arrays)
        return described

    def _linear(self, linear: Linear, gate: Activation | None = None) -> structures.Linear:
        """Describe a linear layer; with a `gate`, its product also applies the gate with that activation."""
        if linear.weight.dim() != 2:
            raise ValueError("these weights are laid out already; load the checkpoint again")
        self._read(linear)
        described = self._panels(
            linear.weight,
            linear.bias,
            gate or linear.activation,
            self._inputs.get(linear),
            gated=gate is not None,
        )
        if self._stored is not None:
            parts = self._stored.get(linear, ())
            self._describe_stored(
                described, parts if are_rows_of(linear.weight, parts) else (linear.weight.data,)
            )
        numbers = linear.weight.numel()
        linear.release(self._parameters[-2] if self._adapted else None)
        self._release_read(numbers)
        return described

    def _describe_stored(self, described: structures.Linear, parts: Sequence[Tensor]) -> None:
        """Describe the parts of a weight, which stay where they are: mapped from a file, or in memory."""
        kept = [part.contiguous() for part in parts]
        rows = [
            structures.StoredRows(first=part.data_ptr(), count=len(part), type=STORED.index(part.dtype))
            for part in kept
        ]
        array = (structures.StoredRows * len(rows))(*rows)
        self._kept += (*kept, array)
        described.stored, described.parts = addressof(array), len(rows)

    def _panels(
        self,
        weight: Tensor,
        bias: Tensor | None,
        activation: Activation | None,
        inputs_seen: Inputs | None = None,
        *,
        gated: bool = False,
    ) -> structures.Linear:
        """Describe a product with a matrix (out, in), which is copied.

        The product is of eight-bit integers if there are `inputs_seen`. If it is `gated`, it activates half
        of its columns and multiplies them by the others.
        """
        outputs, inputs = weight.shape
        products = self._products
        rounded = None
        if inputs_seen is not None and products.int8 is not None:
            rounded = round_weights(weight, inputs_seen, products.int8)
        word = products.word if products.widens or rounded is not None else 4
        laid_out = partial(lay_out, columns=products.columns, gated=gated, word=word)
        dtype = torch.bfloat16 if products.widens else self._dtype
        panels = laid_out(weight, dtype=dtype) if rounded is None else laid_out(rounded.high)
        if panels.data_ptr() % LINE:
            raise NoKernels("this build of PyTorch does not align its memory to cache lines")
        # Copied: a bias between large weights of a mapped file would keep sixteen pages of it in memory.
        added = torch.zeros(outputs) if bias is None else bias.to(torch.float32, copy=True)
        self._parameters += (panels, added)
        described = structures.Linear(
            panels=panels.data_ptr(),
            bias=added.data_ptr(),
            inputs=inputs,
            outputs=outputs,
            activation=ACTIVATIONS.index(activation),
            gated=gated,
        )
        if rounded is not None:
            self._parameters += (rounded.scales, rounded.smoothing)
            described.scales, described.smoothing = rounded.scales.data_ptr(), rounded.smoothing.data_ptr()
            described.precise = rounded.precise
            if rounded.low is not None:
                low = laid_out(rounded.low)
                self._parameters.append(low)
                described.low_panels = low.data_ptr()
        return described
