# /// pattern
# id = "zero-checkpoint"
# title = "Save and load a DDP model with ZeroRedundancyOptimizer"
# topics = ["zero-redundancy-optimizer", "ddp"]
# follows = ["torch.distributed.optim.ZeroRedundancyOptimizer.consolidate_state_dict", "torch.distributed.optim.ZeroRedundancyOptimizer.state_dict"]
# departs = ""
# form = "ddp"
# test = "test_ddp.py::test_zero_checkpoint_resumes_where_it_stopped"
# processes = 2
# ///
import torch
import torch.distributed as dist


def save(path, model, optimizer):
    # On all ranks: each sends its shard of the states to rank 0, which keeps the whole on its CPU.
    optimizer.consolidate_state_dict(to=0)
    if dist.get_rank() == 0:
        # state_dict() of the optimizer works only here, and shows what was consolidated last, not what is now.
        # model.module: names without the prefix "module.", loadable without DDP.
        torch.save({"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}, path)
    dist.barrier()  # nobody reads, or ends the job, before the file is there


def load(path, model, optimizer):
    # On every rank, all of it: ZeRO keeps the states of its own parameters and drops the rest. To the CPU first:
    # otherwise each rank puts the saved tensors on the GPU that they came from, rank 0's.
    saved = torch.load(path, map_location="cpu", weights_only=True)
    model.module.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
