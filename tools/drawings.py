# SPDX-License-Identifier: Apache-2.0
"""Draws the figures of the documentation as SVG: ``python -m tools.drawings``.

The files in ``doc/source/images`` are committed, so that building the documentation needs no other
program. Tests compare them with this module, and the module with the code: the states come from
the table in ``objects/arq_states.py``, the providers are those that agents publish.
"""

import math
import pathlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from html import escape

from cyborg.objects.arq_states import TRANSITIONS, UNKNOWN, State

IMAGES = pathlib.Path(__file__).parents[1] / 'doc/source/images'
LINE = 17  #: pixels between two lines of text
INK, GREY, PAPER, MESSAGE = '#1a1a2e', '#6b7280', '#ffffff', '#b4232a'
FILLS = {'ours': '#dbeafe', 'theirs': '#f3f4f6', 'host': '#fafafa', 'data': '#fef3c7'}


@dataclass(frozen=True)
class Box:
    """A rectangle with lines of text, the first of them in bold."""

    x: float
    y: float
    width: float
    height: float
    lines: tuple[str, ...]
    kind: str = 'ours'
    is_dashed: bool = False
    is_frame: bool = False  #: contains others: its text is at the top

    @property
    def centre(self) -> tuple[float, float]:
        return self.x + self.width / 2, self.y + self.height / 2

    def border(
        self, towards: tuple[float, float], shift: tuple[float, float]
    ) -> tuple[float, float]:
        """Where a line from the (shifted) centre to a point leaves the box."""
        x, y = self.centre[0] + shift[0], self.centre[1] + shift[1]
        dx, dy = towards[0] - x, towards[1] - y
        ratios = []
        if dx:
            ratios.append(((self.width / 2) * (1 if dx > 0 else -1) - shift[0]) / dx)
        if dy:
            ratios.append(((self.height / 2) * (1 if dy > 0 else -1) - shift[1]) / dy)
        ratio = min(each for each in ratios if each > 0)
        return x + dx * ratio, y + dy * ratio

    def svg(self) -> Iterator[str]:
        dashes = ' stroke-dasharray="5 4"' if self.is_dashed or self.is_frame else ''
        yield (
            f'<rect x="{self.x:g}" y="{self.y:g}" width="{self.width:g}" height="{self.height:g}" '
            f'rx="6" fill="{FILLS[self.kind]}" stroke="{GREY}"{dashes}/>'
        )
        x, y = self.centre
        first = self.y + 20 if self.is_frame else y - (len(self.lines) - 1) * LINE / 2 + 5
        for number, line in enumerate(self.lines):
            weight = ' font-weight="bold"' if number == 0 else ''
            yield (
                f'<text x="{x:g}" y="{first + number * LINE:g}" text-anchor="middle"{weight}>'
                f'{escape(line)}</text>'
            )


@dataclass(frozen=True)
class Arrow:
    """A line from one box to another; ``title`` is what a reader sees who points at it."""

    start: Box
    end: Box
    label: str = ''
    is_message: bool = False
    shift: float = 0  #: pixels to the right, seen in the direction of the arrow
    title: str = ''
    along: float = 0.5  #: where the label is, as a share of the length
    offset: tuple[float, float] = (0, -7)
    has_head: bool = True

    def svg(self) -> Iterator[str]:
        (x1, y1), (x2, y2) = self.start.centre, self.end.centre
        length = math.hypot(x2 - x1, y2 - y1)
        shift = (-(y2 - y1) / length * self.shift, (x2 - x1) / length * self.shift)
        x1, y1 = self.start.border((x2 + shift[0], y2 + shift[1]), shift)
        x2, y2 = self.end.border((x1, y1), shift)
        colour, dashes = (MESSAGE, ' stroke-dasharray="7 4"') if self.is_message else (INK, '')
        head = f' marker-end="url(#{"message" if self.is_message else "call"})"'
        yield '<g>'
        if self.title:
            yield f'<title>{escape(self.title)}</title>'
        yield (
            f'<line x1="{x1:.1f}" y1="{y1:.1f}" x2="{x2:.1f}" y2="{y2:.1f}" stroke="{colour}" '
            f'stroke-width="1.5"{dashes}{head if self.has_head else ""}/>'
        )
        x, y = x1 + (x2 - x1) * self.along + self.offset[0], y1 + (y2 - y1) * self.along
        lines = self.label.split('\n') if self.label else []
        for number, line in enumerate(lines):
            height = y + self.offset[1] + (number - (len(lines) - 1) / 2) * 15
            yield (
                f'<text x="{x:.1f}" y="{height:.1f}" text-anchor="middle" fill="{colour}" '
                f'font-size="12" stroke="{PAPER}" stroke-width="4" paint-order="stroke">'
                f'{escape(line)}</text>'
            )
        yield '</g>'


