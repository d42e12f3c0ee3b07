/** What tracing does when it is on (otel.ts). Off, as it is by default, nothing of it is loaded and work is just done. */
export interface Tracing {
  span<T>(name: string, attributes: Record<string, string | undefined>, work: () => Promise<T>): Promise<T>;
  /** The trace that is under way here, for what follows from it (W3C Trace Context). */
  here(): string | undefined;
  /** What BullMQ wants to be given. */
  telemetry: unknown;
  stop(): Promise<void>;
}

let on: Tracing | undefined;

export function setTracing(tracing: Tracing): void {
  on = tracing;
}

/** Does some work as a span of the trace that is under way, or of a new one. Attributes hold ids and keys. */
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
