# SPDX-License-Identifier: Apache-2.0
"""Every error Cyborg raises on purpose, each with its HTTP status and its sentence."""

from collections.abc import Sequence
from http import HTTPStatus
from typing import Any


class CyborgError(Exception):
    """The root: an error without a better name is a bug, hence 500."""

    code = HTTPStatus.INTERNAL_SERVER_ERROR
    template = 'Cyborg failed in a way it did not foresee.'

    def __init__(self, message: str | None = None, **facts: Any) -> None:
        self.kwargs = facts  # oslo.messaging rebuilds us from args and these
        super().__init__(message or self.template.format(**facts))

    @property
    def faultstring(self) -> str:
        """The sentence alone: str() of an error that came by RPC also holds a traceback."""
        return str(self.args[0])


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
    template = 'Not settled yet; ask again.'


class Unavailable(CyborgError):
    code = HTTPStatus.SERVICE_UNAVAILABLE
    template = 'A service that this needs is away; try again later.'


class PolicyForbids(Forbidden):
    template = 'Policy does not allow {rule} to be performed.'


class ServiceTokenRequired(Forbidden):
    template = ('{action} requires a service token: Nova sends one when '
                '[service_user] send_service_user_token is true.')


class InvalidProfile(Unprocessable):
    template = 'Device profile {name} is not valid: {why}'


class InvalidFlavor(Unprocessable):
    template = 'The flavor is not valid: {why}'


class DuplicateProfile(Conflict):
    template = 'A device profile with {field} {value} exists already.'


class ProfileNotFound(NotFound):
    template = 'Device profile not found: {names}.'


class ProfileInUse(Conflict):
    template = ('Device profile {names} is used by accelerator requests; '
                'delete those first.')


class ProfileDisabled(Conflict):
    template = ('Device profile {name} is disabled: no new accelerator requests can be made '
                'with it until an administrator enables it.')


class ArqNotFound(NotFound):
    template = 'Accelerator request not found: {uuids}.'


class BadArqState(Conflict):
    template = 'Accelerator request {uuid} is {state}: it cannot {event} now.'


class ArqBoundElsewhere(Conflict):
    template = ('Accelerator request {uuid} is bound already, to instance {instance} on '
                '{host}; unbind it first.')


class ProviderNotFound(NotFound):
    template = ('No device of host {host} has the resource provider {rp}; list deployables to '
                'see which exist.')


class GroupNotHonoured(Conflict):
    template = ('{what} asks for {keys}, on which no part of Cyborg acts; remove these keys, or '
                'ask for the same with keys that are documented for device profiles.')


class ProviderMismatch(Conflict):
    template = ('Resource provider {rp} on {host} does not fit accelerator request {uuid}. '
                'It wanted: {wanted}; there: {given}.')


class DeviceDisabled(Conflict):
    template = ('Accelerator request {uuid} cannot be bound to resource provider {rp} on {host}, '
                'part of a device that is disabled, until an administrator enables it.')


class NoFreeHandle(Conflict):
    template = ('Resource provider {rp} on {host} has no free attach handle for accelerator '
                'request {uuid}.')


class HandleNotClean(Conflict):
    template = ('Host {host} still cleans up or programs what could be had of resource provider '
                '{rp} for accelerator request {uuid}; try again in a moment.')


class CleanUpOwed(Conflict):
    template = ('What could be had of resource provider {rp} for accelerator request {uuid} must '
                'first be cleaned up by the agent of {host}, which is silent: start it, or '
                'declare the host gone with cyborg-manage host forget.')


class BindFailed(Conflict):
    template = 'Binding failed and was rolled back: {why}'


class AlreadyPlugged(Conflict):
    template = ('Instance {instance} holds accelerators on {host} that another plug asked for, '
                '{held}; unplug it first.')


class OutcomeUnknown(Unavailable):
    template = 'Whether this was done is not known: {why}'


class DeviceNotFound(NotFound):
    template = 'Device not found: {uuid}.'


class DeployableNotFound(NotFound):
    template = 'Deployable not found: {uuid}.'


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
    template = 'The marker {marker} names nothing in this collection.'


class StaleReport(Conflict):
    template = ('Report {sequence} of host {host} does not follow the last one, {known}; '
                'the agent will send a new one.')


class DeviceClaimed(Conflict):
    template = 'Resource provider {name} belongs to somebody else: {owner}.'


class DriverNotFound(CyborgError):
    template = 'There is no driver {name}; known drivers: {known}.'


class DriverFailed(CyborgError):
    template = 'Driver {name} failed: {why}'


class CleaningFailed(CyborgError):
    """Raised on the host alone; ``steps`` are those that were tried, the failed one last."""

    template = 'Step {step} failed: {why}'
    steps: Sequence[Any] = ()


class ProviderTreeMissing(Unavailable):
    template = ('Placement knows no resource provider {host}: nova-compute creates it; check '
                '[agent] resource_provider_name.')


class PlacementUnavailable(Unavailable):
    template = 'Placement did not do what was asked: {why}'


class ConfigError(CyborgError):
    """A start-up mistake: shown as one sentence, never as a traceback."""

    template = '{why}'
