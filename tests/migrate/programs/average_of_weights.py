"""An average of the weights beside the model, both sharded alike; evaluation and saving use the average."""

import argparse
import copy
import os

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.fsdp import FullStateDictConfig, StateDictType
from torch.distributed.fsdp import FullyShardedDataParallel as FSDP
from torch.distributed.fsdp.wrap import ModuleWrapPolicy


class DiTBlock(nn.Module):
    def __init__(self, hidden):
        super().__init__()
        self.mod = nn.Linear(hidden, 2 * hidden)
        self.mlp = nn.Linear(hidden, hidden)

    def forward(self, x, c):
        shift, scale = self.mod(c).chunk(2, dim=-1)
        return x + torch.tanh(self.mlp(x * (1 + scale) + shift))


class DiT(nn.Module):
    def __init__(self, hidden=12, depth=2):
        super().__init__()
        self.x_embedder = nn.Linear(4, hidden)
        self.t_embedder = nn.Linear(1, hidden)
        self.blocks = nn.ModuleList([DiTBlock(hidden) for _ in range(depth)])
        self.final = nn.Linear(hidden, 4)

    def forward(self, x, t):
        x, c = self.x_embedder(x), self.t_embedder(t)
        for block in self.blocks:
            x = block(x, c)
        return self.final(x)


def setup_fsdp_sync(model: nn.Module, args) -> FSDP:
    model = FSDP(
        model,
        auto_wrap_policy=ModuleWrapPolicy({DiTBlock}),
        process_group=dist.group.WORLD,
        device_id=torch.device("cpu"),
        sync_module_states=True,
        limit_all_gathers=True,
        use_orig_params=True,
    )
    return model


@torch.no_grad()
def update_ema(ema_model, model, decay=0.9):
    """
    Step the EMA model towards the current model.
    """
    ema_params = dict(ema_model.named_parameters())
    model_params = dict(model.named_parameters())
    assert set(ema_params.keys()) == set(model_params.keys())
    for name, param in model_params.items():
        ema_params[name].mul_(decay).add_(param.data, alpha=1 - decay)


def requires_grad(model, flag=True):
    for p in model.parameters():
        p.requires_grad = flag


def main(argv=None):
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--save", default="")
    parser.add_argument("--resume", default="")
    parser.add_argument("--evaluate", action="store_true")
    args = parser.parse_args(argv)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)  # rank 0's weights are sent to all
    model = DiT()
    model_ema = copy.deepcopy(model)
    if args.resume and rank == 0:
        print(f"Resuming model weights from: {args.resume}")
        model.load_state_dict(torch.load(os.path.join(args.resume, "consolidated.pth"), map_location="cpu", weights_only=True))
        model_ema.load_state_dict(
            torch.load(os.path.join(args.resume, "consolidated_ema.pth"), map_location="cpu", weights_only=True)
        )
    dist.barrier()
    model = setup_fsdp_sync(model, args)
    model_ema = setup_fsdp_sync(model_ema, args)
    requires_grad(model_ema, False)
    model_ema.eval()
    opt = torch.optim.SGD(model.parameters(), lr=0.1)

    history = []
    for step in range(args.first, args.first + args.steps):
        g = torch.Generator().manual_seed(5 * step + rank)
        x, t = torch.randn(6, 4, generator=g), torch.rand(6, 1, generator=g)
        opt.zero_grad()
        loss = (model(x, t) - x * t).square().mean()
        loss.backward()
        grad_norm = model.clip_grad_norm_(max_norm=0.5)
        opt.step()
        update_ema(model_ema, model)
        history.append((loss.item(), grad_norm.item()))

    if args.evaluate:
        # the average, once, at the end
        g = torch.Generator().manual_seed(999)
        x, t = torch.randn(6, 4, generator=g), torch.rand(6, 1, generator=g)
        with torch.no_grad():
            ema_loss = (model_ema(x, t) - x * t).square().mean()
        history.append((ema_loss.item(), 0.0))

    if args.save:
        with FSDP.state_dict_type(
            model,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(rank0_only=True, offload_to_cpu=True),
        ):
            consolidated_model_state_dict = model.state_dict()
            if rank == 0:
                torch.save(consolidated_model_state_dict, os.path.join(args.save, "consolidated.pth"))
        dist.barrier()
        del consolidated_model_state_dict
        with FSDP.state_dict_type(
            model_ema,
            StateDictType.FULL_STATE_DICT,
            FullStateDictConfig(rank0_only=True, offload_to_cpu=True),
        ):
            consolidated_ema_state_dict = model_ema.state_dict()
            if rank == 0:
                torch.save(consolidated_ema_state_dict, os.path.join(args.save, "consolidated_ema.pth"))
        dist.barrier()
    dist.destroy_process_group()
    return history


if __name__ == "__main__":
    main()
