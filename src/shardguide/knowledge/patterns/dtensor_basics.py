# /// pattern
# id = "dtensor-basics"
# title = "Make a DTensor, look at its parts, change its placement"
# topics = ["dtensor", "device-mesh"]
# follows = ["torch.distributed.tensor.distribute_tensor", "torch.distributed.tensor.DTensor"]
# departs = ""
# architecture = ""
# form = "fsdp2"
# test = "test_tensor_parallel.py::test_dtensor_basics"
# processes = 2
# not_run = ""
# [before."2.5"]
# "from torch.distributed.tensor import" = "from torch.distributed._tensor import"
# ///
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor


def split_rows(whole, mesh):
    # Every rank passes a tensor of the full shape; the values of the mesh's first rank count. `shape` stays the global one.
    return distribute_tensor(whole, mesh, [Shard(0)])


def mine(sharded):
    return sharded.to_local()  # this rank's rows: a plain tensor on the same memory, no communication


def whole(sharded):
    return sharded.full_tensor()  # a collective: every rank of the mesh has to call it


def columns_instead(sharded):
    return sharded.redistribute(placements=[Shard(1)])  # from rows to columns: pieces go from every rank to every other


def everywhere(sharded):
    return sharded.redistribute(placements=[Replicate()])  # an all-gather


def from_parts(local, mesh):
    # No communication and no check: the ranks' pieces are taken as rows of one tensor, in rank order.
    # That the pieces have equal size is assumed; otherwise shape= and stride= of the whole must be given.
    return DTensor.from_local(local, mesh, [Shard(0)])


def sum_of_all(local, mesh):
    # Each rank has an addend of the full shape; full_tensor (or a redistribute) adds them up.
    return DTensor.from_local(local, mesh, [Partial()]).full_tensor()
