# /// pattern
# id = "async-collective"
# title = "A collective in the background, and when its result may be used"
# topics = ["async-collectives"]
# follows = ["torch.distributed.all_reduce", "https://docs.pytorch.org/docs/stable/distributed.html#synchronous-and-asynchronous-collective-operations"]
# departs = ""
# form = "c10d"
# test = "test_groups.py::test_result_is_there_after_wait"
# processes = 2
# ///
import torch.distributed as dist


def sum_while(compute, tensor):
    """Sum ``tensor`` over all ranks while ``compute()`` runs; both results."""
    work = dist.all_reduce(tensor, async_op=True)
    # Until wait(): do not read, write or free the tensor; the transfer works in it.
    result = compute()
    # On a CPU wait() blocks until the sum is there. On a GPU it makes the current stream wait, not Python: kernels
    # launched from here on see the sum. To read it on another stream, that stream must wait too.
    work.wait()
    return tensor, result
