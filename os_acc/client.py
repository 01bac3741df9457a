# SPDX-License-Identifier: Apache-2.0
"""The RPC client of the agent of one host.

Version history of the ``os_acc`` namespace:

* 1.0: is_ready, plug, unplug
* 1.1: ``wait`` of plug: without it the agent returns at once, None if the caller must call again
* 1.2: obstacle: why the agent is not ready, None if it is; ``again`` of plug: whether the call
  repeats an earlier one
"""

import builtins
import threading
import time
from collections.abc import Callable
from typing import Any

import oslo_messaging as messaging
from oslo_messaging.transport import RPCTransport

from os_acc import errors, polling

#: appended to the exchange, because the queues of all clouds of a broker need different names
TOPIC = '{exchange}-agent'
NAMESPACE = 'os_acc'
VERSION = '1.0'
#: The version that has ``obstacle``.
OBSTACLE_VERSION = '1.2'
#: Further arguments of plug by version, the newest first. An agent that knows none of these
#: versions returns when it is done.
PLUG_VERSIONS: dict[str, Callable[[bool], dict[str, bool]]] = {
    '1.2': lambda again: {'wait': False, 'again': again},
    '1.1': lambda again: {'wait': False},
}

#: Names of errors: the agent does not know a version; the agent does not know whether
#: something was done, because its conductor or the database did not answer.
UNSUPPORTED = messaging.UnsupportedVersion.__name__
UNKNOWN, UNAVAILABLE = 'OutcomeUnknown', 'Unavailable'

#: Seconds for one is_ready. Short: a message to an agent that has not started yet is
#: lost, so only a later one can reach the agent.
PROBE_TIMEOUT = 2.0
#: Seconds between two calls of an agent that is not ready.
PROBE_INTERVAL = 0.2
#: Seconds between two calls of plug for one instance: the first and the longest interval.
PLUG_INTERVALS = 0.02, 1.0
#: Seconds between two attempts to connect to the broker: the first and the longest interval.
CONNECT_INTERVALS = 0.1, 1.0
#: Seconds that the first call, which only opens the reply queue, waits for its answer.
GREETING_TIMEOUT = 0.5
#: Seconds that one call of plug waits before it is repeated: an agent that is restarted
#: meanwhile never answers. An agent waits for its conductor for 60 seconds.
ASK_TIMEOUT = 65.0
#: Seconds for an answer to arrive when connecting has used up the caller's time.
LEAST_TIMEOUT = 0.1


