import type { Attributes } from '@opentelemetry/api';
import type { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { scrub } from '../errors.ts';

type Exporter = Pick<OTLPTraceExporter, 'export' | 'shutdown' | 'forceFlush'>;
type Span = Parameters<Exporter['export']>[0][number];

/** Sends spans on without what must never be written: queries of links, tokens, credentials. */
export function scrubbed(exporter: Exporter): Exporter {
  return {
    export: (spans, done) => exporter.export(spans.map(clean), done),
    shutdown: () => exporter.shutdown(),
    forceFlush: async () => exporter.forceFlush?.(),
  };
}

function clean(span: Span): Span {
  const { status, events } = span;
  return Object.create(span, {
    name: { value: scrub(span.name) },
    attributes: { value: cleanAttributes(span.attributes) },
    status: { value: status.message === undefined ? status : { ...status, message: scrub(status.message) } },
    events: {
      value: events.map((event) => ({ ...event, attributes: event.attributes && cleanAttributes(event.attributes) })),
    },
  });
}

function cleanAttributes(attributes: Attributes): Attributes {
  const kept: Attributes = {};
  for (const [name, value] of Object.entries(attributes)) {
    // Of a link this is the secret, all of it; `url.full` says that there was one.
    if (name === 'url.query') continue;
    kept[name] = typeof value === 'string' ? scrub(value) : value;
  }
  return kept;
}
