# SPDX-License-Identifier: Apache-2.0
"""Services of this release and of the one before or after it understand each other's messages."""

import datetime
import json
import pathlib

import oslo_messaging as messaging
import pytest
import sqlalchemy as sa

from cyborg import context, errors, objects, rpc, rpc_versions
from cyborg.agent.rpcapi import AgentAPI
from cyborg.cmd import startup, status
from cyborg.conductor.agent_versions import LowestVersion
from cyborg.conductor.endpoint import Endpoint, exposed
from cyborg.conductor.rpcapi import ConductorAPI
from cyborg.db.sqlalchemy import agents, clock, models, online_migrations
from cyborg.objects import manifests, object_lists
from tests.fixtures import recorded_objects

FIXTURES = pathlib.Path(__file__).parents[1] / 'fixtures'
RECORDED = json.loads((FIXTURES / 'previous_release.json').read_text())
#: the names of the classes in cyborg/errors.py of the previous release
PREVIOUS_ERRORS = set(json.loads((FIXTURES / 'previous_errors.json').read_text()))
NEWEST = objects.Serializer()
NAMES = sorted(recorded_objects.classes())


def sent(entity, version=manifests.NEWEST):
    return json.loads(json.dumps(objects.Serializer(version).serialize_entity(None, entity)))


def read(wire):
    return NEWEST.deserialize_entity(None, json.loads(json.dumps(wire)))


# -- manifests -------------------------------------------------------------------------------


def test_the_newest_rpc_version_names_the_versions_of_all_objects():
    present = {name: kind.VERSION for name, kind in recorded_objects.classes().items()}
    assert dict(manifests.manifest(manifests.NEWEST)) == present, (
        f'An object has changed: enter its version in CHANGES[{manifests.NEWEST!r}] in '
        'cyborg/objects/manifests.py, and its new fields in its "added".'
    )


def test_the_manifest_of_the_previous_release_is_what_that_release_sends():
    told = {name: each['one']['cyborg_object.version'] for name, each in RECORDED.items()}
    assert dict(manifests.manifest('2.0')) == told


def test_no_version_is_compared_as_text():
    assert manifests.parsed('2.10') > manifests.parsed('2.9')
    assert manifests.known('2.999') == manifests.NEWEST
    assert manifests.known('2.0') == manifests.known(None) == '2.0'


# -- this release reads what the previous one sends ------------------------------------------


@pytest.mark.parametrize('name', sorted(RECORDED))
def test_what_the_previous_release_sends_is_read(name):
    one, two = read(RECORDED[name]['one']), read(RECORDED[name]['two'])
    data = RECORDED[name]['one']['cyborg_object.data']
    assert one.obj_name() == name
    assert all(one.obj_attr_is_set(each) for each in data if each in one.fields)
    assert [type(each) for each in two] == [type(one)] * 2 and two[0] == two[1] == one


def test_a_field_that_an_older_sender_does_not_have_has_its_default():
    report = RECORDED['Report']
    for read_report in (read(report['one']), *read(report['two'])):
        assert (read_report.rpc_version, read_report.release) == (None, None)
        assert read_report.lost == {'a': 1}


def test_a_field_that_an_older_sender_calls_otherwise_is_read():
    for device in (read(RECORDED['Device']['one']), *read(RECORDED['Device']['two'])):
        assert device.fault_if_changed == 'text'


# -- the previous release can read what this one sends ---------------------------------------


@pytest.mark.parametrize('name', sorted(RECORDED))
def test_what_is_sent_to_the_previous_release_has_the_fields_that_it_knows(name):
    full = recorded_objects.full(recorded_objects.classes()[name])
    wire, recorded = sent(full, '2.0'), RECORDED[name]['one']
    assert flat(wire) == flat(as_documents(recorded))
    assert sent([full, full], '2.0') == [wire, wire]


def as_documents(value):
    """Returns a recorded primitive with documents in the place of tables."""
    if isinstance(value, list):
        return [as_documents(each) for each in value]
    if object_lists.is_table(value):
        columns = {name: as_rows(column) for name, column in value[object_lists.DATA].items()}
        return [
            {
                'cyborg_object.name': value[object_lists.TABLE],
                'cyborg_object.namespace': 'cyborg',
                'cyborg_object.version': value[object_lists.VERSION],
                'cyborg_object.data': dict(zip(columns, row, strict=True)),
            }
            for row in zip(*columns.values(), strict=True)
        ]
    if isinstance(value, dict):
        return {name: as_documents(each) for name, each in value.items()}
    return value


