"""How wire types are written: snake_case in Python, camelCase on the wire."""

from typing import Any

from pydantic import BaseModel, ConfigDict
from pydantic.alias_generators import to_camel


class WireModel(BaseModel):
    model_config = ConfigDict(alias_generator=to_camel, populate_by_name=True)

    def to_wire(self) -> dict[str, Any]:
        """Plain JSON values with the names of the wire; what is unset (None) is left out."""
        return self.model_dump(mode="json", by_alias=True, exclude_none=True)


class StrictModel(WireModel):
    """What people write: an unknown field is a mistake."""

    model_config = ConfigDict(extra="forbid", use_attribute_docstrings=True)


class TolerantModel(WireModel):
    """What programs send: the other side may be one release ahead, so unknown fields are ignored."""

    model_config = ConfigDict(extra="ignore", use_attribute_docstrings=True)
