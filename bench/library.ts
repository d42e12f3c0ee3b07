import { type ChildProcess, fork } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { styleText } from 'node:util';
import { Agent, request } from 'undici';
import { connect, type Library } from '../test/support/library.ts';
import { ground, number, table, write } from './page.ts';

/**
 * How fast the library is: pages of a million assets, details per second, media per second. The library runs in a process
 * of its own, whose processor time is what "per core" means; the load comes from this one.
 */
const ASSETS = 1_000_000;
const SECONDS = Number(process.argv[2] ?? 5);
/** A directory, when a profile of the library is wanted too. */
const profile = process.argv[3];
const REPEATS = 3;

/** The processor time and memory of the library, and the milliseconds of each page since the last call. */
type Usage = { cpu: number; rss: number; times: number[] };
type Row = { what: string; measured: string; wanted: string; ok: boolean };

const agent = new Agent({ connections: 16, pipelining: 1 });
const rows: Row[] = [];

/** The rate of Node's own HTTP server with an answer as long as a detail: the capacity of the machine. */
async function bare(): Promise<void> {
  const server = fork(join(import.meta.dirname, 'bare-server.ts'));
  const [port] = (await once(server, 'message')) as [number];
  await load(server, "Node's own HTTP server, for comparison", null, async () => {
    const answer = await request(`http://127.0.0.1:${port}`, { dispatcher: agent });
    for await (const _ of answer.body);
    return 1;
  });
  server.disconnect();
  await once(server, 'exit');
}

const { child, library } = await startServer();
const token = (await connect(library)).access_token;
const authorization = `Bearer ${token}`;
const company = `${library.apiUrl}/api/v1/companies/cmp_synthetic_1`;

async function startServer(): Promise<{ child: ChildProcess; library: Library }> {
  const child = fork(join(import.meta.dirname, 'library-server.ts'), [String(ASSETS)], {
    execArgv: profile ? ['--cpu-prof', `--cpu-prof-dir=${profile}`] : [],
  });
  const [library] = (await once(child, 'message')) as [Library];
  return { child, library };
}

async function usage(of = child): Promise<Usage> {
  of.send('usage');
  return ((await once(of, 'message')) as [Usage])[0];
}

type Page = { assets: { id: string; uploadDate: number; projectId: string }[]; nextCursor: string | null };

async function page(query: Record<string, string | number>): Promise<Page> {
  const address = `${company}/assets?${new URLSearchParams(query as Record<string, string>)}`;
  const answer = await request(address, { headers: { authorization }, dispatcher: agent });
  const page = (await answer.body.json()) as Page;
  if (answer.statusCode !== 200) throw new Error(`${address}: ${answer.statusCode}`);
  return page;
}

/** The position of an asset in the listing, as in the API's cursor. */
async function cursorAt(number: number): Promise<string> {
  const answer = await request(`${library.apiUrl}/api/v1/assets/ast_1_${number}`, {
    headers: { authorization },
    dispatcher: agent,
  });
  const { asset } = (await answer.body.json()) as { asset: { id: string; uploadDate: number } };
  return Buffer.from(JSON.stringify([asset.uploadDate, asset.id])).toString('base64url');
}

async function pages(): Promise<void> {
  const first = (await page({ limit: 1 })).assets[0]!;
  const middle = await cursorAt(ASSETS / 2);
  const last = await cursorAt(ASSETS - 101);
  const early = (await page({ limit: 1, cursor: last })).assets[0]!.uploadDate;
  const questions: [string, Record<string, string | number>][] = [
    ['first', {}],
    ['middle', { cursor: middle }],
    ['last', { cursor: last }],
    ['since, first', { since: early }],
    ['since, middle', { since: early, cursor: middle }],
    ['since yesterday', { since: first.uploadDate - 24 * 3600 * 1000 }],
    ...['brand assets', 'videos'].flatMap((assetType) => [
      [`assetType ${assetType}, first`, { assetType }] as [string, object],
      [`assetType ${assetType}, middle`, { assetType, cursor: middle }] as [string, object],
      [`assetType ${assetType}, last`, { assetType, cursor: last }] as [string, object],
    ]),
    ['projectId, first', { projectId: first.projectId }],
    ['projectId, middle', { projectId: first.projectId, cursor: middle }],
    ['projectId, last', { projectId: first.projectId, cursor: last }],
    ['projectId with since', { projectId: first.projectId, since: early, cursor: middle }],
  ] as [string, Record<string, string | number>][];
  for (const [name, query] of questions) {
    await usage();
    for (let i = 0; i < 200; i++) await page({ limit: 100, ...query });
    const { times } = await usage();
    const [median, most] = [quantile(times, 0.5), quantile(times, 0.99)];
    const measured = `median ${median.toFixed(1)} ms, 99 % ${most.toFixed(1)} ms`;
    row({ what: `Page of 100: ${name}`, measured, wanted: '< 20 ms', ok: median < 20 });
  }
}

