"""Whether a pipeline's class allows it, before the operator says so."""

from __future__ import annotations

import sys
from urllib.parse import quote

from logpipeline.spec import LogPipeline
from logpipeline.spec.choices import REFUSALS_MAX, class_name, refusals
from logpipeline.spec.classes import CLASS_PLURAL, parse_class
from logpipeline.spec.model import API_VERSION
from logpipeline_cli.cluster.api import Api, Forbidden, NotFound
from logpipeline_cli.errors import CliError


def check(api: Api, pipeline: LogPipeline) -> None:
    """Return where its class allows *pipeline*, or may not be seen, which is said.

    Raises:
        CliError: it does not, or is not there.
        SpecError: the class has mistakes.
    """
    name = class_name(pipeline)
    try:
        resource = api.get(f"/apis/{API_VERSION}/{CLASS_PLURAL}/{quote(name, safe='')}")
    except Forbidden as error:
        print(f"whether the class {name} allows it is not known: {error}", file=sys.stderr)
        return
    except NotFound:
        raise CliError(
            f"there is no LogPipelineClass {name}, so nothing is allowed; name another one in "
            "spec.className, or have an administrator make it (`kubectl get lpc` lists all)"
        ) from None
    refused = refusals(pipeline, parse_class(resource))
    if refused:
        lines = "\n".join(f"  {each}" for each in refused[:REFUSALS_MAX])
        raise CliError(
            f"the operator would not carry it out:\n{lines}\nchoose what the class allows, name "
            "another one in spec.className, or have an administrator allow it"
        )
