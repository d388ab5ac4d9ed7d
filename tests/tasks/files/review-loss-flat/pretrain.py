import os

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

from lm import Transformer, token_batches


def main():
    local_rank = int(os.environ["LOCAL_RANK"])
    torch.cuda.set_device(local_rank)
    dist.init_process_group("nccl", device_id=torch.device("cuda", local_rank))

    model = Transformer(n_layers=24, dim=2048).cuda()
    optimizer = torch.optim.AdamW(model.parameters(), lr=3e-4, weight_decay=0.1)

    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)

    for step, (x, y) in enumerate(token_batches(local_rank)):
        loss = torch.nn.functional.cross_entropy(model(x).flatten(0, 1), y.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 50 == 0 and dist.get_rank() == 0:
            print(step, loss.item())

    dist.destroy_process_group()


if __name__ == "__main__":
    main()
