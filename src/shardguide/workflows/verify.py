"""Every claim against an installed PyTorch."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.guidance.serialise import plain
from shardguide.installed.verify import claims
from shardguide.knowledge import claims_store

from .release import resolve
from .sources import about


def verify(torch: str | None, site_packages: str | None) -> dict[str, Any]:
    """``{torch, claims, found, page_only, not_found}``, counting only the claims that hold for the release.

    The shipped index never counts as found. Raises UnusableInput when no single PyTorch is at hand.
    """
    resolved = resolve(torch, site_packages, None)
    if resolved.questions:
        raise UnusableInput(
            f"{resolved.questions[0].ask} Name the release with --torch, or the folder with --site-packages."
        )
    release = resolved.release
    if not release.path:
        raise UnusableInput(
            f"no PyTorch {release.version} is at hand to look the claims up in; name its folder with --site-packages."
        )
    wanted = [name for name in claims_store.ids() if about(name, release)]
    looked_up = claims(wanted, release)
    by_status = [claim.status for claim in looked_up.values()]
    return {
        "torch": plain(release),
        "claims": len(wanted),
        "found": by_status.count("found"),
        "page_only": by_status.count("page"),
        "not_found": [{"id": c.id, "text": c.text} for c in looked_up.values() if c.status not in ("found", "page")],
    }
