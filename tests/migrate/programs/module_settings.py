"""Per-module settings: a CustomPolicy whose function gives arguments for some modules, as larger training libraries do."""

import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.fsdp import FullyShardedDataParallel, MixedPrecision, ShardingStrategy
from torch.distributed.fsdp.wrap import CustomPolicy

STRATEGIES = {
    "FULL_SHARD": ShardingStrategy.FULL_SHARD,
    "SHARD_GRAD_OP": ShardingStrategy.SHARD_GRAD_OP,
}


class Expert(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.up_proj = nn.Linear(d_model, 2 * d_model)
        self.down_proj = nn.Linear(2 * d_model, d_model)

    def forward(self, x):
        return self.down_proj(torch.relu(self.up_proj(x)))


class Layer(nn.Module):
    def __init__(self, d_model):
        super().__init__()
        self.attn = nn.Linear(d_model, d_model)
        self.ffn = Expert(d_model)
        # read by the wrap function below
        self.ffn._fsdp_kwargs_dict = {"sharding_strategy": "SHARD_GRAD_OP"}

    def forward(self, x):
        x = x + torch.tanh(self.attn(x))
        return x + self.ffn(x)


class MosaicModel(nn.Module):
    def __init__(self, d_model=8, n_layers=2):
        super().__init__()
        self.embed = nn.Linear(4, d_model)
        self.layers = nn.ModuleList([Layer(d_model) for _ in range(n_layers)])
        self.head = nn.Linear(d_model, 2)

    def forward(self, x):
        x = self.embed(x)
        for layer in self.layers:
            x = layer(x)
        return self.head(x)

    def fsdp_wrap_fn(self, module):
        return isinstance(module, Layer)


def set_custom_fsdp_module_kwargs(module_kwargs):
    if "sharding_strategy" in module_kwargs and module_kwargs["sharding_strategy"] not in STRATEGIES.values():
        module_kwargs["sharding_strategy"] = STRATEGIES[module_kwargs["sharding_strategy"].upper()]
    return module_kwargs


def prepare_fsdp_module(model, fsdp_config):
    mixed_precision = MixedPrecision(
        param_dtype=None,
        reduce_dtype=torch.float32,
        keep_low_precision_grads=False,
    )
    sharding_strategy = STRATEGIES[fsdp_config["sharding_strategy"]]

    def lambda_fn(module):
        ret = False
        if hasattr(module, "_fsdp_kwargs_dict"):
            return set_custom_fsdp_module_kwargs(dict(module._fsdp_kwargs_dict))
        if hasattr(model, "fsdp_wrap_fn"):
            ret = model.fsdp_wrap_fn(module)
            if isinstance(ret, dict):
                ret = set_custom_fsdp_module_kwargs(ret)
        return ret

    _auto_wrap_policy = CustomPolicy(lambda_fn)
    fsdp_obj = FullyShardedDataParallel(
        model,
        sharding_strategy=sharding_strategy,
        auto_wrap_policy=_auto_wrap_policy,
        mixed_precision=mixed_precision,
        device_id=torch.device("cpu"),
        use_orig_params=fsdp_config["use_orig_params"],
        forward_prefetch=False,
        limit_all_gathers=True,
    )
    return fsdp_obj


def main():
    dist.init_process_group("gloo")
    torch.manual_seed(17)
    rank = dist.get_rank()
    model = prepare_fsdp_module(MosaicModel(), {"sharding_strategy": "FULL_SHARD", "use_orig_params": True})
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.02)
    history = []
    for batch in range(4):
        x = torch.randn(4, 4, generator=torch.Generator().manual_seed(23 * batch + rank))
        loss = nn.functional.mse_loss(model(x), x[:, :2] * x[:, 2:])
        loss.backward()
        norm = model.clip_grad_norm_(max_norm=1.0, norm_type=2.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)
        history.append((loss.item(), norm.item()))
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
