# SPDX-License-Identifier: Apache-2.0
"""FPGA cards whose flash was written: they load it when the host is switched off and on."""

import json
from pathlib import Path
from typing import Any

from oslo_log import log

from cyborg.accelerator import pci
from cyborg.accelerator.sysfs import Sysfs, raise_own

LOG = log.getLogger(__name__)


class FlashRecord:
    """The cards whose flash was written, with their appearance at that time.

    It is stored below ``state_path``, so that it outlives the agent.
    """

    def __init__(self, state_path: Path, sysfs: Sysfs) -> None:
        self._state_path, self._sysfs = state_path, sysfs
        #: address of a card -> its appearance, of what this process has written
        self._noted: dict[str, dict[str, str | None]] = {}

    def note(self, card: pci.Function, shell: str | None) -> None:
        """Record that the flash of a card, which has this shell, was written."""
        appearance = self._appearance(card, shell)
        self._noted[card.address] = appearance
        stored = self._file(card)
        new = stored.with_name(f'{stored.name}.new')
        try:
            new.write_text(json.dumps(appearance))
            new.replace(stored)  # whole or not at all, also if the agent is killed
        except OSError as error:
            LOG.warning(
                'Could not store that the flash of %s was written; a restart of the agent loses '
                'this: %s',
                card.address,
                error,
            )

    def pending(self, card: pci.Function, shell: str | None) -> str | None:
        """Returns what the operator must do after the flash was written; None if the host was
        started since then, or if the card shows another shell."""
        noted = self._noted.get(card.address) or self._stored(card)
        if noted is None or noted != self._appearance(card, shell):
            return None
        return (
            f'The flash of {card.address} was written: switch the host off and on, so that '
            'the card loads it.'
        )

    def _stored(self, card: pci.Function) -> Any:
        try:
            return json.loads(self._file(card).read_text())
        except (OSError, ValueError) as error:
            raise_own(error)
            return None

    def _appearance(self, card: pci.Function, shell: str | None) -> dict[str, str | None]:
        return {
            'boot': (self._sysfs.proc / 'sys/kernel/random').read('boot_id'),
            'device': card.device,
            'shell': shell,
        }

    def _file(self, card: pci.Function) -> Path:
        return self._state_path / f'flashed-{card.address}'
