"""A Joinable of our own that counts samples over ranks, with inputs of different length."""

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook


class CounterJoinHook(JoinHook):
    def __init__(self, counter, sync_max):
        self.counter = counter
        self.sync_max = sync_max

    def main_hook(self):
        nothing = torch.zeros(1, device=self.counter.device)
        dist.all_reduce(nothing, group=self.counter.group)

    def post_hook(self, is_last_joiner):
        if self.sync_max:
            # Only the last joiners know the total.
            rank = self.counter.common_rank(is_last_joiner)
            dist.broadcast(self.counter.total, src=rank, group=self.counter.group)


class Counter(Joinable):
    def __init__(self, device, group):
        super().__init__()
        self.device = device
        self.group = group
        self.total = torch.zeros(1, device=device)

    def __call__(self, samples):
        Join.notify_join_context(self)
        number = torch.tensor([float(samples)], device=self.device)
        dist.all_reduce(number, group=self.group)
        self.total += number

    def common_rank(self, wanted):
        rank = torch.tensor([dist.get_rank() if wanted else -1], device=self.device)
        dist.all_reduce(rank, op=dist.ReduceOp.MAX, group=self.group)
        return int(rank)

    def join_hook(self, **kwargs):
        return CounterJoinHook(self, kwargs.get("sync_max", True))

    @property
    def join_device(self):
        return self.device

    @property
    def join_process_group(self):
        return self.group


def main():
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    group = dist.new_group(list(range(dist.get_world_size())))
    counter = Counter(torch.device("cpu"), group)
    counter(1)  # outside of Join all ranks take part anyway
    with Join([counter], sync_max=True):
        for number in range(5 + rank):
            counter(number)
    print(counter.total.item())
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
