"""Ray as a ``concurrent.futures.Executor``: Ray itself has none."""

from __future__ import annotations

from concurrent.futures import Executor, Future

from shardguide.guidance.hints import Any


class RayExecutor(Executor):
    """Tasks of a Ray cluster: the one at ``address``, or one that is started on this machine."""

    def __init__(self, address: str) -> None:
        import ray

        self.ray = ray
        ray.init(address=address or None, include_dashboard=False, log_to_driver=False, logging_level="error")
        self.run = ray.remote(_call)

    def submit(self, function: Any, /, *arguments: Any, **named: Any) -> Future[Any]:
        """Start a task."""
        future: Future[Any] = self.run.remote(function, arguments, named).future()
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Leave the cluster, or end it where it was started here."""
        self.ray.shutdown()


def _call(function: Any, arguments: tuple[Any, ...], named: dict[str, Any]) -> Any:
    return function(*arguments, **named)
