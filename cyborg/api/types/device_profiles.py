# SPDX-License-Identifier: Apache-2.0
"""Device profiles on the wire. What groups mean is in objects.profile_groups."""

from collections.abc import Collection, Sequence
from typing import Any, ClassVar

import wsme.types

from cyborg import errors, objects
from cyborg.api.types import documents, json_schema
from cyborg.api.types.documents import Field
from cyborg.objects import profile_groups
from cyborg.objects.profile_groups import LONGEST_NAME

LONGEST_DESCRIPTION = 65535

is_name = profile_groups.is_name

#: since this version unknown keys are refused in a new profile
STRICT_SINCE = (2, 4)
#: since this version profiles can be changed, disabled, and restricted to some projects
UPDATE_SINCE = (2, 5)

EXAMPLE = {
    'name': 'gzip-offload',
    'description': 'Compression in an FPGA',
    'groups': [
        {
            'resources:FPGA': '1',
            'trait:CUSTOM_FPGA_INTEL_FUNCTION_9F1C8A52_7A0F_4D1B_8B53_8A0F5D0D6F21': 'required',
        }
    ],
}


class ProjectId(wsme.types.StringType):
    # MariaDB ignores trailing blanks in comparisons
    description = 'an id without blanks'


PROJECT_ID = ProjectId(min_length=1, max_length=255, pattern=r'^\S*$')


class Groups(documents.UserType):
    """Groups as a client writes them. ``ProfileChange.checked`` validates their content, with
    another status."""

    basetype, name = list, 'groups'
    schema: documents.Schema = {
        'type': 'array',
        'items': {'type': 'object', 'additionalProperties': {'type': ['string', 'integer']}},
    }


class DeviceProfile(documents.Noun):
    uuid = Field(documents.UUID)
    name = Field(str)
    description = Field(str, nullable=True)
    groups = Field([{str: str}])
    enabled = Field(
        bool,
        'whether new accelerator requests can be made with it',
        since=UPDATE_SINCE,
        source='is_enabled',
    )
    projects = Field(
        documents.ListOf(PROJECT_ID, uniqueItems=True),
        'the projects that it is for, or null for all; others do not see it, and only '
        'administrators see all of a list',
        nullable=True,
        since=UPDATE_SINCE,
        source='project_ids',
    )
    created_at = Field(documents.MOMENT)
    updated_at = Field(documents.MOMENT, nullable=True)
    links = documents.links('device_profiles')


class DeviceProfileQuery(documents.Listing):
    name = Field(str)
    enabled = DeviceProfile.enabled.again()
    sort_key = documents.sort_key('name')


class DeleteQuery(documents.Body):
    value = Field(str)
    name = Field(str)


class ProfileChange(documents.Body):
    """The fields that a PATCH changes."""

    _unknown_keys: ClassVar[bool | documents.Schema | None] = False
    _min_keys = 1
    _examples: ClassVar[Sequence[Any]] = (
        {'enabled': False},
        {'name': 'gzip', 'groups': EXAMPLE['groups']},
    )

    name = Field(str)
    description = Field(str, nullable=True)
    groups = Field(Groups())
    enabled = DeviceProfile.enabled.again()
    projects = DeviceProfile.projects.again()

    def checked(self, whose: str, extra_keys: Collection[str]) -> dict[str, Any]:
        """Returns the fields of a profile as they are stored. Raises InvalidProfile."""
        values = self.given()
        try:
            if not is_name(values.get('name', 'x')):
                raise ValueError(
                    f'its name must be 1 to {LONGEST_NAME} letters, digits, hyphens and '
                    f'underscores.'
                )
            if len(values.get('description') or '') > LONGEST_DESCRIPTION:
                raise ValueError(
                    f'its description must not be longer than {LONGEST_DESCRIPTION} characters.'
                )
            if 'groups' in values:
                values['groups'] = profile_groups.normalize(values['groups'], extra_keys)
        except ValueError as error:
            raise errors.InvalidProfile(name=repr(whose[:64]), why=str(error)) from error
        return values


class NewProfile(ProfileChange):
    _unknown_keys = json_schema.since(STRICT_SINCE, json_schema.NEVER)
    _min_keys = 0
    _examples = ()

    name = Field(str, mandatory=True)
    groups = Field(Groups(), mandatory=True)
    uuid = Field(documents.UUID, nullable=True)

    def profile(self, extra_keys: Collection[str]) -> objects.DeviceProfile:
        """Returns the profile. Raises InvalidProfile."""
        values = self.checked(self.name, extra_keys)
        if not values.get('uuid'):
            values.pop('uuid', None)
        return objects.DeviceProfile(**values)


NEW_PROFILES = documents.ListOf(NewProfile, minItems=1, examples=[[EXAMPLE]])


def ref(text: str) -> str:
    """Returns a name or uuid as it is stored. Raises ProfileNotFound if it can be neither."""
    if not is_name(text):
        raise errors.ProfileNotFound(names=repr(text[:64]))
    return text.lower() if documents.UUID.matches(text) else text


def parts(text: str) -> list[str]:
    """Returns the parts of a comma-separated list, without blanks around them."""
    return [part.strip() for part in text.split(',')]


def refs(text: str) -> list[str]:
    """Returns the names or uuids in a comma-separated list."""
    found = [ref(part) for part in parts(text) if part]
    if not found:
        raise errors.BadRequest('Name the device profiles, by names or uuids.')
    return list(dict.fromkeys(found))