def as_rows(column):
    """Returns the values of a column, of which lists of objects are lengths and all objects."""
    if (
        isinstance(column, list)
        and len(column) == 2
        and isinstance(column[0], list)
        and all(isinstance(each, int) for each in column[0])
        and (column[1] == [] or object_lists.is_table(column[1]))
    ):
        items = iter(as_documents(column[1]))
        return [[next(items) for _ in range(length)] for length in column[0]]
    return as_documents(column)


def flat(value):
    return json.dumps(value, sort_keys=True)


def test_the_format_for_older_readers_is_that_of_the_library():
    # given a report with devices in it, as the previous release must read it
    full = recorded_objects.full(objects.Report)
    wire = sent(full, '2.0')
    # then there is no table in it, and each object is a document of the library
    assert object_lists.TABLE not in flat(wire)
    for device in wire['cyborg_object.data']['devices']:
        assert device.keys() == {
            f'cyborg_object.{key}' for key in ('name', 'namespace', 'version', 'data')
        }
        assert device['cyborg_object.version'] == manifests.manifest('2.0')['Device']


def test_equals_send_lists_as_tables():
    full = recorded_objects.full(objects.Report)
    assert object_lists.is_table(sent([full, full]))
    assert read(sent([full, full])) == [full, full]


# -- the next release ------------------------------------------------------------------------


@pytest.mark.parametrize('name', NAMES)
def test_a_newer_minor_version_is_read_without_what_is_not_known(name):
    full = recorded_objects.full(recorded_objects.classes()[name])
    major = full.VERSION.partition('.')[0]

    def newer(wire):
        wire['cyborg_object.version'] = f'{major}.99'
        return wire

    one, two = newer(sent(full)), newer(sent([full, full]))
    one['cyborg_object.data']['not_invented_yet'] = {'x': 1}
    two['cyborg_object.data']['not_invented_yet'] = [{'x': 1}, {'x': 1}]
    assert read(one) == full and read(two) == [full, full]
    # and what is read is sent on as what it is here
    assert sent(read(one)) == sent(full)


@pytest.mark.parametrize('name', NAMES)
def test_another_major_version_is_refused_in_a_sentence(name):
    full = recorded_objects.full(recorded_objects.classes()[name])
    wire = sent(full) | {'cyborg_object.version': '9.0'}
    with pytest.raises(errors.IncompatibleRelease, match=f'{name} 9.0 .* reads {name} '):
        read(wire)


def test_an_object_that_is_not_known_is_refused_in_a_sentence():
    wire = sent(recorded_objects.full(objects.Step)) | {'cyborg_object.name': 'Leap'}
    with pytest.raises(errors.IncompatibleRelease, match='Leap 1.0 .* no such object'):
        read(wire)


# -- messages --------------------------------------------------------------------------------


@pytest.fixture
def transport(tmp_path, request):
    options = tmp_path / 'cyborg.conf'
    options.write_text(
        '[DEFAULT]\ntransport_url = kombu+memory:////\nrpc_response_timeout = 10\n'
        f'[upgrade_levels]\n{getattr(request, "param", "")}\n'
    )
    startup.CONF.reset()
    made = rpc.transport(
        startup.configure(['--config-file', str(options)], default_config_files=[])
    )
    yield made
    made.cleanup()
    startup.CONF.reset()


class Conductor:
    """Answers as conductors of an RPC version do, and remembers what it was asked with."""

    def __init__(self, version):
        self.target = messaging.Target(version=version)
        self.reports, self.readers, self.cleaned, self.plugged = [], [], [], []

    def report(self, context, report):
        self.reports.append(report)
        self.readers.append(context.reads)
        return recorded_objects.full(objects.Plan)

    def list_agents(self, context, filters, page):
        self.readers.append(context.reads)
        return [recorded_objects.full(objects.Agent)] * 2

    def create_arqs(self, context, profile_name):
        return []

    def clean_handle(self, context, uuid):
        self.cleaned.append(uuid)

    def plug_instance(self, context, hostname, instance, providers, extra_specs):
        self.plugged.append(instance['uuid'])
        return []


