import type { Source } from '../catalogue.ts';
import type { Asset, Company, Project, User } from '../model.ts';

/** Sample files, a folder, or any number of generated assets. */
export type ContentOption =
  | { samples: number; seed?: number }
  | { media: string }
  | { synthetic: number; seed?: number; sizes?: [number, number]; maxSize?: number };

/** What a library holds when it starts. */
export type Content = {
  users: (User & { companies: string[] })[];
  companies: Company[];
  projects: Project[];
  assets: Asset[];
  /** Assets that are not held in memory. */
  sources: Source[];
  /** About how many bytes it serves, where that is known. */
  bytes?: number;
  close?: () => Promise<void>;
};

export const ADA: User = { id: 'usr_ada', name: 'Ada Lindqvist', email: 'ada@example.com' };

/** The upload date of the newest generated asset. It is fixed, so that each start makes the same library. */
export const NEWEST = Date.UTC(2025, 9, 1, 16, 20);

/** Milliseconds from the start until videos are transcoded, and until late transcripts exist. */
export type Delays = { transcode: number; transcript: number };

/** Content with one user, who can read the given companies. */
export function contentOfAda(companies: Company[], sources: Source[] = []): Content {
  return {
    users: [{ ...ADA, companies: companies.map(({ id }) => id) }],
    companies,
    projects: [],
    assets: [],
    sources,
  };
}
