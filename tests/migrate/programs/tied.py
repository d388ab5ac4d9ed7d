"""A language model whose input and output embedding are one parameter."""

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy

VOCABULARY = 32


class Block(nn.Module):
    def __init__(self, dim):
        super().__init__()
        self.mix = nn.GRU(dim, dim, batch_first=True)
        self.ff = nn.Linear(dim, dim)

    def forward(self, x):
        mixed, _ = self.mix(x)
        return x + F.silu(self.ff(mixed))


class LanguageModel(nn.Module):
    def __init__(self, dim=12, depth=2):
        super().__init__()
        self.wte = nn.Embedding(VOCABULARY, dim)
        self.blocks = nn.ModuleList([Block(dim) for _ in range(depth)])
        self.lm_head = nn.Linear(dim, VOCABULARY, bias=False)
        self.lm_head.weight = self.wte.weight  # tied

    def forward(self, tokens):
        x = self.wte(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(x)


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(17)
    # Both ends stay in the root's unit, so the tied parameter is sharded once.
    model = FSDP(LanguageModel(), auto_wrap_policy=ModuleWrapPolicy({Block}), device_id=torch.device("cpu"))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    history = []
    for step in range(5):
        tokens = torch.randint(0, VOCABULARY, (3, 8), generator=torch.Generator().manual_seed(7 * step + rank))
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
        loss.backward()
        norm = model.clip_grad_norm_(1.0)
        optimizer.step()
        optimizer.zero_grad()
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
