# SPDX-License-Identifier: Apache-2.0
"""All errors that Cyborg raises, with HTTP status and message."""

import re
from collections.abc import Sequence
from http import HTTPStatus
from typing import Any

#: Characters of a message. Messages quote drivers and tools, and are stored in columns of 64 KiB,
#: sometimes several in one.
LONGEST = 4000
#: Characters that not every database stores: NUL, which PostgreSQL refuses, and halves of surrogate
#: pairs, which Python has in place of bytes that are not UTF-8, and which cannot be encoded.
UNSTORABLE = re.compile('[\0\ud800-\udfff]')


class CyborgError(Exception):
    """The base class. An error without a class of its own is a bug, hence 500."""

    code = HTTPStatus.INTERNAL_SERVER_ERROR
    template = 'Cyborg failed unexpectedly.'
    #: The RPC version that was new in the release that added the class. A caller that reads an
    #: older one does not have the class, and gets an error of a base class that it has.
    since = '2.0'

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        self.kwargs = facts  # oslo.messaging rebuilds the error from args and kwargs
        super().__init__(_storable(message or self.template.format(**facts)))

    @property
    def faultstring(self) -> str:
        """The message. str() of an error that came by RPC also has a traceback."""
        return str(self.args[0])


def _storable(message: str) -> str:
    """Returns a message that each database stores."""
    message = UNSTORABLE.sub('\ufffd', message)
    return message if len(message) <= LONGEST else f'{message[: LONGEST - 1]}…'


class BadRequest(CyborgError):
    code = HTTPStatus.BAD_REQUEST
    template = 'The request is malformed.'


class Forbidden(CyborgError):
    code = HTTPStatus.FORBIDDEN
    template = 'You are not allowed to do this.'


class NotFound(CyborgError):
    code = HTTPStatus.NOT_FOUND
    template = 'Not found.'


class NotAcceptable(CyborgError):
    code = HTTPStatus.NOT_ACCEPTABLE
    template = 'This needs another microversion.'


class Conflict(CyborgError):
    code = HTTPStatus.CONFLICT
    template = 'The request conflicts with the present state.'


class UnsupportedMediaType(CyborgError):
    code = HTTPStatus.UNSUPPORTED_MEDIA_TYPE
    template = 'This service reads JSON only; send application/json instead of {kind}.'


class Unprocessable(CyborgError):
    code = HTTPStatus.UNPROCESSABLE_ENTITY
    template = 'The request is well formed, but cannot be honoured.'


class Locked(CyborgError):
    code = HTTPStatus.LOCKED
    template = 'The requests of this server are not all resolved yet; ask again.'


class Unavailable(CyborgError):
    code = HTTPStatus.SERVICE_UNAVAILABLE
    template = 'A service that the request needs is not available; try again later.'


class IdempotencyKeyReused(Unprocessable):
    since = '2.1'
    template = (
        'This Idempotency-Key was sent before with another request; use a new key for each '
        'request, and the same key only to repeat a request.'
    )


class IdempotencyKeySpent(Conflict):
    since = '2.1'
    template = (
        'The objects that the request with this Idempotency-Key created were deleted since; use a '
        'new key to create others.'
    )


class IncompatibleRelease(Unavailable):
    since = '2.1'
    template = 'Two services of Cyborg are of releases that do not understand each other: {why}'


class UnknownTask(Unavailable):
    since = '2.1'
    template = (
        'The agent of {host} is of an earlier release, which does not know the task {kind}: '
        'upgrade it.'
    )


class TaskNotWanted(Conflict):
    since = '2.1'
    template = 'The request that needed the image has ended: nothing was loaded.'


class PolicyForbids(Forbidden):
    template = 'Policy does not allow {rule} to be performed.'


class ServiceTokenRequired(Forbidden):
    template = (
        '{action} requires a service token: Nova sends one when '
        '[service_user] send_service_user_token is true.'
    )


class InvalidProfile(Unprocessable):
    template = 'Device profile {name} is not valid: {why}'


class InvalidFlavor(Unprocessable):
    template = 'The flavor is not valid: {why}'


class DuplicateProfile(Conflict):
    template = 'A device profile with {field} {value} exists already.'


class ProfileNotFound(NotFound):
    template = 'Device profile not found: {names}.'


class ProfileInUse(Conflict):
    template = 'Device profile {names} is used by accelerator requests; delete those first.'


class ProfileDisabled(Conflict):
    template = (
        'Device profile {name} is disabled: no new accelerator requests can be made '
        'with it until an administrator enables it.'
    )


class OverLimit(Forbidden):
    since = '2.1'
    template = (
        'Project {project} has {used} accelerator requests and may have {limit}: {wanted} more are '
        'too many. Delete requests that are not needed, or ask an administrator to raise the '
        'limit accelerator_requests of the project in Keystone.'
    )


