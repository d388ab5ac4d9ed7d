"""Every claim against an installed PyTorch, and against documentation that the user has downloaded."""

from __future__ import annotations

from shardguide.guidance.errors import UnusableInput
from shardguide.guidance.hints import Any
from shardguide.guidance.record import Claim
from shardguide.guidance.serialise import plain
from shardguide.installed.verify import claims
from shardguide.knowledge import claims_store

from .release import resolve
from .sources import about


def verify(torch: str | None, site_packages: str | None, docs: str | None = None) -> dict[str, Any]:
    """``{torch, claims, found, pages_opened, page_only, not_found}``, counting only the claims that hold for the release.

    The shipped index never counts as found. A page of which one sentence stands in `docs` is taken to be there: a claim whose
    sentence is missing from it is not found. Pages that are not there leave their claims ``page_only``.

    Raises:
        UnusableInput: no single PyTorch is at hand, or `docs` is no folder of documentation.
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
    looked_up = list(claims(wanted, release, docs or "").values())
    paged = [claim for claim in looked_up if claim.status == "page"]
    there = _there(paged)
    opened = [claim for claim in paged if all(source.reopened for source in claim.sources)]
    changed = {claim.id: page for claim in paged if (page := _missing(claim, there))}
    failed = [(claim, "") for claim in looked_up if claim.status not in ("found", "page")]
    failed += [(claim, changed[claim.id]) for claim in paged if claim.id in changed]
    return {
        "torch": plain(release),
        "claims": len(wanted),
        "found": sum(claim.status == "found" for claim in looked_up),
        "pages_opened": len(opened),
        "page_only": len(paged) - len(opened) - len(changed),
        "not_found": [{"id": claim.id, "text": claim.text, "page": page} for claim, page in failed],
    }


def _there(paged: list[Claim]) -> dict[str, str]:
    """The pages of which a sentence was found, by address, with the file that holds it."""
    return {source.url: source.reopened.where for claim in paged for source in claim.sources if source.reopened}


def _missing(claim: Claim, there: dict[str, str]) -> str:
    """The file that should hold a sentence of the claim and does not; "" for none."""
    return next((there[source.url] for source in claim.sources if not source.reopened and source.url in there), "")
