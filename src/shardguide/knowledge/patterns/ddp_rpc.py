# /// pattern
# id = "ddp-rpc"
# title = "DDP for the dense part, an embedding on a parameter server through RPC"
# topics = ["ddp-rpc"]
# follows = ["torch.nn.parallel.DistributedDataParallel", "https://docs.pytorch.org/tutorials/advanced/rpc_ddp_tutorial.html"]
# departs = "Three roles of the tutorial become two (no master); every trainer asks the server for its table."
# form = "ddp"
# test = "test_ddp.py::test_ddp_with_rpc_equals_one_process"
# processes = 3
# own = ["look_up", "parameter_rrefs"]
# [run]
# '"nccl"' = '"gloo"'
# 'device_ids=[device]' = 'device_ids=None'
# ///
# torch.distributed.rpc is in maintenance mode, its documentation says: it is neither deprecated nor developed further.
import torch
import torch.distributed as dist
import torch.distributed.autograd as dist_autograd
from torch.distributed import rpc
from torch.distributed.optim import DistributedOptimizer
from torch.nn.parallel import DistributedDataParallel as DDP

TABLES = []  # filled in the server's process only


class Table:
    def __init__(self, embedding):
        self.embedding = embedding

    def look_up(self, ids):
        return self.embedding(ids)  # on the CPU: distributed autograd sends no CUDA tensors

    def parameter_rrefs(self):
        return [rpc.RRef(parameter) for parameter in self.embedding.parameters()]


def shared_table():
    return TABLES[0]


def serve(embedding, rank, world_size):
    TABLES.append(Table(embedding))  # before init_rpc: trainers may ask at once
    rpc.init_rpc("server", rank=rank, world_size=world_size)
    rpc.shutdown()  # serves until every process has called it


def train(head, device, batches, loss_of, lr, rank, world_size):
    rpc.init_rpc(f"trainer{rank}", rank=rank, world_size=world_size)
    dist.init_process_group("nccl", rank=rank, world_size=world_size - 1)  # trainers only: the last rank is the server
    table = rpc.remote("server", shared_table)  # a reference; the table stays where it is
    head = DDP(head.to(device), device_ids=[device])
    # Always this optimizer and dist_autograd.backward: gradients of such a step are kept in the context, not in .grad,
    # so loss.backward() would leave the server's part out and optimizer.step() would find nothing.
    parameters = table.rpc_sync().parameter_rrefs() + [rpc.RRef(parameter) for parameter in head.parameters()]
    optimizer = DistributedOptimizer(torch.optim.SGD, parameters, lr=lr)
    for ids, targets in batches:
        with dist_autograd.context() as context:  # a new one for each step, so there is no zero_grad
            loss = loss_of(head(table.rpc_sync().look_up(ids).to(device)), targets)
            dist_autograd.backward(context, [loss])
            # The head's gradient is averaged by DDP. The table's is not: each trainer applies its own, when it comes.
            optimizer.step(context)
    dist.barrier()
    dist.destroy_process_group()
    rpc.shutdown()
    return head.module