class Agent:
    """The agent of one host. Threads may share it."""

    def __init__(self, transport: RPCTransport, host: str, exchange: str) -> None:
        self.host = host
        target = messaging.Target(
            exchange=exchange,
            topic=TOPIC.format(exchange=exchange),
            server=host,
            namespace=NAMESPACE,
            version=VERSION,
        )
        # One retry, for a connection that broke when the broker was restarted. Not more,
        # because a broker that is down must not block the caller.
        self._rpc = messaging.get_rpc_client(transport, target, retry=1)
        self._lock = threading.Lock()
        self._connecting: threading.Thread | None = None
        self._is_connected = False

    def wait_until_ready(self, timeout: float) -> None:
        """Return when all devices are discovered and their traits are published. Raises
        CyborgAgentUnavailable after ``timeout`` seconds."""
        said = reason = ''
        for left in polling.attempts(timeout, (PROBE_INTERVAL, PROBE_INTERVAL)):
            try:
                said = self._why_not_ready(min(PROBE_TIMEOUT, left))
                if not said:
                    return
                reason = said
            except errors.CyborgAgentUnavailable as unavailable:
                # the last call has hardly time for an answer, so keep the reason of an earlier one
                reason = said or unavailable.reason
        raise errors.CyborgAgentUnavailable(self.host, f'{reason} Gave up after {timeout:g} s.')

    def plug(self, timeout: float, **arguments: object) -> Any:
        """Call plug until the agent has prepared everything or refuses.

        The library waits and not the agent, whose threads must receive the messages that it
        waits for. A repeated call is harmless and returns the same result, so a lost answer
        does no harm.
        """
        unknown = ''
        for number, left in enumerate(polling.attempts(timeout, PLUG_INTERVALS)):
            try:
                plugged = self._ask(max(left, LEAST_TIMEOUT), number > 0, arguments)
            except errors.CyborgAgentUnavailable as error:
                if not error.was_asked:
                    error.was_asked = number > 0
                    raise
                # the last call has hardly time for an answer, so keep the reason of an earlier one
                unknown = unknown or error.reason
                continue
            if plugged is not None:
                return plugged
            unknown = ''
        reason = f'It did not prepare the accelerators within {timeout:g} s.'
        raise errors.CyborgAgentUnavailable(self.host, unknown or reason, was_asked=True)

    def _ask(self, left: float, again: bool, arguments: dict[str, object]) -> Any:
        """Call plug once, in the newest version that the agent knows."""
        timeout = min(left, ASK_TIMEOUT)
        for version, more in PLUG_VERSIONS.items():
            try:
                return self.change(
                    'plug', timeout, errors.PlugFailed, version, **arguments, **more(again)
                )
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
        """Call a method that changes something. Raises ``failure`` if the agent did not do it.

        :raises CyborgAgentUnavailable: it is unknown whether the agent did it.
        """
        try:
            return self.call(method, timeout, failure, version, **arguments)
        except failure as error:
            if _is_foreseen(error.kind):
                raise _named(error) from None
            raise errors.CyborgAgentUnavailable(self.host, error.reason, was_asked=True) from None

    def call(
        self,
        method: str,
        timeout: float,
        failure: type[errors.AgentError] = errors.AgentError,
        version: str = VERSION,
        /,
        **arguments: object,
    ) -> Any:
        """Call a method. Raises ``failure`` if the agent answers with an error."""
        deadline = time.monotonic() + timeout
        self._connect(timeout)
        left = max(deadline - time.monotonic(), LEAST_TIMEOUT)
        try:
            prepared = self._rpc.prepare(timeout=left, version=version)
            return prepared.call({}, method, **arguments)
        except messaging.MessagingTimeout:
            reason = f'It did not answer {method} in time.'
            raise errors.CyborgAgentUnavailable(self.host, reason, was_asked=True) from None
        except Exception as error:
            if not _is_answer(error):
                reason = f'{method} could not be sent: {_first_line(str(error))}'
                raise errors.CyborgAgentUnavailable(self.host, reason) from error
            # Without the remote traceback, which is in the log of the agent.
            raise failure(_reason(error), _kind(error)) from None

    def _why_not_ready(self, timeout: float) -> str:
        """Returns why the agent is not ready; an empty string if it is."""
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
        """Open the reply queue before a call that changes something is sent.

        oslo.messaging creates that queue with the first call and, whatever ``retry`` is,
        waits for the broker without limit. So the first call is a harmless one in a thread
        that may be abandoned. A plug that waits there would be sent when the broker is back,
        long after Nova has given up.
        """
        for left in polling.attempts(timeout, CONNECT_INTERVALS):
            if not self._is_connected:
                self._greeting().join(max(left, LEAST_TIMEOUT))
            if self._is_connected:
                return
        raise errors.CyborgAgentUnavailable(self.host, 'The message broker does not answer.')

    def _greeting(self) -> threading.Thread:
        """Returns the thread that opens the reply queue. Starts one if none runs."""
        with self._lock:
            if self._connecting is None or not self._connecting.is_alive():
                self._connecting = threading.Thread(
                    target=self._greet, name='os_acc-connect', daemon=True
                )
                self._connecting.start()
            return self._connecting

    def _greet(self) -> None:
        """Send a message that ends with an error if there is no broker, then open the queue.

        A cast obeys ``retry``, so the thread ends although the broker is down.
        """
        greeting = self._rpc.prepare(timeout=GREETING_TIMEOUT)
        try:
            greeting.cast({}, 'is_ready')
            greeting.call({}, 'is_ready')
        except messaging.MessagingTimeout:
            pass  # the broker is available, though the agent is not
        except Exception as error:
            if not _is_answer(error):
                return
        self._is_connected = True


def _is_foreseen(kind: str) -> bool:
    """Returns whether an error of this name is one of Cyborg, after which nothing was done.

    Exceptions of Python are bugs, and those of oslo.messaging mean that the conductor did
    not answer the agent. Both may be raised after the work was done.
    """
    if kind in (UNKNOWN, UNAVAILABLE):
        return False
    return kind == UNSUPPORTED or not any(
        isinstance(getattr(module, kind, None), type) for module in (builtins, messaging)
    )


def _named(error: errors.AgentError) -> errors.AgentError:
    """Returns an error of a more specific class, if there is one."""
    if error.kind == errors.AlreadyPlugged.__name__:
        return errors.AlreadyPlugged(error.reason, error.kind)
    return error


def _is_answer(error: Exception) -> bool:
    """Returns whether the agent raised this error, and not the transport.

    oslo.messaging rebuilds exceptions of Python, and those of modules that the transport
    allows, in a module of their own; all others become RemoteError. The errors of its
    drivers are not builtins.
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
    """Returns a text without the traceback that oslo.messaging appends."""
    return text.strip().partition('\n')[0] or 'no reason given'
