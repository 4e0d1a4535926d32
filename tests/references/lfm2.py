"""LFM2 as its encoders run it: convolutions that look both ways, which `transformers` has not."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from tests.references.late_interaction import LateInteraction


def look_both_ways(model: nn.Module) -> None:
    """Make the convolutions of a model symmetric: of an even number of tokens, one more is before."""
    for module in model.modules():
        if type(module).__name__ == "Lfm2ShortConv":
            module.forward = _forward(module)


def _forward(module: Any) -> Any:
    def forward(hidden_states: Tensor, **_: Any) -> Tensor:
        before, after, x = module.in_proj(hidden_states).transpose(1, 2).chunk(3, dim=1)
        kernel, size = module.conv.weight, hidden_states.shape[1]
        convolved = F.conv1d(
            before * x, kernel, module.conv.bias, padding=kernel.shape[-1] // 2, groups=len(kernel)
        )
        output: Tensor = module.out_proj((after * convolved[..., :size]).transpose(1, 2))
        return output

    return forward


class WithConvolutions(LateInteraction):
    """Late interaction in which attention alone is masked, and no convolution."""

    def hidden(self, ids: Sequence[int], attended: Sequence[int]) -> NDArray[np.float64]:
        """The last hidden state (N, C), where tokens that are not attended to are masked."""
        size, causal = len(ids), self.reference.model.config.is_causal
        seen = torch.tensor([list(attended)]).bool().expand(size, size)
        seen = seen.tril() if causal else seen
        mask = torch.zeros(1, 1, size, size).masked_fill(~seen, torch.finfo(torch.float32).min)
        with torch.inference_mode():
            output = self.reference.model(
                input_ids=torch.tensor([list(ids)]), attention_mask={"full_attention": mask, "conv": None}
            )
        return output.last_hidden_state[0].double().numpy()
