"""Names of hosts and people, and addresses, in what goes into a report: found where they usually stand, and replaced by stand-ins."""

from __future__ import annotations

import re

# Where names of hosts stand in logs: torchrun's table, NCCL's prefix, rendezvous and sockets, Slurm, Kubernetes.
_NAME = r"[A-Za-z0-9](?:[A-Za-z0-9.-]{0,120}[A-Za-z0-9])?"
_HOSTS = (
    re.compile(rf"(?:^|\s)host\s*:\s*({_NAME})"),
    re.compile(rf"(?:^|[\s\]])({_NAME}):\d+:\d+ \[\d+\]"),
    re.compile(rf"(?i)\b(?:MASTER_ADDR|host_?name|HOST|SLURMD_NODENAME|NODE_?NAME|rdzv[_-]endpoint|local_addr|node_?list|addr)[\"']?\s*[=:]\s*[\"']?({_NAME})"),
    re.compile(rf"(?:tcp|ssh|env|grpc|etcd)://({_NAME})"),
    re.compile(rf"\[({_NAME})\]:\d{{2,5}}\b"),
    re.compile(rf"(?:to|from|on|at|of) (?:node|host) ['\"]?({_NAME})"),
    re.compile(rf"\b((?:ip-\d+-\d+-\d+-\d+|{_NAME}\.(?:internal|local|localdomain|lan|cluster|compute|hpc|svc|corp|intra))[A-Za-z0-9.-]{{0,120}})"),
    re.compile(rf"srun: error: ({_NAME}):"),
    re.compile(rf"(?:error|warning): Node ({_NAME})"),
)  # fmt: skip
_USERS = (
    re.compile(r"/(?:home|Users|users|scratch|usr/people|export/home|data/home|fsx|u)/([A-Za-z0-9_][A-Za-z0-9._-]{0,40})(?=[/\s:\"']|$)"),
    re.compile(r"(?i)\b(?:USER|LOGNAME|USERNAME|owner|SLURM_JOB_USER)[\"']?\s*[=:]\s*[\"']?([A-Za-z_][A-Za-z0-9._-]{1,40})"),
    re.compile(r"\b([A-Za-z_][A-Za-z0-9._-]{1,40})@[A-Za-z0-9]"),
)  # fmt: skip
_HOME = re.compile(r"/root(?=/)")
_IPV4 = re.compile(r"(?<![\d.])(?:\d{1,3}\.){3}\d{1,3}(?![\d.])")
_IPV6 = re.compile(
    r"(?<![0-9A-Za-z:.])(?:[0-9A-Fa-f]{1,4}:){2,7}(?::?[0-9A-Fa-f]{1,4})?(?:%[A-Za-z0-9]{1,15})?(?![0-9A-Za-z:])"
    r"|(?<![0-9A-Za-z:])[0-9A-Fa-f]{0,4}::(?:[0-9A-Fa-f]{1,4}:){0,6}[0-9A-Fa-f]{1,4}(?:%[A-Za-z0-9]{1,15})?"
)
_KEPT = frozenset({"localhost", "127.0.0.1", "0.0.0.0", "::1", "None", "none", "N/A", "null", "true", "false"})
# Words that stand where names stand.
_WORDS = frozenset({"the", "a", "this", "static", "c10d", "shared", "common", "data", "is", "and", "user"})


class Names:
    """Stand-ins for names, the same for the same name everywhere; numbered as they come."""

    def __init__(self) -> None:
        self.hosts: dict[str, str] = {}
        self.users: dict[str, str] = {}
        self.addresses: dict[str, str] = {}
        self.pattern: re.Pattern[str] | None = None

    def collect(self, text: str) -> str:
        """Learn the names that stand in a text; returns the text."""
        for pattern in _USERS:
            for found in pattern.finditer(text):
                self._add(self.users, found[1], "user")
        for pattern in _HOSTS:
            for found in pattern.finditer(text):
                name = found[1]
                if not _IPV4.fullmatch(name) and not name.isdigit():
                    self._add(self.hosts, name, "host")
                    self._add(self.hosts, name.partition(".")[0], "host", self.hosts.get(name, ""))
        self.pattern = None
        return text

    def _add(self, of: dict[str, str], name: str, kind: str, same: str = "") -> None:
        if len(name) > 1 and name not in _KEPT and name.lower() not in _WORDS and name not in of and len(of) < 20_000:
            of[name] = same or f"{kind}-{len(set(of.values())) + 1}"

    def replaced(self, text: str) -> str:
        """The text with every known name and every address replaced."""
        if self.pattern is None:
            names = sorted({**self.users, **self.hosts}, key=len, reverse=True)
            words = "|".join(map(re.escape, names)) or r"(?!)"
            self.pattern = re.compile(rf"(?<![A-Za-z0-9_])(?:{words})(?![A-Za-z0-9_])")
        text = _IPV4.sub(self._address, text)
        text = _IPV6.sub(self._address6, text)
        text = _HOME.sub("/home/root", text)
        return self.pattern.sub(lambda found: self.hosts.get(found[0]) or self.users[found[0]], text)

    def _address(self, found: re.Match[str]) -> str:
        text = found[0]
        if text in _KEPT or any(int(one) > 255 for one in text.split(".")):
            return text
        return self.addresses.setdefault(text, f"ip-{len(self.addresses) + 1}")

    def _address6(self, found: re.Match[str]) -> str:
        import ipaddress

        text = found[0]
        try:
            address = ipaddress.ip_address(text.partition("%")[0])
        except ValueError:
            return text
        return text if address.is_loopback else self.addresses.setdefault(text, f"ip-{len(self.addresses) + 1}")
