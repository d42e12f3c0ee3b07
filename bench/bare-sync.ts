import { Queue, Worker } from 'bullmq';
import { Redis } from 'ioredis';
import pg from 'pg';
import { request } from 'undici';

/**
 * The least that a sync without news takes in Node.js with these libraries: a job by its schedule, two requests, and three
 * statements that do nothing. It checks and stores nothing. It reports the number of syncs on request.
 */
export interface BareSync {
  redisUrl: string;
  databaseUrl: string;
  origin: string;
  since: number;
  every: number;
  /** The number of schedules, spread over `every` ms. */
  schedules: number;
}

const { redisUrl, databaseUrl, origin, since, every, schedules } = JSON.parse(process.argv[2]!) as BareSync;
const connection = new Redis(redisUrl, { maxRetriesPerRequest: null });
const database = new pg.Pool({ connectionString: databaseUrl });
const queue = new Queue('bare', { connection });
for (let i = 0; i < schedules; i++) {
  const offset = Math.floor((i * every) / schedules);
  await queue.upsertJobScheduler(`bare-${i}`, { every, offset }, { name: 'bare' });
}
let done = 0;
const headers = { authorization: 'Bearer svca_1' };
const statement = (value: number) => database.query({ name: 'bare', text: 'SELECT $1::int AS n', values: [value] });
new Worker(
  'bare',
  async () => {
    await statement(1);
    await (await request(`${origin}/api/v1/me`, { headers })).body.json();
    await statement(2);
    const list = `${origin}/api/v1/companies/company-1/assets?limit=100&since=${since}`;
    await (await request(list, { headers })).body.json();
    await statement(3);
    done++;
  },
  { connection, concurrency: 10 },
);
process.on('message', () => process.send!(done));
process.on('disconnect', () => process.exit());
process.send!('ready');
