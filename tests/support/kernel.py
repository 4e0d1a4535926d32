"""The compiled kernels in parts: attention by itself, or the order of a block's steps by itself."""

import math
import platform
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from ctypes import CDLL, CFUNCTYPE, byref, c_float, c_int, c_int32, c_int64, c_void_p
from itertools import pairwise
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional as F

from model.encoder.encoder import Encoder
from model.encoder.feed_forward import Experts
from model.encoder.linear import Linear as EncoderLinear
from model.encoder.linear import activate
from model.encoder.parts import Activation
from model.encoder.positions import rotate
from model.pytorch.kernels import library
from model.pytorch.kernels.instructions import KERNEL_SETS, Instructions
from model.pytorch.kernels.library import (
    ACTIVATIONS,
    Kernels,
    NoKernels,
    Products,
    check,
    find_int8_kernels,
)
from model.pytorch.kernels.observations import IntArray, Observations
from model.pytorch.kernels.panels import lay_out
from model.pytorch.kernels.structures import (
    Attention,
    Collection,
    Distances,
    Gate,
    Linear,
    Norm,
    Product,
    Rotation,
    Routing,
)
from tests.support.backends import instructions
from tests.support.emulated_tiles import EMULATED, emulated

needs_kernels = pytest.mark.skipif(
    instructions(torch.float32) is None,
    reason="there are no native kernels for this processor, or they were not built",
)


def runs_int8() -> bool:
    """Whether the processor has kernels of eight bits."""
    try:
        find_int8_kernels()
    except NoKernels:
        return False
    return True


needs_int8 = pytest.mark.skipif(not runs_int8(), reason="the processor has no products of eight bits")

STEPS = tuple(
    one.name
    for one in reversed(KERNEL_SETS)
    if one.steps is None and one.instructions.machine == platform.machine()
)
"""A precision and instructions, for each of which the steps are compiled."""

EVERY = "neon" if platform.machine() == "aarch64" else "avx2"
"""The instructions that every processor with kernels has."""
FLOAT32 = f"float32_{EVERY}"
"""Those of `STEPS` that every processor with kernels runs."""
WIDENED = f"bfloat16_{EVERY}"
"""Products that widen weights in bfloat16, and the other steps of `FLOAT32`."""
ROUNDED = "bfloat16_neon_bf16"
"""Products that also round what they read to bfloat16, and the other steps of `FLOAT32`."""

_COLUMNS = 12  # of a panel, of stand-ins
_OPENMP = CDLL(None)  # PyTorch's, among all that the process has loaded


def kernels_of(steps: str) -> Kernels:
    """Those of one of `STEPS`, `WIDENED`, `ROUNDED`, `AMX` or `EMULATED`; skips without them."""
    if steps == EMULATED:
        return emulated()
    kernels = next(one for one in KERNEL_SETS if one.name == steps)
    try:
        compiled = library._library()
    except NoKernels as error:
        pytest.skip(str(error))
    can = capabilities()  # where they are slow, they are not chosen, but they run
    able = all(map(can.get, kernels.instructions.capabilities))
    if not able or (kernels.tiled and compiled.headlight_enable_amx() != 1):
        pytest.skip(f"the processor has no {kernels.instructions.name}")
    return Kernels.of(compiled, kernels)


def capabilities() -> dict[str, bool]:
    """What this processor can, as kernels are chosen by; nothing where none were built."""
    try:
        return library._capabilities(library._library())
    except NoKernels:
        return {}


@contextmanager
def held_to_widening() -> Iterator[None]:
    """Choose kernels as on a processor without AVX-512, or without BFMMLA, inside the `with` block."""
    can = {**capabilities(), "avx512_f": False, "bf16": False}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(library, "_capabilities", lambda _: can)
        yield


def round_to_bfloat16(encoder: Encoder) -> None:
    """Round the weights of an encoder's products, which stay in float32."""
    for module in encoder.blocks.modules():
        names = ("weight",) if isinstance(module, EncoderLinear) else ("first", "second")
        if isinstance(module, EncoderLinear | Experts):
            for name in names:
                parameter = getattr(module, name)
                parameter.data = parameter.data.bfloat16().float()


