"""report.html: a ReportModel as one offline file, charts and their code inside.

A content security policy in the page forbids every network request.
"""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from stepladder import __version__
from stepladder.report.charts import dark_colours, figure
from stepladder.report.i18n import HTML_LANG, translate
from stepladder.report.parts import ReportModel

ASSETS = Path(__file__).parent / "assets"
PLOTLY = ASSETS / "plotly-cartesian-4.1.1.min.js"


def write_html(model: ReportModel, path: Path) -> None:
    """Write the report to `path`."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(html_text(model), encoding="utf-8")


def html_text(model: ReportModel) -> str:
    """Return the report as one HTML page."""
    environment = Environment(
        loader=FileSystemLoader(ASSETS),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    return environment.get_template("report.html.j2").render(
        m=model,
        t=partial(_text, model.lang),
        html_lang=HTML_LANG[model.lang],
        version=__version__,
        style=_asset("report.css"),
        script=_asset("report.js"),
        plotly=Markup(PLOTLY.read_text(encoding="utf-8")),
        figures=_json({chart.id: _figure_json(chart) for chart in model.charts}),
        page=_json({"dark": dark_colours(), "step": translate("col_step", model.lang)}),
    )


def _text(lang: str, key: str, **values: object) -> str:
    return translate(key, lang, **values)


def _asset(name: str) -> Markup:
    return Markup((ASSETS / name).read_text(encoding="utf-8"))


def _figure_json(chart: Any) -> dict[str, Any]:
    tree: dict[str, Any] = json.loads(str(figure(chart).to_json()))
    # An empty template: Plotly's own default, written out, is 7 KB a figure.
    tree["layout"].pop("template", None)
    return tree


def _json(value: Any) -> Markup:
    """Return JSON that cannot end its script element early."""
    text = json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":"))
    return Markup(text.replace("<", "\\u003c"))
