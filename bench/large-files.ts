import { readdirSync, readFileSync, rmSync } from 'node:fs';
import { join } from 'node:path';
import { setTimeout as sleep } from 'node:timers/promises';
import { ground, number, table, write } from './page.ts';
import { cpuSeconds, mebibytes } from './proc.ts';
import { newStage } from './stage.ts';

/**
 * Large files, library → mirror → directory: the memory for many at once, and the cost of a SIGKILL during one.
 * `node bench/large-files.ts [FILES] [GIB]`.
 */
const files = Number(process.argv[2] ?? 8);
const gib = Number(process.argv[3] ?? 2);
const size = Math.round(gib * 2 ** 30);

await using stage = await newStage({ library: { autoConsent: true } });
const { admin, library } = stage;
const start = () => stage.mirror('all', { TRANSFER_CONCURRENCY: `${files}`, CONNECTION_CONCURRENCY: `${files}` });
const upload = (name: string) =>
  admin.addAsset({
    companyId: 'bench',
    name,
    mimeType: 'application/octet-stream',
    assetType: 'documents',
    uploadDate: Date.UTC(2024, 0, 1),
    thumbnail: false,
    content: { seed: name, size },
  });
const mediaRequests = async (assetId: string) => (await admin.requests({ assetId, endpoint: 'media' })).length;

let mirror = await start();
await admin.addCompany({ id: 'bench', name: 'Bench', userIds: [library.users[0]!.id] });
for (let i = 0; i < files; i++) await upload(`many-${i}.bin`);
const began = performance.now();
const connection = await stage.connect();
const samples: number[] = [];
const sampling = setInterval(() => samples.push(mebibytes(mirror.pid, 'VmRSS')), 500);
const seconds = ((await stage.mirrored(files)) - began) / 1000;
clearInterval(sampling);
const quarter = (n: number) => {
  const part = samples.slice(Math.floor((samples.length * n) / 4), Math.floor((samples.length * (n + 1)) / 4));
  return part.length === 0 ? '–' : number(part.reduce((sum, value) => sum + value, 0) / part.length);
};
const atOnce = [
  `${files} × ${gib} GiB at once`,
  `${number(seconds)} s, ${number((files * size) / 2 ** 20 / seconds)} MiB/s, ${number(cpuSeconds(mirror.pid))} CPU s`,
  `peak RSS ${number(mebibytes(mirror.pid, 'VmHWM'))} MiB; mean of each quarter ${[0, 1, 2, 3].map(quarter).join(', ')} MiB`,
];
console.log(atOnce.join('  '));
rmSync(join(stage.directory, 'mirror', 'bench'), { recursive: true, force: true });

// One file, and a SIGKILL at half.
const { id } = await upload('killed.bin');
await stage.operator(`/connections/${connection}/resync`, { mode: 'incremental', since: 0 });
const drafts = join(stage.directory, 'mirror', '.asset-mirror-tmp');
const partsDone = () => {
  try {
    const name = readdirSync(drafts).find((entry) => entry.endsWith('.parts'));
    return name ? readFileSync(join(drafts, name), 'utf8').split('\n').length - 1 : 0;
  } catch {
    return 0;
  }
};
const parts = Math.ceil(size / 2 ** 24);
while (partsDone() < parts / 2) await sleep(20);
await stage.ended(mirror, 'SIGKILL');
const kept = partsDone();
const before = await mediaRequests(id);
mirror = await start();
const again = performance.now();
const whole = ((await stage.mirrored(files + 1)) - again) / 1000;
const after = (await mediaRequests(id)) - before;
const killed = [
  `${gib} GiB, SIGKILL with ${kept} of ${parts} parts stored`,
  `whole ${number(whole)} s after the next start`,
  // The first request only gets the length.
  `${after} parts fetched then (${parts - kept} were missing), ${before - 1 + after - parts} of ${parts} fetched twice`,
];

write('large-files', {
  title: 'Large files',
  charts: [
    {
      kind: 'bars',
      title: `${files} files of ${gib} GiB at once: memory of the mirror`,
      panels: [
        {
          title: 'Mean of each quarter of the time (RSS), MiB',
          rows: [0, 1, 2, 3].flatMap((n) => {
            const value = Number(quarter(n));
            return Number.isNaN(value) ? [] : [{ label: `quarter ${n + 1}`, value, text: number(value), ours: true }];
          }),
        },
      ],
    },
  ],
  text: `
Library, mirror and PostgreSQL on one machine, objects in a directory.

${table(['what', 'time', 'memory, and what was fetched again'], [atOnce, killed])}
`,
  ground: await ground([], [stage.postgresVersion]),
});
