# SPDX-License-Identifier: Apache-2.0
"""Every error that os_acc raises."""


class OsAccError(Exception):
    """Base of all errors of this library."""


class NotInitialized(OsAccError):
    """plug() or unplug() was called before initialize()."""

    def __init__(self) -> None:
        super().__init__('Call os_acc.initialize() first.')


class InvalidArgument(OsAccError, ValueError):
    """An argument is not valid; nothing was sent."""


class CyborgAgentUnavailable(OsAccError):
    """The agent of this host did not answer, or is not ready yet.

    After plug() or unplug() it is unknown whether the agent acted. ``was_asked``: the broker
    has accepted the message.
    """

    def __init__(self, host: str, reason: str, was_asked: bool = False) -> None:
        self.host = host
        self.reason = reason
        self.was_asked = was_asked
        super().__init__(f'The Cyborg agent of host {host} is unavailable: {reason}')


class AgentError(OsAccError):
    """The agent answered with an error.

    ``reason`` is its first line, ``kind`` the name of its class.
    """

    action = 'answer'

    def __init__(self, reason: str, kind: str) -> None:
        self.reason = reason
        self.kind = kind
        super().__init__(f'The Cyborg agent failed to {self.action}: {reason} ({kind})')


class PlugFailed(AgentError):
    """The agent refused or failed; the instance holds no accelerator of this plug."""

    action = 'plug'


class AlreadyPlugged(PlugFailed):
    """The instance holds accelerators from an earlier plug, and keeps them."""


class UnplugFailed(AgentError):
    """The accelerators could not be released; the message has the reason."""

    action = 'unplug'
