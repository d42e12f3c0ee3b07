import { type ChildProcess, spawn } from 'node:child_process';
import { once } from 'node:events';
import { mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { mkdtemp } from 'node:fs/promises';
import { cpus, tmpdir, totalmem } from 'node:os';
import { join } from 'node:path';
import { createInterface } from 'node:readline';
import { setTimeout as sleep } from 'node:timers/promises';

/**
 * Large files, library → mirror → directory, in processes of their own: how much memory many at once take, and what a
 * SIGKILL in the middle of one costs. `node bench/large-files.ts [FILES] [GIB]` writes bench/results/large-files.md.
 */
const files = Number(process.argv[2] ?? 8);
const gib = Number(process.argv[3] ?? 4);
const size = gib * 2 ** 30;

const directory = await mkdtemp(join(tmpdir(), 'asset-mirror-bench-'));
const main = join(import.meta.dirname, '../src/main.ts');
const token = 'the-operators-token';
const port = 18100;
const mirrorUrl = `http://127.0.0.1:${port}`;

const library = spawn(
  process.execPath,
  [
    main,
    'library',
    '--json',
    '--in-memory',
    '--port',
    '0',
    '--admin-port',
    '0',
    '--synthetic',
    '0',
    '--auto-consent',
    '--redirect-uri',
    `${mirrorUrl}/oauth/callback`,
  ],
  { stdio: ['ignore', 'pipe', 'inherit'] },
);
const [line] = (await once(createInterface(library.stdout), 'line')) as [string];
const { apiUrl, appUrl, adminUrl, clientId, clientSecret, users } = JSON.parse(line);

// biome-ignore lint/suspicious/noExplicitAny: the answers of two APIs, read as they come
async function send(url: string, body?: object, headers: Record<string, string> = {}): Promise<any> {
  const response = await fetch(url, {
    ...(body && { method: 'POST', body: JSON.stringify(body) }),
    headers: { ...(body && { 'content-type': 'application/json' }), ...headers },
  });
  if (!response.ok) throw new Error(`${url}: ${response.status} ${await response.text()}`);
  return response.json();
}
const operator = (path: string, body?: object) =>
  send(`${mirrorUrl}/api${path}`, body, { authorization: `Bearer ${token}` });

async function startMirror(): Promise<ChildProcess> {
  const mirror = spawn(process.execPath, [main, 'start'], {
    env: {
      PATH: process.env.PATH,
      DATA_DIR: directory,
      PORT: String(port),
      PUBLIC_URL: mirrorUrl,
      ADMIN_TOKEN: token,
      LIBRARY_API_URL: apiUrl,
      LIBRARY_APP_URL: appUrl,
      LIBRARY_CLIENT_ID: clientId,
      LIBRARY_CLIENT_SECRET: clientSecret,
      TRANSFER_CONCURRENCY: String(files),
      CONNECTION_CONCURRENCY: String(files),
      LOG_PRETTY: 'false',
    },
    stdio: ['ignore', 'pipe', 'inherit'],
  });
  for await (const text of createInterface(mirror.stdout!)) if (text.includes('"started"')) break;
  mirror.stdout!.resume();
  return mirror;
}

async function connect(): Promise<string> {
  const cookies = new Map<string, string>();
  let url = (await operator('/connect-links', {})).url as string;
  for (let hops = 0; hops < 10; hops++) {
    const response = await fetch(url, {
      redirect: 'manual',
      headers: { cookie: [...cookies].map((pair) => pair.join('=')).join('; ') },
    });
    for (const cookie of response.headers.getSetCookie()) {
      const [name, value] = cookie.split(';')[0]!.split('=') as [string, string];
      cookies.set(name, value);
    }
    const next = response.headers.get('location');
    if (!next) return (await operator('/connections')).connections[0].id;
    url = new URL(next, url).href;
  }
  throw new Error('connecting went round in circles');
}

const upload = (name: string) =>
  send(`${adminUrl}/assets`, {
    companyId: 'bench',
    name,
    mimeType: 'application/octet-stream',
    assetType: 'documents',
    uploadDate: Date.UTC(2024, 0, 1),
    thumbnail: false,
    content: { seed: name, size },
  });
const rss = (pid: number) => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, 'utf8'))![1]) / 1024;
const cpuSeconds = (pid: number) => {
  const fields = readFileSync(`/proc/${pid}/stat`, 'utf8').split(') ')[1]!.split(' ');
  return (Number(fields[11]) + Number(fields[12])) / 100;
};
const mirrored = async () => (await operator('/status')).assets.byState.mirrored as number;

