# SPDX-License-Identifier: Apache-2.0
"""The RPC conversation with the agent of one host.

Version history of the ``os_acc`` namespace:

* 1.0: is_ready, plug, unplug
* 1.1: ``wait`` of plug: without it the agent answers at once, None for "ask again"
* 1.2: obstacle: why the agent is not ready, None if it is; ``again`` of plug: whether this
  caller has asked for the same before
"""

import builtins
import threading
import time
from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging
from oslo_messaging.transport import RPCTransport

from os_acc import errors

#: after the exchange: queues are shared by a whole broker, so their names tell clouds apart
TOPIC = '{exchange}-agent'
NAMESPACE = 'os_acc'
VERSION = '1.0'
#: Of the question why an agent is not ready.
OBSTACLE_VERSION = '1.2'
#: What plug is asked with, by version, besides what the caller gives: the newest first. An
#: agent that knows none of them answers when it is done.
PLUG_VERSIONS: dict[str, Callable[[bool], dict[str, bool]]] = {
    '1.2': lambda again: {'wait': False, 'again': again},
    '1.1': lambda again: {'wait': False},
}

#: Names of errors: no endpoint of the agent knows a version; the agent cannot tell whether
#: something was done, since its conductor or its database did not answer.
UNSUPPORTED = messaging.UnsupportedVersion.__name__
UNKNOWN, UNAVAILABLE = 'OutcomeUnknown', 'Unavailable'

#: Seconds for one is_ready. Short: a message to an agent that is not there yet is
#: lost, so only the next one can reach the agent once it has come.
PROBE_TIMEOUT = 2.0
#: Seconds between two questions to an agent that is not ready.
PROBE_INTERVAL = 0.2
#: Seconds between two questions whether a plug is done: the first, and the longest.
PLUG_INTERVALS = 0.02, 1.0
#: Seconds that the first call waits for its answer, which nobody needs.
GREETING_TIMEOUT = 0.5
#: Seconds that one question for a plug waits, then it is asked again: an agent that is
#: restarted in between never answers. An agent waits for its conductor for 60 seconds.
ASK_TIMEOUT = 65.0
#: Seconds for an answer to arrive when connecting has used up the caller's time.
LEAST_TIMEOUT = 0.1