async function details(): Promise<void> {
  const next = () => `${library.apiUrl}/api/v1/assets/ast_1_${Math.floor(Math.random() * ASSETS)}`;
  await load(child, 'Details', '≥ 5,000/s per core', async () => {
    const answer = await request(next(), { headers: { authorization }, dispatcher: agent });
    for await (const _ of answer.body);
    if (answer.statusCode !== 200) throw new Error(`detail: ${answer.statusCode}`);
    return 1;
  });
}

async function media(): Promise<void> {
  let large: { url: string } | undefined;
  for (let i = 0; !large; i++) {
    const { asset } = (await (
      await request(`${library.apiUrl}/api/v1/assets/ast_1_${i}`, { headers: { authorization }, dispatcher: agent })
    ).body.json()) as { asset: { size: number; download: { url: string } } };
    if (asset.size > 5e8 && asset.size < 1e9 && i % 50 !== 49) large = asset.download;
  }
  const { url } = large;
  await load(
    child,
    'Media',
    '≥ 1 GB/s per core',
    async () => {
      const answer = await request(url, { headers: { referer: library.appUrl }, dispatcher: agent });
      let bytes = 0;
      for await (const chunk of answer.body) bytes += chunk.length;
      return bytes;
    },
    2,
  );
}

async function load(
  server: ChildProcess,
  what: string,
  wanted: string | null,
  once: () => Promise<number>,
  concurrency = 16,
): Promise<void> {
  const isMedia = what === 'Media';
  // Compile the code first.
  await work(2, once, concurrency);
  for (let repeat = 1; repeat <= REPEATS; repeat++) {
    const before = await usage(server);
    const start = performance.now();
    const done = await work(SECONDS, once, concurrency);
    const seconds = (performance.now() - start) / 1000;
    const cpu = (await usage(server)).cpu - before.cpu;
    const perCore = done / cpu;
    const show = (value: number) =>
      isMedia ? `${(value / 1e9).toFixed(2)} GB/s` : `${Math.round(value).toLocaleString('en')}/s`;
    row({
      what: `${what}, run ${repeat}`,
      measured: `${show(done / seconds)}, ${show(perCore)} per core (${cpu.toFixed(1)} s of processor time)`,
      wanted: wanted ?? '',
      ok: wanted === null || perCore >= (isMedia ? 1e9 : 5000),
    });
  }
}

async function work(seconds: number, once: () => Promise<number>, concurrency: number): Promise<number> {
  const end = performance.now() + seconds * 1000;
  let done = 0;
  const worker = async () => {
    while (performance.now() < end) {
      const more = await once();
      done += more;
    }
  };
  await Promise.all(Array.from({ length: concurrency }, worker));
  return done;
}

async function memory(): Promise<void> {
  const before = (await usage()).rss;
  let cursor: string | null = null;
  let seen = 0;
  for (let i = 0; i < 3000; i++) {
    const found: Page = await page({ limit: 100, ...(cursor && { cursor }) });
    seen += found.assets.length;
    cursor = found.nextCursor;
  }
  const after = (await usage()).rss;
  const grown = (after - before) / 2 ** 20;
  const measured = `${megabytes(before)} before, ${megabytes(after)} after ${seen.toLocaleString('en')} assets listed`;
  row({ what: 'Memory', measured, wanted: 'flat (± 64 MiB)', ok: grown < 64 });
}

function row(result: Row): void {
  rows.push(result);
  const mark = result.ok ? styleText('green', '✓') : styleText('red', '✗');
  process.stdout.write(`${mark} ${result.what.padEnd(36)} ${result.measured}   (${result.wanted})\n`);
}

function quantile(values: number[], at: number): number {
  return values.toSorted((a, b) => a - b)[Math.floor((values.length - 1) * at)]!;
}

function megabytes(bytes: number): string {
  return `${Math.round(bytes / 2 ** 20)} MiB`;
}

async function writePage(): Promise<void> {
  const median = ({ measured }: Row) => Number(/median ([\d.]+) ms/.exec(measured)?.[1]);
  const timed = rows.filter(({ what }) => what.startsWith('Page of 100'));
  write('library', {
    title: 'The library, measured',
    charts: [
      {
        kind: 'bars',
        title: `Pages of ${number(ASSETS)} assets`,
        panels: [
          {
            title: 'Median of a page of 100, ms',
            rows: timed.map((row) => ({
              label: row.what.slice('Page of 100: '.length),
              value: median(row),
              text: number(median(row), 2),
              ours: true,
            })),
          },
        ],
      },
    ],
    text: `
A library of ${number(ASSETS)} synthetic assets. Another process on the same machine sends the requests. "Per core" means per second of
processor time of the library's process. The time of a page is measured in the server, from the request to the answer. The
comparison with Node's own server shows how much other processes slow down a core.

${table(
  ['What', 'Measured', 'Goal', ''],
  rows.map(({ what, measured, wanted, ok }) => [what, measured, wanted, ok ? '✓' : '✗']),
)}
`,
    ground: await ground(),
  });
}

await pages();
await memory();
await bare();
await details();
await media();
await writePage();
child.send('stop');
await once(child, 'exit');
await agent.destroy();
