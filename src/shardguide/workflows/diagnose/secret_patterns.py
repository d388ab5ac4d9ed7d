"""How secrets look: prefixes that the issuers document, headers, URLs with credentials, and settings whose name says what they hold."""

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
TAIL = (
    "cut secret",
    r"(?:\b(?:hf_|gh[pousr]_|github_pat_|glpat-|AKIA|ASIA|AIza|ya29\.|xox[abprs]-|sk-|eyJ|nvapi-|pypi-|npm_)|-----BEGIN )[^\s]{0,80}…?$",
)
