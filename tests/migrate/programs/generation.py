"""A fine-tuning script in the way of Hugging Face examples: generation under summon_full_params, a head ignored, callbacks."""

import contextlib
import functools
import json
import math
from collections import OrderedDict

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import lambda_auto_wrap_policy, transformer_auto_wrap_policy, _or_policy
from torch.optim.lr_scheduler import LambdaLR


class T5Block(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.layer = nn.ModuleList([nn.Linear(d, d), nn.Linear(d, d)])

    def forward(self, hidden_states):
        for layer in self.layer:
            hidden_states = hidden_states + torch.tanh(layer(hidden_states))
        return hidden_states


class PreTrainedModel(nn.Module):
    def __init__(self, vocab=13, d=8, n=2):
        super().__init__()
        self.config = {"vocab_size": vocab, "d_model": d}
        self.shared = nn.Embedding(vocab, d)
        self.block = nn.ModuleList([T5Block(d) for _ in range(n)])
        self.lora = nn.ModuleDict({"A": nn.Linear(d, 2, bias=False), "B": nn.Linear(2, d, bias=False)})
        self.lm_head = nn.Linear(d, vocab, bias=False)
        for name, p in self.named_parameters():
            p.requires_grad_("lora" in name or "lm_head" in name)

    def forward(self, input_ids):
        h = self.shared(input_ids)
        for block in self.block:
            h = block(h)
        h = h + self.lora["B"](self.lora["A"](h))
        return self.lm_head(h)

    @torch.no_grad()
    def generate(self, ids, new=2):
        for _ in range(new):
            ids = torch.cat([ids, self(ids)[:, -1:].argmax(-1)], dim=1)
        return ids


def fsdp_auto_wrap_policy():
    def lambda_policy_fn(module):
        return (
            len(list(module.named_children())) == 0
            and getattr(module, "weight", None) is not None
            and module.weight.requires_grad
        )

    lambda_policy = functools.partial(lambda_auto_wrap_policy, lambda_fn=lambda_policy_fn)
    transformer_wrap_policy = functools.partial(transformer_auto_wrap_policy, transformer_layer_cls=(T5Block,))
    return functools.partial(_or_policy, policies=[lambda_policy, transformer_wrap_policy])


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(99)
    model = PreTrainedModel()
    model = FullyShardedDataParallel(
        model,
        sharding_strategy=ShardingStrategy.FULL_SHARD,
        mixed_precision=None,
        auto_wrap_policy=fsdp_auto_wrap_policy(),
        device_id=torch.device("cpu"),
        use_orig_params=False,
    )
    trainable = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(trainable, lr=3e-2)
    scheduler = LambdaLR(optimizer, lambda s: min(1.0, (s + 1) / 3))
    history = []
    for step in range(4):
        g = torch.Generator().manual_seed(2 * step + dist.get_rank())
        ids = torch.randint(0, 13, (3, 5), generator=g)
        outputs = model(ids)
        loss = nn.functional.cross_entropy(outputs[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
        loss.backward()
        grad_norm = model.clip_grad_norm_(1.0) if hasattr(model, "clip_grad_norm_") else torch.nn.utils.clip_grad_norm_(trainable, 1.0)
        optimizer.step()
        scheduler.step()
        optimizer.zero_grad()
        history.append((loss.item(), grad_norm.item()))
    model.eval()
    with contextlib.nullcontext() if not isinstance(model, FullyShardedDataParallel) else FullyShardedDataParallel.summon_full_params(model, writeback=False, recurse=False):
        out = model.module.generate(torch.tensor([[1, 2]]), new=3)
        words = OrderedDict((i, row.tolist()) for i, row in enumerate(out))
    history.append((float(out.sum()), float(len(words))))
    print(json.dumps(model.module.config), math.exp(history[-2][0]))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
