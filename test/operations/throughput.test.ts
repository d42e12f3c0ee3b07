import { afterAll, beforeAll, expect, test, vi } from 'vitest';
import type { History, Upcoming } from '../../src/http/dashboard/types.d.ts';
import { historyOperations, widthAfter } from '../../src/operations/status/throughput.ts';
import { newStage, type Stage } from '../support/stage.ts';
import { until } from '../support/until.ts';

let stage: Stage;
let companyId: string;
let connectionId: string;
beforeAll(async () => {
  stage = await newStage();
  ({ companyId, connectionId } = await stage.company());
  await stage.upload(companyId, 8);
  await stage.sync(connectionId);
});
afterAll(async () => {
  await stage?.close();
});

const history = (range: string) => stage.mirror.api<History>('GET', `/history?range=${range}`);
/** All minutes; one answer reads as many as it has time for. */
const whole = (range: string) =>
  until(`the ${range} to be added up`, async () => {
    const answer = await history(range);
    return answer.complete && answer;
  });
/** The current minute. */
const present = Math.floor(Date.now() / 60_000) * 60_000;
/** The points that are not empty: minutes ago, and the counts. */
const what = ({ points }: History) =>
  points.flatMap(({ at, assets, bytes, failed }) =>
    assets + failed > 0 ? [[(present - Date.parse(at)) / 60_000, assets, bytes, failed]] : [],
  );
const ago = (minutes: number) => new Date(present - minutes * 60_000);
async function mirrored(id: string, minutesAgo: number, bytes: number) {
  await stage.query(
    `UPDATE assets SET state = 'mirrored', next_at = NULL, bytes = $3, mirrored_at = $2 WHERE id = $1`,
    [id, ago(minutesAgo), bytes],
  );
}

test('throughput is read in steps of whole minutes, however fast the database is', () => {
  let width = 15 * 60_000;
  for (const ms of [100, 100, 100, 1, 1, 100, 1, 100, 100, 100, 100]) {
    width = widthAfter(width, ms);
    expect([width % 60_000, width >= 60_000]).toEqual([0, true]);
  }
});

test('throughput has one point per minute up to now, and past points stay unchanged', async () => {
  const [one, two, three, four] = await stage.ids(companyId);
  await mirrored(one!, 10, 100);
  await mirrored(two!, 10, 200);
  await mirrored(three!, 500, 1000);
  await stage.query(`INSERT INTO events (kind, at) VALUES ('asset.failed', $1), ('asset.gone', $1)`, [ago(20)]);
  const hour = await whole('hour');
  expect([hour.step, hour.points.length, hour.complete]).toEqual([60, 60, true]);
  expect(what(hour)).toEqual([
    [20, 0, 0, 1],
    [10, 2, 300, 0],
  ]);

  await mirrored(four!, 0, 7);
  await mirrored(one!, 0, 100);
  const again = what(await whole('hour'));
  expect(again.slice(0, 2)).toEqual([
    [20, 0, 0, 1],
    [10, 2, 300, 0],
  ]);
  expect(again.slice(2).map(([, ...brought]) => brought)).toEqual([[2, 107, 0]]);

  // Older minutes are added up step by step.
  const day = await whole('day');
  expect([day.step, day.points.length]).toEqual([900, 96]);
  expect(day.points.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(1407);
  const week = await history('week');
  expect([week.step, week.points.length]).toEqual([7200, 84]);
});

test('throughput is shown after the clock was set back', async () => {
  const { history } = historyOperations({ store: stage.store });
  const clock = vi.spyOn(Date, 'now');
  try {
    clock.mockReturnValue(present + 30 * 60_000);
    await history();
    clock.mockReturnValue(present);
    const [id] = await stage.ids(companyId);
    await mirrored(id!, 5, 900);
    const { points } = await history();
    expect(points.find(({ at }) => Date.parse(at) === present - 5 * 60_000)).toMatchObject({ assets: 1, bytes: 900 });
  } finally {
    clock.mockRestore();
  }
});

test('upcoming checks are listed with their kind and time, without those that are due', async () => {
  const ids = await stage.ids(companyId);
  const put = (id: string, minutes: number, values: string) =>
    stage.query(`UPDATE assets SET next_at = now() + $2 * interval '1 minute', ${values} WHERE id = $1`, [id, minutes]);
  await put(ids[0]!, 30, `state = 'mirrored', transcript_state = 'pending'`);
  await put(ids[1]!, 5, `state = 'mirrored', thumbnail_state = 'pending'`);
  await put(ids[2]!, 10, `state = 'processing'`);
  await put(ids[3]!, 20, `state = 'pending', reason = '{"code": "error", "text": "the line broke"}'`);
  await put(ids[4]!, 90, `state = 'processing'`);
  await put(ids[5]!, -1, `state = 'pending', reason = '{"code": "error", "text": "the line broke"}'`);
  const { assets, counts } = await stage.mirror.api<Upcoming>('GET', '/upcoming');
  expect(assets.map(({ assetId, kind, reason }) => [assetId, kind, reason?.text ?? null])).toEqual([
    [ids[1], 'thumbnail', null],
    [ids[2], 'processing', null],
    [ids[3], 'retry', 'the line broke'],
    [ids[0], 'transcript', null],
  ]);
  expect(counts).toEqual({ processing: 1, transcript: 1, thumbnail: 1, retry: 1 });
  const first = await stage.mirror.api<Upcoming>('GET', '/upcoming?limit=1');
  expect([first.assets.length, first.counts]).toEqual([1, counts]);
});
