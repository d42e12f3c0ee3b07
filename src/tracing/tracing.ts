/** Implemented by otel.ts. Tracing is off by default; then its modules are not loaded. */
export interface Tracing {
  span<T>(name: string, attributes: Record<string, string | undefined>, work: () => Promise<T>): Promise<T>;
  /** The current trace as `traceparent` (W3C Trace Context), for later work that belongs to it. */
  here(): string | undefined;
  /** The `telemetry` option of BullMQ. */
  telemetry: unknown;
  stop(): Promise<void>;
}

let on: Tracing | undefined;

export function setTracing(tracing: Tracing): void {
  on = tracing;
}

/** Does some work as a span of the current trace, or of a new one. Attributes are ids and keys. */
export function span<T>(
  name: string,
  attributes: Record<string, string | undefined>,
  work: () => Promise<T>,
): Promise<T> {
  return on ? on.span(name, attributes, work) : work();
}

export const traceHere = (): string | undefined => on?.here();
export const queueTelemetry = (): unknown => on?.telemetry;
export const stopTracing = async (): Promise<void> => on?.stop();