TOPICS = (rpc.CONDUCTOR, rpc.REPORTS)


class Servers:
    """Runs conductors."""

    def __init__(self, transport):
        self._transport, self._servers = transport, []

    def __call__(self, version, topic=rpc.CONDUCTOR, kind=Conductor):
        conductor = kind(version)
        self._servers.append(rpc.Server(self._transport, topic, 'conductor1', [conductor]))
        self._servers[-1].start()
        return conductor

    def stop(self):
        while self._servers:
            server = self._servers.pop()
            server.stop()
            server.wait()


@pytest.fixture
def serve(transport):
    """Runs a conductor of an RPC version."""
    servers = Servers(transport)
    yield servers
    servers.stop()


def report():
    return recorded_objects.full(objects.Report)


def test_a_conductor_of_this_release_gets_everything(transport, serve):
    conductor = serve(manifests.NEWEST)
    ConductorAPI(transport).report(context.internal(), report())
    assert conductor.reports == [report()] and conductor.readers == [manifests.NEWEST]


def test_a_conductor_of_the_previous_release_gets_what_it_knows(transport, serve):
    conductor, client = serve('2.0'), ConductorAPI(transport)
    for _ in range(2):
        plan = client.report(context.internal(), report())
        assert plan == recorded_objects.full(objects.Plan)
    assert [each.given('rpc_version') for each in conductor.reports] == [None, None]
    assert conductor.reports[0].devices == report().devices


class NewConductor(Conductor):
    """Has a topic for reports."""

    def has_reports_topic(self, context):
        pass


def test_reports_have_a_topic_of_their_own_where_conductors_have_it(transport, serve):
    common, apart = (serve(manifests.NEWEST, topic, NewConductor) for topic in TOPICS)
    client = ConductorAPI(transport)
    for _ in range(2):
        client.report(context.internal(), report())
    assert (len(common.reports), len(apart.reports)) == (0, 2)


def test_reports_take_the_common_topic_when_conductors_of_this_release_are_gone(
    transport, serve, monkeypatch
):
    # given an agent that reports to a conductor of this release
    monkeypatch.setattr(rpc_versions, 'CAUTION', 0)
    client = ConductorAPI(transport, rpc.Limits(silence=2))
    for topic in TOPICS:
        serve(manifests.NEWEST, topic, NewConductor)
    client.report(context.internal(), report())
    # when only one of the previous release is left
    serve.stop()
    old = serve('2.0')
    with pytest.raises(messaging.MessagingTimeout):
        client.report(context.internal(), report())
    # then the next report takes the way that this one has
    client.report(context.internal(), report())
    assert len(old.reports) == 1
    # and the topic is used again when there is a conductor that has it
    serve.stop()
    _, new = (serve(manifests.NEWEST, topic, NewConductor) for topic in TOPICS)
    client.report(context.internal(), report())
    assert new.reports and len(old.reports) == 1


@pytest.mark.parametrize('transport', ['conductor = 2.0'], indirect=True)
def test_a_pinned_version_decides_the_topic(transport, serve):
    common, apart = (serve(manifests.NEWEST, topic, NewConductor) for topic in TOPICS)
    ConductorAPI(transport).report(context.internal(), report())
    assert (len(common.reports), len(apart.reports)) == (1, 0)


def test_a_refused_version_is_not_tried_again_for_a_while(transport, serve, monkeypatch):
    serve('2.0')
    client, tried = ConductorAPI(transport), []
    send = client._client._send
    monkeypatch.setattr(
        client._client,
        '_send',
        lambda version, *arguments: tried.append(version) or send(version, *arguments),
    )
    for _ in range(3):
        client.report(context.internal(), report())
    # the first is the question for the topic of reports
    assert tried == ['2.0', '2.1', '2.0', '2.0', '2.0']
    monkeypatch.setattr(client._client._choice, '_cautious_until', 0.0)
    client.report(context.internal(), report())
    assert tried[5:] == ['2.1', '2.0']


def test_a_call_in_which_nothing_is_new_is_never_refused(transport, serve, monkeypatch):
    conductor, client = serve('2.0'), ConductorAPI(transport)
    monkeypatch.delitem(client._client._clients, '2.1')
    assert len(client.list_agents(context.internal(), {}, {})) == 2
    assert conductor.readers == [manifests.NEWEST]