class Agent:
    """The agent of one host. Threads may share it."""

    def __init__(self, transport: RPCTransport, host: str, exchange: str) -> None:
        self.host = host
        target = messaging.Target(
            exchange=exchange, topic=TOPIC.format(exchange=exchange), server=host,
            namespace=NAMESPACE, version=VERSION
        )
        # One retry, for a connection that went stale as the broker restarted. No more:
        # a dead broker must not hold the caller, who may give up or come again.
        self._rpc = messaging.get_rpc_client(transport, target, retry=1)
        self._lock = threading.Lock()
        self._connecting: threading.Thread | None = None
        self._is_connected = False

    def wait_until_ready(self, timeout: float) -> None:
        """Return when every device is enumerated and its traits are published."""
        deadline, said = time.monotonic() + timeout, ''
        while True:
            try:
                said = self._why_not_ready(min(PROBE_TIMEOUT, deadline - time.monotonic()))
                if not said:
                    return
                reason = said
            except errors.CyborgAgentUnavailable as unavailable:
                # the last question has hardly time for an answer: an earlier one says more
                reason = said or unavailable.reason
            if (left := deadline - time.monotonic()) <= 0:
                raise errors.CyborgAgentUnavailable(
                    self.host, f'{reason} Gave up after {timeout:g} s.'
                )
            time.sleep(min(PROBE_INTERVAL, left))

    def plug(self, timeout: float, **arguments: object) -> Any:
        """Ask until the agent has prepared everything, or says that it cannot.

        The waiting is done here: in the agent it would use up the threads that receive
        the very messages it waits for. Asking again does no harm, so that an answer that
        was lost, on the way or in the agent, comes with the next one.
        """
        deadline, pause, again = time.monotonic() + timeout, PLUG_INTERVALS[0], False
        reason = f'It did not prepare the accelerators within {timeout:g} s.'
        unknown = ''
        while True:
            left = max(deadline - time.monotonic(), LEAST_TIMEOUT)
            try:
                plugged = self._ask(left, again, arguments)
                unknown = ''
            except _Unknown as error:
                # the last question has hardly time for an answer: an earlier one says more
                plugged, unknown = None, unknown or error.reason
            if plugged is not None:
                return plugged
            if time.monotonic() > deadline:
                raise errors.CyborgAgentUnavailable(self.host, unknown or reason)
            time.sleep(pause)
            pause, again = min(pause * 1.5, PLUG_INTERVALS[1]), True

    def _ask(self, left: float, again: bool, arguments: dict[str, object]) -> Any:
        """One question for a plug, in the newest words that the agent knows."""
        timeout = min(left, ASK_TIMEOUT)
        for version, more in PLUG_VERSIONS.items():
            try:
                return self.change(
                    'plug', timeout, errors.PlugFailed, version, **arguments, **more(again))
            except errors.PlugFailed as failure:
                if failure.kind != UNSUPPORTED:
                    raise
        return self.change('plug', left, errors.PlugFailed, **arguments)

    def change(
        self,
        method: str,
        timeout: float,
        failure: type[errors.AgentError],
        version: str = VERSION,
        /,
        **arguments: object,
    ) -> Any:
        """Have the agent do something; ``failure`` means that it did not.

        :raises CyborgAgentUnavailable: it may have done it or not.
        """
        try:
            return self.call(method, timeout, failure, version, **arguments)
        except failure as error:
            if _is_foreseen(error.kind):
                raise _named(error) from None
            raise _Unknown(self.host, error.reason) from None

    def call(
        self,
        method: str,
        timeout: float,
        failure: type[errors.AgentError] = errors.AgentError,
        version: str = VERSION,
        /,
        **arguments: object,
    ) -> Any:
        """Ask the agent; an error that it answers becomes ``failure``."""
        deadline = time.monotonic() + timeout
        self._connect(timeout)
        left = max(deadline - time.monotonic(), LEAST_TIMEOUT)
        try:
            prepared = self._rpc.prepare(timeout=left, version=version)
            return prepared.call({}, method, **arguments)
        except messaging.MessagingTimeout:
            raise _Unknown(self.host, f'It did not answer {method} in time.') from None
        except Exception as error:
            if not _is_answer(error):
                reason = f'{method} could not be sent: {_first_line(str(error))}'
                raise errors.CyborgAgentUnavailable(self.host, reason) from error
            # The remote traceback belongs to the agent's log, which has it.
            raise failure(_reason(error), _kind(error)) from None

    def _why_not_ready(self, timeout: float) -> str:
        """What the agent says; nothing if it is ready."""
        try:
            return str(self.call('obstacle', timeout, errors.AgentError, OBSTACLE_VERSION) or '')
        except errors.AgentError as failure:
            if failure.kind != UNSUPPORTED:
                return f'{failure.reason} ({failure.kind})'
        try:
            return '' if self.call('is_ready', timeout) else 'Not all its devices are published.'
        except errors.AgentError as failure:
            return f'{failure.reason} ({failure.kind})'

    def _connect(self, timeout: float) -> None:
        """Have a reply queue before anything of consequence is sent.

        oslo.messaging creates that queue with the first call and, whatever ``retry``
        says, waits for the broker for ever as it does so. Hence the first call is a
        harmless one on a thread that may be left behind: a plug stuck in there would
        be sent when the broker comes back, long after Nova has given up.
        """
        with self._lock:
            if self._is_connected:
                return
            if self._connecting is None or not self._connecting.is_alive():
                self._connecting = threading.Thread(
                    target=self._greet, name='os_acc-connect', daemon=True
                )
                self._connecting.start()
            connecting = self._connecting
        connecting.join(max(timeout, LEAST_TIMEOUT))
        if not self._is_connected:
            raise errors.CyborgAgentUnavailable(self.host, 'The message broker does not answer.')

    def _greet(self) -> None:
        try:
            self._rpc.prepare(timeout=GREETING_TIMEOUT).call({}, 'is_ready')
        except messaging.MessagingTimeout:
            pass  # the agent is away, the broker is not
        except Exception as error:
            if not _is_answer(error):
                return
        self._is_connected = True


class _Unknown(errors.CyborgAgentUnavailable):
    """The agent was asked; what it did is not known."""


def _is_foreseen(kind: str) -> bool:
    """Whether an error of this name is one of Cyborg's, which say that nothing was done.

    Python's own are bugs, and oslo.messaging's say that the agent's conductor did not
    answer the agent: either may come after the work was done.
    """
    if kind in (UNKNOWN, UNAVAILABLE):
        return False
    return kind == UNSUPPORTED or not any(
        isinstance(getattr(module, kind, None), type) for module in (builtins, messaging)
    )


def _named(error: errors.AgentError) -> errors.AgentError:
    """As an error of its own, if there is one for it."""
    if error.kind == errors.AlreadyPlugged.__name__:
        return errors.AlreadyPlugged(error.reason, error.kind)
    return error


def _is_answer(error: Exception) -> bool:
    """Whether the agent raised this, rather than the way to it.

    oslo.messaging rebuilds Python's own exceptions and those of modules that the
    transport allows, these in a module of their own; all others become RemoteError.
    Of its drivers' errors none is a builtin.
    """
    module = type(error).__module__
    return (
        isinstance(error, messaging.RemoteError)
        or module == 'builtins'
        or module.endswith('_Remote')
    )


def _kind(error: Exception) -> str:
    if isinstance(error, messaging.RemoteError):
        return str(error.exc_type)
    return type(error).__name__.removesuffix('_Remote')


def _reason(error: Exception) -> str:
    if isinstance(error, messaging.RemoteError):
        return _first_line(str(error.value))
    return _first_line(str(error))


def _first_line(text: str) -> str:
    """Without the traceback that oslo.messaging appends."""
    return text.strip().partition('\n')[0] or 'no reason given'
