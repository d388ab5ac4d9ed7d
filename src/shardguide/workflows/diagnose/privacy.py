"""What must not leave with a report: secrets, which are always masked, and names of hosts and people, on request.

The patterns are data: prefixes that the issuers document, headers, URLs with credentials, and settings whose name says what they
hold. A log's line may be cut, so what stands at its end may be the beginning of a secret.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from shardguide.guidance.hints import Any
from shardguide.guidance.record import Guidance
from shardguide.readers.logs.records import Evidence

MASK = "***"
CUT = 900  # characters from where on a line may have been cut

# (what it is, pattern); what the group "keep" holds stays, the rest of the match is masked.
SECRETS: tuple[tuple[str, str], ...] = (
    ("private key", r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----(?s:.*?)(?:-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----|\Z)"),
    ("credentials in a URL", r"(?P<keep>\b[A-Za-z][A-Za-z0-9+.-]{1,20}://)[^\s/@\"'<>?#]{1,500}(?=@)"),
    ("signed URL or token in a query", r"(?i)(?P<keep>[?&;](?:[\w.-]{0,40}(?:token|signature|credential|secret|password|passwd|api_?key|access_?key(?:id)?)|sig|key|auth|code)=)[^&\s\"'<>]{1,2000}"),
    ("authorization header", r"(?i)(?P<keep>\bauthorization[\"']?\s*[:=]\s*[\"']?(?:(?:bearer|basic|token|digest|negotiate)\s+)?)(?!(?:bearer|basic|token|digest|negotiate)\s)[^\s\"',}]{4,2000}"),
    ("bearer token", r"(?P<keep>\b[Bb]earer\s+)[A-Za-z0-9._~+/=-]{8,2000}"),
    ("basic credentials", r"(?P<keep>\b[Bb]asic\s+)(?=[A-Za-z0-9+/]*[0-9=])[A-Za-z0-9+/]{12,2000}={0,2}"),
    ("JSON web token", r"\beyJ[A-Za-z0-9_-]{6,}(?:\.[A-Za-z0-9_-]*){0,4}"),
    ("Hugging Face", r"\b(?:hf|api_org)_[A-Za-z0-9]{16,}"),
    ("GitHub", r"\b(?:gh[pousr]_[A-Za-z0-9]{16,}|github_pat_[A-Za-z0-9_]{16,})"),
    ("GitLab", r"\bgl(?:pat|dt|rt|cbt|ptt|soat|ft|agent|imt)-[A-Za-z0-9_.-]{16,}"),
    ("AWS key id", r"\b(?:AKIA|ASIA|ABIA|ACCA|AROA|AIDA)[A-Z2-7]{12,}"),
    ("Google", r"\bAIza[A-Za-z0-9_-]{20,}|\bya29\.[A-Za-z0-9_.-]{10,}|\bGOCSPX-[A-Za-z0-9_-]{10,}"),
    ("Azure", r"(?i)(?P<keep>\b(?:AccountKey|SharedAccessKey|SharedAccessSignature|sig)=)[A-Za-z0-9%+/=&_-]{8,}"),
    ("Slack", r"\bxox[abeoprs]-[A-Za-z0-9-]{8,}|\bxapp-[A-Za-z0-9-]{8,}|(?P<keep>\bhooks\.slack\.com/(?:services|workflows)/)[A-Za-z0-9/_-]{8,}"),
    ("OpenAI, Anthropic and others that follow them", r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{16,}|\b[sr]k_(?:live|test)_[A-Za-z0-9]{10,}"),
    ("Weights & Biases", r"\blocal-[0-9a-f]{40}\b|\bwandb_v1_[A-Za-z0-9_]{16,}|(?i:(?P<keep>\b(?:wandb|api)\b[^\n]{0,60}?\bkey\b[\"']?[\s:=]{1,4}[\"']?))[0-9a-f]{32,40}\b"),
    ("NVIDIA NGC", r"\bnvapi-[A-Za-z0-9_-]{16,}"),
    ("PyPI, npm, Docker, DigitalOcean, Databricks, Replicate", r"\bpypi-[A-Za-z0-9_-]{16,}|\bnpm_[A-Za-z0-9]{16,}|\bdckr_pat_[A-Za-z0-9_-]{16,}|\bdo[opr]_v1_[0-9a-f]{16,}|\bdapi[0-9a-f]{32}\b|\br8_[A-Za-z0-9]{16,}"),
    ("Telegram", r"\b\d{8,10}:AA[A-Za-z0-9_-]{30,}"),
    ("netrc", r"(?P<keep>\bmachine\s+\S{1,200}\s+login\s+\S{1,200}\s+password\s+)\S{1,500}"),
    # Settings: NAME=value, "NAME": "value", --name value. Names in capitals, as variables of the environment have them …
    ("setting of the environment", r"(?P<keep>(?<![A-Za-z0-9])[A-Z0-9_]{0,60}(?:_KEY|APIKEY|TOKEN|SECRET|PASSWORD|PASSWD|PASSPHRASE|_PASS|_PWD|CREDENTIALS?|_KEY_ID|_AUTH|WEBHOOK)[\"']?\s{0,3}(?:[=:]|=>)\s{0,3})(?:\"[^\"\n]{1,2000}\"?|'[^'\n]{1,2000}'?|[^\s,;\"'(){}\[\]<>]{3,2000})"),
    # … and the others only where the name can mean nothing else: a model has many tokens.
    ("setting", r"(?i)(?P<keep>(?<![A-Za-z0-9])(?:[a-z0-9]{1,20}[_-]){0,4}(?:api[_-]?key|apikey|access[_-]?key(?:[_-]?id)?|secret[_-]?key|secret[_-]?access[_-]?key|account[_-]?key|private[_-]?key|client[_-]?secret|passphrase|password|passwd|(?:auth|access|refresh|session|security|bearer|hf|hub|github|use_auth|bot|id)[_-]token|secret)[\"']?\s{0,3}(?:[=:]|=>)\s{0,3})(?:\"[^\"\n]{1,2000}\"?|'[^'\n]{1,2000}'?|[^\s,;\"'(){}\[\]<>]{3,2000})"),
    ("option", r"(?i)(?P<keep>(?<!\S)--(?:[a-z0-9]{1,20}[_-]){0,4}(?:api[_-]?key|access[_-]?key|secret(?:[_-]?key)?|password|passwd|token)[ =])[^\s-][^\s]{3,2000}"),
    ("token with digits and letters", r"(?i)(?P<keep>(?<![A-Za-z0-9_])token[\"']?\s{0,3}[=:]\s{0,3}[\"']?)(?=[A-Za-z_.-]*\d)(?=[\d_.-]*[A-Za-z])[A-Za-z0-9_.+/-]{16,2000}=*"),
)  # fmt: skip
# The beginning of a secret at the end of a line that was cut.
_TAIL = re.compile(r"(?:\b(?:hf_|gh[pousr]_|github_pat_|glpat-|AKIA|ASIA|AIza|ya29\.|xox[abprs]-|sk-|eyJ|nvapi-|pypi-|npm_)|-----BEGIN )[^\s]{0,80}…?$")
_compiled: list[re.Pattern[str]] = []


def mask(text: str) -> str:
    """The text with every secret in it masked, and with what could steer a terminal or hide from a reader shown as escapes."""
    if not _compiled:
        _compiled.extend(re.compile(pattern) for _, pattern in SECRETS)
    if not text.isprintable():
        text = "".join(one if one.isprintable() or one in "\n\t" else _escape(one) for one in text)
    for pattern in _compiled:
        text = pattern.sub(_masked, text)
    return _TAIL.sub(MASK, text) if len(text) >= CUT else text


def _escape(one: str) -> str:
    code = ord(one)
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _masked(found: re.Match[str]) -> str:
    kept = found.groupdict().get("keep") or ""
    return kept + MASK


def cleaned(value: Any, change: Any) -> Any:
    """The same value with every text in it changed; names of fields stay."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, tuple) and hasattr(value, "_fields"):
        return type(value)(*(cleaned(one, change) for one in value))
    if isinstance(value, (list, tuple)):
        return type(value)(cleaned(one, change) for one in value)
    if isinstance(value, dict):
        return {key: cleaned(one, change) for key, one in value.items()}
    return value


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
_IPV6 = re.compile(r"(?<![0-9A-Za-z:.])(?:[0-9A-Fa-f]{1,4}:){2,7}(?::?[0-9A-Fa-f]{1,4})?(?:%[A-Za-z0-9]{1,15})?(?![0-9A-Za-z:])|(?<![0-9A-Za-z:])[0-9A-Fa-f]{0,4}::(?:[0-9A-Fa-f]{1,4}:){0,6}[0-9A-Fa-f]{1,4}(?:%[A-Za-z0-9]{1,15})?")  # fmt: skip
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


def guarded(guidance: Guidance, logs: Sequence[Evidence], anonymise: bool) -> Guidance:
    """The guidance without the secrets that stand in the user's files, and without names where that was asked for.

    What Shardguide itself says (code, sources) is left as it is.
    """
    parts: dict[str, Any] = {
        name: cleaned(getattr(guidance, name), mask) for name in ("facts", "checks", "next", "done", "not_done", "extra")
    }
    if anonymise:
        names = Names()
        parts |= {"torch": guidance.torch, "answers": guidance.answers}
        for log in logs:
            for event in log.events:
                names.collect(event.text)
            for row in log.failed:
                names.collect(f"host : {row.host}")
        cleaned(parts, names.collect)
        parts = cleaned(parts, names.replaced)
    return guidance._replace(**parts)
