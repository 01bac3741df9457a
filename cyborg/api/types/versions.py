# SPDX-License-Identifier: Apache-2.0
"""The documents by which clients discover the API."""

from cyborg.api import microversions
from cyborg.api.types import documents
from cyborg.api.types.documents import Field


class Link(documents.Document):
    rel = Field(str)
    href = Field(str)


class ApiVersion(documents.Document):
    id = Field(str)
    status = Field(documents.Enum('CURRENT'))
    min_version = Field(str, 'the lowest microversion')
    max_version = Field(str, 'the highest microversion')
    links = Field([Link])


class Versions(documents.Document):
    name = Field(str)
    description = Field(str)
    versions = Field([ApiVersion])
    default_version = Field(ApiVersion)


def current(id: str, link: dict[str, str]) -> ApiVersion:
    """Returns the only version, with the id that the document has for it."""
    return ApiVersion(
        id=id,
        status='CURRENT',
        min_version=str(microversions.LOWEST),
        max_version=str(microversions.HIGHEST),
        links=[Link(**link)],
    )