@dataclass
class Drawing:
    """Boxes and arrows on a page, in the order in which they are drawn."""

    title: str
    width: int
    height: int
    parts: list[Box | Arrow] = field(default_factory=list)
    notes: list[tuple[float, float, str]] = field(default_factory=list)

    def add(self, *parts: Box | Arrow) -> None:
        self.parts += parts

    def svg(self) -> str:
        lines = [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {self.width} {self.height}" '
            f'width="{self.width}" height="{self.height}" font-family="sans-serif" '
            f'font-size="13" fill="{INK}" role="img">',
            '<!-- SPDX-License-Identifier: Apache-2.0; made by python -m tools.drawings -->',
            f'<title>{escape(self.title)}</title>',
            '<defs>',
            *(
                f'<marker id="{name}" viewBox="0 0 10 10" refX="9" refY="5" markerWidth="7" '
                f'markerHeight="7" orient="auto-start-reverse"><path d="M0 0L10 5L0 10z" '
                f'fill="{colour}"/></marker>'
                for name, colour in (('call', INK), ('message', MESSAGE))
            ),
            '</defs>',
            f'<rect width="{self.width}" height="{self.height}" fill="{PAPER}"/>',
        ]
        for part in self.parts:
            lines += part.svg()
        for x, y, note in self.notes:
            lines.append(f'<text x="{x:g}" y="{y:g}" fill="{GREY}">{escape(note)}</text>')
        return '\n'.join([*lines, '</svg>']) + '\n'


# -- the processes -----------------------------------------------------------------------------


def architecture() -> Drawing:
    """The processes of Cyborg, who calls them and whom they call."""
    drawing = Drawing('The processes of Cyborg, and the calls and messages between them', 900, 560)
    clients = Box(20, 40, 150, 56, ('clients, Nova', 'users of the API'), 'theirs')
    api = Box(250, 40, 150, 56, ('cyborg-api', 'HTTP, policy'))
    conductor = Box(500, 40, 170, 56, ('cyborg-conductor', 'rows, states, outbox'))
    database = Box(760, 20, 120, 44, ('database',), 'data')
    nova = Box(760, 84, 120, 44, ('Nova',), 'theirs')
    placement = Box(720, 210, 160, 44, ('Placement',), 'theirs')
    glance = Box(720, 290, 160, 44, ('Glance',), 'theirs')
    keystone = Box(250, 140, 150, 44, ('Keystone',), 'theirs')
    host = Box(20, 270, 640, 260, ('compute host',), 'host', is_frame=True)
    compute = Box(50, 320, 150, 56, ('nova-compute', 'with os_acc'), 'theirs')
    agent = Box(370, 320, 170, 56, ('cyborg-agent', 'inventory, tasks'))
    drivers = Box(370, 440, 170, 56, ('drivers', 'one for each kind'))
    udev = Box(50, 440, 150, 56, ('udev, sysfs', 'the devices'), 'data')
    drawing.add(host, clients, api, conductor, database, nova, placement, glance)
    drawing.add(keystone, compute, agent, drivers, udev)
    drawing.add(
        Arrow(clients, api, 'HTTP'),
        Arrow(clients, keystone),
        Arrow(api, keystone, 'tokens', offset=(28, 4)),
        Arrow(api, conductor, 'calls', is_message=True),
        Arrow(conductor, database, 'SQL', offset=(0, -10)),
        Arrow(conductor, nova, 'events', offset=(0, 18)),
        Arrow(conductor, placement, 'availability,\nsilent hosts', along=0.65, offset=(58, 4)),
        Arrow(conductor, agent, 'tasks,\nwake-ups', is_message=True, shift=-14, offset=(46, 8)),
        Arrow(
            agent,
            conductor,
            'reports, results,\nheartbeats',
            is_message=True,
            shift=-14,
            offset=(-62, 8),
        ),
        Arrow(compute, agent, 'initialize, plug,\nunplug', is_message=True, offset=(0, -12)),
        Arrow(agent, placement, 'providers', offset=(-16, -12)),
        Arrow(agent, glance, 'images', offset=(20, 20)),
        Arrow(agent, drivers, 'discover, attach,\nclean, program', offset=(58, 4)),
        Arrow(drivers, udev, 'reads, writes', offset=(0, -7)),
        Arrow(udev, agent, 'events', offset=(-24, -4)),
    )
    drawing.notes += [
        (40, 215, 'dashed, red: a message through the broker'),
        (40, 235, 'solid: HTTP, SQL or a call in the process'),
    ]
    return drawing