@pytest.mark.parametrize('transport', ['conductor = 2.0'], indirect=True)
def test_a_pinned_version_is_used_though_a_newer_one_would_do(transport, serve):
    conductor = serve(manifests.NEWEST)
    ConductorAPI(transport).report(context.internal(), report())
    assert conductor.reports[0].given('rpc_version') is None


@pytest.mark.parametrize('transport', ['conductor = 1.9'], indirect=True)
def test_a_version_that_this_release_does_not_have_is_a_mistake_in_the_configuration(transport):
    with pytest.raises(errors.ConfigError, match=r'conductor = 1.9: .* 2.0, 2.1 and auto'):
        ConductorAPI(transport)


def test_another_major_version_of_rpc_is_refused_in_a_sentence(transport, serve):
    serve('3.0')
    with pytest.raises(errors.IncompatibleRelease, match='conductor refuses all RPC versions'):
        ConductorAPI(transport).report(context.internal(), report())


def test_a_method_that_an_older_conductor_does_not_have_is_told_in_a_sentence(transport, serve):
    serve('2.0')
    with pytest.raises(errors.IncompatibleRelease, match='does not have get_agent.*upgraded'):
        ConductorAPI(transport).get_agent(context.internal(), 'compute1')


def test_a_method_that_has_other_arguments_on_an_older_conductor_is_not_called(transport, serve):
    conductor, client = serve('2.0'), ConductorAPI(transport)
    for _ in range(2):
        with pytest.raises(errors.IncompatibleRelease, match='older form of clean_handle'):
            client.clean_handle(context.internal(), 'device', 'handle')
    assert conductor.cleaned == []


@pytest.mark.parametrize('transport', ['conductor = 2.0'], indirect=True)
def test_a_method_that_a_pinned_version_does_not_have_is_not_called(transport, serve):
    serve(manifests.NEWEST)
    with pytest.raises(errors.IncompatibleRelease, match='older form of clean_handle'):
        ConductorAPI(transport).clean_handle(context.internal(), 'device', 'handle')


def test_a_server_whose_image_asks_for_a_bitstream_is_not_plugged_by_an_older_conductor(
    transport, serve
):
    """It would bind the server to the region as it is."""
    conductor, client = serve('2.0'), ConductorAPI(transport)
    what = 'compute1', {'uuid': 'server', 'image_uuid': 'image'}, {}, {}
    for wish in (None, {'bitstream_id': 'x'}, None):
        with pytest.raises(errors.IncompatibleRelease, match='older form of plug_instance'):
            client.plug_instance(context.internal(), *what, image_request=wish)
    assert conductor.plugged == []
    assert client.plug_instance(context.internal(), *what, image_request={}) == []
    assert conductor.plugged == ['server']


def errors_of_this_release():
    return {
        name: each
        for name, each in vars(errors).items()
        if isinstance(each, type) and issubclass(each, errors.CyborgError)
    }


def test_an_error_that_the_previous_release_lacks_says_since_when_it_exists():
    present = errors_of_this_release()
    assert {name for name in present if present[name].since == manifests.OLDEST} <= PREVIOUS_ERRORS
    assert {each.since for each in present.values()} <= set(manifests.CHANGES)


class Refusing(Endpoint):
    """A conductor of this release that refuses every call with one error."""

    def __init__(self, error):
        self._error = error

    @exposed
    def create_arqs(self, context, profile_name):
        raise self._error


@pytest.mark.parametrize(
    ('reads', 'expected'),
    [(None, 'Forbidden'), ('2.0', 'Forbidden'), ('2.1', 'OverLimit'), ('2.999', 'OverLimit')],
)
def test_a_caller_gets_an_error_of_a_class_that_it_knows(transport, monkeypatch, reads, expected):
    """A caller cannot rebuild an error of another class, and the API would answer 500."""

    def serialize_context(serializer, ctxt):
        return ctxt.to_dict() | ({} if reads is None else {'reads': reads})

    monkeypatch.setattr(rpc.ContextSerializer, 'serialize_context', serialize_context)
    refusal = errors.OverLimit('It has all the requests that it may have.')
    server = rpc.Server(transport, rpc.CONDUCTOR, 'conductor', [Refusing(refusal)])
    server.start()
    try:
        with pytest.raises(errors.Forbidden) as raised:
            ConductorAPI(transport).create_arqs(context.internal(), 'p')
    finally:
        server.stop()
        server.wait()
    assert type(raised.value).__name__.removesuffix('_Remote') == expected
    assert raised.value.faultstring.splitlines()[0] == 'It has all the requests that it may have.'


