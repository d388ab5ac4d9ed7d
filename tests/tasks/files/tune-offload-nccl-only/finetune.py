import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import CPUOffloadPolicy, MixedPrecisionPolicy, fully_shard

from data import loader
from modeling import build_model


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl")

    model = build_model()
    kwargs = {
        "mp_policy": MixedPrecisionPolicy(param_dtype=torch.bfloat16, reduce_dtype=torch.float32),
        "offload_policy": CPUOffloadPolicy(),
    }
    for layer in model.layers:
        fully_shard(layer, **kwargs)
    fully_shard(model, **kwargs)

    optim = torch.optim.AdamW(model.parameters(), lr=2e-5)
    for step, (x, y) in enumerate(loader(local_rank)):
        loss = model(x.cuda(), y.cuda())
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optim.step()
        optim.zero_grad()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
