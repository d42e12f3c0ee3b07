import { setTimeout as sleep } from 'node:timers/promises';
import { context, propagation, SpanStatusCode, trace } from '@opentelemetry/api';
import { AsyncLocalStorageContextManager } from '@opentelemetry/context-async-hooks';
import { W3CTraceContextPropagator } from '@opentelemetry/core';
import { OTLPTraceExporter } from '@opentelemetry/exporter-trace-otlp-http';
import { registerInstrumentations } from '@opentelemetry/instrumentation';
import { AwsInstrumentation } from '@opentelemetry/instrumentation-aws-sdk';
import { PgInstrumentation } from '@opentelemetry/instrumentation-pg';
import { UndiciInstrumentation } from '@opentelemetry/instrumentation-undici';
import { resourceFromAttributes } from '@opentelemetry/resources';
import {
  BatchSpanProcessor,
  ParentBasedSampler,
  TraceIdRatioBasedSampler,
  TracerProvider,
} from '@opentelemetry/sdk-trace';
import { BullMQOtel } from 'bullmq-otel';
import { reasonOf } from '../floor/errors.ts';
import { redacted } from './redact-spans.ts';
import type { Tracing } from './tracing.ts';

const stopMs = 3000;

/**
 * Starts OpenTelemetry; call it before the instrumented modules are loaded. The exporter reads its target from the
 * standard variables (OTEL_EXPORTER_OTLP_ENDPOINT, _HEADERS, …).
 */
export function startOpenTelemetry(options: { serviceName: string; version: string; ratio: number }): Tracing {
  context.setGlobalContextManager(new AsyncLocalStorageContextManager().enable());
  propagation.setGlobalPropagator(new W3CTraceContextPropagator());
  const provider = new TracerProvider({
    resource: resourceFromAttributes({ 'service.name': options.serviceName, 'service.version': options.version }),
    sampler: new ParentBasedSampler({ root: new TraceIdRatioBasedSampler(options.ratio) }),
    spanProcessors: [new BatchSpanProcessor({ exporter: redacted(new OTLPTraceExporter()) })],
  });
  trace.setGlobalTracerProvider(provider);
  registerInstrumentations({
    instrumentations: [
      new UndiciInstrumentation({ requireParentforSpans: true }),
      // Without a parent there would be a span for each poll of the queue.
      new PgInstrumentation({ requireParentSpan: true }),
      new AwsInstrumentation({ suppressInternalInstrumentation: true }),
    ],
  });
  const tracer = trace.getTracer('asset-mirror', options.version);
  return {
    span: (name, attributes, work) =>
      tracer.startActiveSpan(name, { attributes }, async (span) => {
        try {
          return await work();
        } catch (error) {
          span.setStatus({ code: SpanStatusCode.ERROR, message: reasonOf(error) });
          throw error;
        } finally {
          span.end();
        }
      }),
    here() {
      const carrier: { traceparent?: string } = {};
      propagation.inject(context.active(), carrier);
      return carrier.traceparent;
    },
    telemetry: new BullMQOtel({ tracerName: 'asset-mirror', version: options.version }),
    /** Sends the remaining spans. An unreachable collector does not delay the shutdown. */
    async stop() {
      const sent = provider.shutdown().catch(() => {});
      await Promise.race([sent, sleep(stopMs, undefined, { ref: false })]);
    },
  };
}
