"""Owns the OpenAPI description: made from the very types that bodies are decoded to and answers encoded from.

Endpoints say what they take and give with `described`; `install` puts the schemas in and takes the
framework's own guesses (a 422 for every parameter) out.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from api import answers, models, tenant_answers
from api.params import Param
from api.params import described as parameters
from api.problems import MEDIA_TYPE, ProblemBody

_REF = "#/components/schemas/{name}"
_PROBLEMS = {
    400: "Something in the request is not as it should be; `errors` names every field",
    401: "No key, or one that is not known",
    403: "The key's role may not do this",
    404: "There is no such thing in this tenant",
    412: "`If-Match` names another version than the job has",
    428: "`If-Match` is needed: the version that the change is meant for",
    409: "The state of the thing does not allow it; `code` says why",
    413: "Too large: in bytes, or a batch in JSON values",
    422: "`idempotency_key_reused`: the key came with another request before",
    429: "Too many; `Retry-After` says when to come back",
    503: "Not now; `code` says what is missing, `Retry-After` when to come back",
}
_KEY_PARAMETER = {
    "name": "Idempotency-Key",
    "in": "header",
    "required": False,
    "description": "1 to 255 visible ASCII characters: the same request with the same key is done once",
    "schema": {"type": "string", "minLength": 1, "maxLength": 255},
}
_MATCH_PARAMETER = {
    "name": "If-Match",
    "in": "header",
    "description": "The `ETag` of the version that the change is meant for",
    "schema": {"type": "string"},
}
_POSITION_PARAMETER = {
    "name": "Horarium-Position",
    "in": "header",
    "required": False,
    "description": "As an answer to a change gave it: the read waits up to 2 s until it includes that change",
    "schema": {"type": "string"},
}
_POSITION_HEADER = {
    "Horarium-Position": {
        "description": "Where the change stands in the log",
        "schema": {"type": "string"},
    }
}
_VERSION_HEADER = {"ETag": {"description": "The job's version", "schema": {"type": "string"}}}
_REPLAYED_HEADER = {
    "Idempotent-Replayed": {
        "description": "`true` if this is the stored answer to a repeated request",
        "schema": {"type": "string"},
    }
}


_RETRY_HEADER = {
    "Retry-After": {"description": "Seconds until it is worth asking again", "schema": {"type": "integer"}}
}
_RATE_HEADERS = {
    "RateLimit-Policy": {
        "description": "Of a rate: how many (`q`) in a window of `w` seconds",
        "schema": {"type": "string"},
    },
    "RateLimit": {
        "description": "Of a rate: how many are left (`r`), and when (`t`, seconds) there are more",
        "schema": {"type": "string"},
    },
}


def described(
    *,
    gives: dict[int, type | None],
    takes: type | None = None,
    problems: Sequence[int] = (),
    query: Sequence[Param] = (),
    keyed: bool = False,
    reads: bool = False,
    changes: bool = False,
    versioned: bool = False,
    matched: bool | None = None,
    body_needed: bool = True,
    media_type: str = "application/json",
) -> dict[str, Any]:
    """Arguments of a route that say what it takes and gives. `keyed`: an Idempotency-Key counts; `reads`:
    from the read model; `changes`: by a partition's decision; `versioned`: answers have an ETag; `matched`:
    If-Match counts (True: it is needed)."""
    headers = (_POSITION_HEADER if changes else {}) | (_REPLAYED_HEADER if keyed else {})
    headers |= _VERSION_HEADER if versioned else {}
    responses: dict[int | str, dict[str, Any]] = {
        status: _answer(kind, headers) for status, kind in gives.items()
    }
    also = {400, 401, 403, *problems}
    if reads or changes:
        also.add(503)
    for status in sorted(also):
        responses[status] = {
            "description": _PROBLEMS[status],
            "content": {MEDIA_TYPE: {"schema": {"$ref": _REF.format(name="ProblemBody")}}},
        }
    if 429 in responses:
        responses[429]["headers"] = _RETRY_HEADER | _RATE_HEADERS
    if 503 in responses:
        responses[503]["headers"] = _RETRY_HEADER
    extra: dict[str, Any] = {"security": [{"key": []}], "parameters": parameters(*query)}
    if keyed:
        extra["parameters"].append(_KEY_PARAMETER)
    if reads:
        extra["parameters"].append(_POSITION_PARAMETER)
    if matched is not None:
        extra["parameters"].append(_MATCH_PARAMETER | {"required": matched})
    if takes is not None:
        extra["requestBody"] = {
            "required": body_needed,
            "content": {media_type: {"schema": {"$ref": _REF.format(name=takes.__name__)}}},
        }
    return {
        "responses": responses,
        "openapi_extra": extra,
        "status_code": next(iter(gives)),
        "response_model": None,
    }


def install(app: FastAPI) -> None:
    """Makes `/openapi.json` say what is really taken and given."""

    def describe() -> dict[str, Any]:
        if app.openapi_schema is None:
            app.openapi_schema = _description(app)
        return app.openapi_schema

    app.openapi = describe  # type: ignore[method-assign]


def _answer(kind: type | None, headers: dict[str, Any]) -> dict[str, Any]:
    described: dict[str, Any] = {"description": (kind.__doc__ or "").strip() if kind else "Done"}
    if kind is not None:
        described["content"] = {"application/json": {"schema": {"$ref": _REF.format(name=kind.__name__)}}}
    if headers:
        described["headers"] = headers
    return described


def _description(app: FastAPI) -> dict[str, Any]:
    schema = get_openapi(
        title=app.title, version=app.version, summary=app.summary, routes=app.routes, description=""
    )
    for path in schema["paths"].values():
        for operation in path.values():
            framework = operation["responses"].get("422", {}).get("content", {})
            if "application/json" in framework:
                del operation["responses"]["422"]
            _without_empty_bodies(operation)
    components = schema.setdefault("components", {})
    components["schemas"] = _schemas()
    components["securitySchemes"] = {"key": {"type": "http", "scheme": "bearer"}}
    return schema


def _without_empty_bodies(operation: dict[str, Any]) -> None:
    """The framework adds a JSON content without a schema where the answer is not its own."""
    for answer in operation["responses"].values():
        content = answer.get("content", {})
        if content.get("application/json") == {"schema": {}} or (
            MEDIA_TYPE in content and "application/json" in content
        ):
            content.pop("application/json")


def _schemas() -> dict[str, Any]:
    kinds = [
        kind
        for module in (models, answers, tenant_answers)
        for kind in vars(module).values()
        if isinstance(kind, type) and issubclass(kind, msgspec.Struct) and kind.__module__ == module.__name__
    ]
    _, schemas = msgspec.json.schema_components([*kinds, ProblemBody], ref_template=_REF)
    for name in (models.Body.__name__, answers.Answer.__name__):
        schemas.pop(name, None)
    return schemas
