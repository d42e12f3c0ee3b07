import { readFile } from 'node:fs/promises';
import { join } from 'node:path';
import { gunzipSync } from 'node:zlib';
import { type DuckDBConnection, DuckDBInstance } from '@duckdb/node-api';
import { afterAll, beforeAll, describe, expect, test } from 'vitest';
import { writeInventory } from '../../../src/verify/publish/inventory.ts';
import type { InventoryLine } from '../../../src/verify/publish/inventory-line.ts';
import type { Manifest } from '../../../src/verify/publish/manifest.ts';
import type { ListedAsset, Upload } from '../../support/library.ts';
import { contentOf } from '../../support/mirror.ts';
import { longAgo, newStage, type Stage } from '../../support/stage.ts';
import { workerOf } from '../../support/worker.ts';

type Row = Record<string, unknown>;

const day = '2026-01-31';
const signal = new AbortController().signal;
const page = await readFile('docs/reference/inventory-table.md', 'utf8');
const name = `Grüße \u{1F3AC} '"\\\t你好.mp4`;
const film: Partial<Upload> = {
  ...{ name, filename: name, mimeType: 'video/mp4', assetType: 'videos', projectId: 'ü', thumbnail: true },
  ...{ duration: 3.25, width: 1920, height: 1080, hasTranscript: true },
  tags: Array.from({ length: 3000 }, (_, n) => `Schlagwort ${n} 标签 \u{1F3F7}`),
  transcript: { language: 'de', durationSec: 3, text: 'Grüß Gott', vtt: 'WEBVTT\n\n', words: null },
};

