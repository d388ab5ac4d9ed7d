"""Blocks replaced one by one by their wrapped forms, then the root: nesting written out."""

import torch
import torch.distributed as dist
import torch.distributed.fsdp as fsdp
import torch.nn as nn


class Attention(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.heads = heads
        self.qkv = nn.Linear(dim, 3 * dim)
        self.proj = nn.Linear(dim, dim)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = self.qkv(x).view(b, t, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        out = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.proj(out.transpose(1, 2).reshape(b, t, d))


class Block(nn.Module):
    def __init__(self, dim, heads):
        super().__init__()
        self.ln = nn.LayerNorm(dim)
        self.attention = Attention(dim, heads)
        self.mlp = nn.Sequential(nn.Linear(dim, 2 * dim), nn.GELU(), nn.Linear(2 * dim, dim))

    def forward(self, x):
        x = x + self.attention(self.ln(x))
        return x + self.mlp(x)


class Decoder(nn.Module):
    def __init__(self, vocabulary=30, dim=16, heads=2, depth=2):
        super().__init__()
        self.embed = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList([Block(dim, heads) for _ in range(depth)])
        self.lm_head = nn.Linear(dim, vocabulary, bias=False)

    def forward(self, tokens):
        x = self.embed(tokens)
        for block in self.blocks:
            x = block(x)
        return self.lm_head(x)


def wrap(model):
    kwargs = dict(device_id=torch.device("cpu"), use_orig_params=True)
    for index, block in enumerate(model.blocks):
        # The attention is a unit of its own inside the unit of its block.
        block.attention = fsdp.FullyShardedDataParallel(block.attention, **kwargs)
        model.blocks[index] = fsdp.FullyShardedDataParallel(block, **kwargs)
    return fsdp.FullyShardedDataParallel(model, **kwargs)


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(123)
    model = wrap(Decoder())
    optimizer = torch.optim.AdamW(model.parameters(), lr=4e-3)
    losses, norms = [], []
    for step in range(4):
        generator = torch.Generator().manual_seed(50 + step * dist.get_world_size() + dist.get_rank())
        tokens = torch.randint(0, 30, (2, 10), generator=generator)
        logits = model(tokens[:, :-1])
        loss = nn.functional.cross_entropy(logits.reshape(-1, 30), tokens[:, 1:].reshape(-1))
        loss.backward()
        norms.append(model.clip_grad_norm_(1.0).item())
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    dist.destroy_process_group()
    return list(zip(losses, norms))


if __name__ == "__main__":
    main()
