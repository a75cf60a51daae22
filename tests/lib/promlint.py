#!/usr/bin/env python3
"""What `promtool check metrics` complains about, for machines that do not have it, and a
little more. usage: promlint.py METRICS [GRAFANA-DASHBOARD]

Rules: every metric has a HELP and a TYPE before its samples, once, and its samples together;
names are snake_case, with base units, and say nothing of their type; counters and only they end
in _total; histograms have rising buckets up to +Inf, which is their count. With a dashboard:
every metric that its queries name exists."""
import json
import re
import sys

SAMPLE = re.compile(r'^([a-zA-Z_:][a-zA-Z0-9_:]*)(\{(.*)\})? (\S+)$')
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\[\\n"])*)"(,|$)')
NOT_BASE = ('milliseconds', 'microseconds', 'minutes', 'hours', 'days', 'ms', 'us', 'kilobytes',
            'kb', 'mb', 'megabytes', 'gigabytes', 'bits', 'percent')
TYPES = ('counter', 'gauge', 'histogram', 'summary')
problems = []


def bad(*words):
    problems.append(' '.join(map(str, words)))


def labels_of(text):
    labels, at = {}, 0
    while at < len(text):
        m = LABEL.match(text, at)
        if not m:
            bad('labels cannot be read:', text)
            break
        if m[1] in labels:
            bad('label twice:', text)
        labels[m[1]] = m[2]
        at = m.end()
    return labels


def family_of(name, types):
    for suffix in ('_bucket', '_sum', '_count'):
        if name.endswith(suffix) and types.get(name[:-len(suffix)]) == 'histogram':
            return name[:-len(suffix)]
    return name


def parse(text):
    helps, types, samples, current, seen = {}, {}, {}, None, set()
    if not text.endswith('\n'):
        bad('the last line does not end')
    for line in text.splitlines():
        if line.startswith('# HELP '):
            name, _, words = line[7:].partition(' ')
            if name in helps or not words:
                bad('HELP twice or empty:', name)
            helps[name] = words
            continue
        if line.startswith('# TYPE '):
            name, _, kind = line[7:].partition(' ')
            if name in types or kind not in TYPES:
                bad('TYPE twice or unknown:', line)
            types[name] = kind
            current = name
            samples[name] = []
            continue
        m = SAMPLE.match(line)
        if not m:
            bad('cannot be read:', line)
            continue
        name = family_of(m[1], types)
        if name != current:
            bad('not with its TYPE:', line)
        key = (m[1], m[3])
        if key in seen:
            bad('twice:', line)
        seen.add(key)
        samples.setdefault(name, []).append((m[1], labels_of(m[3] or ''), float(m[4])))
    for name in samples:
        if name not in helps or name not in types:
            bad('without HELP or TYPE:', name)
    return types, samples


def check_name(name, kind):
    parts = name.split('_')
    if not re.fullmatch(r'[a-z][a-z0-9_]*', name):
        bad('not snake_case:', name)
    if (kind == 'counter') != name.endswith('_total'):
        bad('counters, and only they, end in _total:', name)
    if any(p in NOT_BASE for p in parts):
        bad('not a base unit:', name)
    if any(p in TYPES for p in parts):
        bad('a name says nothing of its type:', name)


def check_histogram(name, samples):
    series = {}
    for sample, labels, value in samples:
        le = labels.pop('le', None)
        if (le is not None) != sample.endswith('_bucket'):
            bad('le where it does not belong:', sample, labels)
        series.setdefault(tuple(sorted(labels.items())), []).append((sample, le, value))
    for labels, values in series.items():
        buckets = [(float(le), v) for s, le, v in values if le]
        counts = [v for s, le, v in values if s == name + '_count']
        if len(counts) != 1 or not buckets or buckets[-1] != (float('inf'), counts[0]):
            bad('the last bucket is not the count:', name, labels)
        if buckets != sorted(buckets) or [v for _, v in buckets] != sorted(v for _, v in buckets):
            bad('buckets do not rise:', name, labels)
        if sum(s == name + '_sum' for s, _, _ in values) != 1:
            bad('no sum:', name, labels)


def check_dashboard(path, types):
    with open(path, encoding='utf-8') as f:
        dashboard = json.load(f)
    known = set(types)
    for name, kind in types.items():
        if kind == 'histogram':
            known |= {name + s for s in ('_bucket', '_sum', '_count')}
    used = set()
    for panel in dashboard['panels']:
        for target in panel.get('targets', []):
            used |= set(re.findall(r'\bthreadfs_\w+', target['expr']))
    for variable in dashboard['templating']['list']:
        used |= set(re.findall(r'\bthreadfs_\w+', str(variable.get('query', ''))))
    if not used:
        bad('the dashboard shows nothing')
    for name in sorted(used - known):
        bad('the dashboard names what does not exist:', name)


def main():
    with open(sys.argv[1], encoding='utf-8') as f:
        types, samples = parse(f.read())
    for name, kind in types.items():
        check_name(name, kind)
        if kind == 'histogram':
            check_histogram(name, samples[name])
    if len(sys.argv) > 2:
        check_dashboard(sys.argv[2], types)
    print('\n'.join(problems) or f'{len(types)} metrics are in order')
    sys.exit(bool(problems))


main()