describe('the inventory as a table', { timeout: 240_000 }, () => {
  let stage: Stage;
  let duckdb: DuckDBConnection;
  let folder: string;
  let manifest: Manifest;
  /** As the library lists them, by what they are. */
  const uploads: Record<string, ListedAsset> = {};

  async function query(sql: string): Promise<Row[]> {
    const plain = (value: unknown) => (typeof value === 'bigint' ? Number(value) : value);
    const rows = (await duckdb.runAndReadAll(sql)).getRowObjectsJS();
    return rows.map((row) => Object.fromEntries(Object.entries(row).map(([key, value]) => [key, plain(value)])));
  }
  const row = async (what: string) =>
    (await query(`SELECT * FROM assets WHERE asset_id = '${uploads[what]!.id}'`))[0] as Row;
  const linesOf = async (name: string): Promise<InventoryLine[]> =>
    gunzipSync((await contentOf(stage.ground.storage, `_mirror/inventory/${day}/${name}`))!)
      .toString()
      .trimEnd()
      .split('\n')
      .map((line) => JSON.parse(line));

  beforeAll(async () => {
    stage = await newStage();
    const { admin, ground, store, mirror } = stage;
    const { companyId, connectionId } = await stage.company();
    await admin.addProject({ id: 'ü', companyId, name: 'Projekt „Ü“' });
    const upload = async (what: string, asset: Partial<Upload> = {}) => {
      const plain = { name: what, mimeType: 'text/plain', assetType: 'documents', thumbnail: false };
      uploads[what] = await admin.addAsset({ companyId, ...plain, uploadDate: longAgo, ...asset });
    };
    await upload('film', film);
    for (let n = 0; n < 8; n++) await upload(`document ${n}`, { tags: n % 2 ? [] : ['a', `b${n}`] });
    await upload('unavailable', { status: 'unavailable' });
    await upload('strange', {
      uploadDate: 9e15,
      override: { tags: ['a', 7], duration: 'long', width: 1.5, height: 1e300, projectName: { of: 'nothing' } },
    });
    await upload('stranger', { override: { tags: { a: 1 }, duration: true, width: '7', projectName: null } });
    for (const what of ['pending', 'skipped', 'gone']) await upload(what);
    await stage.sync(connectionId, 'full');
    const worker = workerOf(stage);
    const { pending, skipped, unavailable, ...others } = uploads;
    await worker.work(unavailable!.id);
    for (const { id } of Object.values(others)) await worker.complete(id);
    await worker.close();
    await stage.query("UPDATE assets SET state = 'gone', next_at = NULL WHERE id = $1", [uploads.gone!.id]);
    const reason = { code: 'skipped_by_filter', list: 'exclude', field: 'type', value: 'documents' };
    await stage.query('UPDATE assets SET reason = $2, next_at = NULL WHERE id = $1', [skipped!.id, reason]);
    await stage.query('UPDATE assets SET size = 5000000000000 WHERE id = $1', [pending!.id]);

    const { log } = mirror.service.context;
    const sizes = { pageSize: 4, fileSize: 7, rowGroupSize: 3 };
    const retention = { keepVersions: Number.POSITIVE_INFINITY, goneRetention: Number.POSITIVE_INFINITY };
    const deps = { store, storage: ground.storage, log, ...retention, ...sizes };
    manifest = await writeInventory(deps, { day, now: new Date(), signal });
    folder = join(ground.environment.STORAGE_URL!.slice('file://'.length), '_mirror/inventory', day);
    duckdb = await (await DuckDBInstance.create()).connect();
    await query(`CREATE VIEW assets AS SELECT * FROM '${folder}/parquet/*.parquet'`);
  });
  afterAll(async () => {
    duckdb?.closeSync();
    await stage?.close();
  });

  test('each Parquet file has the assets of its JSON lines, with the same values, in row groups of bounded size', async () => {
    const date = (iso: string | null) => (iso === null ? null : new Date(iso));
    const rowOf = ({ objects, ...line }: InventoryLine): Row => {
      const [media] = objects;
      const keys = objects.map(({ key }) => key);
      return {
        asset_id: line.id,
        asset_name: line.name,
        company_id: line.companyId,
        project_id: line.projectId,
        connection_id: line.connectionId,
        uploaded_at: date(line.uploadDate),
        state: line.state,
        reason: line.reason,
        reason_code: line.reasonCode,
        mirrored_at: date(line.mirroredAt),
        verified_at: date(line.verifiedAt),
        stored_bytes: media ? objects.reduce((sum, { bytes }) => sum + bytes!, 0) : null,
        media_bytes: media?.bytes ?? null,
        media_key: media?.key ?? null,
        crc32: media?.crc32 ?? null,
        sha256: media?.sha256 ?? null,
        record_key: keys.find((key) => key.endsWith('.asset.json')) ?? null,
        thumbnail_state: line.thumbnail,
        thumbnail_key: keys.find((key) => key.includes('.thumbnail.')) ?? null,
        transcript_state: line.transcript,
        transcript_keys: keys.filter((key) => /\.(vtt|txt|transcript\.json)$/.test(key)),
      };
    };
    expect(manifest.parquet.map(({ assets }) => assets)).toEqual([7, 7, 1]);
    for (const [index, { name, assets, bytes }] of manifest.parquet.entries()) {
      const lines = await linesOf(manifest.files[index]!.name);
      const found = await query(`SELECT * FROM '${folder}/${name}'`);
      expect(found).toEqual(lines.map((line) => expect.objectContaining(rowOf(line))));
      expect(found).toHaveLength(assets);
      expect((await readFile(join(folder, name))).length).toBe(bytes);
      const groups = await query(
        `SELECT DISTINCT row_group_id, row_group_num_rows AS n FROM parquet_metadata('${folder}/${name}') ORDER BY 1`,
      );
      expect(groups.map(({ n }) => n)).toEqual({ 7: [3, 3, 1], 1: [1] }[assets]);
    }
    expect(await query('SELECT sum(stored_bytes)::BIGINT AS bytes FROM assets')).toEqual([{ bytes: manifest.bytes }]);
  });

  test('names, tags and measures are those of the library', async () => {
    const asset = uploads.film!;
    expect(await row('film')).toMatchObject({
      asset_name: name,
      company_name: `The company ${(await row('film')).company_id}`,
      project_name: 'Projekt „Ü“',
      asset_type: 'videos',
      mime_type: 'video/mp4',
      tags: film.tags,
      ...{ size: asset.size, duration: 3.25, width: 1920, height: 1080, skipped: false, variant: 'original' },
    });
    expect((await row('film')).transcript_keys).toHaveLength(3);
    for (let n = 0; n < 8; n++) {
      const { tags, size, width, duration } = await row(`document ${n}`);
      expect({ tags, size, width, duration }).toEqual({
        tags: uploads[`document ${n}`]!.tags,
        size: `document ${n}`.length,
        width: null,
        duration: null,
      });
    }
  });

  test('an asset that is not in the bucket has null in place of what is unknown', async () => {
    const nothing = { media_key: null, media_bytes: null, stored_bytes: null, variant: null, crc32: null, etag: null };
    const never = { mirrored_at: null, verified_at: null, gone_at: null };
    expect(await row('pending')).toMatchObject({ ...nothing, ...never, size: 5e12, state: 'pending', skipped: false });
    expect(await row('skipped')).toMatchObject({ ...nothing, ...never, skipped: true });
    expect(await row('unavailable')).toMatchObject({ ...nothing, ...never, state: 'unavailable' });
    const gone = await row('gone');
    expect(gone).toMatchObject({ state: 'gone', media_key: expect.any(String), gone_at: expect.any(Date) });
    expect(Math.abs(Date.now() - (gone.gone_at as Date).getTime())).toBeLessThan(600_000);
  });

  test('a value of another type than its column is null', async () => {
    const none = { tags: null, duration: null, width: null, project_name: null };
    expect(await row('strange')).toMatchObject({ ...none, height: null, uploaded_at: null, state: 'mirrored' });
    expect(await row('stranger')).toMatchObject({ ...none, uploaded_at: new Date(longAgo), state: 'mirrored' });
  });

  test('docs/reference/inventory-table.md lists every column with its type, also for Amazon Athena', async () => {
    const names: Record<string, string> = { VARCHAR: 'string', 'VARCHAR[]': 'array<string>' };
    const columns = (await query('DESCRIBE assets')).map(({ column_name, column_type }) => {
      const type = column_type as string;
      return `${column_name} ${names[type] ?? type.toLowerCase()}`;
    });
    const documented = [...page.matchAll(/^\| `(\w+)` +\| `([\w<>]+)` +\|/gm)].map(
      ([, name, type]) => `${name} ${type}`,
    );
    expect(documented).toEqual(columns);
    const [, statement] = /CREATE EXTERNAL TABLE inventory \(([^)]+)\)/.exec(page)!;
    expect(statement!.split(',').map((column) => column.trim())).toEqual(columns);
  });

  test('the queries of docs/reference/inventory-table.md find what they say', async () => {
    const [view, ...queries] = [...page.matchAll(/```sql\n([\s\S]*?)```/g)].map(([, sql]) => sql!);
    await query('DROP VIEW assets');
    await query(view!.replace(`_mirror/inventory/${day}`, folder));
    const [projects, missing, tags] = await Promise.all(queries.map(query));
    expect(projects!.map(({ project_name, assets }) => [project_name, assets])).toEqual([
      ['Projekt „Ü“', 1],
      [null, 14],
    ]);
    expect(projects!.reduce((sum, { bytes }) => sum + Number(bytes), 0)).toBe(manifest.bytes);
    expect(missing!.map(({ asset_name }) => asset_name)).toEqual(['pending']);
    expect(tags!.find(({ tag }) => tag === 'a')).toMatchObject({ assets: 4 });
    expect(tags).toHaveLength(3000 + 5);
  });
});
