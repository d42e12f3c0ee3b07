import type { Source } from '../catalogue.ts';
import type { Asset, Company, Project, User } from '../model.ts';

/** Made-up files, a folder of one's own, or a formula for as many assets as wanted. */
export type ContentOption =
  | { samples: number; seed?: number }
  | { media: string }
  | { synthetic: number; seed?: number; sizes?: [number, number] };

/** What a library holds when it starts. */
export type Content = {
  users: (User & { companies: string[] })[];
  companies: Company[];
  projects: Project[];
  assets: Asset[];
  /** Assets that are not held in memory. */
  sources: Source[];
  close?: () => Promise<void>;
};

export const ADA: User = { id: 'usr_ada', name: 'Ada Lindqvist', email: 'ada@example.com' };

/** The newest upload of all content that is made up: fixed, so that every start makes the same library. */
export const NEWEST = Date.UTC(2025, 9, 1, 16, 20);

/** When what is not there yet comes: milliseconds since the start. */
export type Delays = { transcode: number; transcript: number };

/** A library of one user, whose companies are given. */
export function contentOfAda(companies: Company[], sources: Source[] = []): Content {
  return {
    users: [{ ...ADA, companies: companies.map(({ id }) => id) }],
    companies,
    projects: [],
    assets: [],
    sources,
  };
}
