"""Texts of the report in English and 简体中文, by key. Metric names are never translated.

`texts.py` and `finding_texts.py` hold the catalogues; the reasons of a verdict are written beside
the code that makes them, in `study/reasons.py`.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from stepladder.core.finding import Finding
from stepladder.core.metrics import describe
from stepladder.core.result import Reason
from stepladder.report.finding_texts import CAUSES, FINDINGS
from stepladder.report.texts import METRIC_MEANINGS, TEXTS
from stepladder.study.reasons import sentence

LANGS: tuple[str, ...] = ("en", "zh")
NO_BREAK = "\u00a0"
HTML_LANG: Mapping[str, str] = {"en": "en", "zh": "zh-Hans"}


def translate(key: str, lang: str, **values: object) -> str:
    """Return the text of a key of the report's own catalogue; `values` fill its places.

    Raises
        KeyError: a key that no catalogue holds, which is a fault of ours.
    """
    return TEXTS[key][_index(lang)].format_map(values)


def axis_name(axis: str, lang: str) -> str:
    """Return an axis in words; a name of a plug-in's axis is shown as it is."""
    key = f"axis_{axis}"
    return translate(key, lang) if key in TEXTS else axis


def arm_name(arm: str, lang: str) -> str:
    """Return an arm in words."""
    key = f"arm_{arm}"
    return translate(key, lang) if key in TEXTS else arm


def metric_meaning(name: str, lang: str) -> str:
    """Return what a metric measures; its name alone when no one wrote it down."""
    info = describe(name)
    english = info.meaning if info else ""
    return METRIC_MEANINGS.get(name, english) if lang == "zh" else english


def state_name(state: str, lang: str) -> str:
    """Return a job state in words."""
    key = f"state_{state}"
    return translate(key, lang) if key in TEXTS else state


def reason_text(reason: Reason, lang: str) -> str:
    """Return a verdict's sentence; a key or values that no template fits are shown as they are."""
    try:
        return _unbroken(sentence(reason, lang))
    except (KeyError, IndexError, ValueError, TypeError):
        return with_values(reason.key, reason.values)


def refusal_text(key: str, lang: str) -> str:
    """Return why a forecast was refused."""
    return reason_text(Reason(key=key), lang) if key else ""


def finding_title(finding: Finding, lang: str) -> str:
    """Return a finding's name."""
    entry = _finding_entry(finding)
    return entry[0][_index(lang)] if entry else finding.key or finding.detector


def finding_text(finding: Finding, lang: str) -> str:
    """Return what a finding means; an unknown key is shown with its values."""
    entry = _finding_entry(finding)
    if entry is None:
        return with_values(finding.key or finding.detector, finding.values)
    return entry[1][_index(lang)]


def finding_advice(finding: Finding, lang: str) -> str:
    """Return what to do: the monitor's own advice first, else the catalogue's."""
    if finding.advice:
        return "; ".join(cause_text(item, lang) for item in finding.advice)
    entry = _finding_entry(finding)
    return entry[2][_index(lang)] if entry else ""


def cause_text(key: str, lang: str) -> str:
    """Return a cause or an advice by key; what is no key is a sentence already."""
    return CAUSES[key][_index(lang)] if key in CAUSES else key


def with_values(key: str, values: Mapping[str, float | int | str]) -> str:
    """Return `key: name = value, ...`."""
    if not values:
        return key
    pairs = (f"{name} = {_plain(value)}" for name, value in sorted(values.items()))
    return f"{key}: {', '.join(pairs)}"


def _finding_entry(
    finding: Finding,
) -> tuple[tuple[str, str], tuple[str, str], tuple[str, str]] | None:
    return FINDINGS.get(finding.key) or FINDINGS.get(finding.detector)


def _unbroken(text: str) -> str:
    """Keep a number and its percent sign on one line."""
    return re.sub(r"(?<=\d) (?=%)", NO_BREAK, text)


def _plain(value: float | int | str) -> str:
    return f"{value:.4g}" if isinstance(value, float) else str(value)


def _index(lang: str) -> int:
    return LANGS.index(lang)
