"""Routes, models and rules as people write them, written out as the settings have them.

models:
  assistant: text-chain                  # a name: an upstream, a route or another model
  vision: [vl-30b, vl-8b]                # a list: the second when the first fails
routes:
  text-chain: [[text-a, text-b], spare]  # a list in the list: replicas that share the load
auto:
  - image fast: vl-8b                    # modalities and tasks: where to; the first that fits counts
  - text: text-chain
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, get_args

from dabom.app.config.shape import near
from dabom.gateway import Clocks, Limits
from dabom.gateway.routing.settings import AutoRule, Modality, Task

if TYPE_CHECKING:
    from pydantic import BaseModel

    from dabom.app.config.document import Document, Place

SECTIONS: dict[str, type[BaseModel]] = {"clocks": Clocks, "limits": Limits}
"""Tables whose settings may as well stand at the top of the file."""
_MODALITIES, _TASKS = get_args(Modality), get_args(Task)
_ANY = "any"


def write_out(document: Document) -> None:
    """Change the document's values in place; what cannot be read becomes a flaw."""
    _lift_sections(document)
    routes = document.values.get("routes")
    if isinstance(routes, dict):
        for name in routes:
            routes[name] = _route(routes[name], document, ("routes", name))
    models = document.values.get("models")
    if isinstance(models, dict):
        for name in models:
            models[name] = _target(models[name], name, document, ("models", name))
    auto = document.values.get("auto")
    if isinstance(auto, dict):  # the rules without the dashes of a list: their order is the file's
        document.fault(("auto",), "auto must be a list of rules, such as `- image fast: NAME`")
        document.values.pop("auto")
    elif isinstance(auto, list):
        document.values["auto"] = [_rule(one, document, ("auto", number)) for number, one in enumerate(auto)]


def _lift_sections(document: Document) -> None:
    for section in SECTIONS:
        values = document.values.pop(section, None)
        if values is None:
            continue
        if not isinstance(values, dict):
            document.fault((section,), f"{section} must hold names and values")
            continue
        known = SECTIONS[section].model_fields
        for name, value in values.items():
            if name not in known:
                meant = near(name, known)
                hint = f"did you mean {meant}?" if meant else f"there are {', '.join(known)}"
                document.fault((section, name), f"{section} has no {name}; {hint}")
                continue
            if name in document.values:
                told = f"{section}.{name} is set twice; {name} stands at the top of the file too"
                document.fault((section, name), told)
                continue
            document.values[name] = value
            document.move((section, name), (name,))


def _route(value: Any, document: Document, place: Place) -> Any:
    """`a`, `[a, b]` or `[[a, b], c]` as the settings of a route."""
    if isinstance(value, dict) and "steps" in value:
        document.move((*place, "steps"), place)
        return value | {"steps": _steps(value["steps"])}
    if isinstance(value, str | list):
        document.move(place, (*place, "steps"))
        return {"steps": _steps(value)}
    return value


def _steps(value: Any) -> Any:
    steps = [value] if isinstance(value, str) else value
    return [[one] if isinstance(one, str) else one for one in steps] if isinstance(steps, list) else steps


def _target(value: Any, route: str, document: Document, place: Place) -> Any:
    """A name stays; a list becomes a route that is called `route`."""
    if not isinstance(value, list):
        return value
    routes = document.values.setdefault("routes", {})
    if isinstance(routes, dict):
        if route in routes:
            document.fault(place, f"{route} lists targets here and is a route too; rename one of them")
        else:
            document.move(place, ("routes", route))
            routes[route] = _route(value, document, ("routes", route))
    return route


def _rule(value: Any, document: Document, place: Place) -> Any:
    """`image fast: NAME` or `image fast: [NAME, NAME]` as the settings of a rule."""
    if not isinstance(value, dict) or "route" in value or len(value) != 1:
        if not isinstance(value, dict) or not value.keys() & AutoRule.model_fields.keys():
            document.fault(place, "a rule is modalities and tasks, then where to: `- image fast: NAME`")
        return value
    ((words, target),) = value.items()
    said = [word for word in re.split(r"[\s,+]+", words) if word]
    for word in said:
        if word not in (*_MODALITIES, *_TASKS, _ANY):
            allowed = ", ".join((*_MODALITIES, *_TASKS, _ANY))
            meant = near(word, (*_MODALITIES, *_TASKS, _ANY))
            hint = f"did you mean {meant}?" if meant else f"there are {allowed}"
            document.fault((*place, words), f"auto knows no {word}; {hint}")
    name = _target(target, "-".join(["auto", *said]), document, (*place, words))
    document.move((*place, words), (*place, "route"))
    rule: dict[str, Any] = {"route": name}
    if modalities := [word for word in said if word in _MODALITIES]:
        rule["modalities"] = modalities
    if tasks := [word for word in said if word in _TASKS]:
        rule["tasks"] = tasks
    return rule
