"""A hang that is told in words: at which moment of the run it comes says which causes to look at first, and how to tell them apart."""

from __future__ import annotations

import re

_HANGS = re.compile(
    r"\bh[au]ng(?:s|ing)?\b|\bstuck\b|\bfr[eo]ez(?:e|es|ing)\b|\bfroze[n]?\b|\bdead-?lock|\bstall(?:s|ed|ing)?\b"
    r"|\bnever (?:returns|finishes|ends|continues)|\b(?:waits?|blocks?) forever|\bno (?:progress|output)\b|\bstands still"
    r"|\b(?:not|stops|stopped) (?:responding|progressing|moving)\b|\btim(?:es|ed|e) ?out|\bwatchdog\b"
    r"|\bh[äa]ngt\b|\bse (?:bloque|cuelga)\b|卡住|挂起",
    re.IGNORECASE,
)
# Moments, the more special before the more general, with the diagnoses that fit there, the likelier first.
_MOMENTS = (
    (
        r"(?=.*\bfile://|.*\bshared[- ]file|.*\bfile[- ](?:init|store|rendezvous|method)|.*\bFileStore)"
        r"(?=.*\b(?:second|2nd|next|again|re-?(?:run|start|launch)\w*|twice|only once|first (?:time|run|start|launch)|killed|left over)\b)",
        ("stale_filestore", "store_barrier_rank_missing"),
    ),
    (r"\bgenerat(?:e|es|ion|ing)\b|\bdecod(?:e|ing)\b|\brollout", ("generate_unsynced_ranks", "rank_divergent_branch")),
    (
        r"\bsav(?:e|es|ing)\b|\bcheckpoint(?:s|ing)? (?:sav|writ)|\bstate[_ ]?dict|\bwhen checkpointing\b"
        r"|\bat (?:the|a|each|every) checkpoint",
        ("rank0_only_state_dict", "rank0_only_collective", "rank_divergent_branch"),
    ),
    (
        r"\brank ?0 (?:only|alone)\b|\bonly (?:on )?rank ?0\b|\bif rank ?==? ?0|\bis_main_process|\bmain process",
        ("rank0_only_collective", "rank0_only_state_dict"),
    ),
    (
        r"\b(?:eval(?:uation|uate|uating)?|validation|validat(?:e|ing)|metrics?|test set)\b",
        ("uneven_batches", "rank0_only_collective", "rank_divergent_branch"),
    ),
    (
        r"\bepoch|\blast (?:batch|step|iteration)|\bend of (?:the )?(?:data|dataset|training|loader)|\buneven\b"
        r"|\bdata(?:set|loader)? (?:runs|ran) out|\bdifferent number of (?:batches|samples|steps)|\bfewer (?:batches|samples)"
        r"|\bEpoche|\bépoque|\bépoca",
        ("uneven_batches", "rank_divergent_branch", "rank0_only_collective"),
    ),
    (
        r"\bpreprocess|\btokeni[sz]|\b(?:preparing|loading) (?:the )?data|\bdownload",
        ("rank0_preprocess_exceeds_timeout",),
    ),
    (
        r"\binit_process_group|\binit(?:ialis|ializ)|\b(?:at|in|on|during|before) (?:\w+ )?(?:dist )?init\b|\bstart(?:s|up|ing)?\b"
        r"|\bbefore (?:the )?(?:first|training)|\brendezvous"
        r"|\bfirst (?:step|iteration|batch|forward|collective)",
        ("store_barrier_rank_missing", "nccl_init_timeout", "rank0_preprocess_exceeds_timeout"),
    ),
    (
        r"\b(?:all[_-]?gather|all[_-]?reduce|reduce[_-]?scatter|broadcast|barrier|collective|nccl)\w*",
        ("rank_divergent_branch", "uneven_batches", "rank_waits_in_collective"),
    ),
)
_ANY = ("uneven_batches", "rank_divergent_branch", "rank_waits_in_collective")
# No hang of collectives, though the words are there.
_OTHER = re.compile(
    r"\b(?:oom|out of memory|memory leak|nan|inf)\b|P2P_DISABLE|\bdataloader worker|\bbus error", re.IGNORECASE
)
_TRAINING = re.compile(
    r"\b(?:train\w*|rank\w*|epoch\w*|gpus?|nodes?|fsdp\w*|ddp|nccl|gloo|torchrun|job|step\w*|run|model|batch\w*|py-spy|all_?gather\w*|all_?reduce\w*"
    r"|barrier|broadcast|collective|init_method|init|rdzv|rendezvous|launch\w*|data(?:set|loader)?|checkpoint)\b",
    re.IGNORECASE,
)
MOST = 3


def told(question: str) -> tuple[str, ...]:
    """The diagnoses to look at first, the likelier first; none where the words tell of no hang of a job."""
    if not _HANGS.search(question) or _OTHER.search(question) or not _TRAINING.search(question):
        return ()
    found: list[str] = []
    for words, names in _MOMENTS:
        if re.search(words, question, re.IGNORECASE):
            found += [name for name in names if name not in found]
    return tuple(found[:MOST]) or _ANY
