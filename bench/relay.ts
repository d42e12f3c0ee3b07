import type { AddressInfo } from 'node:net';
import { connect, createServer, type Socket } from 'node:net';

/** A slow network in front of a server: `{ to, delayMs, jitterMs, bytesPerSecond, resetAfter }`. */
export interface Relay {
  /** Port of the server on this machine. */
  to: number;
  /** Port to listen on; any free port without it. */
  port?: number;
  /** Round trip in milliseconds, half of it in each direction; opening a connection takes one more. */
  delayMs: number;
  /** Up to this many milliseconds are added to each direction, at random. */
  jitterMs?: number;
  /** Bytes per second of all connections together, in each direction. */
  bytesPerSecond?: number | undefined;
  /** One connection in this many is reset after 100 KB. */
  resetOneIn?: number | undefined;
}

const options = JSON.parse(process.argv[2]!) as Relay;
const { to, port = 0, delayMs, jitterMs = 0, bytesPerSecond = Number.POSITIVE_INFINITY, resetOneIn } = options;
const oneWay = () => delayMs / 2 + Math.random() * jitterMs;
/** Bytes of one connection that are under way, as with the receive window of a usual kernel. */
const window = 4 * 2 ** 20;

/** One direction of one connection. */
interface Flow {
  waiting: Buffer[];
  under: number;
  lastAt: number;
  from: Socket;
  to: Socket;
}

/** One direction of the network. Connections take turns with one chunk each, so that none waits behind another's queue. */
class Line {
  readonly #flows = new Set<Flow>();
  readonly #flying: { at: number; flow: Flow; chunk: Buffer | undefined }[] = [];
  #freeAt = 0;
  #timer: NodeJS.Timeout | undefined;

  carry(from: Socket, to: Socket): void {
    const flow: Flow = { waiting: [], under: 0, lastAt: performance.now() + delayMs, from, to };
    from.on('data', (chunk: Buffer) => {
      flow.under += chunk.length;
      if (flow.under > window) from.pause();
      for (let at = 0; at < chunk.length; at += 65_536) flow.waiting.push(chunk.subarray(at, at + 65_536));
      this.#flows.add(flow);
      this.#run();
    });
    from.on('end', () => {
      flow.waiting.push(end);
      this.#flows.add(flow);
      this.#run();
    });
  }

  #run(): void {
    const now = performance.now();
    this.#freeAt = Math.max(this.#freeAt, now - 2);
    while (this.#flows.size > 0 && this.#freeAt <= now) {
      const [flow] = this.#flows as Set<Flow> & [Flow];
      this.#flows.delete(flow);
      const chunk = flow.waiting.shift()!;
      if (flow.waiting.length > 0) this.#flows.add(flow);
      this.#freeAt += (chunk.length / bytesPerSecond) * 1000;
      flow.lastAt = Math.max(flow.lastAt, now + oneWay());
      this.#flying.push({ at: flow.lastAt, flow, chunk });
    }
    this.#flying.sort((a, b) => a.at - b.at);
    while (this.#flying[0] && this.#flying[0].at <= now) this.#arrive(this.#flying.shift()!);
    const next = Math.min(this.#flying[0]?.at ?? Infinity, this.#flows.size > 0 ? this.#freeAt : Infinity);
    clearTimeout(this.#timer);
    if (next < Infinity) this.#timer = setTimeout(() => this.#run(), Math.max(0, next - now));
  }

  #arrive({ flow, chunk }: { flow: Flow; chunk: Buffer | undefined }): void {
    if (flow.to.destroyed) return;
    if (chunk === end) return void flow.to.end();
    flow.under -= chunk!.length;
    if (flow.under <= window && flow.from.isPaused()) flow.from.resume();
    flow.to.write(chunk!);
  }
}

const end = Buffer.alloc(0);
const [up, down] = [new Line(), new Line()];
let connections = 0;
const server = createServer({ allowHalfOpen: true, noDelay: true }, (client) => {
  const upstream = connect({ port: to, host: '127.0.0.1', allowHalfOpen: true, noDelay: true });
  up.carry(client, upstream);
  down.carry(upstream, client);
  for (const [one, other] of [
    [client, upstream],
    [upstream, client],
  ] as const) {
    one.on('error', () => other.destroy()).on('close', () => other.destroySoon());
  }
  if (resetOneIn && ++connections % resetOneIn === 0) {
    let left = 100_000;
    upstream.on('data', (chunk) => {
      left -= chunk.length;
      if (left < 0) client.resetAndDestroy();
    });
  }
});
server.listen(port, '127.0.0.1', () => process.send!((server.address() as AddressInfo).port));
process.on('disconnect', () => process.exit());
