import { asset } from './asset.ts';
import { authorize } from './authorize.ts';
import type { Mutation } from './faults.ts';
import { signedLinks } from './links.ts';
import { list } from './list.ts';
import { registration } from './registration.ts';
import { resources } from './resources.ts';
import { tokens } from './tokens.ts';
import { transcripts } from './transcripts.ts';

/** All mutations, in the order of the checks. */
export const MUTATIONS: Mutation[] = [
  ...registration,
  ...authorize,
  ...resources,
  ...list,
  ...asset,
  ...transcripts,
  ...tokens,
  ...signedLinks,
];
