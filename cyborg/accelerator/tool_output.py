# SPDX-License-Identifier: Apache-2.0
"""What tools and scripts print."""

import os
import selectors
import subprocess
import time

#: Bytes at the end of each of a tool's two outputs that are kept, and bytes of one read.
LONGEST_OUTPUT, PIECE = 1024 * 1024, 64 * 1024
#: Number of lines at the end of a tool's output that an error quotes, and characters of each.
LAST_LINES, LONGEST_LINE = 5, 200


class Output:
    """What a process prints. Only the end of it is kept: a tool may print more than fits into the
    memory."""

    def __init__(self, process: 'subprocess.Popen[bytes]') -> None:
        self._process = process
        self._said = {pipe: bytearray() for pipe in (process.stdout, process.stderr) if pipe}

    def read(self, timeout: float | None) -> None:
        """Return when the process has ended and nothing can print any more. Raises TimeoutExpired
        after ``timeout`` seconds; it may be called again then."""
        end = None if timeout is None else time.monotonic() + timeout
        with selectors.DefaultSelector() as selector:
            self._register(selector)
            while selector.get_map():
                for key, _ in selector.select(self._rest(end, timeout)):
                    self._read_piece(selector, key)
        self._process.wait(self._rest(end, timeout))

    def read_until_exit(self, timeout: float) -> bool:
        """Return whether the process ends within ``timeout`` seconds. Those that it has started may
        still print. The caller has to reap it."""
        end = time.monotonic() + timeout
        process = os.pidfd_open(self._process.pid)
        try:
            with selectors.DefaultSelector() as selector:
                selector.register(process, selectors.EVENT_READ)
                self._register(selector)
                while (rest := end - time.monotonic()) > 0:
                    ready = [key for key, _ in selector.select(rest)]
                    for key in ready:
                        if key.fd != process:
                            self._read_piece(selector, key)
                    if process in [key.fd for key in ready]:
                        return True
                return False
        finally:
            os.close(process)

    def read_rest(self) -> None:
        """Read what has been printed so far, and close the pipes."""
        with selectors.DefaultSelector() as selector:
            self._register(selector)
            # a process that left the group may print without end
            for _ in range(LONGEST_OUTPUT // PIECE):
                for key, _ in selector.select(0) if selector.get_map() else ():
                    self._read_piece(selector, key)
        self.close()

    def close(self) -> None:
        for pipe in self._said:
            pipe.close()

    @property
    def text(self) -> str:
        """The standard output."""
        return next(iter(self._texts))

    @property
    def quoted(self) -> str:
        """The last lines of the error output or, if that is empty, of the standard output, for the
        end of a sentence."""
        output, complaint = self._texts
        said = last_lines(complaint or output)
        return f': {said}' if said else ' without output'

    @property
    def _texts(self) -> list[str]:
        return [bytes(said).decode(errors='replace') for said in self._said.values()]

    def _rest(self, end: float | None, timeout: float | None) -> float | None:
        if end is None or timeout is None:
            return None
        if (rest := end - time.monotonic()) < 0:
            raise subprocess.TimeoutExpired(self._process.args, timeout)
        return rest

    def _register(self, selector: selectors.BaseSelector) -> None:
        for pipe in self._said:
            if not pipe.closed:
                selector.register(pipe, selectors.EVENT_READ, pipe)

    def _read_piece(self, selector: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        pipe = key.data
        if piece := os.read(key.fd, PIECE):
            said = self._said[pipe]
            said += piece
            if len(said) > 2 * LONGEST_OUTPUT:  # not each time: this copies what is kept
                del said[:-LONGEST_OUTPUT]
        else:
            selector.unregister(pipe)
            pipe.close()


def last_lines(said: str) -> str:
    """Returns the last lines of an output as one line that every database stores."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return ' / '.join(line[:LONGEST_LINE].replace('\0', '\ufffd') for line in lines[-LAST_LINES:])