class LimitUnavailable(Unavailable):
    since = '2.1'
    template = (
        'No accelerator request can be created, since its limit cannot be read from Keystone: '
        '{why} Try again later. Operators: see [oslo_limit]; [conductor] limit_requests = false '
        'removes the limit.'
    )


class ArqNotFound(NotFound):
    template = 'Accelerator request not found: {uuids}.'


class BadArqState(Conflict):
    template = 'Accelerator request {uuid} is {state}: "{event}" is not possible in this state.'


class ArqBoundElsewhere(Conflict):
    template = (
        'Accelerator request {uuid} is bound already, to instance {instance} on '
        '{host}; unbind it first.'
    )


class ProviderNotFound(NotFound):
    template = (
        'No device of host {host} has the resource provider {rp}; list deployables to '
        'see which exist.'
    )


class GroupNotHonoured(Conflict):
    template = (
        '{what} asks for {keys}, which Cyborg does not implement; remove these keys, or '
        'use keys that are documented for device profiles.'
    )


class ProviderMismatch(Conflict):
    template = (
        'Resource provider {rp} on {host} does not fit accelerator request {uuid}. '
        'Wanted: {wanted}; the provider has: {given}.'
    )


class DeviceDisabled(Conflict):
    template = (
        'Accelerator request {uuid} cannot be bound: the device of resource provider {rp} on '
        '{host} is disabled. An administrator can enable it.'
    )


class NoFreeHandle(Conflict):
    template = (
        'Resource provider {rp} on {host} has no free attach handle for accelerator request {uuid}.'
    )


class HandleNotClean(Conflict):
    template = (
        'Host {host} is still cleaning or programming the handles of resource provider {rp} '
        'that accelerator request {uuid} could take; try again in a moment.'
    )


class CleanUpOwed(Conflict):
    template = (
        'The handles of resource provider {rp} that accelerator request {uuid} could take are '
        'not clean yet, and the agent of {host} is down: start the agent, or remove the host '
        'with cyborg-manage host forget.'
    )


class BindFailed(Conflict):
    template = 'Binding failed and was rolled back: {why}'


class AlreadyPlugged(Conflict):
    template = (
        'Instance {instance} holds accelerators on {host} from an earlier plug, {held}; '
        'unplug it first.'
    )


class ServerImageUnread(Conflict):
    since = '2.1'
    template = 'The properties of image {image} of the server must be read from Glance first.'


class ServerImageRefused(Conflict):
    since = '2.1'
    template = (
        'The properties of image {image} of the server name a bitstream that cannot be loaded: '
        '{why}'
    )


class OutcomeUnknown(Unavailable):
    template = 'It is not known whether this was done: {why}'


class DeviceNotFound(NotFound):
    template = 'Device not found: {uuid}.'


class DeployableNotFound(NotFound):
    template = 'Deployable not found: {uuid}.'


class HandleNotFound(NotFound):
    since = '2.1'
    template = 'Device {device} has no handle {uuid}; list its hand-backs to see which it has.'


class NotQuarantined(Conflict):
    since = '2.1'
    template = 'Handle {uuid} is not quarantined: {why}'


class CannotProgram(Conflict):
    template = 'Deployable {uuid} cannot be programmed now: {why}'


class ProgramFailed(Conflict):
    template = 'Programming deployable {uuid} failed: {why}'


class ImageRefused(CyborgError):
    template = 'Image {image} is not loaded: {why}'


class AttributeNotFound(NotFound):
    template = 'Attribute not found: {uuid}.'


class AgentNotFound(NotFound):
    template = 'Agent not found: {ref}.'


class MarkerNotFound(BadRequest):
    template = 'The marker {marker} is not in this collection.'


class StaleReport(Conflict):
    template = (
        'Report {sequence} of host {host} does not follow the last one, {known}; '
        'the agent will send a new one.'
    )


class DriverNotFound(CyborgError):
    template = 'There is no driver {name}; known drivers: {known}.'


class DriverFailed(CyborgError):
    template = 'Driver {name} failed: {why}'


class NotLoaded(DriverFailed):
    """Raised by ``program`` of a driver that has refused an image before it changed the device."""

    since = '2.1'


class CleaningFailed(CyborgError):
    """Raised in the agent only. ``steps`` are the steps so far, the failed one last."""

    template = 'Step {step} failed: {why}'
    steps: Sequence[Any] = ()


class ProviderTreeMissing(Unavailable):
    template = (
        'Placement has no resource provider {host}, which nova-compute creates; check '
        '[agent] resource_provider_name.'
    )


class PlacementUnavailable(Unavailable):
    template = 'A call to Placement failed: {why}'


class ConfigError(CyborgError):
    """A wrong configuration or command line. Commands show the message without a traceback."""

    template = '{why}'
