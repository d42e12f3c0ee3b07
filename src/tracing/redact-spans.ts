import type { Attributes } from '@opentelemetry/api';
import type { ReadableSpan, SpanExporter } from '@opentelemetry/sdk-trace';
import { redact } from '../floor/errors.ts';

/** Exports spans without queries of links, tokens and credentials. */
export function redacted(exporter: SpanExporter): SpanExporter {
  return {
    export: (spans, done) => exporter.export(spans.map(clean), done),
    shutdown: () => exporter.shutdown(),
    forceFlush: async () => exporter.forceFlush?.(),
  };
}

/** A copy of the span with redacted values. The span is the prototype of the copy, because it has getters. */
function clean(span: ReadableSpan): ReadableSpan {
  const { status } = span;
  const changed = {
    name: redact(span.name),
    status: status.message === undefined ? status : { ...status, message: redact(status.message) },
    attributes: cleanAttributes(span.attributes),
    links: span.links.map(withCleanAttributes),
    events: span.events.map(withCleanAttributes),
  };
  return Object.create(span, Object.getOwnPropertyDescriptors(changed));
}

const withCleanAttributes = <T extends { attributes?: Attributes }>(it: T): T =>
  it.attributes ? { ...it, attributes: cleanAttributes(it.attributes) } : it;

function cleanAttributes(attributes: Attributes): Attributes {
  const kept: Attributes = {};
  for (const [name, value] of Object.entries(attributes)) {
    // The query of a signed link is a secret; `url.full` shows that there was one.
    if (name === 'url.query') continue;
    kept[name] = typeof value === 'string' ? redact(value) : value;
  }
  return kept;
}
