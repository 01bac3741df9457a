# SPDX-License-Identifier: Apache-2.0
"""Draws the states of accelerator requests from the table the code uses."""

from docutils import nodes
from docutils.parsers.rst import Directive
from docutils.statemachine import StringList

from cyborg.objects import arq_states


class ArqStates(Directive):
    """``.. arq-states::`` becomes a table: what each event does in each state."""

    def run(self):
        events = [event for event in arq_states.Event if arq_states.TRANSITIONS[event]]
        lines = ['.. list-table::', '   :header-rows: 1', '   :stub-columns: 1', '', '   * - State']
        lines += [f'     - {event}' for event in events]
        for state in arq_states.State:
            lines.append(f'   * - {state}')
            lines += [f'     - {arq_states.TRANSITIONS[event].get(state, "")}' for event in events]
        node = nodes.section()
        self.state.nested_parse(StringList(lines, source='arq_states'), 0, node)
        return node.children


def setup(app):
    app.add_directive('arq-states', ArqStates)
    return {'parallel_read_safe': True}