# -- the providers -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Provider:
    """A resource provider in Placement: its parent, what it offers, its traits."""

    name: str
    parent: str
    offers: tuple[tuple[str, int], ...]
    traits: tuple[str, ...]


#: the host: cards with which its agent publishes the providers below
CARDS = {'0000:85:00.0': '1d9b:0400', '0000:5e:00.0': '8086:bcce', '0000:3b:00.0': '10de:1eb8'}
DRIVERS = ('time_sync_driver', 'intel_fpga_driver', 'nvidia_gpu_driver')
OPTIONS = '[gpu_devices]\nenabled_vgpu_types = nvidia-222\n'
_REGION = 'CUSTOM_FPGA_INTEL_REGION_7CB96DC4_A1B2_5C3D_9E0F_4B3A2C1D0E9F'
PROVIDERS = (
    Provider(
        'compute1_0000:85:00.0',
        'compute1',
        (('CUSTOM_HPTS', 1),),
        ('CUSTOM_HPTS_GNSS', 'CUSTOM_HPTS_META_TIME_CARD', 'OWNER_CYBORG'),
    ),
    Provider(
        'compute1_0000:3b:00.0',
        'compute1',
        (('VGPU', 16),),
        (
            'CUSTOM_GPU_NVIDIA_T4',
            'CUSTOM_NVIDIA_1EB8',
            'CUSTOM_NVIDIA_1EB8_T4_1B',
            'OWNER_CYBORG',
        ),
    ),
    Provider(
        'compute1_0000:5e:00.0',
        'compute1',
        (),
        ('CUSTOM_FPGA_INTEL', 'CUSTOM_FPGA_INTEL_N6001', 'OWNER_CYBORG'),
    ),
    *(
        Provider(
            f'compute1_0000:5e:00.0_{region}',
            'compute1_0000:5e:00.0',
            (('FPGA', 1),),
            (
                'CUSTOM_FPGA_INTEL',
                f'CUSTOM_FPGA_INTEL_FUNCTION_{function}',
                'CUSTOM_FPGA_INTEL_N6001',
                _REGION,
                'OWNER_CYBORG',
            ),
        )
        for region, function in (
            ('region0', '8568AB4E_6BA5_4616_BB65_2A578330A8EB'),
            ('region1', 'D8424DC4_A4A3_C413_F89E_433683F9040B'),
        )
    ),
)


def providers() -> Drawing:
    """The providers of a host with a plain card, a shared GPU and an FPGA with regions."""
    drawing = Drawing('Resource providers of a host in Placement', 1010, 500)
    root = Box(430, 20, 150, 56, ('compute1', 'the compute node'), 'theirs')
    places = {
        'compute1_0000:85:00.0': (20, 150, 300),
        'compute1_0000:5e:00.0': (355, 150, 300),
        'compute1_0000:3b:00.0': (690, 150, 300),
        'compute1_0000:5e:00.0_region0': (165, 330, 335),
        'compute1_0000:5e:00.0_region1': (510, 330, 335),
    }
    boxes = {'compute1': root}
    for provider in PROVIDERS:
        x, y, width = places[provider.name]
        offers = [f'{count} × {name}' for name, count in provider.offers] or ['no inventory']
        lines = (provider.name, *offers, *(_shortened(trait) for trait in provider.traits))
        boxes[provider.name] = Box(x, y, width, 24 + LINE * len(lines), lines)
    drawing.add(*boxes.values())
    for provider in PROVIDERS:
        drawing.add(Arrow(boxes[provider.parent], boxes[provider.name], has_head=False))
    for name, note in (
        ('compute1_0000:85:00.0', 'a card that is given out whole'),
        ('compute1_0000:3b:00.0', 'a GPU that is divided into vGPUs'),
        ('compute1_0000:5e:00.0_region0', 'an FPGA with two regions'),
    ):
        box = boxes[name]
        drawing.notes.append((box.x, box.y + box.height + 18, note))
    return drawing


