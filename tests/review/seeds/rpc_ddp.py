"""An embedding on a worker of its own by RPC, dense layers replicated by DDP on the trainers."""

import os

import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
import torch.distributed.rpc as rpc
import torch.nn as nn
from torch.distributed.optim import DistributedOptimizer
from torch.distributed.rpc import RRef
from torch.nn.parallel import DistributedDataParallel as DDP

TRAINERS = 2
SERVER = "server"


class Embedding(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.EmbeddingBag(100, 16, mode="sum")

    def forward(self, indices, offsets):
        return self.table(indices, offsets)

    def parameter_rrefs(self):
        return [RRef(parameter) for parameter in self.parameters()]


class Hybrid(nn.Module):
    def __init__(self, embedding):
        super().__init__()
        self.embedding = embedding
        self.dense = DDP(nn.Linear(16, 4))

    def forward(self, indices, offsets):
        return self.dense(self.embedding.rpc_sync().forward(indices, offsets))


def batches(rank):
    generator = torch.Generator().manual_seed(rank)
    for _ in range(5):
        indices = torch.randint(0, 100, (12,), generator=generator)
        yield indices, torch.arange(0, 12, 3), torch.randint(0, 4, (4,), generator=generator)


def train(rank):
    embedding = rpc.remote(SERVER, Embedding)
    model = Hybrid(embedding)
    parameters = embedding.rpc_sync().parameter_rrefs()
    parameters += [RRef(parameter) for parameter in model.dense.parameters()]
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=0.05)
    for indices, offsets, labels in batches(rank):
        with dist_autograd.context() as context_id:
            loss = nn.functional.cross_entropy(model(indices, offsets), labels)
            dist_autograd.backward(context_id, [loss])
            optimizer.step(context_id)


def main():
    rank = int(os.environ["RANK"])
    if rank < TRAINERS:
        dist.init_process_group("gloo", rank=rank, world_size=TRAINERS)
        rpc.init_rpc(f"trainer{rank}", rank=rank, world_size=TRAINERS + 1)
        train(rank)
        dist.destroy_process_group()
    else:
        rpc.init_rpc(SERVER, rank=rank, world_size=TRAINERS + 1)
    rpc.shutdown()


if __name__ == "__main__":
    main()
