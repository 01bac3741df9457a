# SPDX-License-Identifier: Apache-2.0
"""Usage on the wire."""

import datetime

from cyborg import errors
from cyborg.api.types import documents
from cyborg.api.types.documents import Field


class Instant(documents.UserType):
    """A date or a point in time, in UTC unless it has an offset."""

    basetype, name = str, 'instant'
    schema: documents.Schema = {
        'type': 'string',
        'maxLength': 64,
        'description': 'a date or time in ISO 8601, such as 2026-03-01 or 2026-03-01T10:00:00Z',
    }

    def __init__(self, what: str) -> None:
        self.what = what

    def validate(self, value: str) -> str:
        """Returns the moment in UTC. Raises BadRequest with what is wrong."""
        try:
            moment = datetime.datetime.fromisoformat(value)
            if moment.tzinfo is None:
                moment = moment.replace(tzinfo=datetime.UTC)
            return moment.astimezone(datetime.UTC).isoformat()
        except (ValueError, OverflowError) as error:
            hint = '; in a URL, + must be written as %2B' if ' ' in value else ''
            raise errors.BadRequest(
                f'The {self.what} must be {self.schema["description"]}, not {value}{hint}.'
            ) from error


class ProjectUsage(documents.Noun):
    project_id = Field(str, nullable=True)
    device_profile_name = Field(
        str,
        'the name that the profile had when the requests were created; null for requests of '
        'os_acc without a profile',
        nullable=True,
    )
    resource_class = Field(
        str, 'null if an earlier release, which did not record it, ended the use', nullable=True
    )
    requests = Field(documents.COUNT, 'number of accelerator requests that were in use')
    hours = Field(documents.DURATION, 'accelerator-hours, summed over these requests')


class Usage(documents.Document):
    usage = Field([ProjectUsage], source='projects')
    start = Field(documents.MOMENT, 'of the time that is counted')
    end = Field(documents.MOMENT, 'of the time that is counted')
    complete_since = Field(
        documents.MOMENT, 'the history before may be deleted, and that time is not counted'
    )


class UsageQuery(documents.Body):
    start = Field(Instant('start'), 'a date or time; without it four weeks before the end')
    end = Field(Instant('end'), 'a date or time; without it, and at most, the present')
    project_id = Field(
        documents.FILTER, 'only this project; another than the own one for administrators'
    )
