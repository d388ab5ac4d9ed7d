# /// pattern
# id = "join-own-joinable"
# title = "A Joinable of your own: an all-reduce in every iteration"
# topics = ["join-own-joinable", "join"]
# follows = ["torch.distributed.algorithms.join.Joinable", "torch.distributed.algorithms.join.JoinHook", "https://docs.pytorch.org/tutorials/advanced/generic_join.html"]
# departs = "The tutorial's Counter reduces over the default group whatever group it names; here every collective is on the group that it names."
# form = "ddp"
# test = "test_join.py::test_own_joinable_counts_what_all_ranks_saw"
# processes = 3
# ///
import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook


class SampleCounter(Joinable):
    """The number of samples that all ranks together have trained on, after each iteration."""

    def __init__(self, device, process_group=None):
        super().__init__()  # sets the configuration that Join and notify_join_context read
        self.device = device
        self.group = dist.group.WORLD if process_group is None else process_group
        self.total = torch.zeros(1, device=device)

    def add(self, samples):
        # Before this iteration's own collectives: it tells ranks that have run out that another iteration comes.
        # Only the first member of the Join sends; for the others the call does nothing, so all make it.
        Join.notify_join_context(self)
        counted = torch.tensor([float(samples)], device=self.device)
        dist.all_reduce(counted, group=self.group)
        self.total += counted

    def join_hook(self, **kwargs):  # gets what is passed to Join(..., name=value)
        return SampleCounterHook(self)

    @property
    def join_device(self):
        return self.device

    @property
    def join_process_group(self):
        return self.group


class SampleCounterHook(JoinHook):
    def __init__(self, counter):
        self.counter = counter

    def main_hook(self):
        # The shadow: the same collectives as add(), in the same order, on the same group, of the same shape and dtype,
        # with a value that changes nothing.
        dist.all_reduce(torch.zeros_like(self.counter.total), group=self.counter.group)

    def post_hook(self, is_last_joiner):
        # Ranks that ran out early stopped counting. Several ranks may be last: agree on one of them, then copy from it.
        group = self.counter.group
        source = torch.tensor([dist.get_rank(group) if is_last_joiner else -1], device=self.counter.device)
        dist.all_reduce(source, op=dist.ReduceOp.MAX, group=group)
        # src is a rank of the world, whatever the group is.
        dist.broadcast(self.counter.total, src=dist.get_global_rank(group, int(source.item())), group=group)
