# /// pattern
# id = "object-collectives"
# title = "Python objects to one rank and from one rank"
# topics = ["object-collectives"]
# follows = ["torch.distributed.gather_object", "torch.distributed.broadcast_object_list"]
# departs = ""
# form = "c10d"
# test = "test_groups.py::test_objects_travel_both_ways"
# processes = 3
# ///
import torch.distributed as dist

# Objects travel pickled, and unpickling runs code: only between processes that you started and trust. Under NCCL call
# torch.cuda.set_device first: the bytes pass through the current GPU, and the calls block the CPU. For anything large
# or frequent use tensors.


def collect(metrics):
    """All ranks' ``metrics`` as a list on rank 0, None elsewhere."""
    # The list must be there on the receiver and must not be given on the others; all ranks make the call.
    received = [None] * dist.get_world_size() if dist.get_rank() == 0 else None
    dist.gather_object(metrics, received, dst=0)
    return received


def share(configuration):
    """Rank 0's ``configuration`` on every rank; what the others pass is ignored."""
    # A list of the same length everywhere, overwritten in place on the receivers.
    box = [configuration if dist.get_rank() == 0 else None]
    dist.broadcast_object_list(box, src=0)
    return box[0]
