# /// pattern
# id = "fsdp2-generate"
# title = "Generating text with a sharded model, ranks in step"
# topics = ["evaluation", "forward-methods"]
# follows = ["torch.distributed.all_reduce", "https://docs.pytorch.org/docs/stable/distributed.fsdp.fully_shard.html"]
# departs = "No official example generates under FSDP2; the loop follows the rule that every forward is a collective."
# form = "c10d"
# test = "test_fsdp2_more.py::test_generate"
# processes = 2
# ///
"""Generate on all ranks, each with its own prompts, until the last rank is done."""

import torch
import torch.distributed as dist
from torch import nn


@torch.no_grad()
def generate(model: nn.Module, tokens: torch.Tensor, end: int, max_new_tokens: int) -> torch.Tensor:
    """Greedy; ``tokens`` (batch, length) are the prompts of this rank, and ``model(tokens)`` gives logits."""
    done = torch.zeros(tokens.shape[0], dtype=torch.bool, device=tokens.device)
    for _ in range(max_new_tokens):
        logits = model(tokens)[:, -1]
        # A finished sequence goes on with the end token, so that the shapes stay whole.
        following = logits.argmax(dim=-1)
        following[done] = end
        tokens = torch.cat([tokens, following[:, None]], dim=1)
        done |= following == end
        # A rank that stopped by itself would leave the others waiting in the all-gathers of the next forward. So all
        # go on while one has something left. (Hugging Face's generate does this with synced_gpus=True.)
        unfinished = (~done).sum()
        dist.all_reduce(unfinished, op=dist.ReduceOp.MAX)
        if not unfinished.item():
            break
    return tokens
