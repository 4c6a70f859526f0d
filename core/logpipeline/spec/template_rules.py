"""What the templates of file names may hold; a mistake there is found before a file is written."""

from __future__ import annotations

from typing import Any

from logpipeline.spec.crossrule import CrossRule
from logpipeline.spec.fields import matches
from logpipeline.spec.model import LogPipelineSpec

VARIABLES = ("cluster", "host", "namespace", "pod", "container", "partition", "path")
# fshipper's templates, with ${host} for {host}, are good as well.
_KNOWN = rf"^([^{{}}]|\{{({'|'.join(VARIABLES)})\}})*$"
_APART = r"\{(host|partition)\}"
_OUTSIDE = r"(^/)|(^|/)\.\.?(/|$)"


def _rules(field: str, name: str) -> tuple[CrossRule, ...]:
    value = f"self.spec.collectors.{name}"
    path = f"collectors.{name}"

    def of(spec: Any) -> str:
        return str(getattr(spec.collectors, field))

    known = ", ".join(f"{{{variable}}}" for variable in VARIABLES)
    return (
        CrossRule(
            f"{name}-known-variables", LogPipelineSpec, path,
            f"{value}.matches(r'{_KNOWN}')",
            f"holds a variable that is none of {known}",
            lambda spec: matches(_KNOWN, of(spec)),
        ),
        CrossRule(
            f"{name}-apart", LogPipelineSpec, path,
            f"{value}.matches(r'{_APART}')",
            "needs {host} or {partition}: two collectors would write the same file",
            lambda spec: matches(_APART, of(spec)),
        ),
        CrossRule(
            f"{name}-inside", LogPipelineSpec, path,
            f"!{value}.matches(r'{_OUTSIDE}')",
            "must be a relative path without . and .. as folders: it lies below the collector's",
            lambda spec: not matches(_OUTSIDE, of(spec)),
        ),
    )  # fmt: skip


TEMPLATE_RULES = (*_rules("path", "path"), *_rules("file_path", "filePath"))