def _shortened(trait: str) -> str:
    """A trait with a UUID in it is too long for a box."""
    return trait if len(trait) < 45 else f'{trait[:-28]}…'


# -- the states --------------------------------------------------------------------------------

_WIDTH, _HEIGHT = 130, 44
PLACES = {
    State.INITIAL: (20, 70),
    State.BIND_STARTED: (250, 70),
    State.BOUND: (500, 70),
    State.PROVISIONING: (740, 70),
    State.BIND_FAILED: (250, 200),
    State.UNBOUND: (500, 200),
    State.UNBIND_FAILED: (20, 330),
    State.DELETING: (740, 330),
}


def states() -> Drawing:
    """The states of a request. An event that nearly every state accepts has one arrow, from a box
    that stands for all these states."""
    drawing = Drawing('The states of an accelerator request', 900, 440)
    reached = {to for changes in TRANSITIONS.values() for to in changes.values()}
    reached.add(State.INITIAL)
    boxes = {
        state: Box(*PLACES[state], _WIDTH, _HEIGHT, (str(state),), is_dashed=state not in reached)
        for state in State
    }
    every = Box(500, 330, _WIDTH, _HEIGHT, ('any state',), 'theirs')
    drawing.add(*boxes.values(), every)
    pairs: dict[tuple[State, State], list[str]] = {}
    for event, changes in TRANSITIONS.items():
        for to in dict.fromkeys(changes.values()):
            sources = [state for state in State if changes.get(state) == to]
            if len(sources) < len(State) - 1:
                for source in sources:
                    pairs.setdefault((source, to), []).append(event)
                continue
            others = [str(state) for state in State if state not in sources]
            label = f'{event}\nnot from {", ".join(others)}' if others else str(event)
            title = '; '.join(_title(source, [event], to) for source in sources)
            is_upright = every.centre[0] == boxes[to].centre[0]
            offset = (62, 4) if is_upright else (0.0, -7.0)
            drawing.add(Arrow(every, boxes[to], label, title=title, offset=offset))
    for (source, to), events in pairs.items():
        is_upright = PLACES[source][0] == PLACES[to][0]
        has_reverse = (to, source) in pairs
        drawing.add(
            Arrow(
                boxes[source],
                boxes[to],
                ', '.join(events),
                shift=-10 if has_reverse else 0,
                title=_title(source, events, to),
                offset=_beside(is_upright, PLACES[source], PLACES[to]),
            )
        )
    drawing.notes += [
        (20, 410, 'A request is created in the state Initial.'),
        (20, 428, f'{UNKNOWN} is shown, never stored. No event leads to a dashed state.'),
    ]
    return drawing


def _beside(
    is_upright: bool, start: tuple[float, float], end: tuple[float, float]
) -> tuple[float, float]:
    """Where the label is: to the left of a line seen in its direction."""
    if is_upright:
        return (-24, 4) if start[1] > end[1] else (28, 4)
    return (0, -7) if start[0] <= end[0] else (0, 18)


def _title(source: State, events: list[str], to: State) -> str:
    return '; '.join(f'{source} {event} {to}' for event in events)


FIGURES: dict[str, Callable[[], Drawing]] = {
    'architecture.svg': architecture,
    'providers.svg': providers,
    'states.svg': states,
}


def main() -> None:
    IMAGES.mkdir(exist_ok=True)
    for name, draw in FIGURES.items():
        (IMAGES / name).write_text(draw().svg())


if __name__ == '__main__':
    main()