const rows: string[] = [];
let mirror = await startMirror();
try {
  await send(`${adminUrl}/companies`, { id: 'bench', name: 'Bench', userIds: [users[0].id] });
  for (let i = 0; i < files; i++) await upload(`many-${i}.bin`);
  const started = Date.now();
  const connection = await connect();
  const samples: number[] = [];
  while ((await mirrored()) < files) {
    samples.push(rss(mirror.pid!));
    await sleep(500);
  }
  const seconds = (Date.now() - started) / 1000;
  const peak = Math.max(...samples);
  const quarter = (n: number) => {
    const part = samples.slice(Math.floor((samples.length * n) / 4), Math.floor((samples.length * (n + 1)) / 4));
    return (part.reduce((sum, value) => sum + value, 0) / part.length).toFixed(0);
  };
  rows.push(
    `| ${files} × ${gib} GiB at once | ${seconds.toFixed(0)} s, ${((files * size) / 2 ** 20 / seconds).toFixed(0)} MiB/s, ${cpuSeconds(mirror.pid!).toFixed(0)} CPU s | peak RSS ${peak.toFixed(0)} MiB; mean of each quarter ${[0, 1, 2, 3].map(quarter).join(', ')} MiB |`,
  );
  console.log(rows.at(-1));
  rmSync(join(directory, 'mirror', 'bench'), { recursive: true, force: true });

  // One file, and a SIGKILL at half.
  const { id } = (await upload('killed.bin')) as { id: string };
  await operator(`/connections/${connection}/resync`, { mode: 'incremental', since: 0 });
  const draft = join(directory, 'mirror', '.asset-mirror-tmp');
  const partsDone = () => {
    try {
      const name = readdirSync(draft).find((entry) => entry.endsWith('.parts'));
      return name ? readFileSync(join(draft, name), 'utf8').split('\n').length - 1 : 0;
    } catch {
      return 0;
    }
  };
  const parts = Math.ceil(size / 2 ** 24);
  while (partsDone() < parts / 2) await sleep(20);
  mirror.kill('SIGKILL');
  await once(mirror, 'exit');
  const kept = partsDone();
  const before = (await send(`${adminUrl}/requests`)) as { assetId?: string; endpoint?: string }[];
  mirror = await startMirror();
  const killed = Date.now();
  while ((await operator(`/assets?q=${id}`)).assets[0]?.state !== 'mirrored') await sleep(200);
  const after = (await send(`${adminUrl}/requests`)) as { assetId?: string; endpoint?: string }[];
  const of = (entries: typeof after) =>
    entries.filter((entry) => entry.assetId === id && entry.endpoint === 'media').length;
  rows.push(
    `| ${gib} GiB, SIGKILL with ${kept} of ${parts} parts stored | whole ${((Date.now() - killed) / 1000).toFixed(0)} s after the next start | ${of(after) - of(before)} parts fetched then (${parts - kept} were missing), ${of(before) - 1 + of(after) - of(before) - parts} of ${parts} fetched twice |`,
  );
  console.log(rows.at(-1));
} finally {
  mirror.kill('SIGTERM');
  await once(mirror, 'exit');
  library.kill('SIGTERM');
  rmSync(directory, { recursive: true, force: true });
}

const machine = `${cpus().length} × ${cpus()[0]!.model}, ${(totalmem() / 2 ** 30).toFixed(0)} GiB, Node ${process.version}`;
mkdirSync(join(import.meta.dirname, 'results'), { recursive: true });
writeFileSync(
  join(import.meta.dirname, 'results/large-files.md'),
  `# Large files\n\nLibrary, mirror and embedded PostgreSQL on one machine, objects in a directory. ${machine}, ${new Date().toISOString().slice(0, 10)}.\n\n| what | time | memory, and what was fetched again |\n| --- | --- | --- |\n${rows.join('\n')}\n`,
);
