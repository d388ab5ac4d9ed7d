# /// pattern
# id = "rank-zero-io"
# title = "One process writes, all others wait, then all read"
# topics = ["process-group-setup", "debugging-hangs"]
# follows = ["torch.distributed.barrier", "https://docs.pytorch.org/tutorials/intermediate/ddp_tutorial.html#save-and-load-checkpoints"]
# departs = ""
# form = "c10d"
# test = "test_groups.py::test_one_writes_and_all_read"
# processes = 3
# ///
import torch.distributed as dist


def once(write, read):
    """``write()`` on rank 0 only; then ``read()`` on every rank. Both see the same file system."""
    error = None
    if dist.get_rank() == 0:
        # No collective in here, however deep: the other ranks do not take part. (A sharded model's state_dict, a DDP
        # forward and a metric's .compute() are collectives.)
        try:
            write()
        except Exception as problem:  # the others must hear of it instead of waiting for the barrier
            error = problem
    # Outside the if, reached by every rank. This one is the barrier too: nobody has the answer before rank 0 sends it.
    box = [None if error is None else repr(error)]
    dist.broadcast_object_list(box, src=0)
    if box[0] is not None:
        raise RuntimeError(f"rank 0 could not write: {box[0]}") from error
    return read()
