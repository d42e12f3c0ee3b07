import { ASSET_TYPES, type Asset, type Company, isVideo, newAsset, type Project, type User } from '../model.ts';
import { ADA, type Content, type Delays, NEWEST } from './content.ts';
import { nameOf, tagsOf } from './names.ts';
import { randomOf } from './random.ts';
import * as make from './sample-files.ts';
import { speech } from './speech.ts';
import { placeholder } from './thumbnail.ts';

const SPREAD = 270 * 24 * 3600 * 1000;

const MAKERS: Record<string, make.Maker[]> = {
  videos: [make.clip, make.camera, make.screen],
  selects: [make.camera, make.landscape, make.clip],
  social: [make.story, make.square, make.portrait],
  photography: [make.landscape, make.portrait, make.square],
  graphics: [make.picture, make.drawing],
  audio: [make.tone, make.jingle, make.tone],
  documents: [make.paper, make.letter, make.archive],
  'brand assets': [make.drawing, make.paper, make.archive, make.picture],
};

const COMPANIES: { company: Company; projects: string[] }[] = [
  {
    company: { id: 'cmp_nordlicht', name: 'Nordlicht Film GmbH' },
    projects: ['Summer Campaign 2025', 'Ærø Documentary', 'Podcast: Gespräche', 'Brand Refresh'],
  },
  {
    company: { id: 'cmp_kumo', name: 'Kumo Studio 雲' },
    projects: ['Product Launch', '社内イベント', 'Press & Events'],
  },
];

const KENJI: User = { id: 'usr_kenji', name: 'Kenji Mori', email: 'kenji@example.com' };

/**
 * The library of a small agency, with real files of all eight types and special cases: processing videos, missing
 * originals and files, late transcripts. The same seed makes the same ids, names, dates and bytes.
 */
export function samples(count: number, seed: number, startedAt: number, delays: Delays): Content {
  const projects = COMPANIES.flatMap(({ company, projects }) =>
    projects.map((name, i) => ({
      id: `prj_${company.id.slice(4)}_${i + 1}`,
      companyId: company.id,
      name,
      status: name === 'Brand Refresh' ? 'archived' : 'active',
    })),
  );
  return {
    users: [
      { ...ADA, companies: COMPANIES.map(({ company }) => company.id) },
      { ...KENJI, companies: ['cmp_kumo'] },
    ],
    companies: COMPANIES.map(({ company }) => company),
    projects,
    assets: Array.from({ length: count }, (_, i) => sampleAsset(i, count, seed, projects, startedAt, delays)),
    sources: [],
  };
}

function sampleAsset(
  i: number,
  count: number,
  seed: number,
  projects: Project[],
  startedAt: number,
  delays: Delays,
): Asset {
  const random = randomOf('sample', seed, i);
  const assetType = ASSET_TYPES[i % ASSET_TYPES.length]!;
  const ordinal = Math.floor(i / ASSET_TYPES.length);
  const makers = MAKERS[assetType]!;
  const id = `ast_${random.hex(20)}`;
  const original = makers[ordinal % makers.length]!(`${assetType} ${i}`, random);
  const project = random.pick(projects);
  const filename = nameOf(assetType, original.extension, i, random);
  const isProcessing = isVideo(original.body.type) && assetType === 'videos' && ordinal < 3;
  const isUnavailable = i === 13 || i === 44;
  const step = SPREAD / count;
  return newAsset({
    id,
    companyId: project.companyId,
    project: { id: project.id, name: project.name },
    name: random.next() < 0.3 ? filename.replace(/\.\w+$/, '') : filename,
    filename,
    mimeType: original.body.type,
    assetType,
    tags: tagsOf(random),
    uploadDate: Math.round(NEWEST - (i + random.next() * 0.9) * step),
    status: isUnavailable ? 'unavailable' : isProcessing ? 'processing' : 'ready',
    readyAt: isProcessing ? startedAt + (delays.transcode * (ordinal + 1)) / 3 : null,
    size: isUnavailable ? 0 : original.body.size,
    duration: original.duration ?? null,
    width: original.width ?? null,
    height: original.height ?? null,
    original: isUnavailable ? null : () => original.body,
    originalGone: original.mp4 !== undefined && ordinal % 7 === 4,
    mp4: original.mp4 ? () => original.mp4! : null,
    thumbnail: original.thumbnail ?? placeholder(filename),
    ...transcriptOf(`${seed} ${i}`, original.duration, ordinal, startedAt + delays.transcript),
  });
}

/** In turn: with words, without words, no speech, exists later, exists later but announced, none. */
function transcriptOf(name: string, duration: number | undefined, ordinal: number, late: number): Partial<Asset> {
  if (duration === undefined) return {};
  const kinds = [
    { transcript: speech(name, duration, true) },
    { transcript: speech(name, duration, false) },
    { transcript: { noSpeech: true as const } },
    { transcript: speech(name, duration, true), transcriptAt: late },
    { transcript: speech(name, duration, true), transcriptAt: late, hasTranscript: true },
    {},
  ];
  return kinds[ordinal % kinds.length]!;
}