def restrict_to(instructions: Instructions | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Choose kernels as on a processor that has these instructions alone; skips on one that lacks them.

    None are all that the processor has.
    """
    if instructions is None:
        return
    can = capabilities()
    if not all(map(can.get, instructions.capabilities)):
        pytest.skip(f"the processor has no {instructions.name}")
    monkeypatch.setattr(library, "_capabilities", lambda _: dict.fromkeys(instructions.capabilities, True))


def attend(
    kernels: Kernels,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    starts: IntArray,
    output: Tensor | None,
    observations: Observations | None = None,
    **others: int,
) -> None:
    """Attend within each sequence: q, k, v (T, H, D) of one layout, to `output` (T, H, D), dense.

    `others` are further fields of `Attention`. The components of a head lie side by side. `starts`, int64
    (B + 1,), is where each sequence begins; rows of `output` beyond the last are left as they are. Without
    `output` only what is observed is computed. Raises MemoryError.
    """
    tokens, heads, size = q.shape
    arguments = Attention(
        q=q.data_ptr(),
        k=k.data_ptr(),
        v=v.data_ptr(),
        token_stride=q.stride(0),
        output=None if output is None else output.data_ptr(),
        starts=starts.ctypes.data,
        tokens=tokens,
        sequences=len(starts) - 1,
        heads=heads,
        head_size=size,
        scale=size**-0.5,
        observations=None if observations is None else observations.address(0),
        **others,
    )
    check(kernels.attend(byref(arguments)))


def multiply(
    products: Products,
    x: Tensor,
    weight: Tensor,
    bias: Tensor,
    output: Tensor,
    activation: Activation | None = None,
    *,
    gated: bool = False,
) -> None:
    """Compute activation(x Wᵀ + b) with our own products: x (T, in), W (out, in), b (out,), all dense.

    W is in bfloat16 for products that widen it, else all but b in their precision. `output` (T, out), with a
    gate (T, out / 2), may have more numbers behind it, which are left as they are.
    """
    panels = lay_out(weight, products.columns, gated=gated, word=products.word)
    outputs, inputs = weight.shape
    linear = Linear(
        panels=panels.data_ptr(),
        bias=bias.data_ptr(),
        inputs=inputs,
        outputs=outputs,
        activation=ACTIVATIONS.index(activation),
        gated=gated,
    )
    product = Product(linear=linear, x=x.data_ptr(), output=output.data_ptr(), tokens=len(x))
    check(products.multiply(byref(product)))


def thread_number() -> int:
    """The number of the calling thread among those that run a pass, from 0."""
    return int(_OPENMP.omp_get_thread_num())


def whole_step(step: Callable[[int], int]) -> Any:
    """Make a step of a pass that its first thread takes alone."""

    @CFUNCTYPE(c_int, c_void_p)
    def take(address: int) -> int:
        return 0 if thread_number() else step(address)

    return take


def stand_ins() -> Kernels:
    """Kernels whose steps are PyTorch's in float32: any processor runs them.

    What is compiled of them is the order of a block's steps. Raises NoKernels where nothing was built.
    """
    steps = (_attend, _add_norm, _rotate, _gate, _route, _collect, None)
    products = Products(_multiply, _COLUMNS)
    return Kernels("avx512", library._library().headlight_run_layers, *steps, products)


def _floats(address: int, *shape: int, stride: int | None = None) -> Tensor:
    """View float32 numbers (rows, …) at an address, each row `stride` numbers after the one before."""
    width = math.prod(shape[1:])
    stride = width if stride is None else stride
    buffer = (c_float * ((shape[0] - 1) * stride + width)).from_address(address)
    return (
        torch.frombuffer(buffer, dtype=torch.float32).as_strided((shape[0], width), (stride, 1)).view(shape)
    )


@whole_step
def _multiply(address: int) -> int:
    """Do what `headlight_multiply_float32` does, with panels of as many columns as it likes."""
    given = Product.from_address(address)
    linear = given.linear
    parts = 2 if linear.gated else 1
    outputs = linear.outputs // parts
    panels = -(-outputs // _COLUMNS)
    weights = _floats(linear.panels, panels, parts, linear.inputs, _COLUMNS).mT.transpose(0, 1)
    x, biases = _floats(given.x, given.tokens, linear.inputs), _floats(linear.bias, parts, outputs)
    result, *value = (
        F.linear(x, weight.reshape(-1, linear.inputs)[:outputs], bias)
        for weight, bias in zip(weights, biases, strict=True)
    )
    result = activate(result, ACTIVATIONS[linear.activation])
    _floats(given.output, given.tokens, outputs).copy_(result * value[0] if value else result)
    return 0


@whole_step
def _attend(address: int) -> int:
    """Do what `headlight_attend_float32` does, but observe nothing."""
    given = Attention.from_address(address)
    if given.output is None:
        return 0
    heads, kv_heads = given.heads, given.kv_heads or given.heads
    size, stride = given.head_size, given.token_stride
    q = _floats(given.q, given.tokens, heads, size, stride=stride)
    k, v = (_floats(x, given.tokens, kv_heads, size, stride=stride) for x in (given.k, given.v))
    output = _floats(given.output, given.tokens, heads, size)
    for start, stop in pairwise((c_int64 * (given.sequences + 1)).from_address(given.starts)):
        of_sequence = [x[start:stop].transpose(0, 1) for x in (q, k, v)]  # (heads, N, D) each
        keys, values = (x.repeat_interleave(heads // kv_heads, dim=0) for x in of_sequence[1:])
        products = of_sequence[0] @ keys.mT + _by_distance(given, of_sequence[0], keys)
        weights = torch.softmax(_added(given, products) * given.scale, dim=-1)
        output[start:stop] = (weights @ values).transpose(0, 1)
    return 0


def _by_distance(given: Attention, q: Tensor, k: Tensor) -> Tensor:
    """Multiply queries and keys (H, N, D) with the vectors of distances: (H, N, N)."""
    heads, length, size = q.shape
    terms = torch.zeros(heads, length, length)
    if given.distances is None or not length:
        return terms
    all_ = Distances.from_address(given.distances)
    rows = torch.tensor((c_int32 * (2 * all_.length - 1)).from_address(all_.rows)[:])
    position = torch.arange(length)
    rows = rows[position[None, :] - position[:, None] + all_.length - 1]  # (N, N)
    panels = -(-all_.number // _COLUMNS)
    for address, x in ((all_.keys, q), (all_.queries, k)):
        if address is not None:
            vectors = _floats(address, heads, panels, size, _COLUMNS).transpose(1, 2).flatten(2)  # (H, D, R)
            places = rows if x is q else rows.T
            found = (x @ vectors).gather(2, places.expand(heads, -1, -1))
            terms += found if x is q else found.mT
    return terms


def _added(given: Attention, products: Tensor) -> Tensor:
    """Add the bias, and hide keys: products q·k (H, N, N)."""
    position = torch.arange(products.shape[1])
    distance = position[None, :] - position[:, None]
    if given.bias is not None:
        bias = _floats(given.bias, given.heads, 2 * given.bias_length - 1)
        products = products + bias[:, distance + given.bias_length - 1]
    hidden = distance.abs() > given.window if given.window else torch.zeros_like(distance, dtype=torch.bool)
    return products.masked_fill(hidden | (distance > 0) if given.causal else hidden, -math.inf)


@whole_step
def _add_norm(address: int) -> int:
    """Do what `headlight_add_norm_float32` does."""
    given = Norm.from_address(address)
    shape = (given.tokens, given.size)
    total = _floats(given.x, *shape).clone()
    if given.added is not None:
        added = _floats(given.added, *shape)
        total += added if given.added_gain is None else _normed(given, added, "added_")
    if given.sum is not None:
        _floats(given.sum, *shape).copy_(total)
    total = total if given.output is None else _normed(given, total)
    for written in (given.output, given.rounded):
        if written is not None:
            _floats(written, *shape).copy_(total)
    return 0


def _normed(given: Norm, x: Tensor, which: str = "") -> Tensor:
    """Apply the norm of a sum, or that of what is added."""
    gain, bias = (getattr(given, which + name) for name in ("gain", "bias"))
    gain, bias = _floats(gain, given.size), bias and _floats(bias, given.size)
    if given.rms:
        return F.rms_norm(x, (given.size,), gain, given.epsilon)
    return F.layer_norm(x, (given.size,), gain, bias, given.epsilon)


@whole_step
def _rotate(address: int) -> int:
    """Do what `headlight_rotate_float32` does."""
    given = Rotation.from_address(address)
    x = _floats(given.x, given.tokens, given.heads, given.head_size, stride=given.stride)
    if given.query_gain is not None:
        gains = [given.query_gain] * given.queries + [given.key_gain] * (given.heads - given.queries)
        gain = torch.stack([_floats(one, given.head_size) for one in gains])
        x.copy_(F.rms_norm(x, x.shape[-1:], None, given.epsilon) * gain)
    if given.pairs:
        cos, sin = (_floats(one, given.tokens, 1, given.pairs) for one in (given.cos, given.sin))
        x.copy_(rotate(x, cos, sin, interleaved=bool(given.interleaved)))
    return 0


@whole_step
def _gate(address: int) -> int:
    """Do what `headlight_gate_float32` does."""
    given = Gate.from_address(address)
    gate, value = _floats(given.x, given.tokens, 2 * given.size).chunk(2, dim=-1)
    output = _floats(given.output, given.tokens, given.size)
    output.copy_(activate(gate, ACTIVATIONS[given.activation]) * value)
    return 0


@whole_step
def _route(address: int) -> int:
    """Do what `headlight_route_float32` does."""
    given = Routing.from_address(address)
    shape = (given.tokens, given.experts)
    shares = torch.softmax(_floats(given.logits, *shape), dim=-1)
    highest, chosen = shares.topk(given.chosen, dim=-1)
    _floats(given.shares, *shape).copy_(torch.zeros(shape).scatter(-1, chosen, highest))
    return 0


@whole_step
def _collect(address: int) -> int:
    """Do what `headlight_collect_float32` does."""
    given = Collection.from_address(address)
    for i, row in enumerate((c_int64 * given.count).from_address(given.rows) if given.count else ()):
        share = _floats(given.shares + 4 * row * given.experts, 1)
        result = share * _floats(given.results + 4 * i * given.size, given.size)
        _floats(given.sums + 4 * row * given.size, given.size).add_(result)
    return 0
