import { because } from '../../../src/floor/reasons.ts';
import { png } from '../../../src/library/content/formats/images.ts';
import { chunksOf } from '../../../src/library/index.ts';
import type { Held } from '../content.ts';
import type { World } from '../world.ts';
import type { Finding, Row } from './finding.ts';
import { digestOf, digestOfChunks, type Objects, textOf } from './objects.ts';

/** Reports a problem of one asset. */
type Say = (text: string) => unknown;

/** The objects in the bucket, and the sizes of those that are there. */
interface Bucket {
  objects: Objects;
  there: Map<string, number>;
}

/** A file in the records, with all that must be in the bucket. */
interface Copy {
  asset: Held;
  row: Row;
  media: NonNullable<Row['media']>;
  recordKey: string;
  expected: { seed: string; size: number };
}

const MiB = 2 ** 20;

export async function bytesAreExact(
  world: World,
  rows: Row[],
  objects: Objects,
  there: Map<string, number>,
): Promise<Finding> {
  const problems: string[] = [];
  const bucket = { objects, there };
  const byId = new Map(rows.map((row) => [row.id, row]));
  const seen = { exact: 0, bytes: 0, transcripts: 0, thumbnails: 0, removed: 0, without: 0 };
  for (const asset of world.content.held.values()) {
    const { plan } = asset;
    const row = byId.get(plan.id);
    const say = (text: string) => problems.push(`${plan.id} (${plan.kind}): ${text}`);
    if (asset.removed) seen.removed++;
    else if (row && asset.status === 'unavailable') seen.without++;
    const copy = copyOf(asset, row, say);
    if (!copy || !(await mediaIsExact(copy, bucket, say))) continue;
    seen.exact++;
    seen.bytes += copy.expected.size;
    await checkRecord(copy, bucket, say);
    if (asset.transcript && !asset.removed) {
      seen.transcripts++;
      await checkTranscript(copy, asset.transcript, bucket, say);
    }
    if (/photograph|graphic|video/.test(plan.kind)) {
      seen.thumbnails++;
      await checkThumbnail(copy, bucket, say);
    }
  }
  return {
    what: 'each asset is in the bucket byte for byte, or has a true reason',
    seen: `${seen.exact} files, ${Math.round(seen.bytes / MiB)} MiB; ${seen.transcripts} transcripts, ${seen.thumbnails} thumbnails; ${seen.without} without a file, ${seen.removed} removed`,
    problems,
  };
}

/** The copy that an asset must have. Without one, the reason in the records must be true. */
function copyOf(asset: Held, row: Row | undefined, say: Say): Copy | undefined {
  if (asset.removed) {
    // Copied files stay; others can no longer be copied.
    const honest =
      !row ||
      ['mirrored', 'gone', 'unavailable'].includes(row.state) ||
      (row.state === 'failed' && row.reason?.code === 'http_status' && [404, 410].includes(row.reason.status));
    if (!honest) say(`was removed at the library, and is ${row.state}${because(row.reason)}`);
    if (row?.state !== 'mirrored' && row?.state !== 'gone') return undefined;
    if (!row.media || !row.record_key) return undefined;
  } else if (!row) {
    say('is not in the records');
    return undefined;
  } else if (asset.status === 'unavailable') {
    if (row.state !== 'unavailable' || row.reason?.code !== 'no_file')
      say(`has no file, and is ${row.state}${because(row.reason)}`);
    return undefined;
  } else if (row.state !== 'mirrored') {
    say(`is ${row.state}${because(row.reason)}`);
    return undefined;
  }
  const { media, record_key: recordKey } = row;
  const expected = asset.plan.originalGone ? asset.mp4! : asset.content;
  if (!media || !recordKey) {
    say('is mirrored without media or record');
    return undefined;
  }
  return { asset, row, media, recordKey, expected };
}

async function mediaIsExact({ asset, media, expected }: Copy, { objects, there }: Bucket, say: Say): Promise<boolean> {
  const { plan } = asset;
  const place = `${plan.companyId}/${plan.projectId ?? '_'}/${plan.id}/`;
  if (!media.key.startsWith(place)) say(`lies at ${media.key}, not below ${place}`);
  if (media.variant !== (plan.originalGone ? 'mp4' : 'original')) say(`is the ${media.variant}`);
  if (there.get(media.key) !== expected.size) {
    say(`${media.key} has ${there.get(media.key) ?? 'no'} bytes of ${expected.size}`);
    return false;
  }
  if ((await digestOf(await objects.read(media.key))) !== digestOfChunks(chunksOf(expected.seed, 0, expected.size))) {
    say(`${media.key} has other bytes`);
    return false;
  }
  return true;
}

async function checkRecord({ asset, media, recordKey, expected }: Copy, { objects }: Bucket, say: Say): Promise<void> {
  const record = JSON.parse(await textOf(await objects.read(recordKey)));
  const truth = {
    id: asset.plan.id,
    name: asset.name,
    size: asset.content.size,
    uploadDate: asset.uploadDate,
  };
  if (!asset.removed) {
    for (const [field, value] of Object.entries(truth)) {
      if (record.asset[field] !== value)
        say(`its record says ${field} ${JSON.stringify(record.asset[field])}, not ${JSON.stringify(value)}`);
    }
  }
  if (record.media.key !== media.key || record.media.bytes !== expected.size) say('its record describes other media');
}

async function checkTranscript(
  { asset, row, media }: Copy,
  said: NonNullable<Held['transcript']>,
  { objects, there }: Bucket,
  say: Say,
): Promise<void> {
  if ('noSpeech' in said) {
    if (row.transcript_state !== 'no_speech') say(`has no speech, and its transcript is ${row.transcript_state}`);
  } else if (row.transcript_state !== 'mirrored') {
    say(`its transcript is ${row.transcript_state}`);
  } else {
    const wanted = { vtt: said.vtt, txt: said.text };
    for (const [ending, text] of Object.entries(wanted)) {
      const key = `${media.key}.${ending}`;
      if (!there.has(key) || (await textOf(await objects.read(key))) !== text) say(`${key} is not the transcript`);
    }
    const key = `${media.key}.transcript.json`;
    const json = there.has(key) ? JSON.parse(await textOf(await objects.read(key))) : {};
    if (json.assetId !== asset.plan.id || json.text !== said.text) say(`${key} is not the transcript`);
  }
}

async function checkThumbnail({ asset, row }: Copy, { objects, there }: Bucket, say: Say): Promise<void> {
  const picture = png(96, 64, asset.plan.id);
  const key = row.thumbnail?.key;
  if (row.thumbnail_state !== 'mirrored' || !key || !there.has(key)) {
    if (!asset.removed) say(`its thumbnail is ${row.thumbnail_state}`);
  } else if ((await digestOf(await objects.read(key))) !== digestOfChunks([picture])) say(`${key} is another picture`);
}
