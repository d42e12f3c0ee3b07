import { type FaultKind, faultKinds } from './faults.ts';
import { createRandom, type Random } from './prng.ts';

type StoreKind = 'directory' | 's3';

/** The plan of a run. The same options always make the same plan. */
export interface Options {
  seed: number;
  assets: number;
  faults: number;
  store: StoreKind;
}

/** The upload date of an asset, relative to its upload. */
type Dating =
  /** Long before the connection. */
  | { kind: 'history'; ago: number }
  | { kind: 'now' }
  /** In the same millisecond as others. */
  | { kind: 'together' }
  /** In the past by the drift of a clock. */
  | { kind: 'slow'; ago: number }
  /** So far in the past that only a full sync finds it. */
  | { kind: 'late'; ago: number }
  | { kind: 'future'; ahead: number };

type Kind = 'photograph' | 'document' | 'graphic' | 'sound' | 'video' | 'large' | 'empty';

/** An asset and its changes. Wave 0 is before the first user connects. */
export interface PlannedAsset {
  id: string;
  companyId: string;
  projectId: string | null;
  kind: Kind;
  name: string;
  size: number;
  wave: number;
  date: Dating;
  /** Without a file, until `attachedIn` or for good. */
  unavailable: boolean;
  attachedIn: number | null;
  /** Of a video that is transcoded first. */
  readyIn: number | null;
  /** Only the rendition is left. */
  originalGone: boolean;
  mp4Size: number | null;
  /** null: there is never one. */
  transcript: { speech: boolean; wave: number } | null;
  replacedIn: number | null;
  replacedSize: number;
  renamedIn: number | null;
  removedIn: number | null;
}

export interface PlannedFault {
  number: number;
  kind: FaultKind;
  /** Random details of the fault. */
  details: Record<string, number | string>;
  /** Starts after this number of the mirror's requests, or after a few seconds. */
  after: number;
  /** Milliseconds. */
  holds: number;
  /** The next one does not wait for its end. */
  alongside: boolean;
}

export interface Plan {
  assets: PlannedAsset[];
  faults: PlannedFault[];
}

export const users = [
  { id: 'ines', companies: ['north', 'east'] },
  { id: 'jon', companies: ['north', 'west'] },
  { id: 'kim', companies: ['south'] },
];
export const companies = ['north', 'east', 'west', 'south'];
export const projects = companies.flatMap((companyId) =>
  [1, 2].map((n) => ({ id: `${companyId}-${n}`, companyId, name: `Project ${n} of ${companyId}` })),
);

export function makePlan(options: Options): Plan {
  const name = (what: string) => createRandom(`${options.seed} ${what}`);
  return { assets: planAssets(options, name('assets')), faults: planFaults(options, name('faults')) };
}

const minute = 60_000;
const MiB = 2 ** 20;
const names = [
  'Harbour at dawn',
  'Übersicht',
  '製品写真',
  'a/b\\c',
  'Café — été',
  'final (2)',
  '.hidden',
  'x'.repeat(230),
];
const extensions: Record<Kind, string> = {
  photograph: 'jpg',
  document: 'pdf',
  graphic: 'png',
  sound: 'wav',
  video: 'mov',
  large: 'zip',
  empty: 'bin',
};

function planAssets({ assets, faults }: Options, random: Random): PlannedAsset[] {
  const large = Math.max(1, Math.round(assets / 120));
  const first = Math.round(assets * 0.3);
  return Array.from({ length: assets }, (_, n) => {
    // The large ones are spread over the whole run.
    const isLarge = n % Math.floor(assets / large) === Math.floor(assets / large / 2);
    const wave = n < first ? 0 : 1 + Math.floor(((n - first) * faults) / (assets - first));
    const later = (share: number) => (random.chance(share) && wave < faults ? random.between(wave + 1, faults) : null);
    const kind: Kind = isLarge
      ? 'large'
      : random.pick([
          ...Array<Kind>(9).fill('photograph'),
          ...Array<Kind>(3).fill('document'),
          ...Array<Kind>(2).fill('graphic'),
          ...Array<Kind>(2).fill('sound'),
          ...Array<Kind>(4).fill('video'),
          random.chance(0.2) ? 'empty' : 'document',
        ]);
    const companyId = random.pick(companies);
    const size = kind === 'empty' ? 0 : isLarge ? 33 * MiB + random.between(1, 8 * MiB) : random.between(1, 200_000);
    const timed = kind === 'video' || kind === 'sound';
    const unavailable = !timed && !isLarge && random.chance(0.02);
    const speaks = timed && random.chance(0.8) ? { speech: random.chance(0.8) } : null;
    const changes = unavailable || timed ? 1 : random.next();
    return {
      id: `asset-${String(n).padStart(4, '0')}`,
      companyId,
      projectId: random.chance(0.7) ? `${companyId}-${random.between(1, 2)}` : null,
      kind,
      name: `${random.chance(0.15) ? random.pick(names) : `File ${n}`}.${extensions[kind]}`,
      size,
      wave,
      date: wave === 0 ? { kind: 'history', ago: random.between(60, 60 * 24 * 400) * minute } : dating(random),
      unavailable,
      attachedIn: unavailable ? later(0.5) : null,
      readyIn: kind === 'video' ? later(0.4) : null,
      originalGone: kind === 'video' && random.chance(0.25),
      mp4Size: kind === 'video' ? random.between(1000, 150_000) : null,
      transcript: speaks && { ...speaks, wave: later(0.6) ?? wave },
      replacedIn: changes < 0.06 ? later(1) : null,
      replacedSize: isLarge ? size + 12_345 : random.between(200_001, 300_000),
      renamedIn: changes >= 0.06 && changes < 0.11 ? later(1) : null,
      removedIn: changes >= 0.11 && changes < 0.14 ? later(1) : null,
    };
  });
}

function dating(random: Random): Dating {
  const n = random.next();
  if (n < 0.7) return { kind: 'now' };
  if (n < 0.8) return { kind: 'together' };
  if (n < 0.88) return { kind: 'slow', ago: random.between(1, 8) * minute };
  if (n < 0.94) return { kind: 'late', ago: random.between(60, 600) * minute };
  return { kind: 'future', ahead: random.between(30, 300) * minute };
}

/** Uses every kind once before it repeats one. */
function planFaults({ faults, store }: Options, random: Random): PlannedFault[] {
  const kinds = faultKinds.filter((kind) => kind.only === undefined || kind.only === store);
  const deck: FaultKind[] = [];
  while (deck.length < faults) deck.push(...random.shuffled(kinds));
  return deck.slice(0, faults).map((kind, i) => ({
    number: i + 1,
    kind,
    details: kind.draw?.(random) ?? {},
    after: random.between(4, 40),
    holds: random.between(...kind.holds),
    alongside: random.chance(kind.holds[1] > 10_000 ? 1 : 0.4),
  }));
}