@pytest.mark.parametrize(('reads', 'is_table'), [(None, False), ('2.0', False), ('2.1', True)])
def test_an_answer_has_the_version_that_its_caller_reads(reads, is_table):
    agents = [recorded_objects.full(objects.Agent)] * 2
    asked = context.RequestContext.from_dict({'reads': reads} if reads else {})
    wire = rpc.ContextSerializer().serialize_entity(asked, agents)
    assert object_lists.is_table(wire) is is_table


def test_the_version_that_another_sender_reads_is_not_passed_on():
    asked = context.RequestContext.from_dict({'reads': '2.0'})
    assert rpc.ContextSerializer('2.1').serialize_context(asked)['reads'] == manifests.NEWEST


# -- agents ----------------------------------------------------------------------------------


def accept(db, hostname, rpc_version):
    report = objects.Report(
        hostname=hostname,
        sequence=1,
        after=0,
        digest='',
        drivers=[],
        devices=[],
        rpc_version=rpc_version,
    )
    with db.writer() as session:
        agents.accept(session, report)


def test_agents_get_the_version_that_the_oldest_of_those_alive_has_reported(db):
    lowest = LowestVersion(db, 60)
    assert lowest() == manifests.OLDEST  # as long as nothing is known
    lowest.read()
    assert lowest() == manifests.NEWEST
    accept(db, 'new', manifests.NEWEST)
    accept(db, 'newer', '2.99')
    lowest.read()
    assert lowest() == manifests.NEWEST
    accept(db, 'old', None)
    lowest.read()
    assert lowest() == '2.0'
    with db.writer() as session:
        session.execute(
            sa.update(models.Agent)
            .where(models.Agent.hostname == 'old')
            .values(last_heartbeat=clock.now() - datetime.timedelta(seconds=61))
        )
    lowest.read()
    assert lowest() == manifests.NEWEST


@pytest.mark.parametrize(('lowest', 'is_table'), [('2.0', False), ('2.1', True)])
def test_tasks_are_sent_in_the_version_of_the_oldest_agent(
    transport, monkeypatch, lowest, is_table
):
    messages = []
    monkeypatch.setattr(
        transport._driver,
        'send',
        lambda target, ctxt, message, **options: messages.append(message),
    )
    api = AgentAPI(transport, lambda: lowest)
    api.perform(context.internal(), 'compute1', [recorded_objects.full(objects.Task)] * 2)
    api.wake(context.internal(), 'compute1')
    performed, woken = messages
    assert (performed['version'], woken['version']) == (lowest, '2.0')
    assert object_lists.is_table(performed['args']['tasks']) is is_table


# -- conductors of both releases ---------------------------------------------------------------


def test_a_report_that_an_earlier_release_has_stored_is_asked_for_again(db):
    since = clock.now() - datetime.timedelta(seconds=60)
    accept(db, 'compute1', manifests.NEWEST)
    with db.writer() as session:
        assert agents.beat(session, 'compute1', '', since).is_current
        assert agents.stored_by_earlier_release(session, since) == []
        # a conductor of the previous release stores what it knows
        session.execute(sa.update(models.Agent).values(sequence=2))
    with db.writer() as session:
        assert agents.stored_by_earlier_release(session, since) == ['compute1']
        assert not agents.beat(session, 'compute1', '', since).is_current


def test_an_upgrade_that_is_not_finished_is_reported(db, transport, monkeypatch):
    def check():
        result = status._unfinished_upgrade(db)
        return result.code, result.details

    accept(db, 'compute1', manifests.NEWEST)
    assert check() == (status.CODE.SUCCESS, 'Nothing is left to do.')
    with db.writer() as session:
        session.execute(sa.update(models.Agent).values(sequence=2))
    code, details = check()
    assert code == status.CODE.WARNING and 'last report of compute1: upgrade all' in details
    rows = online_migrations.OnlineMigration('fill', lambda session: 7, lambda session, most: 0)
    monkeypatch.setattr(online_migrations, 'MIGRATIONS', (rows,))
    assert 'online_data_migrations for fill' in check()[1]
